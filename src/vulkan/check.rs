//! The proof that a graph is sound: dispatches of one level never touch the same bytes unless both only
//! read; what is read was written before or is an input; everything is within the device's limits.
//! Pure, and run once for each recorded graph, always.
//!
//! Levels are all the synchronisation there is, so this stands in for hazard tracking. Validation
//! layers confirm it as far as they see: the tested one knows no write-after-write.

use super::caps::Limits;
use std::collections::HashMap;

/// How a shader uses a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// `readonly` in the shader.
    Read,
    /// `writeonly`: the bytes before do not matter.
    Write,
    /// Both.
    ReadWrite,
}

impl Access {
    pub(super) fn reads(self) -> bool {
        self != Self::Write
    }

    pub(super) fn writes(self) -> bool {
        self != Self::Read
    }
}

/// Bytes of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) buffer: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    /// Size of the buffer.
    pub(super) size: u64,
}

impl Span {
    fn overlaps(self, other: Self) -> bool {
        self.buffer == other.buffer && self.start < other.end && other.start < self.end
    }
}

/// A dispatch, as far as the proof needs it.
pub(super) struct Step<'a> {
    pub(super) label: &'a str,
    pub(super) touches: Vec<(u32, Span, Access)>,
    pub(super) grid: [u32; 3],
}

impl Step<'_> {
    /// What messages call the words of an indirect grid, which no binding sees.
    pub(super) const GRID: u32 = u32::MAX;
}

/// What is wrong with a graph.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Nothing to run.
    #[error("level {0} is empty")]
    Empty(usize),
    /// Two bindings, at least one of which writes, share bytes inside a level.
    #[error("level {level}: `{first}` and `{second}` touch the same bytes and one of them writes")]
    Conflict {
        /// The level.
        level: usize,
        /// A dispatch.
        first: String,
        /// Another, or the same one through two bindings.
        second: String,
    },
    /// Bytes are read that nothing wrote and that are no input.
    #[error("level {level}: binding {binding} of `{node}` reads bytes that nothing has written")]
    Unwritten {
        /// The level.
        level: usize,
        /// The dispatch.
        node: String,
        /// The binding.
        binding: u32,
    },
    /// A slice is empty, leaves its buffer, is misaligned or larger than a binding may be.
    #[error("level {level}: binding {binding} of `{node}`: {why}")]
    Slice {
        /// The level.
        level: usize,
        /// The dispatch.
        node: String,
        /// The binding.
        binding: u32,
        /// What is wrong with it.
        why: String,
    },
    /// A dimension of the grid is zero or above the limit.
    #[error("level {level}: the grid of `{node}` is {grid:?}, the device allows 1 to {limit:?}")]
    Grid {
        /// The level.
        level: usize,
        /// The dispatch.
        node: String,
        /// The grid.
        grid: [u32; 3],
        /// The largest.
        limit: [u32; 3],
    },
    /// The node does not fit its pipeline.
    #[error("level {level}: `{node}` has {found} {what}, its shader {expected}")]
    Shape {
        /// The level.
        level: usize,
        /// The dispatch.
        node: String,
        /// `slices` or `bytes of push constants`.
        what: &'static str,
        /// What the node has.
        found: usize,
        /// What the shader declares.
        expected: usize,
    },
}

