//! The fixed part of a KVC file (model.md 8.4). Little-endian.
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | 3 bytes | `KVC` |
//! | 3 | u8 | version, 1 |
//! | 4 | u8 | bits of the routed experts: 2, 4 or 8 |
//! | 5 | u8 | reason |
//! | 6 | u8 | extension bits |
//! | 7 | u8 | 0 |
//! | 8 | u32 | tokens |
//! | 12 | u32 | hits, patched in place |
//! | 16 | u32 | context of the writer |
//! | 20 | 4 bytes | first bytes of the model's fingerprint |
//! | 24 | u64 | created, Unix seconds |
//! | 32 | u64 | last used, patched in place |
//! | 40 | u64 | payload bytes |
//! | 48 | u32 | text bytes |
//!
//! Behind it: the text, the payload, and the sections of the extension bits in the order of the bits.

use super::refusal::Refusal;
use crate::util::bytes::Reader;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 52;
/// Where hits stand.
pub(super) const HITS_AT: usize = 12;
/// Where the time of the last use stands.
pub(super) const LAST_USED_AT: usize = 32;
const MAGIC: [u8; 3] = *b"KVC";
const VERSION: u8 = 1;

/// Why a file was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A number that is not in the list, or none.
    Unknown,
    /// The stable beginning of a prompt of which nothing was cached.
    Cold,
    /// On the way, at a multiple of the interval.
    Continued,
    /// An unrelated prompt took the session's place.
    Evict,
    /// The program ended.
    Shutdown,
    /// The agent's system prompt.
    AgentSystem,
    /// A session that a user saved.
    AgentSession,
}

impl Reason {
    const ALL: [Self; 7] = [
        Self::Unknown,
        Self::Cold,
        Self::Continued,
        Self::Evict,
        Self::Shutdown,
        Self::AgentSystem,
        Self::AgentSession,
    ];

    fn code(self) -> u8 {
        let place = Self::ALL.iter().position(|&reason| reason == self);
        place.and_then(|p| u8::try_from(p).ok()).expect("every reason is in the list of seven")
    }

    fn from_code(code: u8) -> Self {
        Self::ALL.get(usize::from(code)).copied().unwrap_or(Self::Unknown)
    }

    /// Its name in lists.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Cold => "cold",
            Self::Continued => "continued",
            Self::Evict => "evict",
            Self::Shutdown => "shutdown",
            Self::AgentSystem => "agent-system",
            Self::AgentSession => "agent-session",
        }
    }
}

/// Extension bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Extensions(pub u8);

impl Extensions {
    /// A map from tool-call ids to sampled blocks follows.
    pub const TOOL_MAP: Self = Self(1);
    /// The text is what a client of the responses interface sees.
    pub const RESPONSES_VISIBLE: Self = Self(2);
    /// The text is what a client sees that drops reasoning.
    pub const THINKING_VISIBLE: Self = Self(4);
    /// A title follows.
    pub const TITLE: Self = Self(8);
    /// Tagged sections follow.
    pub const TAGGED: Self = Self(16);
    /// Checksums and the fingerprint follow, last.
    pub const INTEGRITY: Self = Self(128);
    const KNOWN: u8 = 1 | 2 | 4 | 8 | 16 | 128;

    /// Whether all bits of `other` are set.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// With the bits of `other`.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the text is another than that of the tokens.
    pub fn is_visible_key(self) -> bool {
        self.has(Self::RESPONSES_VISIBLE) || self.has(Self::THINKING_VISIBLE)
    }
}

/// The fields of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bits of the routed experts: 2, 4 or 8.
    pub quant_bits: u8,
    /// Why it was written.
    pub reason: Reason,
    /// What follows the payload, and what kind of text it is.
    pub extensions: Extensions,
    /// Tokens of the state.
    pub tokens: u32,
    /// How often it was loaded.
    pub hits: u32,
    /// Context of the writer, in tokens; only told.
    pub ctx: u32,
    /// First bytes of the model's fingerprint.
    pub fingerprint: [u8; 4],
    /// When it was written, Unix seconds.
    pub created: u64,
    /// When it was last loaded or written, Unix seconds.
    pub last_used: u64,
    /// Bytes of the payload; 0 where it was stripped.
    pub payload_bytes: u64,
    /// Bytes of the text.
    pub text_bytes: u32,
}

