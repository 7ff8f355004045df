//! The diagnostics that write JSON: tokens of a text, logits after a prompt, alternatives of a
//! greedy continuation (cli.md 5).

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::engine::sample::{self, Scored};
use crate::engine::{Engine, SessionId};
use crate::term::Printer;
use crate::tokenizer::{Kind, TokenId, Tokenizer};
use crate::util::fs::AtomicFile;
use crate::util::signal::Interrupt;

/// A token as every dump shows it. `bytes` is authoritative.
#[derive(Debug, Serialize)]
pub(super) struct TokenJson {
    id: u32,
    text: String,
    bytes: Vec<u8>,
}

impl TokenJson {
    pub(super) fn new(tokenizer: &Tokenizer, id: TokenId) -> Self {
        let bytes = tokenizer.bytes(id);
        Self { id: id.0, text: legible(bytes), bytes: bytes.to_vec() }
    }
}

/// Valid UTF-8 as it is; every other byte as the character of that number, so that nothing is lost
/// to the eye and the JSON stays valid.
fn legible(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|&b| char::from(b)));
    }
    out
}

/// `--dump-tokens`: the ids, then one line a token.
pub(super) fn tokens(
    tokenizer: &Tokenizer,
    ids: &[TokenId],
    json: bool,
    printer: &Printer,
) -> Result<()> {
    if json {
        let rows: Vec<_> = ids.iter().map(|&id| TokenRow::new(tokenizer, id)).collect();
        return Ok(printer.line(&serde_json::to_string(&rows)?)?);
    }
    let list: Vec<_> = ids.iter().map(ToString::to_string).collect();
    let mut lines = vec![format!("[{}]", list.join(", "))];
    lines.extend(ids.iter().map(|&id| format!("{:>6}  {}", id.0, tokenizer.spelling(id))));
    Ok(printer.line(&lines.join("\n"))?)
}

#[derive(Serialize)]
struct TokenRow {
    #[serde(flatten)]
    token: TokenJson,
    kind: &'static str,
}

impl TokenRow {
    fn new(tokenizer: &Tokenizer, id: TokenId) -> Self {
        let kind = match tokenizer.kind(id) {
            Kind::Normal => "normal",
            Kind::Unknown => "unknown",
            Kind::Control => "control",
            Kind::Added => "added",
            Kind::Unused => "unused",
            Kind::Byte => "byte",
        };
        Self { token: TokenJson::new(tokenizer, id), kind }
    }
}

#[derive(Serialize)]
struct LogitsJson<'a> {
    source: &'static str,
    model: &'a str,
    backend: &'static str,
    quant_bits: u8,
    prompt_tokens: usize,
    ctx: usize,
    vocab: usize,
    argmax_token: TokenJson,
    argmax_logit: f32,
    #[serde(flatten)]
    frontier: Option<FrontierJson<'a>>,
    logits: Logits<'a>,
}

/// Where `bench` stood, and how it got there.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct Frontier {
    pub(in crate::commands) quality: bool,
    #[serde(rename = "frontier_tokens")]
    pub(in crate::commands) tokens: usize,
    pub(in crate::commands) prefill_tokens: usize,
}

#[derive(Serialize)]
struct FrontierJson<'a> {
    kv_k: &'static str,
    kv_v: &'static str,
    argmax_id: u32,
    #[serde(flatten)]
    place: &'a Frontier,
}

/// Numbers in the shortest form that reads back the same f32 (nine digits at most); what is not
/// finite is null.
struct Logits<'a>(&'a [f32]);

impl Serialize for Logits<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|v| v.is_finite().then_some(v)))
    }
}

/// `--dump-logits`: the whole row after the prompt.
pub(super) fn logits(
    engine: &mut dyn Engine,
    session: SessionId,
    prompt_tokens: usize,
    path: &Path,
) -> Result<()> {
    write_logits(engine, session, prompt_tokens, None, path)
}

/// The same of a frontier of `bench` (cli.md 8).
pub(in crate::commands) fn frontier_logits(
    engine: &mut dyn Engine,
    session: SessionId,
    frontier: &Frontier,
    path: &Path,
) -> Result<()> {
    write_logits(engine, session, frontier.tokens, Some(frontier), path)
}

