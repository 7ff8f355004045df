//! A KVC file that is open for reading. Opening looks at its two ends only; everything else is read when asked for,
//! in pieces, so that memory is bounded whatever lengths a file claims.

use std::io::{self, Read, Seek, SeekFrom};

use sha1::{Digest as _, Sha1};

use super::header::{Extensions, HEADER_BYTES, Header};
use super::integrity::{self, Integrity};
use super::payload::{Head, MAX_HEAD_BYTES};
use super::refusal::Refusal;
use super::section::{MAX_SECTIONS_BYTES, Sections};

/// Bytes that are read at once where the whole is not needed.
const PIECE: usize = 256 << 10;

/// An open file, or anything that can be read like one.
#[derive(Debug)]
pub struct Container<R> {
    from: R,
    bytes: u64,
    header: Header,
    header_sum: u32,
    integrity: Option<Integrity>,
}

impl<R: Read + Seek> Container<R> {
    /// Reads header and integrity section. A file without one can be listed, not loaded.
    ///
    /// # Errors
    /// When it is no KVC file, or one of these two is broken.
    pub fn open(mut from: R) -> Result<Self, Refusal> {
        let bytes = from.seek(SeekFrom::End(0)).map_err(|e| Refusal::read("the header", e))?;
        let have = usize::try_from(bytes).unwrap_or(usize::MAX).min(HEADER_BYTES);
        let mut raw = [0; HEADER_BYTES];
        read_at(&mut from, 0, &mut raw[..have], "the header")?;
        let header = Header::parse(&raw[..have], bytes)?;
        let mut file =
            Self { from, bytes, header, header_sum: integrity::header_sum(&raw), integrity: None };
        if header.extensions.has(Extensions::INTEGRITY) {
            file.integrity = Some(file.read_integrity()?);
        }
        Ok(file)
    }

    fn read_integrity(&mut self) -> Result<Integrity, Refusal> {
        let what = "the integrity section";
        let length = integrity::section_bytes(self.header.extensions);
        let begin = self.bytes.checked_sub(length);
        let begin = begin.filter(|&begin| begin >= self.header.sections_at());
        let begin = begin.ok_or(Refusal::Short { what })?;
        let mut raw = vec![0; usize::try_from(length).expect("a few dozen bytes")];
        read_at(&mut self.from, begin, &mut raw, what)?;
        let found = Integrity::parse(&raw)?;
        if found.header != self.header_sum {
            return Err(Refusal::Checksum { what: "the header" });
        }
        if found.fingerprint[..4] != self.header.fingerprint {
            return Err(Refusal::broken("the fingerprint", "its two places differ"));
        }
        Ok(found)
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Size of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Checksums and fingerprint.
    ///
    /// # Errors
    /// When the file has none: it cannot be trusted.
    pub fn integrity(&self) -> Result<&Integrity, Refusal> {
        self.integrity.as_ref().ok_or_else(|| Refusal::Unsupported {
            what: "the integrity section",
            found: "missing".into(),
            expected: "one, as this program writes it".into(),
        })
    }

    /// Whether the file is of the model with this fingerprint.
    ///
    /// # Errors
    /// When it is of another, or does not say.
    pub fn check_model(&self, fingerprint: &[u8; 20]) -> Result<(), Refusal> {
        let found = self.integrity()?.fingerprint;
        if found == *fingerprint {
            return Ok(());
        }
        let spell = |f: &[u8; 20]| crate::util::hex::encode(&f[..4]);
        Err(Refusal::Other {
            rule: "KV checkpoint was written for a different model",
            what: "the fingerprint",
            found: spell(&found),
            expected: spell(fingerprint),
        })
    }

    /// The sections, and a line for each that was dropped.
    ///
    /// # Errors
    /// When they cannot be read, or there is no integrity section to check them by.
    pub fn sections(&mut self) -> Result<(Sections, Vec<String>), Refusal> {
        let sums = self.integrity()?.sections.clone();
        let begin = self.header.sections_at();
        let end = self.bytes - integrity::section_bytes(self.header.extensions);
        if end - begin > MAX_SECTIONS_BYTES {
            let line = format!("all sections: {} bytes, more than are read", end - begin);
            return Ok((Sections::default(), vec![line]));
        }
        let mut raw = vec![0; usize::try_from(end - begin).expect("bounded above")];
        read_at(&mut self.from, begin, &mut raw, "the sections")?;
        Ok(Sections::parse(&raw, self.header.extensions, &sums))
    }

    /// Up to `limit` bytes from the start of the text.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn text(&mut self, limit: usize) -> Result<Vec<u8>, Refusal> {
        let mut text = vec![0; (self.header.text_bytes as usize).min(limit)];
        read_at(&mut self.from, HEADER_BYTES as u64, &mut text, "the text")?;
        Ok(text)
    }

