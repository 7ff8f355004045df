//! One entry of the tensor table.

use crate::quant::TensorType;

/// A tensor of a file: name, shape, storage, place. Its range was checked when the file was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Its name in the file.
    pub name: String,
    /// One to eight dimensions, fastest first; none is zero.
    pub dims: Vec<u64>,
    /// How its values are stored.
    pub ty: TensorType,
    /// First byte of its data, from the start of the file.
    pub offset: u64,
    /// Bytes of its data.
    pub bytes: u64,
}

impl Tensor {
    /// Number of values.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Values in a row.
    pub fn row_len(&self) -> u64 {
        self.dims[0]
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.dims[1..].iter().product()
    }

    /// Dimensions without trailing ones, which some converters write and which mean nothing.
    pub fn shape(&self) -> &[u64] {
        let used = self.dims.iter().rposition(|&d| d != 1).map_or(1, |last| last + 1);
        &self.dims[..used]
    }
}

/// Bytes of a tensor, or `None` when a row is no whole number of blocks or 64 bits overflow.
pub(super) fn size_bytes(ty: TensorType, dims: &[u64]) -> Option<u64> {
    let row = ty.row_bytes(usize::try_from(*dims.first()?).ok()?)?;
    dims[1..].iter().try_fold(row as u64, |n, &d| n.checked_mul(d))
}

/// What other programs call a storage type that this one does not read; for messages.
pub(super) fn foreign_type(number: u32) -> String {
    let name = match number {
        3 => "q4_1",
        6 => "q5_0",
        7 => "q5_1",
        9 => "q8_1",
        11 => "q3_k",
        17 => "iq2_xs",
        18 => "iq3_xxs",
        19 => "iq1_s",
        20 => "iq4_nl",
        23 => "iq4_xs",
        24 => "i8",
        25 => "i16",
        27 => "i64",
        28 => "f64",
        29 => "iq1_m",
        34 => "tq1_0",
        35 => "tq2_0",
        39 => "mxfp4",
        _ => return number.to_string(),
    };
    format!("{name} ({number})")
}
