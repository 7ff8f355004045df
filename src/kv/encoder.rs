//! Writes a KVC file front to back, in pieces, without knowing where it goes.

use std::io::{self, Write};

use super::header::{Extensions, Header};
use super::integrity::{Integrity, header_sum, section_bytes};
use super::section::Sections;

/// Everything of a file but its payload.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The header; its extension bits and text length are set from what follows.
    pub header: Header,
    /// The model, steering included.
    pub fingerprint: [u8; 20],
    /// The rendered text.
    pub text: Vec<u8>,
    /// What stands behind the payload.
    pub sections: Sections,
}

/// A file that is being written.
pub struct Encoder<W> {
    out: W,
    left: u64,
    integrity: Integrity,
    sections: Vec<Vec<u8>>,
}

impl Frame {
    /// The header as it will be written.
    ///
    /// # Panics
    /// When the text does not fit 32 bits.
    pub fn header(&self) -> Header {
        let visible = Extensions::RESPONSES_VISIBLE.with(Extensions::THINKING_VISIBLE).0;
        let kept = Extensions(self.header.extensions.0 & visible);
        Header {
            extensions: kept.with(self.sections.extensions()).with(Extensions::INTEGRITY),
            text_bytes: u32::try_from(self.text.len()).expect("texts are below 4 GiB"),
            fingerprint: self.fingerprint[..4].try_into().expect("four of twenty"),
            ..self.header
        }
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        let sections: usize = self.sections.encode().iter().map(Vec::len).sum();
        let header = self.header();
        header.sections_at() + sections as u64 + section_bytes(header.extensions)
    }
}

impl<W: Write> Encoder<W> {
    /// Writes what stands before the payload.
    pub fn begin(mut out: W, frame: &Frame) -> io::Result<Self> {
        let header = frame.header();
        let bytes = header.encode();
        out.write_all(&bytes)?;
        out.write_all(&frame.text)?;
        let sections = frame.sections.encode();
        let integrity = Integrity {
            fingerprint: frame.fingerprint,
            header: header_sum(&bytes),
            text: crc32c::crc32c(&frame.text),
            payload: 0,
            sections: sections.iter().map(|section| crc32c::crc32c(section)).collect(),
        };
        Ok(Self { out, left: header.payload_bytes, integrity, sections })
    }

    /// Writes the next bytes of the payload.
    ///
    /// # Panics
    /// When there are more than the header says.
    pub fn payload(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.left = self.left.checked_sub(bytes.len() as u64).expect("no more than announced");
        self.integrity.payload = crc32c::crc32c_append(self.integrity.payload, bytes);
        self.out.write_all(bytes)
    }

    /// Copies a payload whose checksum is known, without looking at it: within a file system the bytes need not even
    /// pass through memory.
    pub(super) fn copy_payload(
        &mut self,
        sum: u32,
        copy: impl FnOnce(&mut W) -> io::Result<u64>,
    ) -> io::Result<()> {
        let copied = copy(&mut self.out)?;
        if copied != self.left {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left = 0;
        self.integrity.payload = sum;
        Ok(())
    }

    /// Writes what stands behind the payload, and gives back where it was written to.
    ///
    /// # Panics
    /// When the payload is shorter than the header says.
    pub fn finish(mut self) -> io::Result<W> {
        assert_eq!(self.left, 0, "bytes of the payload that were announced and not written");
        for section in &self.sections {
            self.out.write_all(section)?;
        }
        self.out.write_all(&self.integrity.encode())?;
        Ok(self.out)
    }
}
