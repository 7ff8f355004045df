//! What a stream consists of.

use serde_json::Value;

/// One frame of a stream of server-sent events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A comment: readers skip it, but it keeps the connection alive. One line.
    Comment(String),
    /// An event.
    Event {
        /// Its name, in APIs whose events have one.
        name: Option<&'static str>,
        /// One line, usually JSON.
        data: String,
    },
}

impl Frame {
    /// An event without a name.
    pub(super) fn data(value: &Value) -> Self {
        Self::Event { name: None, data: value.to_string() }
    }

    /// An event with a name.
    pub(super) fn named(name: &'static str, value: &Value) -> Self {
        Self::Event { name: Some(name), data: value.to_string() }
    }

    /// The end of a stream of the `OpenAI` family.
    pub(super) fn done() -> Self {
        Self::Event { name: None, data: "[DONE]".to_owned() }
    }

    /// Its bytes, the empty line behind it included.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Comment(text) => format!(": {text}\n\n"),
            Self::Event { name: None, data } => format!("data: {data}\n\n"),
            Self::Event { name: Some(name), data } => format!("event: {name}\ndata: {data}\n\n"),
        }
        .into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_lines_with_an_empty_one_behind() {
        let check = |frame: Frame, expected: &str| {
            assert_eq!(String::from_utf8(frame.to_bytes()).unwrap(), expected);
        };
        check(Frame::Comment("queued position=2".to_owned()), ": queued position=2\n\n");
        check(Frame::done(), "data: [DONE]\n\n");
        let value = serde_json::json!({"type": "ping", "text": "a\nb"});
        check(
            Frame::named("ping", &value),
            "event: ping\ndata: {\"type\":\"ping\",\"text\":\"a\\nb\"}\n\n",
        );
    }
}
