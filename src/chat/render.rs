//! The official chat template, by hand: the same bytes, in segments (model.md 7).
//!
//! The template itself is the authority; a test executes the copy stored in the demo model against this file. Every
//! byte is part of cache identity, so nothing here may depend on anything but the arguments.

use super::{Conversation, Error, Message, Prompt, Role, canonical};

/// How much the model may think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ThinkMode {
    /// The reply starts with a closed, empty thought.
    Off,
    /// The reply starts inside a thought.
    #[default]
    On,
    /// As `On`, with [`THINK_MAX_TEXT`] in front of the system text.
    Max,
}

impl ThinkMode {
    /// True when the reply starts inside a thought.
    pub fn thinks(self) -> bool {
        self != Self::Off
    }

    /// The mode a context of `ctx_tokens` has room for: `Max` below [`THINK_MAX_MIN_CTX_TOKENS`] is `On`.
    #[must_use]
    pub fn within(self, ctx_tokens: usize) -> Self {
        if self == Self::Max && ctx_tokens < THINK_MAX_MIN_CTX_TOKENS { Self::On } else { self }
    }
}

/// The smallest context in which [`ThinkMode::Max`] makes sense.
pub const THINK_MAX_MIN_CTX_TOKENS: usize = 98_304;

/// What [`ThinkMode::Max`] asks of the model. A constant: changing a letter makes every stored prompt stale.
pub const THINK_MAX_TEXT: &str = "\
Reason with maximum effort. Before you answer, take the problem apart completely: state what is asked, what is given and \
what is only assumed. Work through every step explicitly and skip none because it looks obvious. Consider several \
approaches, follow each far enough to compare them, and say why you drop one. Look for counterexamples, edge cases and \
errors of arithmetic, units and logic in your own work, and check the result by a second, independent way before you \
accept it. When a check fails, go back and find the cause. Think as long as the problem needs; only the answer has to be \
short.";

/// What to render besides the messages. The template's `enable_thinking` is `thinking`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenderOptions {
    /// End with the opening of the assistant's turn.
    pub add_generation_prompt: bool,
    /// The opening's form, and the system text of [`ThinkMode::Max`].
    pub thinking: ThinkMode,
    /// Keep the thoughts of all turns, not only of those after the last question.
    pub preserve_thinking: bool,
}

impl Default for RenderOptions {
    fn default() -> Self {
        Self { add_generation_prompt: true, thinking: ThinkMode::On, preserve_thinking: false }
    }
}

/// Text before the tool descriptions (P1 of model.md 7.1).
pub(crate) const TOOLS_HEAD: &str =
    "# Tools\n\nYou have access to the following functions:\n\n<tools>";

/// Text after them (P2): how the model was taught to call.
pub(crate) const TOOLS_RULES: &str = "\n\nIf you choose to call a function ONLY reply in the following format with NO \
suffix:\n\n<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n\
<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\nmultiple lines\n\
</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n- Function calls MUST follow the specified format: \
an inner <function=...></function> block must be nested within <tool_call></tool_call> XML tags\n- Required parameters \
MUST be specified\n- You may provide optional reasoning for your function call in natural language BEFORE the function \
call, but NOT after\n- If there is no function call available, answer the question like normal with your current \
knowledge and do not tell the user about function calls\n</IMPORTANT>";

/// The opening of an assistant turn.
pub(crate) const ASSISTANT: &str = "<|im_start|>assistant\n";
const TURN_END: &str = "<|im_end|>\n";

/// Renders a conversation.
///
/// Texts are stripped of Unicode white space at both ends; nothing is escaped.
///
/// # Errors
/// [`Error::NoMessages`], [`Error::SystemNotFirst`], [`Error::NoUserQuery`].
pub fn render(conversation: &Conversation, options: &RenderOptions) -> Result<Prompt, Error> {
    let messages = &conversation.messages;
    let Some(first) = messages.first() else { return Err(Error::NoMessages) };
    if let Some(index) = messages.iter().skip(1).position(|m| m.role == Role::System) {
        return Err(Error::SystemNotFirst { index: index + 1 });
    }
    let last_query = messages.iter().rposition(is_query).ok_or(Error::NoUserQuery)?;

    let mut prompt = Prompt::new();
    let system = (first.role == Role::System).then(|| first.content.trim());
    system_turn(&mut prompt, conversation, system, options.thinking);
    for (index, message) in messages.iter().enumerate() {
        match message.role {
            Role::System => {}
            Role::User => user_turn(&mut prompt, message),
            Role::Assistant => {
                let thought = index > last_query || options.preserve_thinking;
                assistant_turn(&mut prompt, message, thought);
            }
            Role::Tool => tool_result(&mut prompt, messages, index),
        }
    }
    if options.add_generation_prompt {
        prompt.control(ASSISTANT);
        prompt.control(thought_opening(options.thinking.thinks()));
    }
    Ok(prompt)
}

