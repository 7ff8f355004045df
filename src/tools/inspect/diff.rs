//! How two files differ: keys, tensors, and for tensors of the same shape how far their values are
//! apart.

use serde::Serialize;

use crate::gguf::{File, Tensor};
use crate::quant::{dequantize, is_supported};

/// Rows of a tensor whose values are compared.
const SAMPLED_ROWS: u64 = 64;

/// The differences between two files, called left and right.
#[derive(Debug, Serialize)]
pub struct Diff {
    /// The right file.
    pub with: String,
    /// Keys that differ, in the order of the left file, then of the right.
    pub metadata: Vec<KeyChange>,
    /// Tensors that differ, in the same order.
    pub tensors: Vec<TensorChange>,
    /// Keys that are the same.
    pub equal_keys: usize,
    /// Tensors that are the same, byte for byte.
    pub equal_tensors: usize,
}

/// A key that differs; a side without it has `None`.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the key, and its value on each side")]
pub struct KeyChange {
    pub key: String,
    pub left: Option<String>,
    pub right: Option<String>,
}

/// A tensor that differs; a side without it has `None`.
#[derive(Debug, PartialEq, Serialize)]
pub struct TensorChange {
    /// Its name.
    pub name: String,
    /// Type and dimensions in the left file.
    pub left: Option<String>,
    /// Type and dimensions in the right file.
    pub right: Option<String>,
    /// Root mean square of the difference over that of the left values, over up to 64 rows spread
    /// over the tensor; `None` where shapes differ or a type cannot be decoded.
    pub relative_rms: Option<f64>,
}

impl Diff {
    /// Whether the files are the same to a reader.
    pub fn is_empty(&self) -> bool {
        self.metadata.is_empty() && self.tensors.is_empty()
    }
}

/// Compares two files. Reads all tensors that both have.
pub(super) fn compare(left: &File, right: &File) -> Diff {
    let metadata = compare_metadata(left, right);
    let mut tensors = Vec::new();
    let mut equal_tensors = 0;
    for l in left.tensors() {
        match right.tensor(&l.name) {
            Some(r) if same(left, l, right, r) => equal_tensors += 1,
            other => tensors.push(change(left, Some(l), right, other)),
        }
    }
    let added = right.tensors().iter().filter(|r| left.tensor(&r.name).is_none());
    tensors.extend(added.map(|r| change(left, None, right, Some(r))));
    let in_both = left.metadata().iter().filter(|(key, _)| right.metadata().get(key).is_some());
    let changed = metadata.iter().filter(|c| c.left.is_some() && c.right.is_some()).count();
    Diff {
        with: right.path().display().to_string(),
        equal_keys: in_both.count() - changed,
        equal_tensors,
        metadata,
        tensors,
    }
}

fn compare_metadata(left: &File, right: &File) -> Vec<KeyChange> {
    let (left, right) = (left.metadata(), right.metadata());
    let changed = left.iter().filter_map(|(key, l)| {
        let r = right.get(key);
        // Not a number equals itself here: the bytes are the same.
        let same = r.is_some_and(|r| r == l || format!("{r:?}") == format!("{l:?}"));
        let describe = |v: crate::gguf::Value<'_>| v.describe();
        let change =
            || KeyChange { key: key.to_owned(), left: Some(l.describe()), right: r.map(describe) };
        (!same).then(change)
    });
    let added = right.iter().filter(|(key, _)| left.get(key).is_none()).map(|(key, r)| KeyChange {
        key: key.to_owned(),
        left: None,
        right: Some(r.describe()),
    });
    changed.chain(added).collect()
}

fn same(left: &File, l: &Tensor, right: &File, r: &Tensor) -> bool {
    l.ty == r.ty && l.shape() == r.shape() && left.data(l) == right.data(r)
}

fn change(left: &File, l: Option<&Tensor>, right: &File, r: Option<&Tensor>) -> TensorChange {
    let describe = |t: &Tensor| format!("{} {:?}", t.ty, t.shape());
    let relative_rms = l.zip(r).and_then(|(l, r)| relative_rms(left, l, right, r));
    let name = l.or(r).map_or(String::new(), |t| t.name.clone());
    TensorChange { name, left: l.map(describe), right: r.map(describe), relative_rms }
}

fn relative_rms(left: &File, l: &Tensor, right: &File, r: &Tensor) -> Option<f64> {
    if l.shape() != r.shape() || !is_supported(l.ty) || !is_supported(r.ty) {
        return None;
    }
    let cols = usize::try_from(l.row_len()).ok()?;
    let (mut a, mut b) = (vec![0.0; cols], vec![0.0; cols]);
    let step = l.rows().div_ceil(SAMPLED_ROWS).max(1);
    let (mut difference, mut reference) = (0.0, 0.0);
    for row in (0..l.rows()).step_by(usize::try_from(step).ok()?) {
        decode_row(left, l, row, &mut a);
        decode_row(right, r, row, &mut b);
        for (&x, &y) in a.iter().zip(&b) {
            difference += (f64::from(x) - f64::from(y)).powi(2);
            reference += f64::from(x).powi(2);
        }
    }
    Some(if difference == 0.0 { 0.0 } else { (difference / reference).sqrt() })
}

fn decode_row(file: &File, t: &Tensor, row: u64, out: &mut [f32]) {
    let row_bytes = t.bytes / t.rows();
    dequantize(t.ty, file.bytes(t.offset + row * row_bytes, row_bytes), out);
}
