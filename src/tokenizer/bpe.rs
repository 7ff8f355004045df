//! Merging: a piece of text to the ids of its tokens.
//!
//! A piece starts as single bytes. The neighbouring pair with the lowest rank, the leftmost of equals, becomes
//! one token, until no pair is in the merge list. Short pieces do that with a scan for the lowest rank, which is
//! quadratic but has no set-up; long ones (a line of one letter, a base64 blob) with a heap over a linked list.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::TokenId;
use super::merges::MergeTable;
use super::vocab::Vocab;

/// Pieces up to this many bytes are scanned.
const SCANNED: usize = 48;

/// Positions in a piece are 32 bits wide; a longer one is cut, still losing nothing.
const MAX_PIECE: usize = 1 << 31;

/// No merge, or no neighbour.
const NONE: u32 = u32::MAX;

/// Buffers that outlive a piece.
#[derive(Default)]
pub(super) struct Scratch {
    nodes: Vec<Node>,
    queue: Vec<Reverse<u64>>,
}

/// A token of a long piece, and its neighbours.
#[derive(Clone, Copy)]
struct Node {
    id: u32,
    previous: u32,
    next: u32,
    /// Rank of the merge with the next node; `NONE` when there is none or this node was swallowed.
    rank: u32,
}

/// Appends the ids of one piece.
pub(super) fn encode_piece(
    vocab: &Vocab,
    merges: &MergeTable,
    piece: &[u8],
    scratch: &mut Scratch,
    out: &mut Vec<TokenId>,
) {
    if piece.len() <= SCANNED {
        scan(vocab, merges, piece, out);
    } else {
        for part in piece.chunks(MAX_PIECE) {
            queue(vocab, merges, part, scratch, out);
        }
    }
}

fn rank(merges: &MergeTable, left: u32, right: u32) -> u32 {
    merges.get(left, right).map_or(NONE, |m| m.rank)
}

/// A piece of at most [`SCANNED`] bytes.
fn scan(vocab: &Vocab, merges: &MergeTable, piece: &[u8], out: &mut Vec<TokenId>) {
    let mut ids = [0; SCANNED];
    // ranks[i] is the rank of the pair i, i + 1.
    let mut ranks = [NONE; SCANNED];
    let mut len = piece.len();
    for (id, &byte) in ids.iter_mut().zip(piece) {
        *id = vocab.byte_id(byte);
    }
    for i in 1..len {
        ranks[i - 1] = rank(merges, ids[i - 1], ids[i]);
    }
    while len > 1 {
        // The first of equals is the leftmost.
        let lowest = ranks[..len - 1].iter().enumerate().min_by_key(|&(_, &r)| r);
        let Some((at, _)) = lowest.filter(|&(_, &r)| r != NONE) else { break };
        let merge = merges.get(ids[at], ids[at + 1]).expect("it has a rank");
        ids[at] = merge.id;
        ids.copy_within(at + 2..len, at + 1);
        ranks.copy_within(at + 1..len, at);
        len -= 1;
        ranks[at] = if at + 1 < len { rank(merges, ids[at], ids[at + 1]) } else { NONE };
        if at > 0 {
            ranks[at - 1] = rank(merges, ids[at - 1], ids[at]);
        }
    }
    out.extend(ids[..len].iter().copied().map(TokenId));
}

/// A piece of any length below [`MAX_PIECE`], in n log n steps.
fn queue(
    vocab: &Vocab,
    merges: &MergeTable,
    piece: &[u8],
    scratch: &mut Scratch,
    out: &mut Vec<TokenId>,
) {
    let nodes = &mut scratch.nodes;
    let len = u32::try_from(piece.len()).expect("pieces are cut to fit");
    nodes.clear();
    nodes.extend((0..len).zip(piece).map(|(i, &byte)| Node {
        id: vocab.byte_id(byte),
        previous: i.wrapping_sub(1),
        next: if i + 1 < len { i + 1 } else { NONE },
        rank: NONE,
    }));
    let mut entries = std::mem::take(&mut scratch.queue);
    entries.clear();
    for at in 1..nodes.len() {
        let rank = rank(merges, nodes[at - 1].id, nodes[at].id);
        nodes[at - 1].rank = rank;
        if rank != NONE {
            entries.push(Reverse(pack(rank, nodes[at].previous)));
        }
    }
    let mut queue = BinaryHeap::from(entries);
    while let Some(Reverse(entry)) = queue.pop() {
        let (rank, at) = unpack(entry);
        // Entries are not taken out when a neighbour changes; they are recognised here.
        if nodes[at as usize].rank == rank {
            join(nodes, merges, at, &mut queue);
        }
    }
    scratch.queue = queue.into_vec();
    let mut at = 0;
    while at != NONE {
        let node = nodes[at as usize];
        out.push(TokenId(node.id));
        at = node.next;
    }
}