fn write_logits(
    engine: &mut dyn Engine,
    session: SessionId,
    prompt_tokens: usize,
    frontier: Option<&Frontier>,
    path: &Path,
) -> Result<()> {
    let row = engine.logits(session)?.context("the prompt left no logits")?.to_vec();
    let best = sample::argmax(&row).context("no logit is finite")?;
    let info = engine.info();
    let model = info.model.display().to_string();
    let json = LogitsJson {
        source: if frontier.is_some() { "q36-bench" } else { "q36" },
        model: &model,
        backend: info.backend.name(),
        quant_bits: info.quant_bits,
        prompt_tokens,
        ctx: info.ctx_tokens,
        vocab: info.vocab,
        argmax_token: TokenJson::new(engine.tokenizer(), best),
        argmax_logit: row[best.index()],
        frontier: frontier.map(|place| FrontierJson {
            kv_k: info.kv_k.name(),
            kv_v: info.kv_v.name(),
            argmax_id: best.0,
            place,
        }),
        logits: Logits(&row),
    };
    write_json(path, &json)
}

#[derive(Serialize)]
struct LogprobsJson {
    source: &'static str,
    prompt_tokens: usize,
    ctx: usize,
    top_k: usize,
    steps: Vec<StepJson>,
}

#[derive(Serialize)]
struct StepJson {
    step: usize,
    selected: TokenJson,
    top_logprobs: Vec<AlternativeJson>,
}

#[derive(Serialize)]
struct AlternativeJson {
    token: TokenJson,
    logit: f32,
    logprob: f32,
}

impl AlternativeJson {
    fn new(tokenizer: &Tokenizer, scored: &Scored) -> Self {
        Self {
            token: TokenJson::new(tokenizer, scored.token),
            logit: scored.logit,
            logprob: scored.logprob,
        }
    }
}

/// What a greedy continuation is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Continuation {
    /// Most steps.
    pub(super) limit: usize,
    /// Alternatives a step shows.
    pub(super) top_k: usize,
}

/// `--dump-logprobs`: the likeliest token at each step, with its rivals, to the end of the turn. An
/// interrupt ends the list early and what was computed is written. Returns whether it was.
pub(super) fn logprobs(
    engine: &mut dyn Engine,
    session: SessionId,
    wanted: Continuation,
    path: &Path,
    interrupt: &Interrupt,
) -> Result<bool> {
    let prompt_tokens = engine.tokens(session).len();
    let mut steps = Vec::new();
    let mut interrupted = false;
    for step in 0..wanted.limit {
        let row = engine.logits(session)?.context("the prompt left no logits")?;
        let top = sample::top_n(row, wanted.top_k);
        let best = sample::argmax(row).context("no logit is finite")?;
        let tokenizer = engine.tokenizer();
        steps.push(StepJson {
            step,
            selected: TokenJson::new(tokenizer, best),
            top_logprobs: top.iter().map(|s| AlternativeJson::new(tokenizer, s)).collect(),
        });
        let room = engine.tokens(session).len() + 1 < engine.info().ctx_tokens;
        if tokenizer.is_end(best) || !room || step + 1 == wanted.limit {
            break;
        }
        if interrupt.is_raised() {
            interrupted = true;
            break;
        }
        engine.decode(&[(session, best)])?;
    }
    let ctx = engine.info().ctx_tokens;
    let json = LogprobsJson { source: "q36", prompt_tokens, ctx, top_k: wanted.top_k, steps };
    write_json(path, &json)?;
    Ok(interrupted)
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = std::io::BufWriter::new(AtomicFile::create(path)?);
        serde_json::to_writer(&mut file, value)?;
        file.write_all(b"\n")?;
        file.into_inner()?.commit()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_stay_visible() {
        assert_eq!(legible("é!".as_bytes()), "é!");
        assert_eq!(legible(&[b'a', 0xff, 0xf0, 0x9f]), "a\u{ff}\u{f0}\u{9f}");
    }

    #[test]
    fn logits_read_back_as_they_were() {
        let row = [0.1f32, -1.5e-7, f32::NAN, f32::NEG_INFINITY, 16_777_217.0];
        let text = serde_json::to_string(&Logits(&row)).unwrap();
        let back: Vec<Option<f32>> = serde_json::from_str(&text).unwrap();
        assert_eq!(back, [Some(0.1), Some(-1.5e-7), None, None, Some(16_777_216.0)]);
    }
}
