//! The rows of a vocabulary, built once from borrowed text: bytes, kinds, and the way back from bytes to ids.

use super::merges::{Merge, MergeTable};
use super::strings::StringTable;
use super::{Error, Kind, TokenId, alphabet};

/// What a vocabulary is made of: the arrays of a model file, in their order, and nothing owned.
pub struct VocabSource<'a> {
    /// `tokenizer.ggml.tokens`: spellings.
    pub tokens: Box<dyn Iterator<Item = &'a [u8]> + 'a>,
    /// `tokenizer.ggml.token_type`: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub types: Box<dyn Iterator<Item = i32> + 'a>,
    /// `tokenizer.ggml.merges`: `left right`, in the alphabet's spelling; the rank is the position.
    pub merges: Box<dyn Iterator<Item = &'a [u8]> + 'a>,
    /// `tokenizer.ggml.eos_token_id`.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.bos_token_id`; never put in front of anything.
    pub bos: Option<u32>,
}

/// Most rows; the published vocabulary has 248,320.
const MAX_ROWS: usize = 1 << 22;

/// Longest token in bytes; the published vocabulary's has 128 characters.
const MAX_TOKEN_BYTES: usize = 1 << 10;

/// Most merges.
const MAX_MERGES: usize = 1 << 22;

/// Rows and their bytes.
pub(super) struct Vocab {
    /// All rows' bytes, one after the other.
    text: Vec<u8>,
    /// Where each row begins; one more entry ends the last. 2^22 rows of 2^10 bytes fit.
    starts: Vec<u32>,
    kinds: Vec<Kind>,
    table: StringTable,
    /// The row of each single byte.
    byte_ids: Box<[u32; 256]>,
}

impl Vocab {
    /// Reads tokens and types.
    pub(super) fn new(
        tokens: &mut dyn Iterator<Item = &[u8]>,
        types: &mut dyn Iterator<Item = i32>,
    ) -> Result<Self, Error> {
        let mut rows = Rows::default();
        for spelling in tokens {
            match types.next() {
                Some(number) => rows.push(spelling, number)?,
                None => rows.without_type += 1,
            }
            rows.check_count()?;
        }
        let (found, without_type) = (rows.kinds.len(), rows.without_type);
        // Bounded: a file's array of types may be as long as it likes.
        let surplus = types.take(MAX_ROWS).count();
        if without_type > 0 || surplus > 0 {
            return Err(Error::UnequalLengths {
                tokens: found + without_type,
                types: found + surplus,
            });
        }
        if found == 0 {
            return Err(Error::RowCount { found, limit: MAX_ROWS });
        }
        rows.finish()
    }

    /// Rows.
    pub(super) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Every row's id.
    pub(super) fn ids(&self) -> impl Iterator<Item = TokenId> + use<> {
        (0..u32::try_from(self.kinds.len()).expect("rows are limited")).map(TokenId)
    }

    /// The text a row stands for; nothing for an id beyond the rows.
    pub(super) fn bytes(&self, id: TokenId) -> &[u8] {
        row_bytes(&self.text, &self.starts, id.0)
    }

    /// A row's kind; an id beyond the rows is an unused one.
    pub(super) fn kind(&self, id: TokenId) -> Kind {
        self.kinds.get(id.index()).copied().unwrap_or(Kind::Unused)
    }

    /// How the row is spelled in the file, as text.
    pub(super) fn spelling(&self, id: TokenId) -> String {
        match self.kind(id) {
            Kind::Normal | Kind::Byte => alphabet::write(self.bytes(id)),
            Kind::Unknown | Kind::Control | Kind::Added | Kind::Unused => {
                String::from_utf8_lossy(self.bytes(id)).into_owned()
            }
        }
    }

    /// The normal token with these bytes.
    pub(super) fn find(&self, bytes: &[u8]) -> Option<u32> {
        self.table.get(bytes, |id| row_bytes(&self.text, &self.starts, id))
    }

    /// The row of a single byte.
    pub(super) fn byte_id(&self, byte: u8) -> u32 {
        self.byte_ids[usize::from(byte)]
    }

