//! Tests of the greedy choice and of the candidates, against a plain scan of the logits.

use super::*;
use crate::kernels::check::{self, Draw, Gpu};

/// Logits of some rows, with their records, masks and biases.
struct Problem {
    vocab: usize,
    logits: Vec<f32>,
    rows: Vec<Row>,
    mask: Vec<u32>,
    bias: Vec<[u32; 2]>,
}

impl Problem {
    /// Row 0: everything allowed, no biases. Other rows: every seventh id is off, and biases.
    fn draw(seed: u64, vocab: usize, batch: usize) -> Self {
        println!("seed {seed}: {batch} rows of {vocab}");
        let mut draw = Draw::new(seed);
        let logits = draw.normals(vocab * batch).iter().map(|v| v * 4.0).collect();
        let words = vocab.div_ceil(32);
        let mut mask = vec![u32::MAX; words];
        mask.extend(
            (0..words).map(|w| (0..32).map(|b| u32::from((w * 32 + b) % 7 != 0) << b).sum::<u32>()),
        );
        let mut bias = vec![[0, 0]];
        bias.extend((0..vocab.min(40)).map(|i| {
            let addend = draw.normal() * 5.0;
            [u32::try_from(i * vocab / vocab.min(40)).unwrap(), addend.to_bits()]
        }));
        let mut rows = vec![Row { margin: 5.0, inverse_temperature: 1.0, ..Row::default() }; batch];
        for (n, row) in (0..).zip(&mut rows) {
            row.logits = n;
        }
        for (n, row) in rows.iter_mut().enumerate().skip(1) {
            row.mask = u32::try_from(words).unwrap();
            (row.bias, row.bias_len) = (1, u32::try_from(bias.len() - 1).unwrap());
            row.inverse_temperature = 1.0 / (n as f32);
        }
        Self { vocab, logits, rows, mask, bias }
    }

    /// The logit as sampling sees it, `None` where it is off.
    fn adjusted(&self, n: usize, id: usize) -> Option<f32> {
        let row = &self.rows[n];
        let pairs = &self.bias[row.bias as usize..][..row.bias_len as usize];
        let addend =
            pairs.iter().find(|p| p[0] as usize == id).map_or(0.0, |p| f32::from_bits(p[1]));
        let on = self.mask[row.mask as usize + id / 32] >> (id % 32) & 1 == 1;
        on.then(|| self.logits[n * self.vocab + id] + addend)
    }

    /// The pairs that the head would leave, of workgroups of `group` rows.
    fn pairs(&self, group: usize) -> Vec<[u32; 2]> {
        let mut pairs = Vec::new();
        for n in 0..self.rows.len() {
            for first in (0..self.vocab).step_by(group) {
                let mut best = (f32::NEG_INFINITY, 0);
                let mut failed = false;
                for id in first..self.vocab.min(first + group) {
                    let raw = self.logits[n * self.vocab + id];
                    failed |= raw.is_nan() || raw == f32::INFINITY;
                    let value = self.adjusted(n, id).unwrap_or(f32::NEG_INFINITY);
                    if value > best.0 {
                        best = (value, u32::try_from(id).unwrap());
                    }
                }
                pairs.push([best.0.to_bits(), if failed { u32::MAX } else { best.1 }]);
            }
        }
        pairs
    }

    fn run(&self, gpu: &mut Gpu, top_k: bool) -> Vec<Record> {
        let batch = u32::try_from(self.rows.len()).unwrap();
        let vocab = u32::try_from(self.vocab).unwrap();
        let device = Arc::clone(gpu.device());
        let pick = Pick::new(&device, batch).unwrap();
        let filter = Filter::new(&device, batch, vocab, top_k).unwrap();
        let [records, histogram, marks, tallies] = [
            u64::from(batch) * RECORD_BYTES as u64,
            u64::from(batch) * HISTOGRAM_BYTES,
            filter.marks_bytes(),
            filter.tallies_bytes(),
        ]
        .map(|bytes| gpu.output("output", usize::try_from(bytes).unwrap()));
        let io = FilterIo {
            control: gpu.input("control", &self.rows),
            logits: gpu.input("logits", &self.logits),
            mask: gpu.input("mask", &self.mask),
            bias: gpu.input("bias", &self.bias),
            records: records.slice(),
            histogram: histogram.slice(),
            marks: marks.slice(),
            tallies: tallies.slice(),
        };
        let pairs = gpu.input("pairs", &self.pairs(64));
        let mut graph = Graph::new("sample");
        for slice in [&io.control, &io.logits, &io.mask, &io.bias, &pairs] {
            graph.input(slice);
        }
        graph.level();
        let (control, records_in) = (io.control.clone(), io.records.clone());
        let histogram = io.histogram.clone();
        pick.record(&mut graph, "pick", PickIo { control, pairs, records: records_in, histogram });
        graph.level();
        filter.record(&mut graph, "filter", &io);
        gpu.run(graph);
        let words = gpu.words(&records);
        words
            .chunks(RECORD_BYTES / 4)
            .map(|w| bytemuck::pod_read_unaligned(bytemuck::cast_slice(w)))
            .collect()
    }