/// Rank above position: the order in which merges happen.
fn pack(rank: u32, at: u32) -> u64 {
    u64::from(rank) << 32 | u64::from(at)
}

#[expect(clippy::cast_possible_truncation, reason = "takes the entry apart")]
fn unpack(entry: u64) -> (u32, u32) {
    ((entry >> 32) as u32, entry as u32)
}

/// Merges the node `at` with the one after it and queues its new pairs.
fn join(nodes: &mut [Node], merges: &MergeTable, at: u32, queue: &mut BinaryHeap<Reverse<u64>>) {
    let mut node = nodes[at as usize];
    let swallowed = nodes[node.next as usize];
    nodes[node.next as usize].rank = NONE;
    node.id = merges.get(node.id, swallowed.id).expect("it has a rank").id;
    node.next = swallowed.next;
    node.rank = NONE;
    if node.next != NONE {
        let next = &mut nodes[node.next as usize];
        next.previous = at;
        node.rank = rank(merges, node.id, next.id);
    }
    nodes[at as usize] = node;
    let mut push = |rank, at| {
        if rank != NONE {
            queue.push(Reverse(pack(rank, at)));
        }
    };
    push(node.rank, at);
    if node.previous != NONE {
        let previous = &mut nodes[node.previous as usize];
        previous.rank = rank(merges, previous.id, node.id);
        push(previous.rank, node.previous);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tokenizer::fixture::Sample;

    fn tables(sample: &Sample) -> (Vocab, MergeTable) {
        let mut source = sample.source();
        let vocab = Vocab::new(&mut source.tokens, &mut source.types).unwrap();
        let merges = vocab.merges(&mut source.merges).unwrap();
        (vocab, merges)
    }

    /// The rule, word for word.
    fn plain(vocab: &Vocab, merges: &MergeTable, piece: &[u8]) -> Vec<TokenId> {
        let mut ids: Vec<u32> = piece.iter().map(|&b| vocab.byte_id(b)).collect();
        loop {
            let pairs = ids.windows(2).enumerate();
            let merge = pairs
                .filter_map(|(at, pair)| merges.get(pair[0], pair[1]).map(|m| (m.rank, at, m.id)))
                .min();
            let Some((_, at, id)) = merge else { break };
            ids.splice(at..at + 2, [id]);
        }
        ids.into_iter().map(TokenId).collect()
    }

    fn check(vocab: &Vocab, merges: &MergeTable, piece: &[u8]) {
        let expected = plain(vocab, merges, piece);
        let mut scratch = Scratch::default();
        let mut found = Vec::new();
        encode_piece(vocab, merges, piece, &mut scratch, &mut found);
        assert_eq!(found, expected);
        if piece.is_empty() {
            return;
        }
        // Twice: the buffers of the first must not show in the second.
        for _ in 0..2 {
            found.clear();
            queue(vocab, merges, piece, &mut scratch, &mut found);
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn both_ways_follow_the_rule() {
        let (vocab, merges) = tables(&Sample::new());
        for piece in ["", "a", "aaaaaaa", " the", "ing", "zzz", "th", "=f>", "\u{E9}"] {
            check(&vocab, &merges, piece.as_bytes());
        }
        for len in [SCANNED - 1, SCANNED, SCANNED + 1, 1000] {
            check(&vocab, &merges, &vec![b'a'; len]);
            check(&vocab, &merges, &b" the"[..].repeat(len / 4));
        }
    }

    /// Merge lists over three letters, so that pairs overlap and tie all the time.
    fn merge_lists() -> impl Strategy<Value = Sample> {
        prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 0..40).prop_map(
            |picks| {
                let mut tokens: Vec<Vec<u8>> = ["a", "b", "c"].map(|t| t.as_bytes().into()).into();
                let mut merges = Vec::new();
                for (left, right) in picks {
                    let pair = (left.get(&tokens).clone(), right.get(&tokens).clone());
                    let result = [pair.0.as_slice(), &pair.1].concat();
                    if result.len() <= 12 && !merges.contains(&pair) {
                        merges.push(pair);
                        tokens.push(result);
                    }
                }
                Sample::with_merges(&merges)
            },
        )
    }

    proptest! {
        #[test]
        fn any_merge_list_is_followed(sample in merge_lists(), pieces in prop::collection::vec("[abc]{0,120}", 1..8)) {
            let (vocab, merges) = tables(&sample);
            for piece in pieces {
                check(&vocab, &merges, piece.as_bytes());
            }
        }
    }
}
