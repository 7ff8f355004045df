//! The borders of a conversation's prompt.

use super::report::{Border, BorderKind};
use crate::tokenizer::{TokenId, Tokenizer};

/// Where the messages of a prompt in the chat template are worth stopping at: before the last message, which in a
/// prompt is the opening of the reply, and before the last message of the user that comes ahead of the first reply:
/// what stands before that, new conversations share.
///
/// The opening of a reply itself is no part of a border, because it changes when the reply becomes history.
pub fn turn_borders(tokenizer: &Tokenizer, prompt: &[TokenId]) -> Vec<Border> {
    let start = tokenizer.special().im_start;
    let openings = prompt.iter().enumerate().filter(|(_, id)| **id == start);
    let openings: Vec<(usize, Role)> =
        openings.map(|(pos, _)| (pos, role(tokenizer, &prompt[pos + 1..]))).collect();
    let before_replies = openings.iter().take_while(|(_, role)| *role != Role::Assistant);
    let shared = before_replies.filter(|(_, role)| *role == Role::User).last();
    let turn = openings.last();
    let mut borders = Vec::new();
    for (opening, kind) in [(shared, BorderKind::Shared), (turn, BorderKind::Turn)] {
        if let Some(&(pos, _)) = opening.filter(|(pos, _)| *pos > 0) {
            borders.push(Border { pos, kind });
        }
    }
    borders.dedup_by_key(|border| border.pos);
    borders
}

/// Who speaks, as far as borders go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    User,
    Assistant,
    Other,
}

/// The role that a message's first tokens spell.
fn role(tokenizer: &Tokenizer, message: &[TokenId]) -> Role {
    // No role is longer than its letters, a token each.
    let name = tokenizer.decode(&message[..message.len().min("assistant\n".len())]);
    if name.starts_with(b"assistant\n") {
        Role::Assistant
    } else if name.starts_with(b"user\n") {
        Role::User
    } else {
        Role::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Positions of the borders, shared first; each message is its role, a line break, a letter and an end.
    fn borders(roles: &[&str]) -> Vec<(usize, BorderKind)> {
        let tokenizer = Tokenizer::stand_in(400).unwrap();
        let special = tokenizer.special();
        let mut prompt = Vec::new();
        for role in roles {
            prompt.push(special.im_start);
            prompt.extend(format!("{role}\nx").bytes().map(|b| TokenId(u32::from(b))));
            prompt.push(special.im_end);
        }
        turn_borders(&tokenizer, &prompt).into_iter().map(|b| (b.pos, b.kind)).collect()
    }

    #[test]
    fn messages_end_where_the_next_one_opens() {
        use BorderKind::{Shared, Turn};
        // `system` takes 10 tokens, `user` 8, `assistant` 13.
        assert_eq!(borders(&["system", "user", "assistant"]), [(10, Shared), (18, Turn)]);
        let two = ["system", "user", "assistant", "user", "assistant"];
        assert_eq!(borders(&two), [(10, Shared), (39, Turn)]);
        assert_eq!(borders(&["user", "user", "assistant"]), [(8, Shared), (16, Turn)]);
        // Nothing before the only message, and nothing to share.
        assert_eq!(borders(&["user", "assistant"]), [(8, Turn)]);
        assert_eq!(borders(&["system", "user"]), [(10, Shared)]);
        assert_eq!(borders(&["user"]), []);
        assert_eq!(borders(&[]), []);
    }
}
