//! What the kernels need of a machine: operations on 256 bits.
//!
//! A type that implements [`Machine`] is a token: it can only be had where its instructions exist, so its
//! methods are safe. Kernels are written once against the trait and inlined into [`Machine::enter`],
//! the only function that is compiled for the machine's instructions; hence the `inline(always)` on
//! everything between.
//!
//! Lane l of [`Machine::Ints`] stands for byte positions 4l..4l+3, as in the definition of the dot
//! products. All integer operations are exact for the operands named.

use super::lanes::Lanes;

/// A computation that can be compiled for any machine.
pub(in crate::quant) trait Kernel {
    /// Its result.
    type Output;
    /// Runs it; must be `inline(always)`.
    fn run<M: Machine>(self, m: M) -> Self::Output;
}

/// How far ahead of their use weights are asked for. Out of memory this nearly doubles the speed of what
/// the hardware's own prefetchers do, which stop at every page; 1 KiB measures less, more than 4 no better.
const AHEAD_BYTES: usize = 4096;

/// Asks for the memory [`AHEAD_BYTES`] beyond `block`.
#[inline(always)]
pub(in crate::quant) fn prefetch<M: Machine>(m: M, block: &[u8]) {
    for line in (0..block.len()).step_by(64) {
        m.prefetch(block, AHEAD_BYTES + line);
    }
}

/// Group scales and signs of an `IQ2_XXS` block.
pub(in crate::quant) struct Iq2Words {
    /// The 32 sign bits of each group.
    pub(in crate::quant) signs: [u32; 8],
    /// `2 ls + 1` of each group, in both halves of the word.
    pub(in crate::quant) scales: [u32; 8],
}

/// A set of vector instructions.
pub(in crate::quant) trait Machine: Copy {
    /// 32 bytes, signed or unsigned as each operation says.
    type Bytes: Copy;
    /// 16 signed 16-bit integers.
    type Shorts: Copy;
    /// 8 signed 32-bit integers.
    type Ints: Copy;
    /// 8 floats.
    type Floats: Copy;
    /// Eight pairs of scales.
    type Scales: Copy;
    /// One pair: for the first and for the last 16 positions.
    type Factor: Copy;

    /// Its widest vectors.
    type Wide: Lanes;

    /// Runs `kernel`, compiled for this machine.
    fn enter<K: Kernel>(self, kernel: K) -> K::Output;
    /// The token of the widest vectors.
    fn wide(self) -> Self::Wide;

    /// Asks for the cache line `ahead` bytes after the start of `from`, which may be anywhere.
    fn prefetch(self, from: &[u8], ahead: usize);
    /// Loads 32 bytes.
    fn bytes(self, from: &[u8; 32]) -> Self::Bytes;
    /// The same four bytes eight times.
    fn word(self, four: [u8; 4]) -> Self::Bytes;
    /// Stores 32 bytes.
    fn store_bytes(self, b: Self::Bytes, to: &mut [u8; 32]);
    /// `(b >> SHIFT) & mask` of each byte; the mask is at most `255 >> SHIFT`.
    fn field<const SHIFT: i32>(self, b: Self::Bytes, mask: u8) -> Self::Bytes;
    /// `(b << SHIFT) & mask` of each byte; the mask has no bit below `SHIFT`.
    fn raise<const SHIFT: i32>(self, b: Self::Bytes, mask: u8) -> Self::Bytes;
    /// Bitwise or.
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// The low nibbles of 16 bytes, then the high ones.
    fn nibbles(self, from: &[u8; 16]) -> Self::Bytes;
    /// `b - k` of each signed byte, wrapping.
    fn minus(self, b: Self::Bytes, k: i8) -> Self::Bytes;
    /// Negates the signed bytes whose bit is set.
    fn flip(self, b: Self::Bytes, signs: u32) -> Self::Bytes;
    /// Four entries of the `IQ2_XXS` grid.
    fn grid(self, indices: [u8; 4]) -> Self::Bytes;

