//! Names of recurrent-state slots.

/// Number of a slot in a backend's arena.
///
/// A slot holds the recurrent state of one sequence at one position. It is handed out, pinned and released by the
/// engine; backends only read and write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);
