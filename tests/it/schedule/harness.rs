//! A server without a socket, and its clients.

use std::convert::Infallible;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use q36::chat::{Conversation, Message, Tool, ToolCall};
use q36::engine::{Anchors, BackendChoice, Context, Options, Prepared};
use q36::server::schedule::{Config, Error, Opened, Worker};
use q36::server::{
    Api, Calls, Continuation, Desk, Failure, Format, Inbox, Input, LogEvent, Outcome, Request,
    Sampling, State, Thinking, Update, Usage, What,
};
use q36::util::signal::Interrupt;

use crate::support::tiny_model;

/// Longer than anything here takes, short enough that a hang is a failure.
const LIMIT: Duration = Duration::from_mins(2);

/// An engine's thread at work.
pub(super) struct Server {
    pub(super) desk: Arc<Desk>,
    stop: Interrupt,
    thread: Option<JoinHandle<Result<(), Error>>>,
    events: Arc<Mutex<Vec<LogEvent>>>,
}

/// Everything that a client heard.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) updates: Vec<Update>,
    pub(super) outcome: Outcome,
}

impl Server {
    /// Starts one and waits until it serves.
    pub(super) fn start(config: Config, mut open: impl FnMut() -> Opened + Send + 'static) -> Self {
        let (jobs, received) = channel();
        let desk = Arc::new(Desk::new(jobs));
        let events = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&events);
        let log = move |event: &LogEvent| heard.lock().unwrap().push(event.clone());
        let open = move || Ok::<_, Infallible>(open());
        let worker = Worker::new(config, open, Arc::clone(&desk), received, Arc::new(log));
        let stop = Interrupt::new();
        let raised = stop.clone();
        let thread = Some(std::thread::spawn(move || worker.run(&raised)));
        let server = Self { desk, stop, thread, events };
        server.wait_until(|server| server.desk.status().state == State::Ready);
        server
    }

    /// Waits for something that the desk or the log will say.
    pub(super) fn wait_until(&self, there: impl Fn(&Self) -> bool) {
        let end = Instant::now() + LIMIT;
        while !there(self) {
            assert!(Instant::now() < end, "nothing happens: {:#?}", self.events.lock().unwrap());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Hands in a request that is taken.
    pub(super) fn submit(&self, id: &str, request: Request) -> Inbox {
        self.desk.submit(id.to_owned(), request, &[]).unwrap()
    }

    /// Hands in a request and waits for its end.
    pub(super) fn ask(&self, id: &str, request: Request) -> Heard {
        hear(self.submit(id, request)).unwrap()
    }

    /// What was said of a request.
    pub(super) fn said(&self, id: &str) -> Vec<What> {
        let events = self.events.lock().unwrap();
        let own = events.iter().filter(|event| event.request.as_deref() == Some(id));
        own.map(|event| event.what.clone()).collect()
    }

    /// What a request's prompt went on from.
    pub(super) fn continuation(&self, id: &str) -> Continuation {
        let found = self.said(id).into_iter().find_map(|what| match what {
            What::PromptStart { continuation, .. } => Some(continuation),
            What::PrefillChunk { .. }
            | What::PromptDone { .. }
            | What::Decoding { .. }
            | What::Batch { .. }
            | What::ThoughtClosed { .. }
            | What::Calls { .. }
            | What::Finish { .. }
            | What::Cache(_)
            | What::Warning(_)
            | What::State(_) => None,
        });
        found.unwrap_or_else(|| panic!("{id} has no session"))
    }

    /// How a request ended.
    pub(super) fn finish(&self, id: &str) -> Option<&'static str> {
        self.said(id).into_iter().find_map(|what| {
            let What::Finish { finish, .. } = what else { return None };
            Some(finish)
        })
    }

    /// Whether something was said of saved sessions that begins so.
    pub(super) fn has_noted(&self, start: &str) -> bool {
        let events = self.events.lock().unwrap();
        events.iter().any(|e| matches!(&e.what, What::Cache(text) if text.starts_with(start)))
    }

    /// Ends it in good order.
    pub(super) fn stop(mut self) -> Result<(), Error> {
        self.stop.raise();
        self.thread.take().expect("it is stopped once").join().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.raise();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(std::thread::panicking() || ended.is_ok());
        }
    }
}

