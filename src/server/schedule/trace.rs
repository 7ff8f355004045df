//! Requests written down for whoever looks for a fault (server.md 16.2): prompts and replies included, so the file is its
//! owner's alone. Records of requests that are served at the same time interleave; each line says whose it is.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;

use super::slot::Serving;
use super::{Error, TraceConfig};
use crate::server::{Continuation, Outcome, Update};
use crate::tokenizer::{TokenId, Tokenizer};
use crate::util::clock::unix_seconds;

/// Tokens that are shown on either side of the first one that differs.
const WINDOW: usize = 8;

/// An open trace.
#[derive(Debug)]
pub(super) struct Trace {
    file: File,
    left: u64,
    /// Whose text was written last: its next piece needs no line of its own.
    open: Option<(u64, &'static str)>,
}

impl Trace {
    /// Empties the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn open(config: &TraceConfig) -> Result<Self, Error> {
        let options = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&config.path);
        let file = options.map_err(|source| Error::Trace { path: config.path.clone(), source })?;
        Ok(Self { file, left: config.max_bytes, open: None })
    }

    /// A request has a session.
    pub(super) fn begin(&mut self, serving: &Serving, continuation: &Continuation) {
        let (request, prepared) = (&serving.request, &serving.prepared);
        let n = serving.number;
        let mut text = format!("===== request {n} {} {} =====\n", serving.id, unix_seconds());
        let _ = writeln!(
            text,
            "kind {} model {} stream {} tools {} thinking {} limit {:?} sampling {:?} seed {}",
            request.api.name(),
            request.model,
            request.stream,
            prepared.tools.is_some(),
            prepared.thinking,
            request.limit,
            prepared.params,
            prepared.seed,
        );
        let _ = writeln!(text, "cache {continuation:?} replay {:?}", prepared.replayed);
        let body = serving.body.as_deref().unwrap_or_default();
        let _ = writeln!(text, "raw request:\n{body}\nend of request");
        let prompt = String::from_utf8_lossy(&prepared.prompt.bytes);
        let _ = writeln!(text, "rendered prompt:\n{prompt}\nend of prompt");
        self.write(n, &text);
    }

    /// Where a prompt leaves what the session held, if it does: the first tokens that differ and those around them.
    pub(super) fn mismatch(
        &mut self,
        number: u64,
        (live, prompt): (&[TokenId], &[TokenId]),
        tokenizer: &Tokenizer,
    ) {
        let common = live.iter().zip(prompt).take_while(|(live, prompt)| live == prompt).count();
        if common == live.len() {
            return;
        }
        let mut text = format!("the prompt leaves the session at token {common}\n");
        let shown = |id: Option<&TokenId>| {
            let spelled = |id: &TokenId| String::from_utf8_lossy(tokenizer.bytes(*id)).into_owned();
            id.map_or_else(|| "-".to_owned(), |id| format!("{} {:?}", id.0, spelled(id)))
        };
        let end = live.len().max(prompt.len()).min(common + 1 + WINDOW);
        for at in common.saturating_sub(WINDOW)..end {
            let (live, prompt) = (live.get(at), prompt.get(at));
            let mark = match (live, prompt) {
                (Some(live), Some(prompt)) if live == prompt => "==",
                (Some(_), Some(_)) => "!=",
                (Some(_), None) => "live-only",
                (None, _) => "prompt-only",
            };
            let _ = writeln!(text, "{at} {mark} {} | {}", shown(live), shown(prompt));
        }
        self.write(number, &text);
    }

    /// A piece of a reply.
    pub(super) fn update(&mut self, number: u64, update: &Update) {
        let (kind, text) = match update {
            Update::Reasoning(text) => ("reasoning", text.as_str()),
            Update::Text(text) => ("text", text.as_str()),
            Update::CallArguments(text) => ("arguments", text.as_str()),
            Update::CallBegin { id, name } => {
                self.write(number, &format!("entered call {name} {id}\n"));
                return;
            }
            Update::CallEnd => {
                self.write(number, "closed call\n");
                return;
            }
            Update::Waiting(_)
            | Update::Begin(_)
            | Update::Logprob(_)
            | Update::End(_)
            | Update::Failed(_) => return,
        };
        if self.open == Some((number, kind)) {
            self.put(text);
        } else {
            self.write(number, kind);
            self.put(": ");
            self.put(text);
            self.open = Some((number, kind));
        }
    }

    /// Something that happened to a request between its prompt and its end.
    pub(super) fn event(&mut self, number: u64, text: &str) {
        self.write(number, &format!("event: {text}\n"));
    }

    /// A finished reply as it was read.
    pub(super) fn outcome(&mut self, number: u64, outcome: &Outcome) {
        let text = format!(
            "parsed: finish {:?} usage {:?}\nreasoning: {}\ncontent: {}\ncalls: {:?}\n",
            outcome.finish, outcome.usage, outcome.reasoning, outcome.text, outcome.calls
        );
        self.write(number, &text);
    }

    /// A request is done.
    pub(super) fn end(&mut self, number: u64, finish: &str, error: Option<&str>) {
        if let Some(error) = error {
            self.write(number, &format!("error: {error}\n"));
        }
        self.write(number, &format!("finish {finish}\n===== end request {number} =====\n"));
    }

    /// A record that begins a line.
    fn write(&mut self, number: u64, text: &str) {
        let fresh = if self.open.take().is_some() { "\n" } else { "" };
        self.put(&format!("{fresh}[{number}] {text}"));
    }

    /// Writes at once, as long as the file may grow. A full disk ends the trace, not the server.
    fn put(&mut self, text: &str) {
        let len = text.len() as u64;
        if len <= self.left && self.file.write_all(text.as_bytes()).is_ok() {
            self.left -= len;
        } else {
            self.left = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_mismatch_is_shown_with_what_is_around_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let config = TraceConfig { path: path.clone(), max_bytes: 10_000 };
        let mut trace = Trace::open(&config).unwrap();
        let tokenizer = Tokenizer::stand_in(400).unwrap();
        let ids = |text: &str| tokenizer.encode_text(text.as_bytes());
        // What goes on leaves nothing.
        trace.mismatch(1, (&ids("abc"), &ids("abcd")), &tokenizer);
        trace.mismatch(1, (&[], &ids("abcd")), &tokenizer);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
        trace.mismatch(2, (&ids("0123456789abc"), &ids("0123456789xb")), &tokenizer);
        let written = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = written.lines().collect();
        assert_eq!(lines[0], "[2] the prompt leaves the session at token 10");
        let marks: Vec<&str> = lines[1..].iter().map(|l| l.split(' ').nth(1).unwrap()).collect();
        let same = ["=="; 8];
        assert_eq!(marks, [&same[..], &["!=", "==", "live-only"]].concat());
        assert!(lines[1].starts_with("2 == ") && lines[1].ends_with(r#""2""#), "{}", lines[1]);
        assert!(lines[9].contains(r#""a" | "#) && lines[9].ends_with(r#""x""#), "{}", lines[9]);
        assert!(lines[11].ends_with(r#""c" | -"#), "{}", lines[11]);
    }

    #[test]
    fn a_trace_is_private_tells_requests_apart_and_ends_at_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let mut trace = Trace::open(&TraceConfig { path: path.clone(), max_bytes: 120 }).unwrap();
        for (number, text) in [(1, "a"), (1, "b"), (2, "c")] {
            trace.update(number, &Update::Text(text.into()));
        }
        trace.end(2, "stop", None);
        let written = std::fs::read_to_string(&path).unwrap();
        let expected = "[1] text: ab\n[2] text: c\n[2] finish stop\n===== end request 2 =====\n";
        assert_eq!(written, expected);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        trace.update(3, &Update::Text("x".repeat(200)));
        trace.end(3, "stop", None);
        assert!(std::fs::metadata(&path).unwrap().len() <= 120);
    }
}
