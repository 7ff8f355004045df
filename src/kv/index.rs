//! What is in a directory, in memory: finds the files whose text a prompt begins with.
//!
//! A radix trie from keys of texts ([`super::digest`]) to the files with that key. The deepest node on the prompt's
//! own key and its ancestors hold every file that could match; of those few the whole digest decides. The cost is one
//! pass over the prompt and a few digests of less than a KiB, however many files there are.

use std::collections::{BTreeMap, HashMap};

use radix_trie::{Trie, TrieCommon as _};

use super::digest::{Chain, PIECE_BYTES};
use super::header::Header;
use super::refusal::Class;

/// What a file is called: the digest in its name.
pub type Name = [u8; 20];

/// Whether the present model and settings could load a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    /// They could.
    Usable,
    /// Its payload was removed.
    Stripped,
    /// They could not, and why.
    Refused(Class, String),
}

/// A file of the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The digest in its name.
    pub name: Name,
    /// Its name in the directory.
    pub file_name: String,
    /// Its header when it was read.
    pub header: Header,
    /// Its size.
    pub bytes: u64,
    /// Tells a file that replaced it.
    pub inode: u64,
    /// Whether it can be loaded.
    pub fit: Fit,
    /// Key of its text; empty unless it can be loaded.
    pub key: Vec<u8>,
    /// Ids of its tool calls.
    pub tool_ids: Vec<Vec<u8>>,
}

/// Files of one key, by length of the text.
type Node = BTreeMap<u32, Vec<Name>>;

/// All files.
#[derive(Default)]
pub struct Index {
    entries: HashMap<Name, Entry>,
    trie: Trie<Vec<u8>, Node>,
    tools: HashMap<Vec<u8>, Vec<Name>>,
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").field("entries", &self.entries.len()).finish_non_exhaustive()
    }
}

impl Index {
    /// Adds a file, in the place of one of the same name.
    pub fn insert(&mut self, entry: Entry) {
        self.remove(&entry.name);
        if entry.fit == Fit::Usable {
            let add = |node: &mut Node| {
                node.entry(entry.header.text_bytes).or_default().push(entry.name);
            };
            if let Some(node) = self.trie.get_mut(&entry.key) {
                add(node);
            } else {
                let mut node = Node::new();
                add(&mut node);
                self.trie.insert(entry.key.clone(), node);
            }
            for id in &entry.tool_ids {
                self.tools.entry(id.clone()).or_default().push(entry.name);
            }
        }
        self.entries.insert(entry.name, entry);
    }

    /// Forgets a file.
    pub fn remove(&mut self, name: &Name) -> Option<Entry> {
        let entry = self.entries.remove(name)?;
        if let Some(node) = self.trie.get_mut(&entry.key) {
            if let Some(names) = node.get_mut(&entry.header.text_bytes) {
                names.retain(|n| n != name);
                if names.is_empty() {
                    node.remove(&entry.header.text_bytes);
                }
            }
            if node.is_empty() {
                self.trie.remove(&entry.key);
            }
        }
        for id in &entry.tool_ids {
            if let Some(names) = self.tools.get_mut(id) {
                names.retain(|n| n != name);
                if names.is_empty() {
                    self.tools.remove(id);
                }
            }
        }
        Some(entry)
    }

    /// A file by name.
    pub fn get(&self, name: &Name) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// A file by name, to change its counters.
    pub(super) fn header_mut(&mut self, name: &Name) -> Option<&mut Header> {
        self.entries.get_mut(name).map(|entry| &mut entry.header)
    }

