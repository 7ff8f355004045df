//! What stands between the payload and the integrity section: a map of tool calls, a title, tagged sections.
//!
//! | bit | bytes | what |
//! |---|---|---|
//! | 0 | `KTM`, u8 1, u32 count; for each: u32 id bytes, u32 block bytes, id, block | sampled text of tool calls by id |
//! | 3 | u32 bytes, bytes | title |
//! | 4 | 4 bytes of a tag, u64 bytes, bytes, repeated; then a tag of zeros | everything else; unknown tags are kept |
//!
//! Tags of this program: `MARK`, u32 offsets in the text of its added tokens, ascending: without it a text cannot be
//! told from somebody's spelling of it. `KEYS`, eight bytes of the running SHA-1 for each full KiB of the text, so
//! that an index needs not read texts.
//!
//! A section that is broken is dropped, with those behind it where its end cannot be known. A state does not depend
//! on them.

use super::header::Extensions;
use super::integrity::SUMMED;
use crate::util::bytes::{Reader, Truncated};

/// More than any file of this program has. Larger sections are dropped, so memory is bounded.
pub(super) const MAX_SECTIONS_BYTES: u64 = 64 << 20;
/// Offsets of added tokens.
pub const MARK: Tag = *b"MARK";
/// Running digests of the text.
pub const KEYS: Tag = *b"KEYS";
const TOOL_MAGIC: [u8; 4] = *b"KTM\x01";
const MAX_TOOL_IDS: u32 = 400_000;
const MAX_ID_BYTES: u32 = 256;
const MAX_BLOCK_BYTES: u32 = 512 << 20;
/// Tags are few; a file of empty ones is no reason to build a long list.
const MAX_TAGS: usize = 1024;

/// Name of a tagged section.
pub type Tag = [u8; 4];

/// A tool call's id, and the text that the model wrote for it, the newlines before it included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolBlock {
    /// The id, 1 to 256 bytes.
    pub id: Vec<u8>,
    /// What was sampled.
    pub block: Vec<u8>,
}

/// The sections of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sections {
    /// Tool calls. Empty: no such section.
    pub tools: Vec<ToolBlock>,
    /// Title of the session.
    pub title: Option<Vec<u8>>,
    /// Everything else, in the order of the file.
    pub tagged: Vec<(Tag, Vec<u8>)>,
}

impl Sections {
    /// The first section with this tag.
    pub fn tag(&self, tag: Tag) -> Option<&[u8]> {
        self.tagged.iter().find(|(t, _)| *t == tag).map(|(_, bytes)| bytes.as_slice())
    }

    /// Offsets of the added tokens in a text of `text_bytes`, ascending. `None` without a sound `MARK`.
    pub fn markers(&self, text_bytes: u32) -> Option<Vec<usize>> {
        let bytes = self.tag(MARK)?;
        let words = bytes.chunks_exact(4);
        let whole = words.remainder().is_empty();
        let offsets: Vec<u32> =
            words.map(|w| u32::from_le_bytes(w.try_into().expect("four bytes"))).collect();
        let ascending = offsets.windows(2).all(|w| w[0] < w[1]);
        let inside = offsets.last().is_none_or(|&last| last < text_bytes);
        let sound = whole && ascending && inside;
        sound.then(|| offsets.into_iter().map(|o| o as usize).collect())
    }

    /// Sets `MARK`.
    ///
    /// # Panics
    /// When an offset does not fit 32 bits: no text that long is saved.
    pub fn set_markers(&mut self, markers: &[usize]) {
        let words = markers.iter().map(|&m| u32::try_from(m).expect("texts are below 4 GiB"));
        self.set_tag(MARK, words.flat_map(u32::to_le_bytes).collect());
    }

    /// Sets a tagged section.
    pub fn set_tag(&mut self, tag: Tag, bytes: Vec<u8>) {
        self.tagged.retain(|(t, _)| *t != tag);
        self.tagged.push((tag, bytes));
    }