    /// The rules on the host.
    fn check(&self, n: usize, found: &Record, top_k: bool) {
        let row = &self.rows[n];
        let allowed: Vec<Candidate> = (0..self.vocab)
            .filter_map(|id| {
                Some(Candidate { id: u32::try_from(id).unwrap(), logit: self.adjusted(n, id)? })
            })
            .collect();
        let best = allowed.iter().fold(allowed[0], |a, &b| if b.logit > a.logit { b } else { a });
        assert_eq!((found.token, found.max), (best.id, best.logit), "row {n}");
        let exact: f64 = allowed
            .iter()
            .map(|c| (f64::from(c.logit - best.logit) * f64::from(row.inverse_temperature)).exp())
            .sum();
        // The device's exponential is off by a few units, more for large arguments, whose share is small.
        let off = (f64::from(found.sum) - exact).abs();
        assert!(off <= 1e-5 * exact, "row {n}: sum {} for {exact}", found.sum);
        let bin = |c: &Candidate| ((best.logit - c.logit) * 64.0).clamp(0.0, 2047.0).floor();
        let mut last = 2047.0;
        if top_k && row.top_k > 0 {
            let mut bins: Vec<f32> = allowed.iter().map(bin).collect();
            bins.sort_by(f32::total_cmp);
            last = bins.get(row.top_k as usize - 1).copied().unwrap_or(last);
        }
        let least = best.logit - row.margin;
        let keeps = |c: &&Candidate| c.logit >= least && bin(c) <= last;
        let expected: Vec<Candidate> = allowed.iter().filter(keeps).copied().collect();
        assert_eq!(found.count as usize, expected.len(), "row {n}");
        let over = expected.len() > MOST_PAIRS;
        assert_eq!(found.flags, if over { Record::OVERFLOW } else { 0 }, "row {n}");
        let told = expected.len().min(MOST_PAIRS);
        assert!(found.pairs[..told] == expected[..told], "row {n}");
        let rest = &found.pairs[told..];
        assert!(rest.iter().all(|c| c.id == Gpu::POISON), "row {n}: past the end");
        assert_eq!(found.candidates().map(<[_]>::len), (!over).then_some(told));
    }
}

#[test]
fn candidates_are_those_of_a_scan() {
    let Some(mut gpu) = check::gpu() else { return };
    // One block and less, an odd tail, the demo model's vocabulary, several blocks.
    for (seed, (vocab, batch)) in (1..).zip([(1, 1), (37, 2), (2048, 2), (4096, 8), (20_003, 4)]) {
        for top_k in [false, true] {
            let mut problem = Problem::draw(seed, vocab, batch);
            for (n, row) in problem.rows.iter_mut().enumerate() {
                row.top_k = [0, 20, 1, 1000][n % 4];
                // Everything: an overflow where the vocabulary is large.
                row.margin = [5.0, f32::INFINITY, 3.0, 1000.0][n % 4];
            }
            let found = problem.run(&mut gpu, top_k);
            for (n, record) in found.iter().enumerate() {
                problem.check(n, record, top_k);
            }
        }
    }
}

#[test]
fn a_rows_record_does_not_depend_on_its_company() {
    let Some(mut gpu) = check::gpu() else { return };
    let problem = Problem::draw(60, 5000, 4);
    let together = problem.run(&mut gpu, true);
    for (n, record) in together.iter().enumerate() {
        let alone = Problem {
            vocab: problem.vocab,
            logits: problem.logits[n * 5000..][..5000].to_vec(),
            rows: vec![Row { logits: 0, ..problem.rows[n] }],
            mask: problem.mask.clone(),
            bias: problem.bias.clone(),
        };
        assert!(bytemuck::bytes_of(record) == bytemuck::bytes_of(&alone.run(&mut gpu, true)[0]));
    }
}

#[test]
fn idle_rows_and_rows_without_temperature_are_left() {
    let Some(mut gpu) = check::gpu() else { return };
    let mut problem = Problem::draw(61, 3000, 4);
    problem.rows[1].flags = Row::IDLE;
    problem.rows[2].inverse_temperature = 0.0;
    let found = problem.run(&mut gpu, false);
    problem.check(0, &found[0], false);
    problem.check(3, &found[3], false);
    let words: &[u32] = bytemuck::cast_slice(&found[1..2]);
    assert!(words.iter().all(|&w| w == Gpu::POISON), "an idle row was written");
    assert_eq!((found[2].count, found[2].flags), (0, 0));
    assert_eq!(found[2].pairs[0].id, Gpu::POISON);
}

#[test]
fn ties_go_to_the_lower_id_and_what_is_not_finite_fails() {
    let Some(mut gpu) = check::gpu() else { return };
    let mut problem = Problem::draw(62, 900, 8);
    for logit in &mut problem.logits {
        *logit = logit.floor();
    }
    for n in 0..8 {
        let logits = u32::try_from(n).unwrap();
        problem.rows[n] = Row { margin: 1.0, inverse_temperature: 0.5, logits, ..Row::default() };
    }
    problem.logits[2 * 900 + 700] = f32::NAN;
    problem.logits[3 * 900 + 1] = f32::INFINITY;
    problem.logits[4 * 900 + 5] = f32::NEG_INFINITY;
    problem.logits[5 * 900..6 * 900].fill(f32::NEG_INFINITY);
    problem.logits[6 * 900..7 * 900].fill(-3.0);
    // A mask that allows nothing.
    problem.rows[7].mask = u32::try_from(problem.mask.len()).unwrap();
    problem.mask.extend([0; 29]);
    let found = problem.run(&mut gpu, false);
    for n in [0, 1, 4, 6] {
        problem.check(n, &found[n], false);
    }
    assert_eq!(found[6].token, 0);
    for n in [2, 3, 5, 7] {
        assert_eq!(found[n].flags & Record::FAILED, Record::FAILED, "row {n}");
    }
}
