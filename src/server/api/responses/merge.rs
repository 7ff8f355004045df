//! Items to messages (server.md 9.1).
//!
//! A reply, its thought and its calls are one turn to the model, and separate items to clients.

use std::sync::Arc;

use super::super::history;
use super::item::{Entry, Item};
use crate::chat::{Message, Role};

/// The messages that items amount to.
pub(crate) fn messages<'a>(entries: impl IntoIterator<Item = &'a Arc<Entry>>) -> Vec<Message> {
    let mut merge = Merge::default();
    for entry in entries {
        merge.add(&entry.item);
    }
    merge.close();
    merge.messages
}

#[derive(Default)]
struct Merge {
    messages: Vec<Message>,
    /// A thought that waits for its reply or call.
    thought: Option<String>,
    /// The last message is a turn of the model's that calls may join.
    open: bool,
}

impl Merge {
    fn add(&mut self, item: &Item) {
        match item {
            Item::Reasoning(text) => join(self.thought.get_or_insert_default(), text),
            Item::Message { role: Role::Assistant, text } => self.reply(text.clone()),
            Item::Message { role, text } => {
                self.close();
                self.messages.push(Message::new(*role, text.clone()));
            }
            Item::Output { text, .. } => {
                self.close();
                self.messages.push(Message::tool(text.clone()));
            }
            Item::Call(call) => {
                if !self.open {
                    self.reply(String::new());
                }
                let thought = self.thought.take();
                let turn = self.messages.last_mut().expect("an open turn is the last message");
                if let Some(thought) = thought {
                    join(turn.reasoning.get_or_insert_default(), &thought);
                }
                turn.tool_calls.push(call.clone());
            }
        }
    }

    fn reply(&mut self, text: String) {
        self.messages.push(history::reply(text, self.thought.take()));
        self.open = true;
    }

    /// Ends the model's turn; a thought without a reply becomes one with an empty text.
    fn close(&mut self) {
        if self.thought.is_some() {
            self.reply(String::new());
        }
        self.open = false;
    }
}

fn join(thought: &mut String, more: &str) {
    if !thought.is_empty() && !more.is_empty() {
        thought.push_str("\n\n");
    }
    thought.push_str(more);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{Arguments, ToolCall};

    fn said(role: Role, text: &str) -> Item {
        Item::Message { role, text: text.to_owned() }
    }

    fn thought(text: &str) -> Item {
        Item::Reasoning(text.to_owned())
    }

    fn call(name: &str) -> Item {
        Item::Call(ToolCall::new(name, Arguments::default()))
    }

    fn output(text: &str) -> Item {
        Item::Output { call_id: "c".to_owned(), text: text.to_owned(), tools: None }
    }

    /// Compares turns, each written as `role|thought|text|calls`.
    fn check(items: Vec<Item>, expected: &[&str]) {
        let entries: Vec<Arc<Entry>> =
            items.into_iter().map(|item| Arc::new(Entry { id: None, item })).collect();
        let line = |message: &Message| {
            let calls: Vec<&str> = message.tool_calls.iter().map(|call| &*call.name).collect();
            let thought = message.reasoning.as_deref().unwrap_or("-");
            format!("{:?}|{thought}|{}|{}", message.role, message.content, calls.join(","))
        };
        assert_eq!(messages(&entries).iter().map(line).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_turn_of_the_model_is_one_message() {
        let (user, assistant) = (Role::User, Role::Assistant);
        check(
            vec![
                said(user, "q"),
                thought("t"),
                said(assistant, "a"),
                call("x"),
                call("y"),
                output("1"),
                output("2"),
                thought("u"),
                call("z"),
                output("3"),
                said(assistant, "b"),
                said(user, "r"),
            ],
            &[
                "User|-|q|",
                "Assistant|t|a|x,y",
                "Tool|-|1|",
                "Tool|-|2|",
                "Assistant|u||z",
                "Tool|-|3|",
                "Assistant||b|",
                "User|-|r|",
            ],
        );
    }

    #[test]
    fn thoughts_without_a_reply_keep_their_place() {
        let user = Role::User;
        check(
            vec![said(user, "q"), thought("t"), thought("u"), said(user, "r"), thought("v")],
            &["User|-|q|", "Assistant|t\n\nu||", "User|-|r|", "Assistant|v||"],
        );
        check(
            vec![said(user, "q"), thought("t"), output("1")],
            &["User|-|q|", "Assistant|t||", "Tool|-|1|"],
        );
        check(vec![said(Role::Assistant, "a"), thought("t"), call("x")], &["Assistant|t|a|x"]);
    }
}
