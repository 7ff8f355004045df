//! The quantizer of `IQ2_XXS` (model.md 5.14).
//!
//! Works in units in which the levels of the codebook are 1, 3, 5. Of each eight weights it stores
//! magnitudes as a point of the grid and signs as seven bits; the eighth sign is the parity, so an odd
//! number of minus signs costs the least important weight its sign.

use std::sync::LazyLock;

use super::fit::{self, EPS};
use super::iq2_grid::CODES;
use super::iq2_xxs::BYTES;
use super::k_fit::{importance_weights, sum_of_squares};
use super::plain::put_f16;
use super::round::{clamped, rne};
use super::super_block::LEN;

/// A point of the codebook, or where to look for one near.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// The code is this grid entry.
    Grid(u8),
    /// The code is not in the grid: the candidates are `neighbours[start..end]`.
    Near { start: u32, end: u32 },
}

/// Every code of eight digits 0, 1, 2 with its place.
struct Places {
    /// By code; codes with a digit 3 are never asked for.
    by_code: Vec<Place>,
    /// Grid entries in the two smallest distances, by (distance, index).
    neighbours: Vec<u8>,
}

static PLACES: LazyLock<Places> = LazyLock::new(Places::build);

/// The digits of a code.
fn digits(code: u16) -> [u8; 8] {
    std::array::from_fn(|i| u8::try_from((code >> (2 * i)) & 3).expect("two bits"))
}

/// The code of digits.
fn code(digits: &[u8]) -> u16 {
    digits.iter().rev().fold(0, |code, &d| code << 2 | u16::from(d))
}

impl Places {
    fn build() -> Self {
        let last = code(&[2; 8]);
        let mut places = Self { by_code: Vec::new(), neighbours: Vec::new() };
        for code in 0..=last {
            let place = match CODES.binary_search(&code) {
                Ok(index) => Place::Grid(u8::try_from(index).expect("256 codes")),
                Err(_) if digits(code).contains(&3) => Place::Near { start: 0, end: 0 },
                Err(_) => places.add_neighbours(code),
            };
            places.by_code.push(place);
        }
        places
    }

    fn add_neighbours(&mut self, code: u16) -> Place {
        let own = digits(code);
        let mut by_distance: Vec<(u16, u8)> = (0..=u8::MAX)
            .map(|index| {
                let other = digits(CODES[usize::from(index)]);
                // Levels are 2 digit + 1, so distances in levels are four times these: same order.
                let distance =
                    own.iter().zip(&other).map(|(a, b)| u16::from(a.abs_diff(*b)).pow(2)).sum();
                (distance, index)
            })
            .collect();
        by_distance.sort_unstable();
        let nearest = by_distance[0].0;
        let second = by_distance.iter().map(|d| d.0).find(|&d| d > nearest).unwrap_or(nearest);
        let position = |n: usize| u32::try_from(n).expect("at most 3^8 times 256 entries");
        let start = position(self.neighbours.len());
        self.neighbours.extend(by_distance.iter().take_while(|d| d.0 <= second).map(|d| d.1));
        Place::Near { start, end: position(self.neighbours.len()) }
    }

    /// The grid entry for eight magnitudes `y` at `scale`: the one rounding gives, or else the candidate
    /// with the smallest error weighted by `v`, the first one on ties.
    fn project(&self, y: &[f32], v: &[f32], inverse: f32, scale: f32) -> u8 {
        let rounded: [u8; 8] =
            std::array::from_fn(|i| clamped(rne(0.5 * (inverse * y[i] - 1.0)), 2));
        match self.by_code[usize::from(code(&rounded))] {
            Place::Grid(index) => index,
            Place::Near { start, end } => {
                let mut best = (f32::INFINITY, 0);
                for &index in &self.neighbours[start as usize..end as usize] {
                    let mut error = 0.0;
                    for (i, digit) in digits(CODES[usize::from(index)]).into_iter().enumerate() {
                        let difference = scale * f32::from(2 * digit + 1) - y[i];
                        error += v[i] * difference * difference;
                    }
                    if error < best.0 {
                        best = (error, index);
                    }
                }
                best.1
            }
        }
    }
}

/// What is found for a group of 32.
#[derive(Default)]
struct Group {
    scale: f32,
    indices: [u8; 4],
    /// Seven bits each.
    signs: [u8; 4],
}

