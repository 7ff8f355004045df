//! Vectors with one lane for each of several activations: what the products of panels are made of.
//!
//! A weight meets all activations of a panel at once, spread over all lanes, so that nothing is ever summed
//! across lanes and the sum of a definition's lane is a vector of its own.

use super::machine::Machine;

/// Operations on [`Lanes::COUNT`] lanes of 32 bits.
pub(in crate::quant) trait Lanes: Copy {
    /// Lanes of a vector.
    const COUNT: usize;
    /// Weight rows multiplied at a time: as many as there are registers for four sums of each.
    const ROWS: usize;
    /// Four bytes, or two shorts, of each activation.
    type Words: Copy;
    /// An integer for each activation.
    type Ints: Copy;
    /// A float for each activation.
    type Floats: Copy;
    /// A scale for all.
    type Factor: Copy;

    /// Loads `4 * COUNT` bytes.
    fn words(self, from: &[u8]) -> Self::Words;
    /// Four weights for all lanes.
    fn weights(self, four: [u8; 4]) -> Self::Words;
    /// The scale of which `twice` has a copy in either half.
    fn factor(self, twice: u32) -> Self::Factor;
    /// The same integer in all lanes.
    fn int(self, i: i32) -> Self::Ints;
    /// As [`Machine::add_full`], of every lane.
    fn add_full(self, acc: Self::Ints, shifted: Self::Words, w: Self::Words) -> Self::Ints;
    /// As [`Machine::add_small`], of every lane.
    fn add_small(
        self,
        acc: Self::Ints,
        shifted: Self::Words,
        w: Self::Words,
        factor: Self::Factor,
    ) -> Self::Ints;
    /// `acc` + products with a pair of shorts, of every lane.
    fn add_pairs(self, acc: Self::Ints, shorts: Self::Words, pair: [i16; 2]) -> Self::Ints;
    /// The same float in all lanes.
    fn float(self, x: f32) -> Self::Floats;
    /// Loads `COUNT` floats.
    fn floats(self, from: &[f32]) -> Self::Floats;
    /// Stores `COUNT` floats.
    fn store(self, f: Self::Floats, to: &mut [f32]);
    /// Integers to the nearest floats.
    fn to_floats(self, i: Self::Ints) -> Self::Floats;
    /// Sum.
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// Product.
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a b + c`, rounded once.
    fn fma(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
}

/// The eight lanes of a machine's own vectors.
#[derive(Clone, Copy)]
pub(in crate::quant) struct Eight<M>(pub(super) M);

impl<M: Machine> Lanes for Eight<M> {
    const COUNT: usize = 8;
    const ROWS: usize = 2;
    type Words = M::Bytes;
    type Ints = M::Ints;
    type Floats = M::Floats;
    type Factor = M::Factor;

    #[inline(always)]
    fn words(self, from: &[u8]) -> M::Bytes {
        self.0.bytes(from.first_chunk().expect("eight words"))
    }

    #[inline(always)]
    fn weights(self, four: [u8; 4]) -> M::Bytes {
        self.0.word(four)
    }

    #[inline(always)]
    fn factor(self, twice: u32) -> M::Factor {
        self.0.uniform_factor(twice)
    }

    #[inline(always)]
    fn int(self, i: i32) -> M::Ints {
        self.0.int(i)
    }

    #[inline(always)]
    fn add_full(self, acc: M::Ints, shifted: M::Bytes, w: M::Bytes) -> M::Ints {
        self.0.add_full(acc, shifted, w)
    }

    #[inline(always)]
    fn add_small(self, acc: M::Ints, shifted: M::Bytes, w: M::Bytes, factor: M::Factor) -> M::Ints {
        self.0.add_small(acc, shifted, w, factor)
    }

    #[inline(always)]
    fn add_pairs(self, acc: M::Ints, shorts: M::Bytes, pair: [i16; 2]) -> M::Ints {
        self.0.add_pairs(acc, self.0.as_shorts(shorts), self.0.pair(pair))
    }

    #[inline(always)]
    fn float(self, x: f32) -> M::Floats {
        self.0.splat(x)
    }

    #[inline(always)]
    fn floats(self, from: &[f32]) -> M::Floats {
        self.0.floats(from.first_chunk().expect("eight floats"))
    }

    #[inline(always)]
    fn store(self, f: M::Floats, to: &mut [f32]) {
        self.0.store_floats(f, to.first_chunk_mut().expect("eight floats"));
    }

    #[inline(always)]
    fn to_floats(self, i: M::Ints) -> M::Floats {
        self.0.to_floats(i)
    }

    #[inline(always)]
    fn add(self, a: M::Floats, b: M::Floats) -> M::Floats {
        self.0.add(a, b)
    }

    #[inline(always)]
    fn mul(self, a: M::Floats, b: M::Floats) -> M::Floats {
        self.0.mul(a, b)
    }

    #[inline(always)]
    fn fma(self, a: M::Floats, b: M::Floats, c: M::Floats) -> M::Floats {
        self.0.fma(a, b, c)
    }
}