    /// Reads the merge list.
    pub(super) fn merges(
        &self,
        merges: &mut dyn Iterator<Item = &[u8]>,
    ) -> Result<MergeTable, Error> {
        let mut list = Vec::new();
        let mut bytes = Vec::new();
        for (rank, merge) in (0..).zip(merges) {
            if list.len() == MAX_MERGES {
                return Err(Error::TooManyMerges { limit: MAX_MERGES });
            }
            let (left, right, id) = self.merge(merge, &mut bytes).map_err(|what| {
                Error::BadMerge { rank, merge: String::from_utf8_lossy(merge).into_owned(), what }
            })?;
            list.push((left, right, Merge { rank, id }));
        }
        let mut table = MergeTable::with_capacity(list.len());
        for (left, right, merge) in list {
            table.insert(left, right, merge);
        }
        Ok(table)
    }

    /// Ids of the two parts and of the result of one entry of the merge list.
    fn merge(&self, merge: &[u8], bytes: &mut Vec<u8>) -> Result<(u32, u32, u32), &'static str> {
        let space = merge.iter().position(|&b| b == b' ');
        let (left, right) = space
            .map(|at| (&merge[..at], &merge[at + 1..]))
            .filter(|(left, right)| !left.is_empty() && !right.is_empty())
            .ok_or("expected two spellings with a space between them")?;
        bytes.clear();
        let read = alphabet::read(left, bytes);
        let middle = bytes.len();
        read.and_then(|()| alphabet::read(right, bytes))
            .ok_or("not spelled in the byte alphabet")?;
        match (self.find(&bytes[..middle]), self.find(&bytes[middle..]), self.find(bytes)) {
            (Some(left), Some(right), Some(id)) => Ok((left, right, id)),
            _ => Err("a part or the result is no token"),
        }
    }
}

fn row_bytes<'a>(text: &'a [u8], starts: &[u32], id: u32) -> &'a [u8] {
    let id = id as usize;
    match starts.get(id..).and_then(|s| s.first_chunk::<2>()) {
        Some(&[start, end]) => &text[start as usize..end as usize],
        None => &[],
    }
}

/// A vocabulary while its rows are read.
struct Rows {
    text: Vec<u8>,
    starts: Vec<u32>,
    kinds: Vec<Kind>,
    without_type: usize,
}

impl Default for Rows {
    fn default() -> Self {
        Self { text: Vec::new(), starts: vec![0], kinds: Vec::new(), without_type: 0 }
    }
}

impl Rows {
    fn check_count(&self) -> Result<(), Error> {
        match self.kinds.len() + self.without_type {
            found if found > MAX_ROWS => Err(Error::RowCount { found, limit: MAX_ROWS }),
            _ => Ok(()),
        }
    }

    fn push(&mut self, spelling: &[u8], number: i32) -> Result<(), Error> {
        let id = TokenId(u32::try_from(self.kinds.len()).expect("rows are limited"));
        let found = spelling.len();
        if found > MAX_TOKEN_BYTES {
            return Err(Error::TokenTooLong { id, found, limit: MAX_TOKEN_BYTES });
        }
        let kind = Kind::from_gguf(number).ok_or(Error::UnknownType { id, found: number })?;
        match kind {
            Kind::Normal => self.read(spelling, id)?,
            Kind::Byte => match hex_byte(spelling) {
                Some(byte) => self.text.push(byte),
                None => self.read(spelling, id)?,
            },
            Kind::Unknown | Kind::Control | Kind::Added | Kind::Unused => {
                self.text.extend_from_slice(spelling);
            }
        }
        self.starts.push(u32::try_from(self.text.len()).expect("rows and their bytes are limited"));
        self.kinds.push(kind);
        Ok(())
    }

    fn read(&mut self, spelling: &[u8], id: TokenId) -> Result<(), Error> {
        alphabet::read(spelling, &mut self.text).ok_or_else(|| Error::BadSpelling {
            id,
            spelling: String::from_utf8_lossy(spelling).into_owned(),
        })
    }

    fn finish(self) -> Result<Vocab, Error> {
        let Self { text, starts, kinds, .. } = self;
        let mut table = StringTable::with_capacity(kinds.len());
        let row = |id| row_bytes(&text, &starts, id);
        for (id, kind) in (0..).zip(&kinds) {
            if matches!(kind, Kind::Normal | Kind::Byte) {
                table.insert(row(id), id, row);
            }
        }
        let mut byte_ids = Box::new([0; 256]);
        for byte in 0..=u8::MAX {
            let id = table.get(&[byte], row).ok_or(Error::MissingByte { byte })?;
            byte_ids[usize::from(byte)] = id;
        }
        Ok(Vocab { text, starts, kinds, table, byte_ids })
    }
}