/// Checks levels of dispatches against `limits`; `inputs` hold data before the first level.
pub(super) fn check(
    levels: &[Vec<Step<'_>>],
    inputs: &[Span],
    limits: &Limits,
) -> Result<(), Fault> {
    let mut written = Written::default();
    for &span in inputs {
        written.add(span);
    }
    for (level, steps) in levels.iter().enumerate() {
        if steps.is_empty() {
            return Err(Fault::Empty(level));
        }
        for step in steps {
            within_limits(level, step, limits)?;
            for (binding, span, access) in &step.touches {
                if access.reads() && !written.covers(*span) {
                    let (node, binding) = (step.label.to_owned(), *binding);
                    return Err(Fault::Unwritten { level, node, binding });
                }
            }
        }
        no_conflict(level, steps)?;
        // Only now: what a level writes, its own dispatches may not read.
        for (_, span, access) in steps.iter().flat_map(|s| &s.touches) {
            if access.writes() {
                written.add(*span);
            }
        }
    }
    Ok(())
}

fn within_limits(level: usize, step: &Step<'_>, limits: &Limits) -> Result<(), Fault> {
    let node = || step.label.to_owned();
    let (grid, limit) = (step.grid, limits.grid);
    if grid.iter().zip(limit).any(|(&n, max)| n == 0 || n > max) {
        return Err(Fault::Grid { level, node: node(), grid, limit });
    }
    for (binding, span, _) in &step.touches {
        let bytes = span.end - span.start;
        let why = if bytes == 0 {
            "the slice is empty".to_owned()
        } else if span.end > span.size {
            format!("the slice ends at {} of {} bytes", span.end, span.size)
        } else if bytes > limits.storage_bytes {
            format!("{bytes} bytes, the device allows {}", limits.storage_bytes)
        } else if !span.start.is_multiple_of(limits.storage_align) {
            format!("starts at {}, not a multiple of {}", span.start, limits.storage_align)
        } else {
            continue;
        };
        return Err(Fault::Slice { level, node: node(), binding: *binding, why });
    }
    Ok(())
}

/// Quadratic in the bindings of one level, of which there are a few dozen.
fn no_conflict(level: usize, steps: &[Step<'_>]) -> Result<(), Fault> {
    let touches: Vec<_> =
        steps.iter().flat_map(|s| s.touches.iter().map(move |t| (s.label, t.1, t.2))).collect();
    for (i, (first, a, access)) in touches.iter().enumerate() {
        for (second, b, other) in &touches[i + 1..] {
            if (access.writes() || other.writes()) && a.overlaps(*b) {
                let (first, second) = ((*first).to_owned(), (*second).to_owned());
                return Err(Fault::Conflict { level, first, second });
            }
        }
    }
    Ok(())
}

/// The bytes that hold data: for each buffer, ranges in ascending order that do not touch.
#[derive(Default)]
struct Written(HashMap<u64, Vec<(u64, u64)>>);

impl Written {
    fn add(&mut self, span: Span) {
        let ranges = self.0.entry(span.buffer).or_default();
        let from = ranges.partition_point(|r| r.1 < span.start);
        let to = ranges.partition_point(|r| r.0 <= span.end);
        let mut joined = (span.start, span.end);
        if from < to {
            joined = (joined.0.min(ranges[from].0), joined.1.max(ranges[to - 1].1));
        }
        ranges.splice(from..to, [joined]);
    }

    fn covers(&self, span: Span) -> bool {
        let ranges = self.0.get(&span.buffer).map_or(&[][..], Vec::as_slice);
        ranges.iter().any(|r| r.0 <= span.start && span.end <= r.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vulkan::caps::tests::lavapipe;

    const SIZE: u64 = 1 << 30;

    fn span(buffer: u64, start: u64, end: u64) -> Span {
        Span { buffer, start, end, size: SIZE }
    }

    fn step<'a>(label: &'a str, touches: &[(Span, Access)]) -> Step<'a> {
        let touches = touches.iter().zip(0..).map(|(t, i)| (i, t.0, t.1)).collect();
        Step { label, touches, grid: [1, 1, 1] }
    }

    fn run(levels: &[Vec<Step<'_>>], inputs: &[Span]) -> Result<(), String> {
        check(levels, inputs, &lavapipe().limits).map_err(|e| e.to_string())
    }

    use Access::{Read, ReadWrite, Write};

    #[test]
    fn a_chain_of_levels_is_sound() {
        let levels = [
            vec![step("a", &[(span(0, 0, 64), Read), (span(1, 0, 64), Write)])],
            vec![
                step("b", &[(span(1, 0, 64), Read), (span(2, 0, 64), Write)]),
                step("c", &[(span(1, 0, 32), Read), (span(2, 64, 128), Write)]),
            ],
            vec![step("d", &[(span(2, 0, 128), ReadWrite)])],
        ];
        assert_eq!(run(&levels, &[span(0, 0, 64)]), Ok(()));
    }

    #[test]
    fn a_level_may_not_write_what_it_also_touches() {
        for (a, b) in [(Write, Read), (Read, Write), (Write, Write), (ReadWrite, Read)] {
            let level = vec![step("a", &[(span(0, 0, 64), a)]), step("b", &[(span(0, 48, 80), b)])];
            let error = run(&[level], &[span(0, 0, 128)]).unwrap_err();
            assert!(error.contains("`a` and `b` touch the same bytes"), "{error}");
        }
        let touching =
            vec![step("a", &[(span(0, 0, 64), Write)]), step("b", &[(span(0, 64, 80), Write)])];
        assert_eq!(run(&[touching], &[]), Ok(()));
        let both = vec![step("a", &[(span(0, 0, 64), Read)]), step("b", &[(span(0, 0, 64), Read)])];
        assert_eq!(run(&[both], &[span(0, 0, 64)]), Ok(()));
        let own = vec![step("a", &[(span(0, 0, 64), Read), (span(0, 32, 96), Write)])];
        assert!(
            run(&[own], &[span(0, 0, 64)]).is_err(),
            "also through two bindings of one dispatch"
        );
    }

    #[test]
    fn reading_what_nothing_wrote_is_found() {
        let read = |from, to| vec![step("r", &[(span(0, from, to), Read)])];
        let write = |from, to| vec![step("w", &[(span(0, from, to), Write)])];
        assert!(run(&[read(0, 64)], &[]).unwrap_err().contains("nothing has written"));
        assert!(run(&[write(0, 48), read(0, 64)], &[]).is_err());
        assert_eq!(run(&[write(0, 48), write(48, 64), read(0, 64)], &[]), Ok(()));
        assert_eq!(run(&[write(64, 96), write(0, 32), write(32, 64), read(16, 80)], &[]), Ok(()));
        assert_eq!(run(&[read(0, 64)], &[span(0, 32, 64), span(0, 0, 40)]), Ok(()));
        let other = vec![step("r", &[(span(1, 0, 64), Read)])];
        assert!(run(&[write(0, 64), other], &[]).is_err());
        let update = vec![step("u", &[(span(0, 0, 64), ReadWrite)])];
        assert!(run(&[update], &[]).is_err(), "an update reads too");
    }

    #[test]
    fn limits_hold() {
        let whole = |s| run(&[vec![step("n", &[(s, Write)])]], &[]).map_err(|e| e.replace('`', ""));
        assert_eq!(whole(span(0, 0, 128 << 20)), Ok(()));
        assert!(whole(span(0, 0, (128 << 20) + 4)).unwrap_err().contains("the device allows"));
        assert!(whole(span(0, 8, 64)).unwrap_err().contains("multiple of 16"));
        assert!(whole(span(0, 16, 16)).unwrap_err().contains("empty"));
        assert!(whole(span(0, SIZE - 16, SIZE + 16)).unwrap_err().contains("ends at"));
        for (grid, fine) in [([65_535, 1, 1], true), ([65_536, 1, 1], false), ([1, 0, 1], false)] {
            let node = Step { grid, ..step("n", &[(span(0, 0, 64), Write)]) };
            assert_eq!(run(&[vec![node]], &[]).is_ok(), fine, "{grid:?}");
        }
        assert_eq!(run(&[vec![]], &[]), Err("level 0 is empty".to_owned()));
    }
}
