//! Bytes of a token to its id: a hash table over text that lives in the vocabulary.
//!
//! Own table, because start-up fills it with a quarter of a million rows and asks it three times for each of as
//! many merges: open addressing, half full at most, nothing allocated for an entry. A slot holds a second part
//! of the hash, so that a miss rarely touches the text.

/// A place in the table; `id` counts from 1, 0 is an empty slot.
#[derive(Clone, Copy, Default)]
struct Slot {
    tag: u32,
    id: u32,
}

/// The table. The text itself is passed to every call.
pub(super) struct StringTable {
    slots: Vec<Slot>,
}

/// 2^64 divided by the golden ratio, made odd; and an unrelated odd constant.
const MIX: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xD6E8_FEB8_6659_FD93];

/// Both halves of the 128-bit product, folded: every input bit reaches every output bit.
#[expect(clippy::cast_possible_truncation, reason = "takes the product apart")]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

fn hash(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<8>();
    let mut state = MIX[1] ^ bytes.len() as u64;
    for word in words {
        state = fold(state ^ u64::from_le_bytes(*word), MIX[0]);
    }
    let tail = tail.iter().fold(0, |sum, &b| sum << 8 | u64::from(b));
    fold(state ^ tail, MIX[1])
}

impl StringTable {
    /// Room for `rows` entries.
    pub(super) fn with_capacity(rows: usize) -> Self {
        Self { slots: vec![Slot::default(); (rows * 2).next_power_of_two().max(16)] }
    }

    /// Slot where `bytes` is or would be, its tag, and the id found there.
    #[expect(clippy::cast_possible_truncation, reason = "takes the hash apart")]
    fn find<'a>(&self, bytes: &[u8], text: impl Fn(u32) -> &'a [u8]) -> (usize, u32, Option<u32>) {
        let hash = hash(bytes);
        let tag = (hash >> 32) as u32;
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        // Ends at an empty slot: the table is never more than half full.
        loop {
            let slot = self.slots[at];
            if slot.id == 0 {
                return (at, tag, None);
            }
            if slot.tag == tag && text(slot.id - 1) == bytes {
                return (at, tag, Some(slot.id - 1));
            }
            at = (at + 1) & mask;
        }
    }

    /// The id of `bytes`.
    pub(super) fn get<'a>(&self, bytes: &[u8], text: impl Fn(u32) -> &'a [u8]) -> Option<u32> {
        self.find(bytes, text).2
    }

    /// Adds `bytes` as `id`; the first of two equal texts stays.
    pub(super) fn insert<'a>(&mut self, bytes: &[u8], id: u32, text: impl Fn(u32) -> &'a [u8]) {
        if let (at, tag, None) = self.find(bytes, text) {
            self.slots[at] = Slot { tag, id: id + 1 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_added_and_nothing_else() {
        let texts: Vec<Vec<u8>> = (0..5000u32)
            .map(|i| format!("{i:x}").repeat(1 + i as usize % 5).into_bytes())
            .collect();
        let text = |id: u32| texts[id as usize].as_slice();
        let mut table = StringTable::with_capacity(texts.len());
        for (id, t) in (0..).zip(&texts) {
            table.insert(t, id, text);
        }
        for t in &texts {
            let first = texts.iter().position(|other| other == t);
            assert_eq!(table.get(t, text).map(|id| id as usize), first);
        }
        for absent in [&b""[..], b"x", b"12345678901234567890"] {
            assert_eq!(table.get(absent, text), None);
        }
    }
}