/// The byte of a spelling such as `<0x0A>`.
fn hex_byte(spelling: &[u8]) -> Option<u8> {
    let digits = spelling.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    let digits = std::str::from_utf8(digits).ok().filter(|d| d.len() == 2)?;
    u8::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::{Tokenizer, fixture::Sample};

    #[test]
    fn rows_are_read() {
        let mut sample = Sample::new();
        sample.tokens.extend([b"<unk>".to_vec(), b"<0x41>".to_vec()]);
        sample.types.extend([2, 6]);
        let tokenizer = sample.tokenizer();
        let find = |spelling: &str| {
            let row = sample.tokens.iter().position(|t| t == spelling.as_bytes()).unwrap();
            TokenId(u32::try_from(row).unwrap())
        };
        let check = |spelling: &str, bytes: &[u8], visible: &[u8], kind| {
            let id = find(spelling);
            assert_eq!(tokenizer.bytes(id), bytes);
            assert_eq!(tokenizer.visible_bytes(id), visible);
            assert_eq!(tokenizer.kind(id), kind);
            assert_eq!(tokenizer.drawable().contains(id), kind != Kind::Unused);
        };
        check("Ġt", b" t", b" t", Kind::Normal);
        check("<|im_end|>", b"<|im_end|>", b"", Kind::Control);
        check("<think>", b"<think>", b"<think>", Kind::Added);
        check("[PAD1]", b"[PAD1]", b"", Kind::Unused);
        check("<unk>", b"<unk>", b"", Kind::Unknown);
        check("<0x41>", b"A", b"A", Kind::Byte);
        assert_eq!(tokenizer.vocab_size(), sample.tokens.len());
        assert_eq!(tokenizer.spelling(find("Ġt")), "Ġt");
        assert_eq!(tokenizer.spelling(find("<think>")), "<think>");
        // The letter keeps its own row.
        assert_eq!(tokenizer.encode_text(b"A"), [TokenId(0x41)]);
        let beyond = TokenId(u32::MAX);
        assert_eq!(tokenizer.bytes(beyond), b"");
        assert_eq!(tokenizer.kind(beyond), Kind::Unused);
        assert!(!tokenizer.is_end(beyond) && !tokenizer.drawable().contains(beyond));
    }

    /// The message of a vocabulary that was damaged.
    fn check(damage: impl FnOnce(&mut Sample), expected: &str) {
        let mut sample = Sample::new();
        damage(&mut sample);
        let error = Tokenizer::new(sample.source()).unwrap_err();
        assert_eq!(error.to_string(), format!("tokenizer: {expected}"));
    }

    #[test]
    fn damage_is_named() {
        let rows = Sample::new().tokens.len();
        check(|s| s.types.push(1), &format!("{rows} tokens but {} token types", rows + 1));
        check(|s| s.types.truncate(7), &format!("{rows} tokens but 7 token types"));
        check(
            |s| {
                s.tokens.clear();
                s.types.clear();
            },
            "expected 1 to 4194304 tokens, got 0",
        );
        check(|s| s.types[3] = 0, "token 3 has type 0, expected 1 to 6");
        check(|s| s.tokens[9] = vec![b'x'; 1025], "token 9 has 1025 bytes, expected at most 1024");
        check(
            |s| s.tokens[9] = b"a b".to_vec(),
            "token 9 `a b` is not spelled in the byte alphabet",
        );
        check(|s| s.tokens[0x41] = b"AA".to_vec(), "no token for the byte 0x41");
        let merge = |text: &'static str| move |s: &mut Sample| s.merges[2] = text.into();
        let shape = "expected two spellings with a space between them";
        for text in ["ab", "", " b", "a "] {
            check(merge(text), &format!("merge 2 `{text}`: {shape}"));
        }
        check(merge("a b c"), "merge 2 `a b c`: not spelled in the byte alphabet");
        check(merge("q q"), "merge 2 `q q`: a part or the result is no token");
        check(merge("qq q"), "merge 2 `qq q`: a part or the result is no token");
    }

    #[test]
    fn ids_of_the_file_must_be_rows() {
        let sample = Sample::new();
        let rows = u32::try_from(sample.tokens.len()).unwrap();
        let eos = |id| Tokenizer::new(VocabSource { eos: Some(id), ..sample.source() });
        assert!(eos(rows - 3).unwrap().is_end(TokenId(rows - 3)));
        assert_eq!(
            eos(rows).unwrap_err().to_string(),
            format!("tokenizer: tokenizer.ggml.eos_token_id is {rows}, expected less than {rows}")
        );
        assert!(Tokenizer::new(VocabSource { bos: Some(rows), ..sample.source() }).is_err());
    }
}
