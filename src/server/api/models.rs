//! The model as clients list it (server.md 3).

use serde_json::{Value, json};

/// The model's name; requests without one get it.
pub const MODEL: &str = "qwen3.6-35b-a3b";
/// The same model, thinking unless a request says otherwise.
pub const ALIAS_THINK: &str = "qwen3.6-35b-a3b-think";
/// The same model, not thinking unless a request says otherwise.
pub const ALIAS_NO_THINK: &str = "qwen3.6-35b-a3b-nothink";

const LISTED: [(&str, &str); 3] = [
    (MODEL, "Qwen 3.6 35B A3B"),
    (ALIAS_THINK, "Qwen 3.6 35B A3B (thinking)"),
    (ALIAS_NO_THINK, "Qwen 3.6 35B A3B (no thinking)"),
];

/// 1 January 2026, in both of the forms that lists use.
const CREATED: u64 = 1_767_225_600;
const CREATED_AT: &str = "2026-01-01T00:00:00Z";

/// The knobs that clients may offer.
const PARAMETERS: [&str; 19] = [
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "stop",
    "seed",
    "stream",
    "reasoning_effort",
];

/// The list of models, for contexts of `ctx_tokens` and replies of `default_limit` tokens where none is named.
pub fn models(ctx_tokens: usize, default_limit: usize) -> Value {
    let data: Vec<Value> =
        LISTED.iter().map(|(id, name)| object(id, name, ctx_tokens, default_limit)).collect();
    json!({
        "object": "list",
        "data": data,
        "has_more": false,
        "first_id": LISTED[0].0,
        "last_id": LISTED[LISTED.len() - 1].0,
    })
}

/// One of the listed models; `None` for any other name.
pub fn model(id: &str, ctx_tokens: usize, default_limit: usize) -> Option<Value> {
    let (id, name) = LISTED.iter().find(|(known, _)| *known == id)?;
    Some(object(id, name, ctx_tokens, default_limit))
}

/// A superset of what readers of lists of either family look for.
fn object(id: &str, name: &str, ctx_tokens: usize, default_limit: usize) -> Value {
    json!({
        "id": id,
        "object": "model",
        "created": CREATED,
        "owned_by": "q36",
        "name": name,
        "context_length": ctx_tokens,
        "top_provider": {
            "context_length": ctx_tokens,
            "max_completion_tokens": default_limit.min(ctx_tokens),
            "is_moderated": false,
        },
        "supported_parameters": PARAMETERS,
        "type": "model",
        "display_name": name,
        "created_at": CREATED_AT,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_and_its_objects_agree() {
        let list = models(32_768, 262_144);
        let data = list["data"].as_array().unwrap();
        assert_eq!(data.len(), 3);
        assert_eq!((&list["first_id"], &list["last_id"]), (&data[0]["id"], &data[2]["id"]));
        for entry in data {
            let id = entry["id"].as_str().unwrap();
            assert_eq!(model(id, 32_768, 262_144).as_ref(), Some(entry));
            assert_eq!(entry["context_length"], 32_768);
            assert_eq!(entry["top_provider"]["max_completion_tokens"], 32_768);
        }
        assert_eq!(data[0]["id"], MODEL);
        assert_eq!(model("gpt-4", 1, 1), None);
    }
}
