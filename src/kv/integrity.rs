//! The last section of a file: which model it is of, and checksums of everything before it.
//!
//! | bytes | what |
//! |---|---|
//! | 3, 1 | `KCK`, version 1 |
//! | 20 | fingerprint of the model, steering included |
//! | 4 | CRC-32C of the header, with hits and last use as zero |
//! | 4 | CRC-32C of the text |
//! | 4 | CRC-32C of the payload |
//! | 4 each | CRC-32C of the tool map, the title and the tagged sections (all tags together), of those that are there |
//!
//! Its length follows from the header's extension bits, so it is found from the end of the file, whatever became of
//! the sections before it.

use super::header::{Extensions, HEADER_BYTES, HITS_AT, LAST_USED_AT};
use super::refusal::Refusal;
use crate::util::bytes::Reader;

const MAGIC: [u8; 4] = *b"KCK\x01";
const WHAT: &str = "the integrity section";
/// Bits with a section of their own, in the order of the file.
pub(super) const SUMMED: [(Extensions, &str); 3] = [
    (Extensions::TOOL_MAP, "the tool map"),
    (Extensions::TITLE, "the title"),
    (Extensions::TAGGED, "the tagged sections"),
];

/// Checksums and fingerprint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Integrity {
    /// The model, steering included.
    pub fingerprint: [u8; 20],
    /// Of the header.
    pub header: u32,
    /// Of the text.
    pub text: u32,
    /// Of the payload.
    pub payload: u32,
    /// Of each section, in the order of the file.
    pub sections: Vec<u32>,
}

/// Bytes of the section in a file with these extensions.
pub(super) fn section_bytes(extensions: Extensions) -> u64 {
    let sections = SUMMED.iter().filter(|(bit, _)| extensions.has(*bit)).count();
    (MAGIC.len() + 20 + 4 * (3 + sections)) as u64
}

/// CRC-32C of a header. Its two counters are patched in place and do not count.
pub(super) fn header_sum(bytes: &[u8; HEADER_BYTES]) -> u32 {
    let mut bytes = *bytes;
    bytes[HITS_AT..HITS_AT + 4].fill(0);
    bytes[LAST_USED_AT..LAST_USED_AT + 8].fill(0);
    crc32c::crc32c(&bytes)
}

impl Integrity {
    /// The bytes in the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(self.fingerprint);
        let sums = [self.header, self.text, self.payload];
        out.extend(sums.iter().chain(&self.sections).flat_map(|sum| sum.to_le_bytes()));
        out
    }

    /// Reads the section.
    ///
    /// # Errors
    /// When it is none, or of an unknown model.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let mut r = Reader::new(bytes);
        let short = |_| Refusal::Short { what: WHAT };
        if r.take(MAGIC.len()).map_err(short)? != MAGIC {
            return Err(Refusal::broken(WHAT, "it does not begin with `KCK` and version 1"));
        }
        let fingerprint = r.take(20).map_err(short)?.try_into().expect("twenty bytes");
        if fingerprint == [0; 20] {
            let (found, expected) = ("0".to_owned(), "that of a model".to_owned());
            return Err(Refusal::Unsupported { what: "the fingerprint", found, expected });
        }
        let mut sum = || r.u32().map_err(short);
        let (header, text, payload) = (sum()?, sum()?, sum()?);
        let mut sections = Vec::new();
        while r.remaining() > 0 {
            sections.push(r.u32().map_err(short)?);
        }
        Ok(Self { fingerprint, header, text, payload, sections })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back_and_has_the_length_that_the_bits_say() {
        let with =
            |sections| Integrity { fingerprint: [7; 20], header: 1, text: 2, payload: 3, sections };
        for (bits, sections) in [(0x80, vec![]), (0x90, vec![4]), (0x99, vec![4, 5, 6])] {
            let bytes = with(sections.clone()).encode();
            assert_eq!(bytes.len() as u64, section_bytes(Extensions(bits)));
            assert_eq!(Integrity::parse(&bytes).unwrap(), with(sections));
        }
        let mut bytes = with(vec![]).encode();
        bytes[4..24].fill(0);
        let unknown = Integrity::parse(&bytes).unwrap_err().to_string();
        assert_eq!(unknown, "the fingerprint is 0, expected that of a model");
        bytes[2] = 0;
        assert!(Integrity::parse(&bytes).unwrap_err().to_string().starts_with(WHAT));
    }

    #[test]
    fn counters_of_a_header_do_not_count() {
        let mut header = [9; HEADER_BYTES];
        let before = header_sum(&header);
        header[12..16].fill(1);
        header[32..40].fill(2);
        assert_eq!(header_sum(&header), before);
        header[11] = 0;
        assert_ne!(header_sum(&header), before);
    }

    #[test]
    fn the_polynomial_is_castagnolis() {
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
    }
}
