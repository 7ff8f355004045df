//! Thoughts as opaque strings that clients hand back: `q36r1.` base64url(zlib(UTF-8)) `.` CRC-32C of the text in hex.
//!
//! A client that keeps only the signature loses nothing; one that shortens or changes it is noticed.

use std::io::{Read as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

const PREFIX: &str = "q36r1.";

/// The longest thought that is taken back: far more than a context holds, far less than what a crafted one inflates to.
const TEXT_MAX_BYTES: u64 = 16 << 20;

/// A thought as a signature.
pub(super) fn sign(thought: &str) -> String {
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
    packed.write_all(thought.as_bytes()).expect("writing to memory cannot fail");
    let packed = packed.finish().expect("writing to memory cannot fail");
    let sum = crc32c::crc32c(thought.as_bytes());
    format!("{PREFIX}{}.{sum:08x}", URL_SAFE_NO_PAD.encode(packed))
}

/// The thought of a signature; `None` for anything that [`sign`] did not make.
pub(super) fn thought(signature: &str) -> Option<String> {
    let (packed, sum) = signature.strip_prefix(PREFIX)?.split_once('.')?;
    let packed = URL_SAFE_NO_PAD.decode(packed).ok()?;
    let mut text = Vec::new();
    let mut reader = ZlibDecoder::new(packed.as_slice()).take(TEXT_MAX_BYTES + 1);
    reader.read_to_end(&mut text).ok()?;
    let whole = text.len() as u64 <= TEXT_MAX_BYTES;
    let same = u32::from_str_radix(sum, 16).ok()? == crc32c::crc32c(&text);
    if whole && same { String::from_utf8(text).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn thoughts_come_back(text in any::<String>()) {
            prop_assert_eq!(thought(&sign(&text)), Some(text));
        }

        #[test]
        fn strangers_do_not(text in any::<String>()) {
            prop_assert_eq!(thought(&text), None);
            prop_assert_eq!(thought(&format!("{PREFIX}{text}")), None);
        }
    }

    #[test]
    fn damage_is_noticed() {
        let signature = sign("Check the header first.");
        assert!(signature.starts_with("q36r1.eJ"), "{signature}");
        assert_eq!(thought(&signature[..signature.len() - 1]), None);
        assert_eq!(thought(&signature.replacen("q36r1", "q36r2", 1)), None);
        let mut sum = signature.clone().into_bytes();
        *sum.last_mut().unwrap() = if sum.ends_with(b"0") { b'1' } else { b'0' };
        assert_eq!(thought(&String::from_utf8(sum).unwrap()), None);
    }

    #[test]
    fn bombs_are_not_inflated() {
        let bomb = sign(&"x".repeat(17 << 20));
        assert!(bomb.len() < 100_000);
        assert_eq!(thought(&bomb), None);
    }
}
