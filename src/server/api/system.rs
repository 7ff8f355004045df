//! Where system text goes (server.md 6.3).
//!
//! The template has system text at the front only. What comes later stays where it is, inside of a neighbouring turn:
//! moving it to the front would change the prompt from its first token at every turn. Where a text is put depends on
//! nothing that a later request can change.

use crate::chat::{Message, Role};

/// Text without the header lines that some clients put in front: they change with every request.
pub(super) fn without_headers(text: &str) -> &str {
    let mut rest = text;
    while rest.starts_with("x-anthropic-") {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
    rest
}

/// A reminder, as clients themselves write it into turns of others.
fn reminder(text: &str) -> String {
    format!("<system-reminder>\n{}\n</system-reminder>", text.trim())
}

/// Whether a text is nothing but reminders: nobody asked anything.
pub(super) fn is_reminder(text: &str) -> bool {
    let text = text.trim();
    text.starts_with("<system-reminder>") && text.ends_with("</system-reminder>")
}

/// Adds a paragraph.
pub(super) fn append(message: &mut Message, text: &str) {
    if !message.content.is_empty() {
        message.content.push_str("\n\n");
    }
    message.content.push_str(text);
}

/// Merges the leading system messages into one, and folds the others into turns of the user or of a tool: the one
/// before, else the one behind, else one of their own. Texts of white space are dropped.
pub(super) fn fold(messages: Vec<Message>) -> Vec<Message> {
    let mut folded: Vec<Message> = Vec::with_capacity(messages.len());
    let mut pending = String::new();
    for mut message in messages {
        let system = message.role == Role::System;
        if system && message.content.trim().is_empty() {
            continue;
        }
        match folded.last_mut() {
            _ if !system => {
                if !pending.is_empty() {
                    place(&mut folded, &mut message, std::mem::take(&mut pending));
                }
                folded.push(message);
            }
            None => folded.push(message),
            Some(last) if last.role == Role::System => append(last, &message.content),
            Some(last) if last.role != Role::Assistant => append(last, &reminder(&message.content)),
            Some(_) => {
                if !pending.is_empty() {
                    pending.push_str("\n\n");
                }
                pending.push_str(&reminder(&message.content));
            }
        }
    }
    if !pending.is_empty() {
        folded.push(Message::user(pending));
    }
    folded
}

/// Puts a reminder that follows an assistant's turn into `next`, or in front of it.
fn place(folded: &mut Vec<Message>, next: &mut Message, reminder: String) {
    match next.role {
        Role::User if next.content.is_empty() => next.content = reminder,
        Role::User => next.content = format!("{reminder}\n\n{}", next.content),
        // A result goes first: the call before it waits for it.
        Role::Tool => append(next, &reminder),
        Role::Assistant | Role::System => folded.push(Message::user(reminder)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(messages: Vec<Message>, expected: &[(Role, &str)]) {
        let folded = fold(messages);
        let found: Vec<(Role, &str)> = folded.iter().map(|m| (m.role, &*m.content)).collect();
        assert_eq!(found, expected);
    }

    const NOTE: &str = "<system-reminder>\nnote\n</system-reminder>";

    #[test]
    fn leading_system_text_is_one_message() {
        let parts = ["a", " ", "b"].map(Message::system);
        check(
            parts.into_iter().chain([Message::user("q")]).collect(),
            &[(Role::System, "a\n\nb"), (Role::User, "q")],
        );
        check(vec![Message::system(""), Message::user("q")], &[(Role::User, "q")]);
    }

    #[test]
    fn later_system_text_stays_in_place() {
        let note = || Message::system("note\n");
        let (user, assistant, tool) =
            (|| Message::user("q"), || Message::assistant("a"), || Message::tool("r"));
        check(vec![user(), note()], &[(Role::User, &format!("q\n\n{NOTE}"))]);
        check(
            vec![user(), note(), assistant(), tool(), note(), note()],
            &[
                (Role::User, &format!("q\n\n{NOTE}")),
                (Role::Assistant, "a"),
                (Role::Tool, &format!("r\n\n{NOTE}\n\n{NOTE}")),
            ],
        );
        check(
            vec![user(), assistant(), note(), note(), user()],
            &[
                (Role::User, "q"),
                (Role::Assistant, "a"),
                (Role::User, &format!("{NOTE}\n\n{NOTE}\n\nq")),
            ],
        );
        check(
            vec![user(), assistant(), note(), tool()],
            &[(Role::User, "q"), (Role::Assistant, "a"), (Role::Tool, &format!("r\n\n{NOTE}"))],
        );
        check(
            vec![user(), assistant(), note(), assistant(), note()],
            &[
                (Role::User, "q"),
                (Role::Assistant, "a"),
                (Role::User, NOTE),
                (Role::Assistant, "a"),
                (Role::User, NOTE),
            ],
        );
    }

    #[test]
    fn a_longer_history_begins_with_the_same_messages() {
        // Everything up to the reply is as it was when the reply was asked for.
        let first = vec![Message::user("q"), Message::assistant("a"), Message::system("note")];
        let mut second = first.clone();
        second.extend([Message::assistant("b"), Message::user("r")]);
        let (first, second) = (fold(first), fold(second));
        assert_eq!(second[..first.len()], first[..]);
    }

    #[test]
    fn header_lines_are_dropped() {
        assert_eq!(without_headers("x-anthropic-billing: 1"), "");
        assert_eq!(without_headers("x-anthropic-a: 1\nx-anthropic-b: 2\nYou are"), "You are");
        assert_eq!(without_headers("You are\nx-anthropic-a"), "You are\nx-anthropic-a");
        assert!(is_reminder(" <system-reminder>x</system-reminder>\n") && !is_reminder("x"));
    }
}