    /// Whether `prompt` begins with the text. Checks the text's checksum on the way.
    ///
    /// # Errors
    /// When the text cannot be read, or is not what was written.
    pub fn text_begins(&mut self, prompt: &[u8]) -> Result<bool, Refusal> {
        let Some(mut rest) = prompt.get(..self.header.text_bytes as usize) else {
            return Ok(false);
        };
        let (mut same, mut sum) = (true, 0);
        self.each_piece(HEADER_BYTES as u64, rest.len() as u64, "the text", |piece| {
            let (expected, behind) = rest.split_at(piece.len());
            same &= piece == expected;
            rest = behind;
            sum = crc32c::crc32c_append(sum, piece);
        })?;
        if sum != self.integrity()?.text {
            return Err(Refusal::Checksum { what: "the text" });
        }
        Ok(same)
    }

    /// SHA-1 of the text, which is the file's name, and whether its checksum matches.
    fn text_digest(&mut self) -> Result<([u8; 20], u32), Refusal> {
        let (mut digest, mut sum) = (Sha1::new(), 0);
        let bytes = u64::from(self.header.text_bytes);
        self.each_piece(HEADER_BYTES as u64, bytes, "the text", |piece| {
            digest.update(piece);
            sum = crc32c::crc32c_append(sum, piece);
        })?;
        Ok((digest.finalize().into(), sum))
    }

    /// The head of the payload; `None` where it was stripped.
    ///
    /// # Errors
    /// When it is none that this program reads, or its token count is not the header's.
    pub fn head(&mut self) -> Result<Option<Head>, Refusal> {
        let bytes = self.header.payload_bytes;
        if bytes == 0 {
            return Ok(None);
        }
        let have = usize::try_from(bytes).unwrap_or(usize::MAX).min(MAX_HEAD_BYTES);
        let mut raw = [0; MAX_HEAD_BYTES];
        let at = self.header.payload_at();
        read_at(&mut self.from, at, &mut raw[..have], "the payload's head")?;
        let head = Head::parse(&raw[..have], bytes)?;
        if head.tokens() != self.header.tokens {
            let why =
                format!("{} in the header, {} in the payload", self.header.tokens, head.tokens());
            return Err(Refusal::broken("the token count", why));
        }
        Ok(Some(head))
    }

    /// Reads all of the file and checks everything that can be checked without its model. `name` is the digest that
    /// its file name stands for, where the name is that of the text. Returns the sections that were dropped.
    ///
    /// # Errors
    /// What is wrong.
    pub fn verify(&mut self, name: Option<&[u8; 20]>) -> Result<Vec<String>, Refusal> {
        let sums = self.integrity()?.clone();
        let (digest, text) = self.text_digest()?;
        if text != sums.text {
            return Err(Refusal::Checksum { what: "the text" });
        }
        if name.is_some_and(|name| *name != digest) {
            return Err(Refusal::broken("the file name", "it is not the digest of the text"));
        }
        let mut payload = 0;
        let (at, bytes) = (self.header.payload_at(), self.header.payload_bytes);
        self.each_piece(at, bytes, "the payload", |piece| {
            payload = crc32c::crc32c_append(payload, piece);
        })?;
        if payload != sums.payload {
            return Err(Refusal::Checksum { what: "the payload" });
        }
        if let Some(Head::State(head)) = self.head()?
            && !head.may_have(bytes)
        {
            let why = format!("{bytes}, which no number of its layers has");
            return Err(Refusal::broken("the payload's length", why));
        }
        Ok(self.sections()?.1)
    }

    fn each_piece(
        &mut self,
        at: u64,
        bytes: u64,
        what: &'static str,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), Refusal> {
        let least = usize::try_from(bytes).unwrap_or(usize::MAX).min(PIECE);
        let mut piece = vec![0; least];
        let mut done = 0;
        while done < bytes {
            let len = usize::try_from(bytes - done).unwrap_or(usize::MAX).min(PIECE);
            read_at(&mut self.from, at + done, &mut piece[..len], what)?;
            take(&piece[..len]);
            done += len as u64;
        }
        Ok(())
    }

    /// Whatever it was opened on.
    pub(super) fn source(&mut self) -> &mut R {
        &mut self.from
    }
}

/// Reads exactly these bytes.
fn read_at(
    from: &mut (impl Read + Seek),
    at: u64,
    out: &mut [u8],
    what: &'static str,
) -> Result<(), Refusal> {
    let read = from.seek(SeekFrom::Start(at)).and_then(|_| from.read_exact(out));
    read.map_err(|e: io::Error| Refusal::read(what, e))
}