    /// The bits of the sections that there are.
    pub fn extensions(&self) -> Extensions {
        let mut bits = Extensions::default();
        for (present, bit) in [
            (!self.tools.is_empty(), Extensions::TOOL_MAP),
            (self.title.is_some(), Extensions::TITLE),
            (!self.tagged.is_empty(), Extensions::TAGGED),
        ] {
            bits = if present { bits.with(bit) } else { bits };
        }
        bits
    }

    /// The bytes of each section that there is, in the order of the file.
    pub fn encode(&self) -> Vec<Vec<u8>> {
        let int = |n: usize| u32::try_from(n).expect("sections are bounded").to_le_bytes();
        let mut out = Vec::new();
        if !self.tools.is_empty() {
            let mut bytes = TOOL_MAGIC.to_vec();
            bytes.extend(int(self.tools.len()));
            for tool in &self.tools {
                bytes.extend(int(tool.id.len()));
                bytes.extend(int(tool.block.len()));
                bytes.extend(&tool.id);
                bytes.extend(&tool.block);
            }
            out.push(bytes);
        }
        if let Some(title) = &self.title {
            out.push([&int(title.len())[..], title].concat());
        }
        if !self.tagged.is_empty() {
            let mut bytes = Vec::new();
            for (tag, section) in &self.tagged {
                bytes.extend(tag);
                bytes.extend((section.len() as u64).to_le_bytes());
                bytes.extend(section);
            }
            bytes.extend([0; 4]);
            out.push(bytes);
        }
        out
    }

    /// Reads what stands between payload and integrity section; `sums` are the checksums there. Returns also what was
    /// dropped and why.
    pub fn parse(bytes: &[u8], extensions: Extensions, sums: &[u32]) -> (Self, Vec<String>) {
        let mut sections = Self::default();
        let mut dropped = Vec::new();
        let mut rest = Reader::new(bytes);
        let mut sums = sums.iter();
        for (bit, what) in SUMMED.iter().filter(|(bit, _)| extensions.has(*bit)) {
            let begin = rest.pos();
            let mut one = Self::default();
            let read = match *bit {
                Extensions::TOOL_MAP => read_tools(&mut rest).map(|tools| one.tools = tools),
                Extensions::TITLE => read_title(&mut rest).map(|title| one.title = Some(title)),
                _ => read_tagged(&mut rest).map(|tagged| one.tagged = tagged),
            };
            if let Err(why) = read {
                dropped.push(format!("{what} and what follows: {why}"));
                return (sections, dropped);
            }
            let sum = crc32c::crc32c(&bytes[begin..rest.pos()]);
            if sums.next() == Some(&sum) {
                sections.tools.append(&mut one.tools);
                sections.title = sections.title.or(one.title);
                sections.tagged.append(&mut one.tagged);
            } else {
                dropped.push(format!("{what}: its checksum does not match"));
            }
        }
        if rest.remaining() > 0 {
            dropped.push(format!("{} bytes behind the last section", rest.remaining()));
        }
        (sections, dropped)
    }
}

/// Why a section cannot be read.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("it does not end inside the file")]
    Short(#[from] Truncated),
    #[error("{0}")]
    Bad(String),
}

fn bounded(what: &str, found: u32, range: std::ops::RangeInclusive<u32>) -> Result<usize, Problem> {
    if range.contains(&found) {
        return Ok(found as usize);
    }
    Err(Problem::Bad(format!("{what} is {found}, expected {} to {}", range.start(), range.end())))
}

fn read_tools(r: &mut Reader<'_>) -> Result<Vec<ToolBlock>, Problem> {
    if r.take(TOOL_MAGIC.len())? != TOOL_MAGIC {
        return Err(Problem::Bad("it does not begin with `KTM` and version 1".into()));
    }
    // Each takes eight bytes at least, so a count beyond the bytes left cannot be true.
    let most = u32::try_from(r.remaining() / 8).unwrap_or(u32::MAX).min(MAX_TOOL_IDS);
    let count = bounded("the number of ids", r.u32()?, 0..=most)?;
    let mut tools = Vec::new();
    for _ in 0..count {
        let id = bounded("the length of an id", r.u32()?, 1..=MAX_ID_BYTES)?;
        let block = bounded("the length of a block", r.u32()?, 0..=MAX_BLOCK_BYTES)?;
        tools.push(ToolBlock { id: r.take(id)?.to_vec(), block: r.take(block)?.to_vec() });
    }
    Ok(tools)
}

