//! The one hex encoder, and digests spelled with it.

use sha1::Digest as _;

/// Lower-case hex of `bytes`.
pub fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = String::with_capacity(bytes.len() * 2);
    for &b in bytes {
        out.push(char::from(DIGITS[usize::from(b >> 4)]));
        out.push(char::from(DIGITS[usize::from(b & 15)]));
    }
    out
}

/// SHA-1 of `bytes` as 40 hex digits.
pub fn sha1(bytes: &[u8]) -> String {
    encode(&sha1::Sha1::digest(bytes))
}

/// SHA-256 of `bytes` as 64 hex digits.
pub fn sha256(bytes: &[u8]) -> String {
    encode(&sha2::Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_digests() {
        assert_eq!(encode(&[0, 0x0f, 0xf0, 0xff]), "000ff0ff");
        assert_eq!(sha1(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(
            sha256(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
