//! What a session is to be brought to, in which steps, and what came of it.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::tokenizer::TokenId;

/// What a session is to be brought to.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// All tokens of the prompt.
    pub tokens: &'a [TokenId],
    /// Where evaluation stops for a moment, positions ascending. Those outside the prompt are ignored. Together with
    /// the tokens they alone decide where a prompt is cut, so they must not depend on load.
    pub borders: &'a [Border],
    /// Whether tokens that the session holds may stay where they spell the same text as the prompt's, with the same
    /// markers in the same places: a reply comes back in other tokens than it was drawn in.
    pub by_text: bool,
}

impl<'a> Target<'a> {
    /// Exactly these tokens, without borders.
    pub fn tokens(tokens: &'a [TokenId]) -> Self {
        Self { tokens, borders: &[], by_text: false }
    }
}

/// A position of a prompt that is worth stopping at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Border {
    /// Tokens before it.
    pub pos: usize,
    /// Why.
    pub kind: BorderKind,
}

/// Why a prompt is cut at a border, and how long its state is worth keeping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BorderKind {
    /// Only to stop, for a caller that saves the session there.
    Stop,
    /// A message begins: kept, so that a later prompt that differs from there on can restart.
    Turn,
    /// The end of what new conversations share with this one: kept longer than turns.
    Shared,
}

/// How much of a prompt to evaluate before returning.
#[derive(Clone, Copy)]
pub struct Slice<'a> {
    /// How long that is expected to take at most. A backend has a least share that it cannot divide.
    pub limit: Duration,
    /// Asked now and then: whether to stop at what is committed.
    pub cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl Slice<'_> {
    /// The limit while other sessions decode. A step of theirs must not wait for more than 50 ms, and predictions are
    /// off by up to a third.
    pub const BESIDE: Duration = Duration::from_millis(30);
    /// The limit while nobody else wants anything.
    pub const ALONE: Duration = Duration::from_millis(250);

    /// A slice that nobody cancels.
    pub fn of(limit: Duration) -> Self {
        Self { limit, cancelled: &|| false }
    }
}

/// Where a prompt stands after a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// In the middle of a chunk. No other session's prompt can be advanced, but others can decode.
    Open,
    /// Between two chunks.
    Between,
    /// All evaluated; the session has logits.
    Done,
    /// Stopped at what was committed.
    Cancelled,
}

/// What a slice came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advance {
    /// Where the prompt stands.
    pub stage: Stage,
    /// The report so far.
    pub report: SyncReport,
}

/// Where the reused prefix came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Reuse {
    /// The session stood at a prefix of the prompt and was extended.
    #[serde(rename = "memory-token")]
    Live,
    /// The same, but for other tokens that spell the same text.
    #[serde(rename = "memory-text")]
    LiveText,
    /// The session went back to a border where its state was kept.
    #[serde(rename = "anchor")]
    Anchor,
    /// The session went back to a position that a caller asked to remember.
    #[serde(rename = "snapshot")]
    Snapshot,
    /// Nothing fitted: evaluated from the first token.
    #[serde(rename = "none")]
    Cold,
}

impl Reuse {
    /// Its name in logs and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "memory-token",
            Self::LiveText => "memory-text",
            Self::Anchor => "anchor",
            Self::Snapshot => "snapshot",
            Self::Cold => "none",
        }
    }
}

/// Why the session could not simply be extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "reason")]
pub enum Miss {
    /// It held nothing.
    NoLiveState,
    /// The prompt differs from the session at this index.
    TokenMismatch {
        /// Index of the first differing token.
        at: usize,
    },
    /// The prompt ends before the session does; a recurrent state cannot be cut.
    ShorterPrompt,
    /// The prompt is what the session holds, but the logits behind it are gone.
    NoLogits,
}

impl Miss {
    /// Its name in logs and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoLiveState => "no-live-state",
            Self::TokenMismatch { .. } => "token-mismatch",
            Self::ShorterPrompt => "shorter-prompt",
            Self::NoLogits => "no-logits",
        }
    }
}

/// What bringing a session to a prompt took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SyncReport {
    /// Where the reused prefix came from.
    pub reuse: Reuse,
    /// Why the live state was not extended; `None` when it was.
    pub miss: Option<Miss>,
    /// Tokens the session held before.
    pub live: usize,
    /// How many of them, from the first on, the prompt has too.
    pub common: usize,
    /// Tokens of the prompt, as they are evaluated.
    pub prompt: usize,
    /// Tokens that needed no evaluation.
    pub reused: usize,
    /// Tokens evaluated so far.
    pub evaluated: usize,
    /// Stopped early: the session holds a shorter prefix of the prompt, and no logits if anything was evaluated.
    pub cancelled: bool,
}

/// What bringing a session to a prompt would come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foresight {
    /// The report of a prompt that was just begun.
    pub report: SyncReport,
    /// All tokens of the session in the end. With [`Target::by_text`] they need not be the prompt's.
    pub tokens: Vec<TokenId>,
}

impl SyncReport {
    /// Tokens that had to be evaluated.
    pub fn total(&self) -> usize {
        self.prompt - self.reused
    }
}

impl fmt::Display for SyncReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { live, common, prompt, reused, evaluated, .. } = self;
        write!(
            f,
            "{}: {reused} of {prompt} tokens reused, {evaluated} evaluated",
            self.reuse.name()
        )?;
        if let Some(miss) = self.miss {
            write!(f, "; {}", miss.name())?;
            if *live > 0 {
                write!(f, ", {common} of {live} held in common")?;
            }
        }
        if self.cancelled {
            write!(f, "; stopped")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_read_well_as_text_and_as_json() {
        let report = SyncReport {
            reuse: Reuse::Anchor,
            miss: Some(Miss::TokenMismatch { at: 20 }),
            live: 30,
            common: 20,
            prompt: 41,
            reused: 18,
            evaluated: 23,
            cancelled: false,
        };
        assert_eq!(
            report.to_string(),
            "anchor: 18 of 41 tokens reused, 23 evaluated; token-mismatch, 20 of 30 held in common"
        );
        let json = serde_json::to_value(report).unwrap();
        assert_eq!(
            (&json["reuse"], &json["miss"]["reason"]),
            (&"anchor".into(), &"token-mismatch".into())
        );
        assert_eq!((&json["miss"]["at"], &json["evaluated"]), (&20.into(), &23.into()));
        for reuse in [Reuse::Live, Reuse::LiveText, Reuse::Anchor, Reuse::Snapshot, Reuse::Cold] {
            assert_eq!(serde_json::to_value(reuse).unwrap(), reuse.name());
        }
        let cold =
            SyncReport { reuse: Reuse::Cold, miss: Some(Miss::NoLiveState), live: 0, ..report };
        let cold = SyncReport { reused: 0, evaluated: 8, cancelled: true, ..cold };
        assert_eq!(
            cold.to_string(),
            "none: 0 of 41 tokens reused, 8 evaluated; no-live-state; stopped"
        );
    }
}
