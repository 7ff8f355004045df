//! Two sequences of tokens read as text with markers.
//!
//! A reply comes back in other tokens than it was drawn in, though its text is the same. Text alone cannot tell a
//! marker from the same letters typed by somebody, so markers must be the same ids in the same places.

use crate::tokenizer::{TokenId, Tokenizer};

/// A place in a sequence: a token, and how many of its bytes are before the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) token: usize,
    pub(super) bytes: usize,
}

/// Where in `prompt` the ends of the first tokens of `live` fall, as far as both spell the same: element `n` is the
/// place behind `n` tokens, the first one the start.
pub(super) fn places(tokenizer: &Tokenizer, live: &[TokenId], prompt: &[TokenId]) -> Vec<Place> {
    let mut at = Place { token: 0, bytes: 0 };
    let mut places = vec![at];
    'live: for &id in live {
        if is_indivisible(tokenizer, id) {
            if at.bytes > 0 || prompt.get(at.token) != Some(&id) {
                break;
            }
            at.token += 1;
            places.push(at);
            continue;
        }
        let mut bytes = tokenizer.bytes(id);
        while !bytes.is_empty() {
            let Some(&other) = prompt.get(at.token) else { break 'live };
            if is_indivisible(tokenizer, other) {
                break 'live;
            }
            let rest = &tokenizer.bytes(other)[at.bytes..];
            let n = rest.len().min(bytes.len());
            if rest[..n] != bytes[..n] {
                break 'live;
            }
            bytes = &bytes[n..];
            at = if n == rest.len() {
                Place { token: at.token + 1, bytes: 0 }
            } else {
                Place { bytes: at.bytes + n, ..at }
            };
        }
        places.push(at);
    }
    places
}

/// The tokens of `prompt` behind a place, and how many of them, at the end, are the prompt's own. The text from there
/// to the next marker is tokenized anew where the place is inside a token.
pub(super) fn rest(
    tokenizer: &Tokenizer,
    prompt: &[TokenId],
    from: Place,
) -> (Vec<TokenId>, usize) {
    let rest = &prompt[from.token..];
    if from.bytes == 0 {
        return (rest.to_vec(), rest.len());
    }
    let run = rest.iter().take_while(|id| !is_indivisible(tokenizer, **id)).count();
    let bytes = tokenizer.decode(&rest[..run]);
    let mut tokens = tokenizer.encode_text(&bytes[from.bytes..]);
    tokens.extend_from_slice(&rest[run..]);
    (tokens, rest.len() - run)
}

/// Markers, and tokens without text.
fn is_indivisible(tokenizer: &Tokenizer, id: TokenId) -> bool {
    tokenizer.kind(id).is_added() || tokenizer.bytes(id).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows below 256 are bytes; row `n` from there on spells `(n)`; markers come last.
    fn tokenizer() -> Tokenizer {
        Tokenizer::stand_in(1000).unwrap()
    }

    fn spelled(text: &str) -> Vec<TokenId> {
        text.bytes().map(|b| TokenId(u32::from(b))).collect()
    }

    fn check(live: &[TokenId], prompt: &[TokenId], expected: &[(usize, usize)]) {
        let found = places(&tokenizer(), live, prompt);
        let found: Vec<_> = found.iter().map(|p| (p.token, p.bytes)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_same_text_in_other_tokens_is_the_same() {
        let one = [TokenId(300)];
        check(&spelled("(300)"), &one, &[(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 0)]);
        check(&one, &spelled("(300)!"), &[(0, 0), (5, 0)]);
        check(&one, &spelled("(301)"), &[(0, 0)]);
        check(&one, &spelled("(30"), &[(0, 0)]);
        check(&one, &one, &[(0, 0), (1, 0)]);
        check(&[], &one, &[(0, 0)]);
    }

    #[test]
    fn a_marker_is_not_its_letters() {
        let tokenizer = tokenizer();
        let marker = tokenizer.special().im_end;
        let letters = spelled("<|im_end|>");
        check(&[marker], &letters, &[(0, 0)]);
        check(&letters, &[marker], &[(0, 0)]);
        check(&[marker, TokenId(65)], &[marker, TokenId(66)], &[(0, 0), (1, 0)]);
        // A marker inside what would be one token's text.
        let cut = [&spelled("(30")[..], &[marker], &spelled("0)")].concat();
        check(&[TokenId(300)], &cut, &[(0, 0)]);
    }

    #[test]
    fn what_is_left_is_the_rest_of_the_text() {
        let tokenizer = tokenizer();
        let marker = tokenizer.special().im_end;
        let prompt = [TokenId(300), TokenId(65), marker, TokenId(301)];
        let text = |ids: &[TokenId]| tokenizer.decode(ids);
        let (left, own) = rest(&tokenizer, &prompt, Place { token: 0, bytes: 2 });
        assert_eq!(text(&left), [b"00)A<|im_end|>".as_slice(), b"(301)"].concat());
        assert_eq!((&left[left.len() - own..], own), (&[marker, TokenId(301)][..], 2));
        let whole = |token| rest(&tokenizer, &prompt, Place { token, bytes: 0 });
        assert_eq!(whole(1), (prompt[1..].to_vec(), 3));
        assert_eq!(whole(4), (Vec::new(), 0));
    }
}
