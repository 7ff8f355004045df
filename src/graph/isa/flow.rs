//! How often the instructions of a program run: its loops and their trips, and the most expensive way through.
//!
//! A loop is a branch back to an earlier block; everything between belongs to it. Its trips follow from a counter in
//! a scalar register with constant ends, or in a vector register that starts below its step (a lane number); what
//! neither explains is asked of the caller. Where the way forks, the side with more vector work is counted: no wave does
//! more, so what is found bounds the work of all of them from above.

use super::asm::{Block, Instruction, Unit};
use std::ops::{AddAssign, Sub};

/// Instructions that a wave executes, by unit, and what they occupy.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Work {
    /// All instructions.
    pub(super) all: f64,
    /// Vector instructions, packed and special ones included.
    pub(super) vector: f64,
    /// Packed ones.
    pub(super) packed: f64,
    /// Conversions between types of numbers.
    pub(super) conversions: f64,
    /// Scalar arithmetic and branches.
    pub(super) scalar: f64,
    /// Loads through the scalar cache.
    pub(super) scalar_memory: f64,
    /// Vector loads and stores.
    pub(super) memory: f64,
    /// Shared-memory operations.
    pub(super) shared: f64,
    /// Cycles of the vector unit for half a wave64, or a wave32.
    pub(super) vector_cycles: f64,
    /// Bytes that each lane moves to or from shared memory.
    pub(super) shared_bytes: f64,
}

impl Work {
    fn of(instruction: &Instruction) -> Self {
        let mut work = Self { all: 1.0, ..Self::default() };
        match instruction.unit {
            Unit::Vector | Unit::Packed | Unit::Special | Unit::Double => {
                work.vector = 1.0;
                work.packed = f64::from(u8::from(instruction.unit == Unit::Packed));
                work.conversions = f64::from(u8::from(instruction.op.starts_with("v_cvt_")));
                work.vector_cycles = match instruction.unit {
                    Unit::Special => 4.0,
                    Unit::Double => 16.0,
                    Unit::Vector
                    | Unit::Packed
                    | Unit::Scalar
                    | Unit::ScalarMemory
                    | Unit::Memory
                    | Unit::Scratch
                    | Unit::Shared
                    | Unit::Control => 1.0,
                };
            }
            Unit::Scalar => work.scalar = 1.0,
            Unit::ScalarMemory => work.scalar_memory = 1.0,
            Unit::Memory | Unit::Scratch => work.memory = 1.0,
            Unit::Shared => {
                work.shared = 1.0;
                work.shared_bytes = shared_bytes(&instruction.op);
            }
            Unit::Control => {}
        }
        work
    }

    /// The same work so many times.
    pub(super) fn times(mut self, n: f64) -> Self {
        for field in self.fields() {
            *field *= n;
        }
        self
    }

    fn fields(&mut self) -> [&mut f64; 10] {
        [
            &mut self.all,
            &mut self.vector,
            &mut self.packed,
            &mut self.conversions,
            &mut self.scalar,
            &mut self.scalar_memory,
            &mut self.memory,
            &mut self.shared,
            &mut self.vector_cycles,
            &mut self.shared_bytes,
        ]
    }

    /// What ways are compared by.
    fn weight(&self) -> (f64, f64) {
        (self.vector_cycles, self.all)
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, mut other: Self) {
        for (mine, theirs) in self.fields().into_iter().zip(other.fields()) {
            *mine += *theirs;
        }
    }
}

impl Sub for Work {
    type Output = Self;

    fn sub(mut self, mut other: Self) -> Self {
        for (mine, theirs) in self.fields().into_iter().zip(other.fields()) {
            *mine -= *theirs;
        }
        self
    }
}

/// Bytes of a lane that an operation on shared memory moves.
fn shared_bytes(op: &str) -> f64 {
    let two = if op.contains("read2") || op.contains("write2") { 2.0 } else { 1.0 };
    let width = ["b128", "b96", "b64"].iter().zip([16.0, 12.0, 8.0]).find(|(w, _)| op.contains(*w));
    two * width.map_or(4.0, |(_, bytes)| bytes)
}

