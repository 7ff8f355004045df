//! Which instructions the dot products use: the best available, or what [`select_isa`] says.
//!
//! All give the same bits, so the choice is about speed alone and may change at any time.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

use super::simd;

/// An instruction set with an implementation, from the slowest to the fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Plain Rust: the definition.
    Scalar,
    /// 128-bit vectors of aarch64.
    Neon,
    /// 256-bit vectors of x86-64, with FMA and F16C.
    Avx2,
    /// The same with integer dot products in their VEX encoding.
    AvxVnni,
    /// The same with integer dot products and masks of AVX-512; on 512 bits for many activations.
    Avx512Vnni,
    /// The same with permutations of bytes and GFNI.
    Avx512Vbmi,
}

/// The choice as a position in [`Isa::ALL`]; [`UNDECIDED`] until somebody asks.
static SELECTED: AtomicU8 = AtomicU8::new(UNDECIDED);
const UNDECIDED: u8 = u8::MAX;

impl Isa {
    /// Every instruction set, from the slowest to the fastest.
    pub const ALL: [Self; 6] =
        [Self::Scalar, Self::Neon, Self::Avx2, Self::AvxVnni, Self::Avx512Vnni, Self::Avx512Vbmi];

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        simd::has(self)
    }

    /// Those this machine has.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|isa| isa.is_available())
    }

    /// Its lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Neon => "neon",
            Self::Avx2 => "avx2",
            Self::AvxVnni => "avx-vnni",
            Self::Avx512Vnni => "avx512-vnni",
            Self::Avx512Vbmi => "avx512-vbmi",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The instruction set in use.
pub fn isa() -> Isa {
    let selected = SELECTED.load(Ordering::Relaxed);
    Isa::ALL.get(usize::from(selected)).copied().unwrap_or_else(|| {
        let best = Isa::available().last().unwrap_or(Isa::Scalar);
        select_isa(best);
        best
    })
}

/// Uses `isa` from now on, in the whole process; false, and no change, where the machine lacks it.
pub fn select_isa(isa: Isa) -> bool {
    let position =
        Isa::ALL.iter().position(|&other| other == isa).and_then(|i| u8::try_from(i).ok());
    match position {
        Some(position) if isa.is_available() => {
            SELECTED.store(position, Ordering::Relaxed);
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_is_the_default_and_missing_ones_are_refused() {
        assert_eq!(Some(isa()), Isa::available().last());
        for isa in Isa::ALL.into_iter().filter(|isa| !isa.is_available()) {
            assert!(!select_isa(isa), "{isa}");
        }
        assert!(Isa::Scalar.is_available());
    }
}
