//! Reads all weights of a file and looks for values that are not finite. A block's values are small
//! integers times its scales, so the scales of every block are looked at, and the values themselves
//! only where they are floats.

use rayon::prelude::*;
use serde::Serialize;

use crate::gguf::{File, Tensor};
use crate::quant::{TensorType, bf16_to_f32, f16_to_f32};

/// Bytes that one task reads, about.
const TASK_BYTES: usize = 4 << 20;

/// The result.
#[derive(Debug, PartialEq, Serialize)]
pub struct Verified {
    /// Bytes read.
    pub bytes: u64,
    /// Floats and scales looked at.
    pub values: u64,
    /// Tensors with values that are not finite.
    pub bad: Vec<Bad>,
    /// Largest magnitude of a float or scale, and where, by storage type.
    pub largest: Vec<Largest>,
}

/// A tensor with values that are not finite.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Bad {
    /// The tensor.
    pub tensor: String,
    /// How many floats or scales.
    pub values: u64,
    /// Row of the first.
    pub first_row: u64,
}

/// The largest number of a storage type.
#[derive(Debug, PartialEq, Serialize)]
pub struct Largest {
    /// The storage type.
    #[serde(rename = "type")]
    pub ty: &'static str,
    /// Magnitude of the float or scale.
    pub magnitude: f32,
    /// The tensor.
    pub tensor: String,
}

impl Verified {
    /// Whether every value is finite.
    pub fn is_clean(&self) -> bool {
        self.bad.is_empty()
    }
}

/// How a type stores floats: bytes of a block and the places of floats in it.
struct Floats {
    decode: fn(&[u8]) -> f32,
    width: usize,
    at: &'static [usize],
}

fn f32_at(b: &[u8]) -> f32 {
    f32::from_le_bytes([b[0], b[1], b[2], b[3]])
}

fn f16_at(b: &[u8]) -> f32 {
    f16_to_f32(u16::from_le_bytes([b[0], b[1]]))
}

fn bf16_at(b: &[u8]) -> f32 {
    bf16_to_f32(u16::from_le_bytes([b[0], b[1]]))
}

fn floats(ty: TensorType) -> Option<Floats> {
    let half = |at| Some(Floats { decode: f16_at, width: 2, at });
    match ty {
        TensorType::F32 | TensorType::Q8_K => Some(Floats { decode: f32_at, width: 4, at: &[0] }),
        TensorType::BF16 => Some(Floats { decode: bf16_at, width: 2, at: &[0] }),
        TensorType::Q2_K => half(&[80, 82]),
        TensorType::Q4_K | TensorType::Q5_K => half(&[0, 2]),
        TensorType::Q6_K => half(&[208]),
        TensorType::F16
        | TensorType::Q4_0
        | TensorType::Q8_0
        | TensorType::IQ2_XXS
        | TensorType::IQ2_S
        | TensorType::IQ3_S => half(&[0]),
        TensorType::I32 => None,
    }
}

/// What a scan of some blocks found.
#[derive(Clone, Copy, Default)]
struct Scan {
    values: u64,
    bad: u64,
    /// Block of the first bad value.
    first: Option<u64>,
    largest: f32,
}

impl Scan {
    fn merge(self, other: Self) -> Self {
        let first = match (self.first, other.first) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self {
            values: self.values + other.values,
            bad: self.bad + other.bad,
            first,
            largest: self.largest.max(other.largest),
        }
    }
}

/// Scans every tensor of a file, on all cores.
pub fn verify(file: &File) -> Verified {
    let mut out = Verified { bytes: 0, values: 0, bad: Vec::new(), largest: Vec::new() };
    for t in file.tensors() {
        let Some(floats) = floats(t.ty) else { continue };
        let scan = scan_tensor(file.data(t), t.ty, &floats);
        out.bytes += t.bytes;
        out.values += scan.values;
        if let Some(block) = scan.first {
            let blocks_in_row = t.row_len() / t.ty.block_len() as u64;
            out.bad.push(Bad {
                tensor: t.name.clone(),
                values: scan.bad,
                first_row: block / blocks_in_row,
            });
        }
        note_largest(&mut out.largest, t, scan.largest);
    }
    out
}

fn scan_tensor(data: &[u8], ty: TensorType, floats: &Floats) -> Scan {
    let block = ty.block_bytes();
    let blocks_in_task = TASK_BYTES / block;
    let tasks = data.par_chunks(blocks_in_task * block).enumerate();
    let scans =
        tasks.map(|(i, part)| scan_blocks(part, block, floats, (i * blocks_in_task) as u64));
    scans.reduce(Scan::default, Scan::merge)
}

fn scan_blocks(data: &[u8], block: usize, floats: &Floats, first_block: u64) -> Scan {
    let mut scan = Scan::default();
    for (i, bytes) in data.chunks_exact(block).enumerate() {
        for &at in floats.at {
            let value = (floats.decode)(&bytes[at..at + floats.width]);
            scan.values += 1;
            if value.is_finite() {
                scan.largest = scan.largest.max(value.abs());
            } else {
                scan.bad += 1;
                scan.first = scan.first.or(Some(first_block + i as u64));
            }
        }
    }
    scan
}

fn note_largest(largest: &mut Vec<Largest>, t: &Tensor, magnitude: f32) {
    let tensor = || t.name.clone();
    match largest.iter_mut().find(|l| l.ty == t.ty.name()) {
        Some(known) if known.magnitude >= magnitude => {}
        Some(known) => {
            known.magnitude = magnitude;
            known.tensor = tensor();
        }
        None => largest.push(Largest { ty: t.ty.name(), magnitude, tensor: tensor() }),
    }
}
