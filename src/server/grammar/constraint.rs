//! One text on its way through its grammar.

use llguidance::Matcher;

use crate::server::{Failure, FailureKind};
use crate::tokenizer::{TokenId, TokenMask};

/// What holds one text to a form.
#[derive(Clone)]
pub struct Constraint {
    matcher: Matcher,
    rows: usize,
}

impl Constraint {
    pub(super) fn new(matcher: Matcher, rows: usize) -> Self {
        Self { matcher, rows }
    }

    /// The tokens that may come next; the end of the text among them exactly where it may end. Never empty.
    ///
    /// # Errors
    /// [`FailureKind::Engine`] when the grammar has become too complex to go on.
    pub fn mask(&mut self) -> Result<TokenMask, Failure> {
        let bits = self.matcher.compute_mask_or_eos().map_err(|error| too_complex(&error))?;
        self.check()?;
        // Two halves to a word, the lower rows first; bits beyond the last row are cut off.
        let words = bits.as_slice().chunks(2).map(|pair| {
            u64::from(pair[0]) | u64::from(pair.get(1).copied().unwrap_or(0)) << u32::BITS
        });
        Ok(TokenMask::from_words(words, self.rows))
    }

    /// The text goes on with a token, one of those that may come next and not its end.
    ///
    /// # Errors
    /// [`FailureKind::Engine`] for any other token, and as [`Constraint::mask`].
    pub fn accept(&mut self, id: TokenId) -> Result<(), Failure> {
        self.matcher.consume_token(id.0).map_err(|error| too_complex(&error))?;
        self.check()
    }

    /// The text goes on with all of these; whether it may. If not, the constraint cannot be used any more.
    pub fn accept_all(&mut self, ids: &[TokenId]) -> bool {
        let ids: Vec<u32> = ids.iter().map(|id| id.0).collect();
        self.matcher.try_consume_tokens(&ids).is_ok_and(|taken| taken == ids.len())
    }

    /// Whether the text may end here.
    pub fn may_end(&mut self) -> bool {
        self.matcher.is_stopped() || self.matcher.is_accepting().unwrap_or(false)
    }

    /// Whether nothing but the end may follow.
    pub fn is_over(&self) -> bool {
        self.matcher.is_stopped()
    }

    /// A grammar that gave up says that the text may end, which would be wrong.
    fn check(&self) -> Result<(), Failure> {
        let reason = self.matcher.stop_reason();
        if reason.is_ok() { Ok(()) } else { Err(too_complex(&reason)) }
    }
}

impl std::fmt::Debug for Constraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Constraint").field("rows", &self.rows).finish_non_exhaustive()
    }
}

/// What the grammar says when it gives up.
fn too_complex(error: &dyn std::fmt::Display) -> Failure {
    let text = error.to_string();
    let reason = text.lines().next().unwrap_or_default();
    // It found out late that no text leads to an end.
    let text = if reason.contains("NoExtension") {
        "nothing satisfies the schema".to_owned()
    } else {
        format!("the reply's format could not be enforced any further: {reason}")
    };
    Failure::new(FailureKind::Engine, text)
}
