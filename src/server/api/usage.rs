//! Tokens of a request as each family of APIs counts them (server.md 4.7).

use serde_json::{Map, Value, json};

use super::frame::Frame;
use crate::server::Usage;

/// The numbers, consistent with each other whatever the engine said.
struct Counts {
    prompt: usize,
    cached: usize,
    output: usize,
    reasoning: usize,
}

impl Counts {
    fn new(usage: Usage) -> Self {
        let Usage { prompt_tokens, cached_tokens, output_tokens, reasoning_tokens } = usage;
        Self {
            prompt: prompt_tokens,
            cached: cached_tokens.min(prompt_tokens),
            output: output_tokens,
            reasoning: reasoning_tokens.min(output_tokens),
        }
    }

    fn written(&self) -> usize {
        self.prompt - self.cached
    }

    fn total(&self) -> usize {
        self.prompt + self.output
    }
}

/// For chat and completions.
pub(super) fn chat(usage: Usage) -> Value {
    let counts = Counts::new(usage);
    json!({
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.output,
        "total_tokens": counts.total(),
        "prompt_tokens_details": {
            "cached_tokens": counts.cached,
            "cache_write_tokens": counts.written(),
        },
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning},
    })
}

/// The last chunk of a stream that tells them: `envelope` has no choices.
pub(super) fn chunk(mut envelope: Map<String, Value>, usage: Usage) -> Frame {
    envelope.insert("usage".to_owned(), chat(usage));
    Frame::data(&Value::Object(envelope))
}

/// For responses.
pub(super) fn responses(usage: Usage) -> Value {
    let counts = Counts::new(usage);
    json!({
        "input_tokens": counts.prompt,
        "input_tokens_details": {"cached_tokens": counts.cached},
        "output_tokens": counts.output,
        "output_tokens_details": {"reasoning_tokens": counts.reasoning},
        "total_tokens": counts.total(),
    })
}

/// For messages, where `input_tokens` counts what was neither read from the cache nor written to it: nothing.
pub(super) fn messages(usage: Usage) -> Value {
    let counts = Counts::new(usage);
    json!({
        "input_tokens": counts.prompt - counts.cached - counts.written(),
        "cache_read_input_tokens": counts.cached,
        "cache_creation_input_tokens": counts.written(),
        "output_tokens": counts.output,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_add_up_whatever_comes() {
        let usage =
            Usage { prompt_tokens: 10, cached_tokens: 12, output_tokens: 3, reasoning_tokens: 9 };
        let value = chat(usage);
        assert_eq!(value["prompt_tokens_details"]["cached_tokens"], 10);
        assert_eq!(value["prompt_tokens_details"]["cache_write_tokens"], 0);
        assert_eq!(value["completion_tokens_details"]["reasoning_tokens"], 3);
        assert_eq!(value["total_tokens"], 13);
        assert_eq!(responses(usage)["total_tokens"], 13);
        let usage = Usage { cached_tokens: 4, ..usage };
        let value = messages(usage);
        assert_eq!(value["input_tokens"], 0);
        assert_eq!(value["cache_read_input_tokens"], 4);
        assert_eq!(value["cache_creation_input_tokens"], 6);
    }
}
