//! The byte alphabet in which normal tokens are spelled in files: every byte as one printable character.
//!
//! Bytes 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF are the character of the same number; the other 68, in increasing
//! order, are U+0100, U+0101 and so on (model.md 6.1). So a space is `Ġ` and a newline `Ċ`.

/// Characters of the alphabet end here.
const LIMIT: usize = 0x100 + 68;

/// Byte to code point.
const SPELLED: [u16; 256] = spelled();

/// Code point to byte + 1; 0 where the character is not in the alphabet.
const MEANT: [u16; LIMIT] = meant();

const fn is_itself(byte: usize) -> bool {
    matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF)
}

#[expect(clippy::cast_possible_truncation, reason = "a byte, and 68 more")]
const fn spelled() -> [u16; 256] {
    let mut table = [0; 256];
    let mut next = 0x100;
    let mut byte = 0;
    while byte < 256 {
        if is_itself(byte) {
            table[byte] = byte as u16;
        } else {
            table[byte] = next;
            next += 1;
        }
        byte += 1;
    }
    table
}

#[expect(clippy::cast_possible_truncation, reason = "a byte, and 68 more")]
const fn meant() -> [u16; LIMIT] {
    let mut table = [0; LIMIT];
    let mut byte = 0;
    while byte < 256 {
        table[SPELLED[byte] as usize] = byte as u16 + 1;
        byte += 1;
    }
    table
}

/// Appends the bytes that `spelling` stands for. `None`, with `out` partly extended, when a character is not in
/// the alphabet or `spelling` is not UTF-8.
pub(super) fn read(spelling: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut rest = spelling;
    while let Some((&first, tail)) = rest.split_first() {
        let (code, tail) = match first {
            0..0x80 => (usize::from(first), tail),
            // Two-byte characters reach U+07FF; the alphabet ends well below.
            0xC2..=0xDF => {
                let (&second, tail) = tail.split_first()?;
                if second & 0xC0 != 0x80 {
                    return None;
                }
                (usize::from(first & 0x1F) << 6 | usize::from(second & 0x3F), tail)
            }
            _ => return None,
        };
        let byte = MEANT.get(code)?.checked_sub(1)?;
        out.push(u8::try_from(byte).ok()?);
        rest = tail;
    }
    Some(())
}

/// How `bytes` are spelled in a file.
pub(super) fn write(bytes: &[u8]) -> String {
    let code = |&b: &u8| char::from_u32(u32::from(SPELLED[usize::from(b)]));
    bytes.iter().map(|b| code(b).expect("the alphabet is below the surrogates")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_character() {
        let all: Vec<u8> = (0..=255).collect();
        let spelling = write(&all);
        assert_eq!(spelling.chars().count(), 256);
        let mut back = Vec::new();
        assert_eq!(read(spelling.as_bytes(), &mut back), Some(()));
        assert_eq!(back, all);
        assert_eq!(write(b" \n\x00\xAD\xFF"), "ĠĊĀŃÿ");
    }

    #[test]
    fn other_characters_are_refused() {
        let past_the_end = "\u{144}".as_bytes();
        for bad in [&b" "[..], b"\x00", b"a\xC4", b"\xC4a", b"\xE4\xB8\xAD", b"\xFF", past_the_end]
        {
            assert_eq!(read(bad, &mut Vec::new()), None, "{bad:?}");
        }
    }
}
