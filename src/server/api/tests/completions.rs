//! What completion requests may look like.

use super::support::{read, refused};
use crate::server::{Api, Input};
use crate::tokenizer::TokenId;

fn input(fields: &str) -> Input {
    read(Api::Completions, &format!("{{{fields}}}")).unwrap().request.input
}

#[test]
fn prompts_are_texts_or_tokens() {
    let text = |text: &str| Input::Text(text.to_owned());
    assert_eq!(input(r#""prompt":"<|im_start|>user\n""#), text("<|im_start|>user\n"));
    assert_eq!(input(r#""prompt":["a"]"#), text("a"));
    let tokens = || Input::Tokens(vec![TokenId(1), TokenId(999)]);
    assert_eq!(input(r#""prompt":[1,999]"#), tokens());
    assert_eq!(input(r#""prompt":[[1,999]]"#), tokens());
    assert_eq!(
        input(r#""prompt":"a","suffix":"b""#),
        text("<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>")
    );
    assert_eq!(input(r#""prompt":"a","suffix":"""#), text("a"));
}

#[test]
fn there_is_no_thought_whatever_is_asked() {
    let body = r#"{"prompt":"a","reasoning_effort":"high","logprobs":5,"max_tokens":0}"#;
    let request = read(Api::Completions, body).unwrap().request;
    assert_eq!((request.thinking.on, request.thinking.effort), (Some(false), None));
    assert_eq!((request.logprobs, request.limit), (Some(5), Some(0)));
}

#[test]
fn refusals_name_the_field_and_what_was_found() {
    let check = |fields: &str, message: &str| {
        refused(Api::Completions, &format!("{{{fields}}}"), message);
    };
    check("", "missing prompt");
    check(r#""prompt":"""#, "`prompt` must not be empty");
    check(r#""prompt":[]"#, "`prompt` must not be empty");
    check(r#""prompt":[[]]"#, "`prompt[0]` must not be empty");
    check(r#""prompt":["a","b"]"#, "`prompt` has 2 prompts, one is accepted");
    check(r#""prompt":[[1],[2]]"#, "`prompt` has 2 prompts, one is accepted");
    check(r#""prompt":[1,1000]"#, "`prompt[1]` is not a token: ids are from 0 to below 1000");
    check(r#""prompt":[-1]"#, "`prompt[0]` is not a token: ids are from 0 to below 1000");
    check(r#""prompt":[1,"a"]"#, "`prompt[1]` must be an integer, found a string");
    check(
        r#""prompt":{}"#,
        "`prompt` must be a string, an array of token ids, or an array with one prompt, found an object",
    );
    check(r#""prompt":"a","best_of":2"#, "`best_of` must be 1, found 2: one answer to a request");
    check(r#""prompt":[1],"echo":true"#, "`echo` needs a prompt that is a text");
    check(r#""prompt":[1],"suffix":"b""#, "`suffix` needs a prompt that is a text");
}
