//! Token bytes to text while they arrive: a token may end inside a UTF-8 character.

/// Turns a stream of bytes into text. However the bytes are cut, the text is the same: that of
/// [`String::from_utf8_lossy`] over all of them.
///
/// Bytes that begin a character and may still become one are held back, three at most; a byte that cannot is
/// U+FFFD at once, so a stream never stalls (model.md 6.7).
#[derive(Debug, Clone, Default)]
pub struct StreamDecoder {
    held: Vec<u8>,
}

impl StreamDecoder {
    /// Nothing held back.
    pub fn new() -> Self {
        Self::default()
    }

    /// The text that `bytes` complete.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        let joined;
        let mut rest = if self.held.is_empty() {
            bytes
        } else {
            joined = [&self.held, bytes].concat();
            self.held.clear();
            &joined
        };
        let mut text = String::with_capacity(rest.len());
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    return text;
                }
                Err(e) => {
                    let (valid, tail) = rest.split_at(e.valid_up_to());
                    text.push_str(std::str::from_utf8(valid).expect("valid up to here"));
                    // No length: the tail is a valid beginning.
                    let Some(len) = e.error_len() else {
                        self.held.extend_from_slice(tail);
                        return text;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &tail[len..];
                }
            }
        }
    }

    /// Bytes held back.
    pub fn held(&self) -> &[u8] {
        &self.held
    }

    /// Ends the stream: U+FFFD for a character that was cut, for output that must be text.
    pub fn finish_lossy(self) -> String {
        String::from_utf8_lossy(&self.held).into_owned()
    }

    /// Ends the stream: the bytes of a character that was cut, for output to a file.
    pub fn finish_raw(self) -> Vec<u8> {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(parts: &[&[u8]], expected: &[&str]) {
        let mut decoder = StreamDecoder::new();
        let mut found: Vec<String> = parts.iter().map(|p| decoder.push(p)).collect();
        found.push(decoder.finish_lossy());
        assert_eq!(found, expected);
    }

    #[test]
    fn a_cut_character_waits_for_its_end() {
        check(&[b"a\xF0", b"\x9F", b"\x98\x80b"], &["a", "", "😀b", ""]);
        check(&[b"\xE4\xB8"], &["", "\u{FFFD}"]);
        let mut decoder = StreamDecoder::new();
        assert_eq!(decoder.push(b"x\xC3"), "x");
        assert_eq!(decoder.held(), b"\xC3");
        assert_eq!(decoder.finish_raw(), b"\xC3");
    }

    #[test]
    fn bytes_that_never_become_text_do_not_wait() {
        check(&[b"\xFF", b"\xC0\x80", b"\x80"], &["\u{FFFD}", "\u{FFFD}\u{FFFD}", "\u{FFFD}", ""]);
        // Each is refused by its second byte: overlong, surrogate, too large.
        for start in [b"\xE0\x80", b"\xED\xA0", b"\xF4\x90"] {
            check(&[start], &["\u{FFFD}\u{FFFD}", ""]);
        }
        check(&[b"\xE4", b"a"], &["", "\u{FFFD}a", ""]);
    }

    /// Bytes that make and break characters often.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            Just(b'a'),
            prop::sample::select(&[0x80, 0x9F, 0xA0, 0xBF, 0xC3, 0xE0, 0xE4, 0xED, 0xF0, 0xF4][..]),
            any::<u8>(),
        ];
        prop::collection::vec(byte, 0..24)
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_text(parts in prop::collection::vec(bytes(), 0..6)) {
            let mut decoder = StreamDecoder::new();
            let mut text = String::new();
            for part in &parts {
                text += &decoder.push(part);
                prop_assert!(decoder.held().len() <= 3);
            }
            text += &decoder.finish_lossy();
            prop_assert_eq!(text, String::from_utf8_lossy(&parts.concat()).into_owned());
        }
    }
}