/// Renders a conversation whose last message, a text of the assistant's, goes on: its turn has no end, and the text has the
/// white space at both ends that a finished one loses, since what is written next is put right behind it.
///
/// # Errors
/// Those of [`render`].
pub fn render_open(conversation: &Conversation, options: &RenderOptions) -> Result<Prompt, Error> {
    let options = RenderOptions { add_generation_prompt: false, ..*options };
    let mut prompt = render(conversation, &options)?.without_last(TURN_END.len());
    let Some(last) = conversation.messages.last() else { return Ok(prompt) };
    let text = last.content.as_str();
    if text.trim().is_empty() {
        return Ok(prompt);
    }
    if last.reasoning.is_some() {
        prompt = prompt.without_last(text.trim().len());
        prompt.payload(text);
    } else {
        // A thought at the head of the text was told apart from it, and so were the newlines behind that.
        prompt.payload(&text[text.trim_end().len()..]);
    }
    Ok(prompt)
}

/// A user message that asks something: not merely a tool result in a user's clothes.
fn is_query(message: &Message) -> bool {
    let text = message.content.trim();
    let result = text.starts_with("<tool_response>") && text.ends_with("</tool_response>");
    message.role == Role::User && !result
}

/// `system` is the stripped text of the system message, if there is one.
fn system_turn(
    prompt: &mut Prompt,
    conversation: &Conversation,
    system: Option<&str>,
    mode: ThinkMode,
) {
    let max = mode == ThinkMode::Max;
    let tools = &conversation.tools;
    if tools.is_empty() && system.is_none() && !max {
        return;
    }
    prompt.control("<|im_start|>system\n");
    let text = system.unwrap_or_default();
    if !tools.is_empty() {
        prompt.control(TOOLS_HEAD);
        for tool in tools {
            prompt.control("\n");
            prompt.payload(&canonical::json(tool.json()));
        }
        prompt.control("\n</tools>");
        prompt.control(TOOLS_RULES);
        if max || !text.is_empty() {
            prompt.control("\n\n");
        }
    }
    if max {
        prompt.control(THINK_MAX_TEXT);
        if !text.is_empty() {
            prompt.control("\n\n");
        }
    }
    prompt.payload(text);
    prompt.control(TURN_END);
}

fn user_turn(prompt: &mut Prompt, message: &Message) {
    prompt.control("<|im_start|>user\n");
    prompt.payload(message.content.trim());
    prompt.control(TURN_END);
}

/// What a prompt ends with: an open thought, or one that is closed already.
pub(crate) fn thought_opening(thinks: bool) -> &'static str {
    if thinks { "<think>\n" } else { "<think>\n\n</think>\n\n" }
}

fn assistant_turn(prompt: &mut Prompt, message: &Message, with_thought: bool) {
    let (thought, text) = split_thought(message);
    prompt.control(ASSISTANT);
    if with_thought {
        prompt.control("<think>\n");
        prompt.payload(thought.trim());
        prompt.control("\n</think>\n\n");
    }
    prompt.payload(text);
    match &message.replay {
        Some(block) => prompt.replay(block),
        None => calls(prompt, message, text),
    }
    prompt.control(TURN_END);
}

/// Thought and text of an assistant message: the thought given apart, else the one found in the text.
fn split_thought(message: &Message) -> (&str, &str) {
    const CLOSE: &str = "</think>";
    let content = message.content.trim();
    if let Some(thought) = &message.reasoning {
        return (thought, content);
    }
    let (Some((before, _)), Some((_, after))) =
        (content.split_once(CLOSE), content.rsplit_once(CLOSE))
    else {
        return ("", content);
    };
    let before = before.trim_end_matches('\n');
    let thought = before.rsplit_once("<think>").map_or(before, |(_, thought)| thought);
    (thought.trim_start_matches('\n'), after.trim_start_matches('\n'))
}

fn calls(prompt: &mut Prompt, message: &Message, text: &str) {
    for (i, call) in message.tool_calls.iter().enumerate() {
        let separator = match i {
            0 if text.trim().is_empty() => "",
            0 => "\n\n",
            _ => "\n",
        };
        prompt.control(separator);
        prompt.control("<tool_call>\n<function=");
        prompt.payload(&call.name);
        prompt.control(">\n");
        for (name, value) in call.arguments.iter() {
            prompt.control("<parameter=");
            prompt.payload(name);
            prompt.control(">\n");
            prompt.payload(&canonical::argument(value));
            prompt.control("\n</parameter>\n");
        }
        prompt.control("</function>\n</tool_call>");
    }
}

/// Results that follow each other share one user turn. A result that is the very first message has no opening: the
/// template writes it so, and its bytes count.
fn tool_result(prompt: &mut Prompt, messages: &[Message], index: usize) {
    let is_tool = |message: &Message| message.role == Role::Tool;
    if index > 0 && !is_tool(&messages[index - 1]) {
        prompt.control("<|im_start|>user");
    }
    prompt.control("\n<tool_response>\n");
    prompt.payload(messages[index].content.trim());
    prompt.control("\n</tool_response>");
    if !messages.get(index + 1).is_some_and(is_tool) {
        prompt.control(TURN_END);
    }
}

#[cfg(test)]
mod tests;
