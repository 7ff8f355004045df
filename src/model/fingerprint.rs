//! Which model a saved state belongs to (model.md 8.4): SHA-1 over a model's tensor table, samples
//! of its weights and its tokenizer. Sampling tells re-quantizations, fine-tunes and random files
//! of one layout apart, at the price of reading 4 KiB of every tensor.
//!
//! The hashed bytes, all integers little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | `Q36 model 1\n` | so that no other hash can be mistaken for one |
//! | u64 | number of tensors |
//! | for each tensor, by name (byte order): | so that rewriting a file in another order changes nothing |
//! | u64, bytes | length of the name, name |
//! | u32 | storage type, GGUF number |
//! | u64, u64 each | number of dimensions without trailing ones, dimensions, fastest first |
//! | bytes | the `min(4096, size)` bytes from `(size - min(4096, size)) / 2` of the data |
//! | u64; u64, bytes each | number of tokens; length, spelling |
//! | u64; i32 each | number of token types; types |
//! | u64; u64, bytes each | number of merges; length, merge |

use sha1::{Digest, Sha1};

use crate::gguf::{File, Tensor};

const DOMAIN: &[u8] = b"Q36 model 1\n";
const SAMPLE_BYTES: u64 = 4096;

/// The fingerprint of a model file. A tokenizer array that is absent counts as empty.
pub(super) fn of(file: &File) -> [u8; 20] {
    let mut hash = Sha1::new();
    hash.update(DOMAIN);
    let mut tensors: Vec<&Tensor> = file.tensors().iter().collect();
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    // The samples are scattered over the file: ask for all before waiting for the first.
    for t in &tensors {
        file.prefetch_range(sample(t));
    }
    hash.update((tensors.len() as u64).to_le_bytes());
    for t in tensors {
        hash.update((t.name.len() as u64).to_le_bytes());
        hash.update(t.name.as_bytes());
        hash.update(t.ty.gguf().to_le_bytes());
        hash.update((t.shape().len() as u64).to_le_bytes());
        for d in t.shape() {
            hash.update(d.to_le_bytes());
        }
        let (offset, len) = sample(t);
        hash.update(file.bytes(offset, len));
    }
    tokenizer(file, &mut hash);
    hash.finalize().into()
}

/// Offset in the file and length of a tensor's sample.
fn sample(t: &Tensor) -> (u64, u64) {
    let len = t.bytes.min(SAMPLE_BYTES);
    (t.offset + (t.bytes - len) / 2, len)
}

fn tokenizer(file: &File, hash: &mut Sha1) {
    let meta = file.metadata();
    let strings = |key: &str, hash: &mut Sha1| {
        let list = meta.strings(key).ok();
        hash.update(list.as_ref().map_or(0, |l| l.len() as u64).to_le_bytes());
        for s in list.into_iter().flatten() {
            hash.update((s.len() as u64).to_le_bytes());
            hash.update(s);
        }
    };
    strings("tokenizer.ggml.tokens", hash);
    let types = meta.i32s("tokenizer.ggml.token_type").unwrap_or_default();
    hash.update((types.len() as u64).to_le_bytes());
    for t in types {
        hash.update(t.to_le_bytes());
    }
    strings("tokenizer.ggml.merges", hash);
}

/// The fingerprint of a model that something else changes, such as steering: SHA-1 of
/// `Q36 model+ 1\n`, the model's fingerprint, and for each part its u64 length and bytes.
pub fn extend(model: [u8; 20], parts: &[&[u8]]) -> [u8; 20] {
    let mut hash = Sha1::new();
    hash.update(b"Q36 model+ 1\n");
    hash.update(model);
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}
