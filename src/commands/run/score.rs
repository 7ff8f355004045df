//! The diagnostics that print a number: perplexity of a text, and whether decoding and prefilling
//! the same tokens agree (cli.md 5).

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::prefill;
use crate::cli::UsageError;
use crate::commands::{Context, Exit};
use crate::engine::sample;
use crate::engine::{Engine, SessionId};
use crate::term::Class;
use crate::tokenizer::TokenId;
use crate::util::signal::Interrupt;

/// Tokens of a scored text that are context alone.
const CONTEXT_TOKENS: usize = 32;

/// Scored tokens between two progress lines.
const PROGRESS_EVERY: usize = 256;

/// `--perplexity-file`: how well the model predicts a text it is fed.
pub(super) fn perplexity(
    engine: &mut dyn Engine,
    session: SessionId,
    path: &Path,
    limit: usize,
    context: &Context,
    interrupt: &Interrupt,
) -> Result<Exit> {
    let text = std::fs::read(path)
        .map_err(|e| UsageError::new("run", format!("cannot read {}: {e}", path.display())))?;
    let ids = engine.tokenizer().encode_text(&text);
    ensure!(
        ids.len() > CONTEXT_TOKENS,
        "{}: {} tokens are too few to score\nhint: the first {CONTEXT_TOKENS} are context, give a longer text",
        path.display(),
        ids.len()
    );
    let end = ids.len().min(engine.info().ctx_tokens).min(limit.saturating_add(CONTEXT_TOKENS));
    if prefill::run(engine, session, &ids[..CONTEXT_TOKENS], context, interrupt)?.cancelled {
        return Ok(Exit::Interrupted);
    }
    let mut nll = 0.0;
    for (scored, &id) in ids[CONTEXT_TOKENS..end].iter().enumerate() {
        let row = engine.logits(session)?.context("the text left no logits")?;
        nll -= f64::from(row[id.index()]) - sample::log_sum_exp(row);
        if (scored + 1).is_multiple_of(PROGRESS_EVERY) {
            let ppl = (nll / (scored + 1) as f64).exp();
            context.printer.note(
                Class::Prefill,
                &format!("scored {} of {} tokens: ppl {ppl:.4}", scored + 1, end - CONTEXT_TOKENS),
            );
        }
        if interrupt.is_raised() {
            return Ok(Exit::Interrupted);
        }
        if CONTEXT_TOKENS + scored + 1 < end {
            engine.decode(&[(session, id)])?;
        }
    }
    let scored = end - CONTEXT_TOKENS;
    let average = nll / scored as f64;
    context.printer.line(&format!(
        "tokens={end} scored={scored} nll={nll:.6} avg_nll={average:.6} ppl={:.6}",
        average.exp()
    ))?;
    Ok(Exit::Success)
}

/// `--decode-consistency`: decodes greedily, then prefills the same tokens in another session and
/// compares the logits. Success when the best token is the same.
pub(super) fn decode_consistency(
    engine: &mut dyn Engine,
    session: SessionId,
    steps: usize,
    context: &Context,
    interrupt: &Interrupt,
) -> Result<Exit> {
    for _ in 0..steps {
        if interrupt.is_raised() {
            return Ok(Exit::Interrupted);
        }
        let row = engine.logits(session)?.context("the prompt left no logits")?;
        let best = sample::argmax(row).context("no logit is finite")?;
        engine.decode(&[(session, best)])?;
    }
    let ids = engine.tokens(session).to_vec();
    let live = engine.logits(session)?.context("decoding left no logits")?.to_vec();
    let fresh = engine.open_session()?;
    let report = prefill::run(engine, fresh, &ids, context, interrupt)?;
    if report.cancelled {
        return Ok(Exit::Interrupted);
    }
    let again = engine.logits(fresh)?.context("prefilling left no logits")?.to_vec();
    engine.close_session(fresh);
    let difference = Difference::between(&live, &again);
    let note = |text: &str| context.printer.message(Class::Plain, text);
    note(&format!(
        "decode consistency after {steps} tokens: max |d| {:.6e}, rms {:.6e}",
        difference.max, difference.rms
    ));
    for (name, row) in [("decode ", &live), ("prefill", &again)] {
        note(&format!("{name} top 10: {}", top_line(engine, row)));
    }
    let same = sample::argmax(&live) == sample::argmax(&again);
    note(if same { "the best token is the same" } else { "the best token DIFFERS" });
    Ok(if same { Exit::Success } else { Exit::Failure })
}

/// How far two rows of logits are apart.
#[derive(Debug, PartialEq)]
struct Difference {
    max: f64,
    rms: f64,
}

impl Difference {
    fn between(a: &[f32], b: &[f32]) -> Self {
        let apart = || a.iter().zip(b).map(|(&a, &b)| (f64::from(a) - f64::from(b)).abs());
        let squares: f64 = apart().map(|d| d * d).sum();
        Self { max: apart().fold(0.0, f64::max), rms: (squares / a.len().max(1) as f64).sqrt() }
    }
}

fn top_line(engine: &dyn Engine, row: &[f32]) -> String {
    let spelled = |id: TokenId| engine.tokenizer().spelling(id);
    let top = sample::top_n(row, 10);
    let parts: Vec<_> =
        top.iter().map(|s| format!("{} {:?} {:.4}", s.token, spelled(s.token), s.logit)).collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_the_distance_of_two_rows() {
        let d = Difference::between(&[1.0, 2.0, 3.0, 4.0], &[1.0, 2.0, 3.0, 2.0]);
        assert_eq!(d, Difference { max: 2.0, rms: 1.0 });
    }
}