/// Quantizes a block; `importance` has 256 values.
pub(super) fn encode(x: &[f32; LEN], importance: &[f32], block: &mut [u8; BYTES]) {
    let sigma2 = sum_of_squares(x) / 256.0;
    let groups: [Group; 8] = std::array::from_fn(|g| {
        let x = x[32 * g..32 * g + 32].try_into().expect("a slice of 32");
        search(x, &importance_weights(x, &importance[32 * g..], sigma2))
    });
    block.fill(0);
    let largest = groups.iter().map(|g| g.scale).fold(0.0, f32::max);
    if largest == 0.0 {
        return;
    }
    let d = largest / 31.0;
    put_f16(block, 0, d);
    let inverse = 1.0 / d;
    for (group, words) in groups.iter().zip(block[2..].chunks_exact_mut(8)) {
        let ls = u32::from(clamped(rne(0.5 * (inverse * group.scale - 1.0)), 15));
        let signs = group.signs.iter().rev().fold(0, |word, &s| word << 7 | u32::from(s));
        words[..4].copy_from_slice(&group.indices);
        words[4..].copy_from_slice(&(ls << 28 | signs).to_le_bytes());
    }
}

/// Finds grid entries, signs and scale of 32 weights.
fn search(x: &[f32; 32], w: &[f32; 32]) -> Group {
    let (y, signs) = magnitudes(x, w);
    if y.iter().copied().fold(f32::NEG_INFINITY, f32::max) < EPS {
        return Group::default();
    }
    let start = fit::scale(&y, w, 4).0;
    let span = 3.0 * start;
    if span <= 0.0 {
        return Group::default();
    }
    let v = w.map(f32::sqrt);
    let places = &*PLACES;
    let project = |inverse: f32, scale: f32| -> [u8; 4] {
        std::array::from_fn(|l| {
            places.project(&y[8 * l..8 * l + 8], &v[8 * l..8 * l + 8], inverse, scale)
        })
    };

    let mut group = Group { scale: start, indices: [0; 4], signs };
    let mut best = 0.0;
    for k in -6i8..=6 {
        let inverse = (5.0 + 0.1 * f32::from(k)) / span;
        let indices = project(inverse, 1.0 / inverse);
        let (a, b) = moments(&y, w, indices);
        if b > 0.0 && a * a > best * b {
            group.scale = a / b;
            best = group.scale * a;
            group.indices = indices;
        }
    }
    if group.scale > 0.0 {
        group.indices = project(1.0 / group.scale, group.scale);
        let (a, b) = moments(&y, w, group.indices);
        if b > 0.0 {
            group.scale = a / b;
        }
    }
    if group.scale < 0.0 {
        group.scale = -group.scale;
        group.signs = group.signs.map(|s| !s & 0x7F);
    }
    group
}

/// Magnitudes and sign bits. Where the number of minus signs in eight weights is odd, the one that
/// matters least changes sides and its "magnitude" becomes negative.
fn magnitudes(x: &[f32; 32], w: &[f32; 32]) -> ([f32; 32], [u8; 4]) {
    let mut y = x.map(f32::abs);
    let mut signs = [0u8; 4];
    for (l, bits) in signs.iter_mut().enumerate() {
        let eight = 8 * l..8 * l + 8;
        for i in eight.clone().rev() {
            *bits = *bits << 1 | u8::from(x[i] < 0.0);
        }
        if bits.count_ones() % 2 == 1 {
            let cost = |i: usize| w[i] * x[i] * x[i];
            let least = eight.clone().reduce(|a, b| if cost(b) < cost(a) { b } else { a });
            let least = least.expect("eight weights");
            y[least] = -y[least];
            *bits ^= 1 << (least - eight.start);
        }
        *bits &= 0x7F;
    }
    (y, signs)
}

/// `sum w y q` and `sum w q²` over the levels q = 1, 3, 5 of four grid entries.
fn moments(y: &[f32; 32], w: &[f32; 32], indices: [u8; 4]) -> (f32, f32) {
    let (mut a, mut b) = (0.0f32, 0.0f32);
    for (l, index) in indices.into_iter().enumerate() {
        for (j, digit) in digits(CODES[usize::from(index)]).into_iter().enumerate() {
            let (i, q) = (8 * l + j, f32::from(2 * digit + 1));
            a += w[i] * y[i] * q;
            b += w[i] * q * q;
        }
    }
    (a, b)
}
