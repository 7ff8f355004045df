//! Tests of the start of a step: exact values, records, slabs, tokens past the end.

use super::*;
use crate::kernels::check::{self, Draw, Gpu};
use crate::kernels::control::Row;
use crate::kernels::mv_q8::{Planes, repack};
use crate::quant::{TensorType, dequantize};
use crate::vulkan::lavapipe;

/// Embeddings as file blocks and as values.
struct Table {
    hidden: usize,
    blocks: Vec<u8>,
    values: Vec<f32>,
}

impl Table {
    fn draw(seed: u64, vocab: usize, hidden: usize) -> Self {
        println!("seed {seed}: {vocab}x{hidden}");
        let mut draw = Draw::new(seed);
        let mut blocks = Vec::new();
        for _ in 0..vocab * hidden / 32 {
            blocks.extend(half::f16::from_f32(draw.normal()).to_le_bytes());
            blocks.extend((0..32).map(|_| u8::try_from(draw.below(256)).unwrap()));
        }
        let mut values = vec![0.0; vocab * hidden];
        dequantize(TensorType::Q8_0, &blocks, &mut values);
        Self { hidden, blocks, values }
    }

    /// Rows from `first` on.
    fn slab(&self, gpu: &mut Gpu, storage: Storage, rows: std::ops::Range<usize>) -> Slab {
        let first = u32::try_from(rows.start).unwrap();
        let matrix = match storage {
            Storage::F32 => {
                let values = &self.values[rows.start * self.hidden..rows.end * self.hidden];
                Matrix::F32(gpu.input("values", values))
            }
            Storage::Q8 => {
                let row = self.hidden / 32 * 34;
                let blocks = &self.blocks[rows.start * row..rows.end * row];
                let count = blocks.len() / 34;
                let (mut codes, mut scales) = (vec![0; count * 32], vec![0; count * 2]);
                repack(blocks, &mut codes, &mut scales);
                let (codes, scales) = (gpu.input("codes", &codes), gpu.input("scales", &scales));
                Matrix::Q8(Planes { codes, scales })
            }
        };
        Slab { matrix, first }
    }

    fn row(&self, token: u32) -> &[f32] {
        &self.values[token as usize * self.hidden..][..self.hidden]
    }
}

fn inputs(graph: &mut Graph, slabs: &[Slab]) {
    for slab in slabs {
        match &slab.matrix {
            Matrix::Q8(planes) => {
                graph.input(&planes.codes);
                graph.input(&planes.scales);
            }
            Matrix::F32(weights) => graph.input(weights),
        }
    }
}

fn records(tokens: &[u32]) -> Vec<Row> {
    let record = |&token| Row {
        token,
        pos: token + 1,
        reserved: [token; 32],
        reserved_end: [token; 15],
        ..Row::default()
    };
    tokens.iter().map(record).collect()
}