impl Header {
    /// The bytes in the file.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&MAGIC);
        put(&[VERSION, self.quant_bits, self.reason.code(), self.extensions.0, 0]);
        put(&self.tokens.to_le_bytes());
        put(&self.hits.to_le_bytes());
        put(&self.ctx.to_le_bytes());
        put(&self.fingerprint);
        put(&self.created.to_le_bytes());
        put(&self.last_used.to_le_bytes());
        put(&self.payload_bytes.to_le_bytes());
        put(&self.text_bytes.to_le_bytes());
        assert_eq!(at, HEADER_BYTES, "every field was written");
        out
    }

    /// Reads a header of a file of `file_bytes`.
    ///
    /// # Errors
    /// When it is none, or names more bytes than the file has.
    pub fn parse(bytes: &[u8], file_bytes: u64) -> Result<Self, Refusal> {
        let mut r = Reader::new(bytes);
        let short = |_| Refusal::Short { what: "the header" };
        let magic: [u8; 3] = r.take(3).map_err(short)?.try_into().expect("three bytes");
        if magic != MAGIC {
            return Err(Refusal::Magic(magic));
        }
        if bytes.len() < HEADER_BYTES {
            return Err(Refusal::Short { what: "the header" });
        }
        let unsupported = |what, found: u64, expected: &str| {
            Err(Refusal::Unsupported { what, found: found.to_string(), expected: expected.into() })
        };
        let version = r.u8().map_err(short)?;
        if version != VERSION {
            return unsupported("the version", version.into(), "1");
        }
        let quant_bits = r.u8().map_err(short)?;
        if ![2, 4, 8].contains(&quant_bits) {
            return unsupported("the bits of the experts", quant_bits.into(), "2, 4 or 8");
        }
        let reason = Reason::from_code(r.u8().map_err(short)?);
        let extensions = Extensions(r.u8().map_err(short)?);
        if extensions.0 & !Extensions::KNOWN != 0 {
            return unsupported("the extension bits", extensions.0.into(), "bits 0 to 4 and 7");
        }
        r.u8().map_err(short)?;
        let tokens = r.u32().map_err(short)?;
        let hits = r.u32().map_err(short)?;
        let ctx = r.u32().map_err(short)?;
        let fingerprint = r.take(4).map_err(short)?.try_into().expect("four bytes");
        let header = Self {
            quant_bits,
            reason,
            extensions,
            tokens,
            hits,
            ctx,
            fingerprint,
            created: r.u64().map_err(short)?,
            last_used: r.u64().map_err(short)?,
            payload_bytes: r.u64().map_err(short)?,
            text_bytes: r.u32().map_err(short)?,
        };
        if tokens == 0 {
            return Err(Refusal::broken("the token count", "0"));
        }
        let end = header.payload_at().checked_add(header.payload_bytes);
        if end.is_none_or(|end| end > file_bytes) {
            let (text, payload) = (header.text_bytes, header.payload_bytes);
            let why = format!("{text} and {payload} bytes in a file of {file_bytes}");
            return Err(Refusal::broken("the lengths of text and payload", why));
        }
        Ok(header)
    }

    /// Where the payload begins.
    pub fn payload_at(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.text_bytes)
    }

    /// Where the sections begin.
    pub fn sections_at(&self) -> u64 {
        self.payload_at() + self.payload_bytes
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn sample() -> Header {
        Header {
            quant_bits: 2,
            reason: Reason::Continued,
            extensions: Extensions::TAGGED.with(Extensions::INTEGRITY),
            tokens: 10_240,
            hits: 3,
            ctx: 32_768,
            fingerprint: [1, 2, 3, 4],
            created: 0x0102_0304_0506,
            last_used: 0x1112_1314_1516,
            payload_bytes: 1000,
            text_bytes: 77,
        }
    }

    #[test]
    fn fields_stand_where_the_format_puts_them() {
        let bytes = sample().encode();
        assert_eq!(&bytes[..8], b"KVC\x01\x02\x02\x90\x00");
        assert_eq!(bytes[8..12], 10_240_u32.to_le_bytes());
        assert_eq!(bytes[HITS_AT..16], 3_u32.to_le_bytes());
        assert_eq!(bytes[16..24], [0, 0x80, 0, 0, 1, 2, 3, 4]);
        assert_eq!(bytes[24..32], 0x0102_0304_0506_u64.to_le_bytes());
        assert_eq!(bytes[LAST_USED_AT..40], 0x1112_1314_1516_u64.to_le_bytes());
        assert_eq!(bytes[40..48], 1000_u64.to_le_bytes());
        assert_eq!(bytes[48..52], 77_u32.to_le_bytes());
        assert_eq!(Header::parse(&bytes, 52 + 77 + 1000).unwrap(), sample());
    }

    #[test]
    fn what_cannot_be_a_header_is_refused_by_field() {
        let check = |at: usize, byte: u8, file: u64| {
            let mut bytes = sample().encode();
            bytes[at] = byte;
            Header::parse(&bytes, file).unwrap_err().to_string()
        };
        assert_eq!(check(0, b'X', 2000), "not a KVC file: it begins with [58, 56, 43]");
        assert_eq!(check(3, 2, 2000), "the version is 2, expected 1");
        assert_eq!(check(4, 3, 2000), "the bits of the experts is 3, expected 2, 4 or 8");
        assert_eq!(check(6, 0x20, 2000), "the extension bits is 32, expected bits 0 to 4 and 7");
        let short = check(7, 0, 52 + 77 + 999);
        assert_eq!(short, "the lengths of text and payload: 77 and 1000 bytes in a file of 1128");
        let long = check(47, 0xff, 1 << 60);
        assert!(long.starts_with("the lengths of text and payload"), "{long}");
        let cut = Header::parse(&sample().encode()[..51], 51).unwrap_err();
        assert_eq!(cut.to_string(), "the file ends inside the header");
    }
}