/// A loop that was found.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Loop {
    /// Blocks, first to last.
    pub(super) blocks: (usize, usize),
    /// How often it runs, where its counter says so.
    pub(super) trips: Option<f64>,
}

/// Loops, the outer before the inner, in the order of addresses.
pub(super) fn loops(blocks: &[Block]) -> Vec<Loop> {
    let place = |name: &str| blocks.iter().position(|b| b.name == name);
    let mut ends: Vec<Option<usize>> = vec![None; blocks.len()];
    for (i, block) in blocks.iter().enumerate() {
        for target in block.code.iter().filter_map(Instruction::target).filter_map(place) {
            if target <= i {
                ends[target] = ends[target].max(Some(i));
            }
        }
    }
    let found = ends.iter().enumerate().filter_map(|(first, end)| Some((first, (*end)?)));
    found
        .map(|(first, last)| Loop { blocks: (first, last), trips: trips(blocks, first, last) })
        .collect()
}

/// A number in a listing.
fn number(text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// How an instruction compares: the relation, whether it holds.
fn holds(relation: &str, a: i64, b: i64) -> Option<bool> {
    Some(match relation {
        "ge" => a >= b,
        "gt" => a > b,
        "le" => a <= b,
        "lt" => a < b,
        "eq" => a == b,
        "lg" | "ne" => a != b,
        _ => return None,
    })
}

/// The comparison that ends a loop, whether it ends it by holding, and whether it stands at the end of the body.
fn exit(blocks: &[Block], first: usize, last: usize) -> Option<(&Instruction, bool, bool)> {
    let is_compare = |i: &&Instruction| {
        i.op.starts_with("s_cmp_") || i.op.starts_with("s_cmpk_") || i.op.starts_with("v_cmpx_")
    };
    let outside = |target: &str| !blocks[first..=last].iter().any(|b| b.name == target);
    let branch = |block: usize, leaves: bool| {
        blocks[block].code.iter().find(|i| {
            let goes = i
                .target()
                .is_some_and(|t| if leaves { outside(t) } else { t == blocks[first].name });
            goes && i.op.starts_with("s_cbranch_scc")
        })
    };
    let compare = |block: usize| blocks[block].code.iter().rev().find(is_compare);
    if let Some(branch) = branch(last, false) {
        return Some((compare(last)?, branch.op.ends_with('0'), true));
    }
    // A comparison of lanes takes those out that are done; the branch then stands in the next block.
    let head = compare(first)?;
    if head.op.starts_with("v_") {
        return Some((head, true, false));
    }
    Some((head, branch(first, true)?.op.ends_with('1'), false))
}

/// The trips of a loop from block `first` to block `last`.
fn trips(blocks: &[Block], first: usize, last: usize) -> Option<f64> {
    let body = || blocks[first..=last].iter().flat_map(|b| &b.code);
    let (compare, leaves, at_end) = exit(blocks, first, last)?;
    let relation = compare.op.split('_').nth(2)?;
    let [a, b] = &compare.operands[..] else { return None };
    let step_of = |register: &String| {
        let steps = |i: &&Instruction| {
            i.operands.len() == 3
                && i.operands[0] == *register
                && i.operands[1..].contains(register)
        };
        body().find(steps)
    };
    let (counter, step) = [a, b].into_iter().find_map(|o| Some((o, step_of(o)?)))?;
    let by = step.operands[1..].iter().find_map(|o| number(o))?;
    if compare.op.starts_with("v_") {
        // A lane number below the step grows to the bound.
        let bound = number(a).or_else(|| number(b))?;
        return (by > 0 && step.op.starts_with("v_add")).then(|| (bound as f64 / by as f64).ceil());
    }
    let mut value = before(blocks, first, counter)?;
    let bound = before(blocks, first, if counter == a { b } else { a })?;
    for n in 0..1_000_000_u32 {
        if at_end {
            value = advance(&step.op, value, by)?;
        }
        let (left, right) = if counter == a { (value, bound) } else { (bound, value) };
        if holds(relation, left, right)? == leaves {
            return Some(f64::from(n + u32::from(at_end)));
        }
        if !at_end {
            value = advance(&step.op, value, by)?;
        }
    }
    None
}

/// The number that an operand is before block `first`: itself, or what its register was last set to.
fn before(blocks: &[Block], first: usize, operand: &String) -> Option<i64> {
    if let Some(n) = number(operand) {
        return Some(n);
    }
    let code = blocks[..first].iter().rev().flat_map(|b| b.code.iter().rev());
    let set = code.into_iter().find(|i| i.operands.first() == Some(operand))?;
    set.op.starts_with("s_mov").then(|| number(&set.operands[1])).flatten()
}

fn advance(op: &str, value: i64, by: i64) -> Option<i64> {
    Some(match op.split('_').nth(1)? {
        "add" => value + by,
        "sub" => value - by,
        "lshr" => value >> by,
        "lshl" => value << by,
        _ => return None,
    })
}

/// The most expensive way through a program, with these trips of its loops (in the order of [`loops`]).
pub(super) fn longest(blocks: &[Block], loops: &[Loop], trips: &[f64]) -> Work {
    let cost: Vec<Work> = blocks
        .iter()
        .map(|block| {
            let mut sum = Work::default();
            for instruction in &block.code {
                sum += Work::of(instruction);
            }
            sum
        })
        .collect();
    let mut nodes: Vec<Node> = (0..blocks.len())
        .map(|i| Node { first: i, last: i, work: cost[i], next: successors(blocks, i) })
        .collect();
    // Inner loops begin later, so that they are folded first.
    for (one, &n) in loops.iter().zip(trips).rev() {
        nodes = fold(nodes, one.blocks, n);
    }
    way(&nodes, nodes[0].first).0
}

/// Blocks, or a folded loop, that are one step of a way.
#[derive(Debug, Clone)]
struct Node {
    first: usize,
    last: usize,
    work: Work,
    next: Vec<usize>,
}

fn successors(blocks: &[Block], i: usize) -> Vec<usize> {
    let place = |name: &str| blocks.iter().position(|b| b.name == name);
    let code = &blocks[i].code;
    let mut next: Vec<usize> =
        code.iter().filter_map(Instruction::target).filter_map(place).collect();
    let ends = code.iter().any(|c| c.op == "s_branch" || c.op == "s_endpgm");
    if !ends && i + 1 < blocks.len() {
        next.push(i + 1);
    }
    next
}

/// Makes one node of a loop.
fn fold(nodes: Vec<Node>, (first, last): (usize, usize), trips: f64) -> Vec<Node> {
    let inside = |n: usize| (first..=last).contains(&n);
    let (body, mut rest): (Vec<Node>, Vec<Node>) = nodes.into_iter().partition(|n| inside(n.first));
    let next: Vec<usize> =
        body.iter().flat_map(|n| n.next.iter().copied()).filter(|&n| !inside(n)).collect();
    let once = way(&body, first).0;
    rest.push(Node { first, last, work: once.times(trips), next });
    rest.sort_by_key(|n| n.first);
    rest
}

/// The most expensive way from a node on, among these nodes, going forward only.
fn way(nodes: &[Node], from: usize) -> (Work, usize) {
    let mut best: Vec<Work> = vec![Work::default(); nodes.len()];
    for i in (0..nodes.len()).rev() {
        let ahead = nodes[i].next.iter().filter(|&&n| n > nodes[i].last);
        let places =
            ahead.filter_map(|&n| nodes.iter().position(|m| (m.first..=m.last).contains(&n)));
        let most = places.map(|p| best[p]).max_by(|a, b| {
            let (a, b) = (a.weight(), b.weight());
            a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
        best[i] = nodes[i].work;
        best[i] += most.unwrap_or_default();
    }
    let start = nodes.iter().position(|n| n.first == from).expect("a way starts at a node");
    (best[start], start)
}
