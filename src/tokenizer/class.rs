//! What the pre-tokenizer wants to know of a character: its class and its length in bytes.

use std::sync::atomic::{AtomicU8, Ordering};

use unicode_general_category::{GeneralCategory, get_general_category};

/// Classes of model.md 6.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Class {
    /// L or M: letters and combining marks.
    Word = 1,
    /// N: digits and all other numbers.
    Number = 2,
    /// CR or LF.
    Newline = 3,
    /// Other white space.
    Space = 4,
    /// Everything else, and a byte that begins no valid UTF-8 sequence.
    Other = 5,
}

const ASCII: [Class; 128] = {
    let mut table = [Class::Other; 128];
    let mut c = 0;
    while c < 128u8 {
        table[c as usize] = match c {
            b'a'..=b'z' | b'A'..=b'Z' => Class::Word,
            b'0'..=b'9' => Class::Number,
            b'\r' | b'\n' => Class::Newline,
            b' ' | b'\t' | 0x0B | 0x0C => Class::Space,
            _ => Class::Other,
        };
        c += 1;
    }
    table
};

/// Class of the character at `at`, which is inside `text`, and its length.
///
/// A byte that begins no valid sequence (a stray continuation, an overlong or surrogate form, a cut character)
/// is a character of its own of class [`Class::Other`], as U+FFFD would be.
#[inline]
pub(super) fn at(text: &[u8], at: usize) -> (Class, usize) {
    let first = text[at];
    match ASCII.get(usize::from(first)) {
        Some(&class) => (class, 1),
        None => match decode(&text[at..]) {
            Some((c, len)) => (of(c), len),
            None => (Class::Other, 1),
        },
    }
}

/// Whether the byte is an ASCII letter: the long runs of ordinary text.
#[inline]
pub(super) fn is_ascii_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic()
}

/// The multi-byte character that `text` begins with, by RFC 3629.
fn decode(text: &[u8]) -> Option<(char, usize)> {
    let part = |i: usize| text.get(i).filter(|&&b| b & 0xC0 == 0x80).map(|&b| u32::from(b & 0x3F));
    let first = u32::from(*text.first()?);
    let (code, len, least) = match first {
        0xC2..=0xDF => ((first & 0x1F) << 6 | part(1)?, 2, 0x80),
        0xE0..=0xEF => ((first & 0x0F) << 12 | part(1)? << 6 | part(2)?, 3, 0x800),
        0xF0..=0xF4 => {
            ((first & 0x07) << 18 | part(1)? << 12 | part(2)? << 6 | part(3)?, 4, 0x1_0000)
        }
        _ => return None,
    };
    // Refuses surrogates and numbers above U+10FFFF.
    char::from_u32(code).filter(|_| code >= least).map(|c| (c, len))
}

/// Classes found so far, by code point; 0 is not asked yet. Zero pages cost nothing until they are touched, and
/// a text touches few; the tables behind [`look_up`] are several searches away.
static KNOWN: [AtomicU8; 0x11_0000] = [const { AtomicU8::new(0) }; 0x11_0000];

/// Class of a character beyond ASCII.
fn of(c: char) -> Class {
    let known = &KNOWN[c as usize];
    match known.load(Ordering::Relaxed) {
        1 => Class::Word,
        2 => Class::Number,
        3 => Class::Newline,
        4 => Class::Space,
        5 => Class::Other,
        _ => {
            let class = look_up(c);
            // Every thread stores the same value.
            known.store(class as u8, Ordering::Relaxed);
            class
        }
    }
}

fn look_up(c: char) -> Class {
    use GeneralCategory as G;
    match c {
        '\r' | '\n' => return Class::Newline,
        // Unicode's White_Space, as `\s` has it.
        c if c.is_whitespace() => return Class::Space,
        _ => {}
    }
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other category is punctuation here")]
    match get_general_category(c) {
        G::UppercaseLetter
        | G::LowercaseLetter
        | G::TitlecaseLetter
        | G::ModifierLetter
        | G::OtherLetter
        | G::NonspacingMark
        | G::SpacingMark
        | G::EnclosingMark => Class::Word,
        G::DecimalNumber | G::LetterNumber | G::OtherNumber => Class::Number,
        _ => Class::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_decode_as_the_standard_library_has_it() {
        for c in (0x80..=0x10_FFFF).filter_map(char::from_u32) {
            let mut buf = [0; 4];
            let text = c.encode_utf8(&mut buf).as_bytes();
            assert_eq!(decode(text), Some((c, c.len_utf8())));
            assert_eq!(decode(&text[..text.len() - 1]), None);
        }
    }

    #[test]
    fn bytes_that_begin_no_character_stand_alone() {
        let bad: [&[u8]; 8] = [
            b"\x80",
            b"\xBF\x80",
            b"\xC0\x80",
            b"\xC1\xBF",
            b"\xE0\x80\x80",
            b"\xED\xA0\x80",
            b"\xF4\x90\x80\x80",
            b"\xF5\x80\x80\x80",
        ];
        for text in bad {
            assert_eq!(at(text, 0), (Class::Other, 1), "{text:?}");
        }
    }

    #[test]
    fn every_character_is_what_the_official_expression_takes_it_for() {
        let class = |set: &str| fancy_regex::Regex::new(&format!("^{set}$")).unwrap();
        let word = class(r"[\p{L}\p{M}]");
        let number = class(r"\p{N}");
        let space = class(r"\s");
        let mut buf = [0; 4];
        for c in (0x80..=0x10_FFFF).filter_map(char::from_u32) {
            // The two tables may be of different Unicode versions: what one does not know is left out.
            if get_general_category(c) == GeneralCategory::Unassigned {
                continue;
            }
            let text: &str = c.encode_utf8(&mut buf);
            let expected = match () {
                () if word.is_match(text).unwrap() => Class::Word,
                () if number.is_match(text).unwrap() => Class::Number,
                () if space.is_match(text).unwrap() => Class::Space,
                () => Class::Other,
            };
            assert_eq!(look_up(c), expected, "{c:?}");
        }
    }

    #[test]
    fn classes_agree_with_the_general_path() {
        for c in (0..128u8).map(char::from) {
            assert_eq!(ASCII[c as usize], look_up(c), "{c:?}");
        }
        let check = |text: &str, class| {
            for c in text.chars() {
                let mut buf = [0; 4];
                let bytes = c.encode_utf8(&mut buf).as_bytes();
                // Twice: the second answer comes from the table.
                assert_eq!(at(bytes, 0), (class, c.len_utf8()), "{c:?}");
                assert_eq!(at(bytes, 0), (class, c.len_utf8()), "{c:?}");
            }
        };
        check("aZéßЖ中ʰ\u{301}\u{93F}\u{20DD}𝒳", Class::Word);
        check("07²Ⅷ½٣𝟘", Class::Number);
        check(
            "\t\u{B}\u{C} \u{85}\u{A0}\u{1680}\u{2000}\u{200A}\u{2028}\u{2029}\u{202F}\u{205F}\u{3000}",
            Class::Space,
        );
        check("'_-+€😀\u{200B}\u{200D}\u{FEFF}\u{0}\u{E000}", Class::Other);
    }
}