fn read_title(r: &mut Reader<'_>) -> Result<Vec<u8>, Problem> {
    let bytes = r.u32()? as usize;
    Ok(r.take(bytes)?.to_vec())
}

fn read_tagged(r: &mut Reader<'_>) -> Result<Vec<(Tag, Vec<u8>)>, Problem> {
    let mut tagged = Vec::new();
    loop {
        let tag: Tag = r.take(4)?.try_into().expect("four bytes");
        if tag == [0; 4] {
            return Ok(tagged);
        }
        if tagged.len() == MAX_TAGS {
            return Err(Problem::Bad(format!("it has more than {MAX_TAGS} tags")));
        }
        let bytes = usize::try_from(r.u64()?).unwrap_or(usize::MAX);
        tagged.push((tag, r.take(bytes)?.to_vec()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Sections {
        let tool = |id: &str, block: &str| ToolBlock { id: id.into(), block: block.into() };
        let mut sections = Sections {
            tools: vec![tool("call_1", "\n\n<tool_call>x"), tool("call_2", "")],
            title: Some(b"A title".to_vec()),
            tagged: vec![(*b"SEGS", vec![1, 2, 3])],
        };
        sections.set_markers(&[0, 5, 70]);
        sections
    }

    fn parse(sections: &Sections, change: impl Fn(&mut Vec<u8>)) -> (Sections, Vec<String>) {
        let parts = sections.encode();
        let sums: Vec<u32> = parts.iter().map(|part| crc32c::crc32c(part)).collect();
        let mut bytes = parts.concat();
        change(&mut bytes);
        Sections::parse(&bytes, sections.extensions(), &sums)
    }

    #[test]
    fn sections_come_back() {
        let (found, dropped) = parse(&full(), |_| {});
        assert_eq!((&found, dropped), (&full(), vec![]));
        assert_eq!(found.markers(71), Some(vec![0, 5, 70]));
        assert_eq!(found.markers(70), None, "an offset at the end of the text");
        let mut unsorted = found;
        unsorted.set_markers(&[5, 5]);
        assert_eq!(unsorted.markers(100), None);
        assert_eq!(parse(&Sections::default(), |_| {}), (Sections::default(), vec![]));
    }

    #[test]
    fn a_flipped_bit_drops_one_section_and_a_bad_length_all_behind_it() {
        // A byte of the first block.
        let (found, dropped) = parse(&full(), |bytes| bytes[25] ^= 1);
        assert!(found.tools.is_empty() && found.title.is_some() && found.tagged.len() == 2);
        assert_eq!(dropped, ["the tool map: its checksum does not match"]);
        let (found, dropped) = parse(&full(), |bytes| bytes[15] = 0xff);
        assert_eq!(found, Sections::default());
        let why = "the tool map and what follows: the length of a block is 4278190094, expected 0 to 536870912";
        assert_eq!(dropped, [why]);
        let (_, dropped) = parse(&full(), |bytes| bytes.push(0));
        assert_eq!(dropped, ["1 bytes behind the last section"]);
    }

    #[test]
    fn counts_beyond_the_bytes_are_refused_before_anything_is_read() {
        let bytes = [&TOOL_MAGIC[..], &u32::MAX.to_le_bytes()].concat();
        let (_, dropped) = Sections::parse(&bytes, Extensions::TOOL_MAP, &[0]);
        assert!(
            dropped[0].contains("the number of ids is 4294967295, expected 0 to 0"),
            "{dropped:?}"
        );
    }
}
