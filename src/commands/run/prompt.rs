//! From the text a user typed to the tokens the model reads (cli.md 4.1).

use anyhow::Result;

use crate::chat::{self, Conversation, Message, Prompt, RenderOptions, ThinkMode};
use crate::cli::run::RunArgs;
use crate::cli::values;
use crate::term::Printer;
use crate::tokenizer::{TokenId, Tokenizer};

/// How the text is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum Reading {
    /// A message of the user, put into the chat template.
    Message,
    /// A chat that is rendered already: its markers are control tokens.
    Rendered,
    /// Text to continue as it stands.
    Raw,
}

impl Reading {
    /// As the flags say, or else as the text itself does.
    pub(super) fn of(text: &str, raw: bool, rendered: bool) -> Self {
        if raw {
            Self::Raw
        } else if rendered || Prompt::looks_rendered(text) {
            Self::Rendered
        } else {
            Self::Message
        }
    }
}

/// The thinking mode asked for, as far as the context has room for it.
pub(super) fn think_mode(args: &RunArgs, ctx_tokens: usize, printer: &Printer) -> ThinkMode {
    let asked = match args.sampling.think_mode() {
        values::ThinkMode::Off => ThinkMode::Off,
        values::ThinkMode::On => ThinkMode::On,
        values::ThinkMode::Max => ThinkMode::Max,
    };
    let mode = asked.within(ctx_tokens);
    if mode != asked {
        printer.warning(&format!(
            "--think-max needs --ctx {} or more; thinking normally",
            chat::THINK_MAX_MIN_CTX_TOKENS
        ));
    }
    mode
}

/// The prompt's tokens.
///
/// # Errors
/// When the template refuses the message.
pub(in crate::commands) fn tokens(
    tokenizer: &Tokenizer,
    text: &str,
    reading: Reading,
    system: &str,
    thinking: ThinkMode,
) -> Result<Vec<TokenId>> {
    let prompt = match reading {
        Reading::Raw => return Ok(tokenizer.encode_text(text.as_bytes())),
        Reading::Rendered => Prompt::rendered(text),
        Reading::Message => {
            let system = (!system.is_empty()).then(|| Message::system(system));
            let messages = system.into_iter().chain([Message::user(text)]).collect();
            let options = RenderOptions { thinking, ..RenderOptions::default() };
            chat::render(&Conversation::new(messages).normalised(), &options)?
        }
    };
    Ok(tokenizer.encode_prompt(&prompt.token_segments()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_whether_it_is_a_chat_unless_a_flag_does() {
        let chat = "<|im_start|>user\nhi<|im_end|>\n";
        assert_eq!(Reading::of("hi", false, false), Reading::Message);
        assert_eq!(Reading::of(chat, false, false), Reading::Rendered);
        assert_eq!(Reading::of("<|endoftext|>x", false, false), Reading::Rendered);
        assert_eq!(Reading::of(chat, true, false), Reading::Raw);
        assert_eq!(Reading::of("hi", false, true), Reading::Rendered);
    }
}