/// Reads all updates of a request.
pub(super) fn hear(mut inbox: Inbox) -> Result<Heard, Failure> {
    let mut updates = Vec::new();
    while let Some(update) = inbox.next_blocking() {
        updates.push(update);
    }
    match updates.last() {
        Some(Update::End(outcome)) => Ok(Heard { outcome: (**outcome).clone(), updates }),
        Some(Update::Failed(failure)) => Err(failure.clone()),
        other => panic!("the last update is {other:?}"),
    }
}

impl Heard {
    /// What was said of the prompt before anything of the reply.
    pub(super) fn begun(&self) -> Usage {
        let usage = self.updates.iter().find_map(|update| {
            let Update::Begin(usage) = update else { return None };
            Some(*usage)
        });
        usage.expect("every reply begins")
    }

    /// Tokens of the prompt that were evaluated.
    pub(super) fn evaluated(&self) -> usize {
        let usage = self.outcome.usage;
        assert_eq!(self.begun().cached_tokens, usage.cached_tokens);
        usage.prompt_tokens - usage.cached_tokens
    }

    /// The reply as a client sends it back: its thought is dropped unless `thought`.
    pub(super) fn message(&self, thought: bool) -> Message {
        let calls = self.outcome.calls.iter().map(|call| ToolCall {
            id: Some(call.id.clone()),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
        });
        let message = Message::assistant(self.outcome.text.clone()).with_calls(calls.collect());
        if thought { message.with_reasoning(self.outcome.reasoning.clone()) } else { message }
    }
}

/// A chat request that is sampled greedily.
pub(super) fn chat(messages: &[Message]) -> Request {
    Request {
        api: Api::Chat,
        model: "q36".into(),
        input: Input::Chat { conversation: Conversation::new(messages.to_vec()), continues: false },
        thinking: Thinking::default(),
        sampling: Sampling { temperature: Some(0.0), seed: Some(1), ..Sampling::default() },
        limit: Some(200),
        stop: Vec::new(),
        calls: Calls::default(),
        format: Format::Text,
        logprobs: None,
        stream: true,
        affinity: None,
    }
}

/// The same without a thought.
pub(super) fn blunt(messages: &[Message]) -> Request {
    let thinking = Thinking { on: Some(false), ..Thinking::default() };
    Request { thinking, ..chat(messages) }
}

/// With a tool `f` that takes a string `s` and a whole number `n`.
pub(super) fn with_tool(mut request: Request) -> Request {
    let schema = r#"{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
        "properties": {"s": {"type": "string"}, "n": {"type": "integer"}}}}}"#;
    if let Input::Chat { conversation, .. } = &mut request.input {
        conversation.tools = vec![Tool::parse(schema).unwrap()];
    }
    request
}

/// The demo model with so many sessions and room for anchors.
pub(super) fn demo(sessions: usize, anchors: usize) -> impl FnMut() -> Opened + Send + 'static {
    move || {
        let mut options = Options::new(tiny_model());
        options.context = Context::Exactly(1024);
        options.chunk = Some(64);
        options.backend = BackendChoice::Cpu;
        options.sessions = sessions;
        options.snapshots = 1;
        options.anchors = Anchors { slots: anchors, spacing: 16 };
        let prepared = Prepared::new(options).unwrap();
        let tokenizer = Arc::new(prepared.tokenizer().unwrap());
        let engine = prepared.open(&mut |_, _| true).unwrap();
        Opened { engine: Box::new(engine), tokenizer }
    }
}