    /// The lane sums of a whole `IQ2_XXS` block with each of some activations, group scales included, where
    /// there is a better way than chunk by chunk.
    fn iq2_sums<const T: usize>(
        self,
        pairs: &[u8; 64],
        quants: [&[[u8; 32]; 8]; T],
    ) -> Option<[Self::Ints; T]>;
    /// Bytes as the shorts they are the memory of.
    fn as_shorts(self, b: Self::Bytes) -> Self::Shorts;
    /// Loads 16 shorts.
    fn shorts(self, from: &[i16; 16]) -> Self::Shorts;
    /// Stores 16 shorts.
    fn store_shorts(self, s: Self::Shorts, to: &mut [i16; 16]);
    /// Sixteen zeros.
    fn shorts_zero(self) -> Self::Shorts;
    /// Of 16 bytes, the low nibbles at even and then at odd places, and the high nibbles in order.
    fn nibble_shorts(self, from: &[u8; 16]) -> (Self::Shorts, Self::Shorts);
    /// Signed bytes at even places, then those at odd places.
    fn even_then_odd(self, from: &[u8; 16]) -> Self::Shorts;
    /// Eight unsigned bytes, lowest first, and the same again.
    fn repeated(self, from: u64) -> Self::Shorts;
    /// Eight unsigned bytes, lowest first, each twice.
    fn doubled(self, from: u64) -> Self::Shorts;
    /// The same two shorts eight times.
    fn pair(self, pair: [i16; 2]) -> Self::Shorts;
    /// Eight scales for low and eight for high positions.
    fn scales(self, shorts: Self::Shorts) -> Self::Scales;
    /// Pair `j` below 8.
    fn factor(self, scales: Self::Scales, j: usize) -> Self::Factor;
    /// A pair as two words for [`Machine::uniform_factor`].
    fn factor_words(self, factor: Self::Factor) -> [u32; 2];
    /// The same scale for all positions: the low short of a word whose high short equals it.
    fn uniform_factor(self, twice: u32) -> Self::Factor;
    /// What the words B of an `IQ2_XXS` block say.
    fn iq2_words(self, pairs: &[u8; 64]) -> Iq2Words;

    /// Eight times the same integer.
    fn int(self, i: i32) -> Self::Ints;
    /// Eight zeros.
    fn ints_zero(self) -> Self::Ints;
    /// Stores eight integers.
    fn store_ints(self, i: Self::Ints, to: &mut [i32; 8]);
    /// The sum of all eight, in every lane.
    fn sum(self, i: Self::Ints) -> Self::Ints;
    /// `acc[l] + a[2l] b[2l] + a[2l+1] b[2l+1]`.
    fn add_pairs(self, acc: Self::Ints, a: Self::Shorts, b: Self::Shorts) -> Self::Ints;

    /// Lane sums of `w q`, for quants q in -127..=127.
    fn dot(self, w: Self::Bytes, q: Self::Bytes) -> Self::Ints;
    /// `acc` + lane sums of `n q` times the factor, for n in 0..=63.
    fn add_unsigned(
        self,
        acc: Self::Ints,
        n: Self::Bytes,
        q: Self::Bytes,
        factor: Self::Factor,
    ) -> Self::Ints;
    /// `acc` + lane sums of `w q` times the factor, for w in -64..=63.
    fn add_signed(
        self,
        acc: Self::Ints,
        w: Self::Bytes,
        q: Self::Bytes,
        factor: Self::Factor,
    ) -> Self::Ints;

    /// Quants in the form in which [`Machine::add_full`] wants them.
    fn shift_full(self, q: Self::Bytes) -> Self::Bytes;
    /// `acc` + lane sums of `w q` + what zero quants would have given, for any signed w.
    fn add_full(self, acc: Self::Ints, shifted: Self::Bytes, w: Self::Bytes) -> Self::Ints;
    /// Quants in the form in which [`Machine::add_small`] wants them.
    fn shift_small(self, q: Self::Bytes) -> Self::Bytes;
    /// `acc` + lane sums of `w q` times the factor + what zero quants would have given, for w in
    /// -64..=63.
    fn add_small(
        self,
        acc: Self::Ints,
        shifted: Self::Bytes,
        w: Self::Bytes,
        factor: Self::Factor,
    ) -> Self::Ints;

    /// Eight times the same little-endian half, converted exactly.
    fn splat_half(self, from: [u8; 2]) -> Self::Floats;
    /// Eight times the same value.
    fn splat(self, x: f32) -> Self::Floats;
    /// Loads eight floats.
    fn floats(self, from: &[f32; 8]) -> Self::Floats;
    /// Stores eight floats.
    fn store_floats(self, f: Self::Floats, to: &mut [f32; 8]);
    /// Eight little-endian floats.
    fn floats_le(self, from: &[u8; 32]) -> Self::Floats;
    /// Eight little-endian halves, converted exactly.
    fn halves(self, from: &[u8; 16]) -> Self::Floats;
    /// Eight little-endian bfloats, converted exactly.
    fn bfloats(self, from: &[u8; 16]) -> Self::Floats;
    /// Signed bytes as floats, in order.
    fn bytes_to_floats(self, b: Self::Bytes) -> [Self::Floats; 4];
    /// Integers to the nearest floats.
    fn to_floats(self, i: Self::Ints) -> Self::Floats;
    /// Sum.
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// Product.
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a b + c`, rounded once.
    fn fma(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
}