    /// Every file, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The loadable files whose text the first `len` bytes of a prompt begin with, as far as digests tell, the longest
    /// first.
    pub fn beginnings(&self, prompt: &Chain<'_>, len: usize) -> Vec<&Entry> {
        let mut found = Vec::new();
        let mut key = prompt.key();
        while let Some(node) = self.trie.get_ancestor(key) {
            let lengths = node.value().into_iter().flatten();
            for (&text_bytes, names) in lengths.rev().filter(|(t, _)| **t as usize <= len) {
                let digest = prompt.digest(text_bytes as usize);
                if names.contains(&digest) {
                    found.extend(self.entries.get(&digest));
                }
            }
            let depth = node.key().map_or(0, Vec::len);
            let Some(above) = depth.checked_sub(PIECE_BYTES) else { break };
            key = &key[..above];
        }
        found
    }

    /// Of the loadable files that know a tool call, the one with the most tokens.
    pub fn with_tool(&self, id: &[u8]) -> Option<&Entry> {
        let names = self.tools.get(id)?;
        names.iter().filter_map(|name| self.entries.get(name)).max_by_key(|e| e.header.tokens)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kv::header;

    pub(crate) fn entry(text: &[u8]) -> Entry {
        let chain = Chain::new(text);
        let name = chain.digest(text.len());
        Entry {
            name,
            file_name: format!("{}.kv", crate::util::hex::encode(&name)),
            header: Header {
                text_bytes: u32::try_from(text.len()).unwrap(),
                ..header::tests::sample()
            },
            bytes: 1,
            inode: 1,
            fit: Fit::Usable,
            key: chain.key().to_vec(),
            tool_ids: vec![text[..text.len().min(3)].to_vec()],
        }
    }

    fn texts(index: &Index, prompt: &[u8]) -> Vec<usize> {
        let found = index.beginnings(&Chain::new(prompt), prompt.len());
        found.iter().map(|e| e.header.text_bytes as usize).collect()
    }

    #[test]
    fn the_longest_beginning_comes_first() {
        let prompt: Vec<u8> = (0..6000_u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let mut index = Index::default();
        for len in [10, 1000, 1024, 1500, 4096, 5999, 6000] {
            index.insert(entry(&prompt[..len]));
        }
        let mut other = prompt.clone();
        other[5000] ^= 1;
        index.insert(entry(&other));
        index.insert(entry(&[1; 2000]));
        assert_eq!(texts(&index, &prompt), [6000, 5999, 4096, 1500, 1024, 1000, 10]);
        assert_eq!(texts(&index, &prompt[..4095]), [1500, 1024, 1000, 10]);
        assert_eq!(texts(&index, &other), [6000, 4096, 1500, 1024, 1000, 10]);
        assert!(texts(&index, b"nothing").is_empty());
        assert_eq!(index.with_tool(&prompt[..3]).map(|e| e.header.tokens), Some(10_240));
        index.remove(&entry(&prompt[..4096]).name).unwrap();
        assert_eq!(texts(&index, &prompt)[..3], [6000, 5999, 1500]);
        assert_eq!(index.len(), 8);
    }

    proptest! {
        #[test]
        fn finds_what_a_search_of_all_finds(
            words in prop::collection::vec((0_u8..3, 1_usize..2500), 1..12),
            removed in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
            prompt in (0_u8..3, 0_usize..4000),
        ) {
            // Texts of few letters in runs, so that many share their beginnings.
            let text = |(letter, len): &(u8, usize)| {
                let mut text = vec![b'a'; len / 2];
                text.resize(*len, b'a' + letter);
                text
            };
            let mut all: Vec<Vec<u8>> = words.iter().map(text).collect();
            all.sort();
            all.dedup();
            let mut index = Index::default();
            for text in &all {
                index.insert(entry(text));
            }
            for at in removed {
                if !all.is_empty() {
                    let gone = all.remove(at.index(all.len()));
                    prop_assert!(index.remove(&entry(&gone).name).is_some());
                }
            }
            let prompt = text(&prompt);
            let mut expected: Vec<usize> =
                all.iter().filter(|text| prompt.starts_with(text)).map(Vec::len).collect();
            expected.sort_unstable_by_key(|&len| std::cmp::Reverse(len));
            prop_assert_eq!(texts(&index, &prompt), expected);
        }
    }
}