#[test]
fn rows_get_their_embeddings_and_records() {
    let Some(mut gpu) = check::gpu() else { return };
    let cases = [(Storage::Q8, 9, 32), (Storage::Q8, 40, 256), (Storage::F32, 12, 2048)];
    for (seed, (storage, vocab, hidden)) in (1..).zip(cases) {
        let table = Table::draw(seed, vocab, hidden);
        for tokens in [vec![0], vec![8, 3], vec![7, 7, 1, 8], vec![1, 2, 3, 4, 5, 6, 7, 8]] {
            let count = u32::try_from(tokens.len()).unwrap();
            let mut rows = records(&tokens);
            if count > 1 {
                rows[1].flags = Row::IDLE;
            }
            // In two slabs where there are several rows.
            let cut = if count > 1 { 5 } else { vocab };
            let mut slabs = vec![table.slab(&mut gpu, storage, 0..cut)];
            if cut < vocab {
                slabs.push(table.slab(&mut gpu, storage, cut..vocab));
            }
            let mailbox = gpu.input("mailbox", &rows);
            let control = gpu.output("control", rows.len() * 256);
            let h = gpu.output("h", rows.len() * hidden * 4);
            let squares = gpu.output("squares", rows.len() * 4);
            let kernel = Embed::new(
                gpu.device(),
                Step::Rows(count),
                storage,
                u32::try_from(hidden).unwrap(),
            )
            .unwrap();
            let mut graph = Graph::new("embed");
            graph.input(&mailbox);
            inputs(&mut graph, &slabs);
            graph.level();
            let io = Operands {
                control: control.slice(),
                mailbox,
                h: h.slice(),
                squares_or_ids: squares.slice(),
            };
            kernel.record(&mut graph, "embed", &slabs, &io);
            gpu.run(graph);
            assert!(gpu.words(&control) == bytemuck::cast_slice::<_, u32>(&rows));
            let (h, squares) = (gpu.words(&h), gpu.words(&squares));
            for (n, (h, row)) in h.chunks(hidden).zip(&rows).enumerate() {
                if row.flags == Row::IDLE {
                    assert!(h.iter().chain([&squares[n]]).all(|&w| w == Gpu::POISON));
                    continue;
                }
                let expected = table.row(row.token);
                assert!(h.iter().zip(expected).all(|(h, e)| *h == e.to_bits()), "row {n}");
                let exact: f64 = expected.iter().map(|&v| f64::from(v).powi(2)).sum();
                let found = f64::from(f32::from_bits(squares[n]));
                // Sums of at most 64 terms and a tree.
                assert!((found - exact).abs() <= 4e-6 * exact, "{found} for {exact}");
            }
        }
    }
}

#[test]
fn tokens_of_a_chunk_get_theirs_and_the_rest_stays() {
    let Some(mut gpu) = check::gpu() else { return };
    let (vocab, hidden, class) = (30, 64, 16);
    for storage in [Storage::Q8, Storage::F32] {
        let table = Table::draw(5, vocab, hidden);
        let ids: Vec<u32> = (0..class).map(|i| (i * 7 + 3) % 30).collect();
        for tokens in [1, 11, class] {
            let rows = [Row { tokens, pos: 64, ..Row::default() }];
            let mailbox = gpu.input("mailbox", &rows);
            let ids_in = gpu.input("ids", &ids);
            let control = gpu.output("control", 256);
            let h = gpu.output("h", class as usize * hidden * 4);
            let slabs =
                [table.slab(&mut gpu, storage, 0..12), table.slab(&mut gpu, storage, 12..vocab)];
            let step = Step::Tokens(class);
            let kernel = Embed::new(gpu.device(), step, storage, 64).unwrap();
            let mut graph = Graph::new("embed");
            graph.input(&mailbox);
            graph.input(&ids_in);
            inputs(&mut graph, &slabs);
            graph.level();
            let io = Operands {
                control: control.slice(),
                mailbox,
                h: h.slice(),
                squares_or_ids: ids_in,
            };
            kernel.record(&mut graph, "embed", &slabs, &io);
            gpu.run(graph);
            assert!(gpu.words(&control) == bytemuck::cast_slice::<_, u32>(&rows));
            for (n, h) in gpu.words(&h).chunks(hidden).enumerate() {
                if n < tokens as usize {
                    let expected = table.row(ids[n]);
                    assert!(h.iter().zip(expected).all(|(h, e)| *h == e.to_bits()), "token {n}");
                } else {
                    assert!(h.iter().all(|&w| w == Gpu::POISON), "token {n}");
                }
            }
        }
    }
}

#[test]
fn constants_follow_the_device() {
    let caps = lavapipe();
    assert_eq!(select(2048, &caps), Ok((Constants { workgroup: 256, k: 2048 }, 8)));
    assert_eq!(select(32, &caps), Ok((Constants { workgroup: 8, k: 32 }, 8)));
    assert!(select(48, &caps).is_err() && select(0, &caps).is_err());
}
