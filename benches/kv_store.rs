//! What it costs to have many saved sessions: reading the directory at start, and finding the file whose text a
//! prompt begins with, or that there is none.
//!
//! The files are those of a small model, with texts of 8 to 24 KiB: a beginning that a third of them share, then
//! text of their own, and for each conversation a few lengths of it. Everything is in the page cache, as after a
//! restart of the program. On two cores of a shared cloud machine, medians:
//!
//! | files | index | look-up, found | look-up, nothing found |
//! |---:|---:|---:|---:|
//! | 100 | 2.0 ms | 0.096 ms | 0.046 ms |
//! | 1,000 | 25 ms | 0.086 ms | 0.048 ms |
//! | 10,000 | 269 ms | 0.087 ms | 0.052 ms |

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion};
use q36::kv::{
    Chain, Config, Encoder, Extensions, Frame, Header, KEYS, ModelKey, Prompt, Reason, Sections,
    StateHead, Store,
};
use q36::model::StateLayout;
use q36::quant::TensorType;
use q36::util::hex;
use q36::util::rng::Rng;

const COUNTS: [usize; 3] = [100, 1000, 10_000];
/// Lengths of one conversation that are saved.
const LENGTHS: usize = 4;
const TOKENS: usize = 600;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    for count in COUNTS {
        let dir = tempfile::tempdir().expect("a temporary folder");
        fill(dir.path(), count);
        measure(&mut criterion, dir.path(), count);
    }
    criterion.final_summary();
}

fn model() -> ModelKey {
    let layout = StateLayout {
        vocab: 64,
        layers: 4,
        full_interval: 4,
        kv_heads: 1,
        head_dim: 32,
        conv_taps: 4,
        conv_channels: 8,
        state_dim: 4,
        value_heads: 2,
        kv_k: TensorType::Q8_0,
        kv_v: TensorType::Q4_0,
    };
    ModelKey { fingerprint: [7; 20], quant_bits: 2, layout, ctx: 8192, chunk: 512 }
}

/// Letters that no other conversation has.
fn letters(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| b'a' + u8::try_from(rng.next_u64() >> 40 & 15).expect("below 16")).collect()
}

/// The whole text of a conversation: one of three shared beginnings, and its own.
fn conversation(index: usize) -> Vec<u8> {
    let shared = letters(1 + index as u64 % 3, 6000);
    [shared, letters(1000 + index as u64, 18_000)].concat()
}

/// Lengths that are saved of it.
fn saved(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    (1..=LENGTHS).map(move |i| &text[..8000 + (text.len() - 8000) * i / LENGTHS - i])
}

fn fill(dir: &Path, count: usize) {
    let model = model();
    let head = StateHead::new(&model.layout, model.ctx, model.chunk, TOKENS);
    let payload_bytes = head.payload_bytes(&model.layout);
    let mut payload = head.encode();
    payload.resize(usize::try_from(payload_bytes).expect("small"), 0);
    for index in 0..count / LENGTHS {
        let whole = conversation(index);
        for text in saved(&whole) {
            let mut sections = Sections::default();
            sections.set_markers(&[]);
            sections.set_tag(KEYS, Chain::new(text).key().to_vec());
            let header = Header {
                quant_bits: 2,
                reason: Reason::Continued,
                extensions: Extensions::default(),
                tokens: head.tokens,
                hits: 0,
                ctx: head.ctx,
                fingerprint: [0; 4],
                created: 1,
                last_used: 1,
                payload_bytes,
                text_bytes: 0,
            };
            let fingerprint = model.fingerprint;
            let frame = Frame { header, fingerprint, text: text.to_vec(), sections };
            let mut encoder = Encoder::begin(Vec::new(), &frame).expect("memory");
            encoder.payload(&payload).expect("memory");
            let file = encoder.finish().expect("memory");
            let name = format!("{}.kv", hex::sha1(text));
            fs::write(dir.join(name), file).expect("a writable folder");
        }
    }
}

fn measure(criterion: &mut Criterion, dir: &Path, count: usize) {
    let open = || {
        let config = Config::new(dir.to_path_buf());
        Store::for_model(config, model()).expect("a readable folder")
    };
    let mut group = criterion.benchmark_group("kv_store");
    group.bench_function(BenchmarkId::new("index", count), |b| b.iter(open));
    let mut store = open();
    assert_eq!(store.index().len(), count);
    let known = [conversation(count / LENGTHS / 2), letters(5, 4000)].concat();
    let unknown = [letters(1, 6000), letters(6, 18_000)].concat();
    for (name, text, expected) in [("hit", &known, Some(23_996)), ("miss", &unknown, None)] {
        let prompt = Prompt { bytes: text, markers: &[], replayed: &[] };
        assert_eq!(store.lookup(&prompt).map(|hit| hit.text_bytes()), expected);
        group.bench_function(BenchmarkId::new(name, count), |b| {
            b.iter(|| black_box(store.lookup(&prompt)));
        });
    }
    group.finish();
}
