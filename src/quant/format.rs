//! Storage types: numbers, names and sizes as GGUF defines them (model.md 2.6).

use std::fmt;

/// How the values of a tensor are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(non_camel_case_types, reason = "the names are GGUF's, known to every reader by sight")]
pub enum TensorType {
    /// 32-bit float.
    F32,
    /// IEEE half.
    F16,
    /// Upper half of a 32-bit float.
    BF16,
    /// 32-bit integer; parsed, never computed with.
    I32,
    /// 32 values of 4 bits; KV cache only.
    Q4_0,
    /// 32 values of 8 bits.
    Q8_0,
    /// 256 values of 2 bits.
    Q2_K,
    /// 256 values of 4 bits.
    Q4_K,
    /// 256 values of 5 bits.
    Q5_K,
    /// 256 values of 6 bits.
    Q6_K,
    /// 256 activations of 8 bits.
    Q8_K,
    /// 256 values of about 2 bits from a codebook.
    IQ2_XXS,
    /// 256 values of about 2.5 bits from a codebook.
    IQ2_S,
    /// 256 values of about 3.4 bits from a codebook.
    IQ3_S,
}

/// GGUF number, name, values in a block, bytes of a block.
const TABLE: [(TensorType, u32, &str, usize, usize); 14] = [
    (TensorType::F32, 0, "f32", 1, 4),
    (TensorType::F16, 1, "f16", 1, 2),
    (TensorType::Q4_0, 2, "q4_0", 32, 18),
    (TensorType::Q8_0, 8, "q8_0", 32, 34),
    (TensorType::Q2_K, 10, "q2_k", 256, 84),
    (TensorType::Q4_K, 12, "q4_k", 256, 144),
    (TensorType::Q5_K, 13, "q5_k", 256, 176),
    (TensorType::Q6_K, 14, "q6_k", 256, 210),
    (TensorType::Q8_K, 15, "q8_k", 256, 292),
    (TensorType::IQ2_XXS, 16, "iq2_xxs", 256, 66),
    (TensorType::IQ3_S, 21, "iq3_s", 256, 110),
    (TensorType::IQ2_S, 22, "iq2_s", 256, 82),
    (TensorType::I32, 26, "i32", 1, 4),
    (TensorType::BF16, 30, "bf16", 1, 2),
];

impl TensorType {
    /// Every known type, by GGUF number.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    /// The type with this GGUF number.
    pub fn from_gguf(number: u32) -> Option<Self> {
        TABLE.iter().find(|row| row.1 == number).map(|row| row.0)
    }

    fn row(self) -> &'static (Self, u32, &'static str, usize, usize) {
        TABLE.iter().find(|row| row.0 == self).expect("every type is in the table")
    }

    /// Its GGUF number.
    pub fn gguf(self) -> u32 {
        self.row().1
    }

    /// Its lower-case name.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// Values in a block; a row is a whole number of blocks.
    pub fn block_len(self) -> usize {
        self.row().3
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        self.row().4
    }

    /// Bytes of a row of `n` values; `None` when `n` is not a whole number of blocks.
    pub fn row_bytes(self, n: usize) -> Option<usize> {
        n.is_multiple_of(self.block_len())
            .then(|| (n / self.block_len()).checked_mul(self.block_bytes()))
            .flatten()
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_consistent() {
        for ty in TensorType::all() {
            assert_eq!(TensorType::from_gguf(ty.gguf()), Some(ty));
        }
        assert_eq!(TensorType::from_gguf(3), None);
        assert_eq!(TensorType::Q8_0.row_bytes(2048), Some(2176));
        assert_eq!(TensorType::Q2_K.row_bytes(512), Some(168));
        assert_eq!(TensorType::Q4_K.row_bytes(2048), Some(1152));
        assert_eq!(TensorType::IQ2_XXS.row_bytes(4096), Some(1056));
        assert_eq!(TensorType::IQ2_XXS.row_bytes(100), None);
    }
}
