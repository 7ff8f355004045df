//! Sessions on disk with a real engine: nothing is lost, nothing is half loaded, and other processes do no harm.

mod background;
mod command;
mod full;
mod kill;
pub(crate) mod roundtrip;
mod run;
mod store;

use std::fmt::Write as _;

use q36::engine::{
    BackendChoice, Context, Engine as _, ModelEngine, Options, Prepared, SessionId, Unattended,
};
use q36::tokenizer::TokenId;

use crate::support::tiny_model;

/// The demo model, small: 512 positions, one spare slot.
pub(crate) fn options() -> Options {
    let mut options = Options::new(tiny_model());
    options.context = Context::Exactly(512);
    options.chunk = Some(32);
    options.backend = BackendChoice::Cpu;
    options.snapshots = 1;
    options
}

fn open(change: impl FnOnce(&mut Options)) -> ModelEngine {
    let mut options = options();
    change(&mut options);
    Prepared::new(options).unwrap().open(&mut |_, _| true).unwrap()
}

/// Text of about so many tokens that does not repeat itself.
pub(crate) fn story(tokens: usize) -> String {
    let mut story = String::new();
    for i in 0.. {
        if story.len() > 5 * tokens {
            break;
        }
        let year = 1000 + i;
        write!(story, "In the year {year} the fox met bear number {} at the river. ", i * i)
            .unwrap();
    }
    story
}

pub(crate) fn prompt(engine: &ModelEngine, tokens: usize) -> Vec<TokenId> {
    let mut ids = engine.tokenizer().encode_text(story(tokens).as_bytes());
    assert!(ids.len() >= tokens, "a story of {} tokens", ids.len());
    ids.truncate(tokens);
    ids
}

fn sync(engine: &mut ModelEngine, id: SessionId, prompt: &[TokenId]) -> usize {
    engine.sync(id, prompt, &mut Unattended).unwrap().evaluated
}
