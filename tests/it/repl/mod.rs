//! Conversations of `q36 run`: what is evaluated, counted in tokens, and what a person sees.

mod conversation;
mod kill;
mod piped;
mod terminal;

use q36::tokenizer::Tokenizer;

/// The opening of a reply without a thought.
const OPENING: &str = "<|im_start|>assistant\n<think>\n\n</think>\n\n";

/// Tokens of a control text.
fn count(tokenizer: &Tokenizer, text: &str) -> usize {
    tokenizer.encode_control(text.as_bytes()).len()
}

/// Tokens that a message adds behind a reply that ended by itself: its end, the message and the opening of the next. The
/// last token of a reply that was cut is one more: nobody has needed it yet.
fn following(tokenizer: &Tokenizer, message: &str, opening: &str) -> usize {
    count(tokenizer, &format!("<|im_end|>\n<|im_start|>user\n{message}<|im_end|>\n{opening}"))
}
