//! Checks of a file as a whole, in the order of model.md 2.7: architecture, shape, tensor count,
//! every tensor, tokenizer arrays.

use super::error::{Error, Invalid};
use super::layout::Expected;
use super::mtp::is_mtp_file;
use super::shape::Shape;
use crate::gguf::{File, Metadata, Tensor, printable};

const ARCHITECTURE: &str = "qwen35moe";

/// Everything before the tensors: what the file is and which shape it has.
pub(super) fn check_header(file: &File) -> Result<Shape, Error> {
    let fail = |problem| Err(Error::model(file.path(), problem));
    let meta = file.metadata();
    if let Ok(count) = meta.u64("split.count")
        && count > 1
    {
        let part = meta.u64("split.no").unwrap_or(0) + 1;
        return fail(Invalid::Split { part, count });
    }
    let found = meta.str("general.architecture")?;
    if found != ARCHITECTURE {
        return fail(Invalid::Architecture { found: printable(found.as_bytes()) });
    }
    let shape = Shape::from_file(file)?;
    let (expected, found) = (shape.tensor_count() as u64, file.tensors().len() as u64);
    if is_mtp_file(file) {
        return fail(Invalid::MtpFile);
    }
    let has_block = file.tensors().iter().any(|t| t.name.contains(".nextn."));
    if found > expected && has_block {
        return fail(Invalid::Combined { expected });
    }
    if found != expected {
        return fail(Invalid::TensorCount { expected, found });
    }
    Ok(shape)
}

/// Finds a tensor and checks type, rank and dimensions, in this order.
pub(super) fn find<'a>(
    file: &'a File,
    shape: &Shape,
    expected: &Expected,
) -> Result<&'a Tensor, Invalid> {
    let name = expected.name();
    let Some(t) = file.tensor(&name) else { return Err(Invalid::MissingTensor { name }) };
    let accepted = expected.role.accepted();
    if !accepted.contains(&t.ty) {
        let names: Vec<_> = accepted.iter().map(|ty| ty.name()).collect();
        let expected = names.join(" or ");
        return Err(Invalid::TensorType { name, found: t.ty.to_string(), expected });
    }
    let mut dims = expected.role.dims(shape);
    let mut found = t.shape().to_vec();
    // Trailing ones mean nothing, and a real dimension may be one.
    while dims.len() > 1 && dims.last() == Some(&1) {
        dims.pop();
    }
    found.resize(found.len().max(1), 1);
    if found.len() != dims.len() {
        return Err(Invalid::Rank { name, found: found.len(), expected: dims.len() });
    }
    let differs = (0..dims.len()).find(|&i| found[i] != dims[i]);
    differs.map_or(Ok(t), |index| {
        Err(Invalid::Dim { name, index, found: found[index], expected: dims[index] })
    })
}

/// The tokenizer arrays: present, of one length, the model's; the end id names the right token.
pub(super) fn check_tokenizer(file: &File, shape: &Shape) -> Result<(), Error> {
    let meta = file.metadata();
    let fail = |problem| Err(Error::model(file.path(), problem));
    for (key, expected) in [("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", "qwen35")] {
        let found = meta.str(key)?;
        if found != expected {
            return fail(Invalid::key(key, expected, printable(found.as_bytes())));
        }
    }
    let tokens = meta.strings("tokenizer.ggml.tokens")?.len();
    if tokens != shape.vocab {
        let text = format!("{tokens} tokens for {} rows of the embedding", shape.vocab);
        return fail(Invalid::Tokenizer(text));
    }
    let types = meta.array("tokenizer.ggml.token_type")?.count();
    if types != tokens as u64 {
        let text = format!("{types} token types for {tokens} tokens");
        return fail(Invalid::Tokenizer(text));
    }
    meta.strings("tokenizer.ggml.merges")?;
    check_id(file, meta, "tokenizer.ggml.eos_token_id", "<|im_end|>")?;
    if meta.get("tokenizer.ggml.bos_token_id").is_some() {
        check_id(file, meta, "tokenizer.ggml.bos_token_id", "<|endoftext|>")?;
    }
    Ok(())
}

fn check_id(file: &File, meta: &Metadata, key: &str, expected: &str) -> Result<(), Error> {
    let id = meta.u32(key)?;
    let found = meta.strings("tokenizer.ggml.tokens")?.nth(id as usize);
    if found == Some(expected.as_bytes()) {
        return Ok(());
    }
    let found = found.map_or_else(|| "nothing".into(), printable);
    let text = format!("expected id {id} = {expected}, got {found} ({key})");
    Err(Error::model(file.path(), Invalid::Tokenizer(text)))
}
