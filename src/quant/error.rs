//! What can be wrong with values given to a quantizer.

use super::TensorType;

/// Why a row was not quantized.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// There is no quantizer for this type.
    #[error("no quantizer for {0}")]
    Unsupported(TensorType),
    /// The row is not a whole number of blocks.
    #[error("a row of {len} values is not a whole number of {ty} blocks")]
    RowLength {
        /// The type asked for.
        ty: TensorType,
        /// Values in the row.
        len: usize,
    },
    /// The type cannot be made without importances.
    #[error("{0} needs an importance matrix")]
    ImportanceMissing(TensorType),
    /// Importances and values differ in number.
    #[error("{importances} importances for {values} values")]
    ImportanceLength {
        /// Importances given.
        importances: usize,
        /// Values given.
        values: usize,
    },
    /// A value is NaN or infinite.
    #[error("value {index} is {value}")]
    NotFinite {
        /// Its index in the row.
        index: usize,
        /// The value.
        value: f32,
    },
    /// An importance is negative, NaN or infinite.
    #[error("importance {index} is {value}")]
    BadImportance {
        /// Its index in the row.
        index: usize,
        /// The importance.
        value: f32,
    },
}
