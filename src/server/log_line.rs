//! Lines for what the engine's thread has to say (server.md 16.1).

use std::time::Duration;

use serde_json::{Number, Value};

use super::log::{LogEntry, LogWriter};
use super::{Continuation, Flags, Log, LogEvent, What};
use crate::term::Class;

impl Log for LogWriter {
    fn log(&self, event: &LogEvent) {
        self.write(&entry(event));
    }
}

/// The line of an event: what happened, then whom it is about.
fn entry(event: &LogEvent) -> LogEntry {
    let entry = what(&event.what);
    let entry =
        event.request.as_deref().into_iter().fold(entry, |entry, id| entry.with("request", id));
    event.slot.into_iter().fold(entry, |entry, slot| entry.with("slot", slot))
}

fn what(what: &What) -> LogEntry {
    match what {
        What::PromptStart { flags, continuation } => prompt_start(*flags, continuation),
        What::PrefillChunk { done, total, chunk_tps, average_tps } => {
            LogEntry::new(Class::Prefill, "prefill")
                .with("done", *done)
                .with("total", *total)
                .with("percent", percent(*done, *total))
                .with("chunk_tps", rounded(*chunk_tps))
                .with("average_tps", rounded(*average_tps))
        }
        What::PromptDone { tokens, took } => LogEntry::new(Class::Prefill, "prompt done")
            .with("tokens", *tokens)
            .with("seconds", seconds(*took)),
        What::Decoding { tokens, thinking, in_call, chunk_tps, average_tps } => {
            LogEntry::new(Class::Generation, "decoding")
                .with("tokens", *tokens)
                .with("flags", flags([("THINKING", *thinking), ("TOOL_START", *in_call)]))
                .with("chunk_tps", rounded(*chunk_tps))
                .with("average_tps", rounded(*average_tps))
        }
        What::Batch { rows, took } => {
            LogEntry::new(Class::Timing, "step").with("rows", *rows).with("seconds", seconds(*took))
        }
        What::ThoughtClosed { how, tokens } => LogEntry::new(Class::Generation, "thought closed")
            .with("how", *how)
            .with("tokens", *tokens),
        What::Calls { calls, raw_known } => {
            let names = calls.iter().map(|(name, id)| format!("{name}/{id}")).collect::<Vec<_>>();
            LogEntry::new(Class::Tool, "tool calls")
                .with("count", calls.len())
                .with("calls", names.join(","))
                .with("raw_known", *raw_known)
        }
        What::Finish { finish, tokens, error, took } => {
            finished(finish, *tokens, error.as_deref(), *took)
        }
        What::Cache(text) => LogEntry::new(Class::Cache, "kv cache").with("text", text.as_str()),
        What::Warning(text) => LogEntry::new(Class::Warning, "warning").with("text", text.as_str()),
        What::State(state) => LogEntry::new(Class::Good, "state").with("text", *state),
    }
}

fn prompt_start(of: Flags, from: &Continuation) -> LogEntry {
    let suffix = from.prompt.saturating_sub(from.cached);
    let words = [("TOOLS", of.tools), ("THINKING", of.thinking), ("STREAM", of.stream)];
    let entry = LogEntry::new(Class::Prefill, "prompt")
        .with("kind", of.api)
        .with("ctx", format!("{}..{}:{suffix}", from.cached, from.prompt))
        .with("flags", flags(words))
        .with("source", from.source);
    match from.miss {
        None => entry,
        Some(miss) => entry.with("miss", miss).with("live", from.live).with("common", from.common),
    }
}

fn finished(finish: &str, tokens: usize, error: Option<&str>, took: Duration) -> LogEntry {
    let class = if finish == "error" { Class::Error } else { Class::Generation };
    let entry = LogEntry::new(class, "finish")
        .with("finish", finish)
        .with("tokens", tokens)
        .with("seconds", seconds(took));
    error.into_iter().fold(entry, |entry, error| entry.with("error", error))
}

/// The names of those that are set.
fn flags<const N: usize>(all: [(&'static str, bool); N]) -> String {
    let set = all.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name).collect::<Vec<_>>();
    if set.is_empty() { "-".to_owned() } else { set.join(",") }
}

fn percent(done: usize, total: usize) -> Value {
    rounded(done as f64 * 100.0 / total.max(1) as f64)
}

/// One decimal is what rates are good for.
fn rounded(value: f64) -> Value {
    Number::from_f64((value * 10.0).round() / 10.0).map_or(Value::Null, Value::Number)
}

fn seconds(took: Duration) -> Value {
    Number::from_f64((took.as_secs_f64() * 1000.0).round() / 1000.0)
        .map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::server::LogFormat;

    fn line(what: What) -> String {
        let written = Arc::new(Mutex::new(String::new()));
        let sink = Arc::clone(&written);
        let write = move |line: &str| sink.lock().unwrap().push_str(line);
        let event = LogEvent { request: Some("req_1".into()), slot: Some(2), what };
        LogWriter::to(write, LogFormat::Text, || 0).log(&event);
        let line = written.lock().unwrap().clone();
        line.strip_prefix("0101 00:00:00 ").unwrap().trim_end().to_owned()
    }

    #[test]
    fn lines_say_what_happened_to_whom() {
        let flags = Flags { api: "chat", tools: true, thinking: false, stream: true };
        let continuation = Continuation {
            source: "none",
            miss: Some("token-mismatch"),
            live: 90,
            common: 40,
            cached: 0,
            prompt: 120,
        };
        assert_eq!(
            line(What::PromptStart { flags, continuation }),
            "prompt kind=chat ctx=0..120:120 flags=TOOLS,STREAM source=none miss=token-mismatch live=90 common=40 \
             request=req_1 slot=2"
        );
        assert_eq!(
            line(What::PrefillChunk { done: 1, total: 3, chunk_tps: 12.34, average_tps: f64::NAN }),
            "prefill done=1 total=3 percent=33.3 chunk_tps=12.3 average_tps=null request=req_1 slot=2"
        );
        let took = Duration::from_micros(1_234_567);
        let finish = What::Finish { finish: "error", tokens: 5, error: Some("lost".into()), took };
        assert_eq!(
            line(finish),
            "finish finish=error tokens=5 seconds=1.235 error=lost request=req_1 slot=2"
        );
        let calls = vec![("read".into(), "call_1".into()), ("write".into(), "call_2".into())];
        assert_eq!(
            line(What::Calls { calls, raw_known: true }),
            "tool calls count=2 calls=read/call_1,write/call_2 raw_known=true request=req_1 slot=2"
        );
        assert_eq!(line(What::Cache("stored".into())), "kv cache: stored request=req_1 slot=2");
    }
}
