//! Limits that the backend keeps: memory as planned, submissions as short as asked.

use super::run::{self, Run, setup};
use super::{F16, MODELS};
use crate::oracle::fixtures;
use std::time::Duration;

#[test]
fn no_more_memory_is_taken_than_was_planned() {
    let (model, _) = fixtures::load(MODELS[0]).expect("in this repository");
    for (chunk, sessions, quality) in [(64, 1, false), (512, 8, false), (512, 2, true)] {
        let setup = run::Setup { chunk, sessions, ..setup(quality, F16, F16) };
        let Some(run) = Run::new(&model, &setup) else { return };
        let (taken, planned) = run.memory(&model, &setup);
        // Staging of copies, mailboxes, and a last block where buffers took more than their bytes.
        let beside = 2 * (16 << 20) + (2 << 20) + planned / 64 + (1 << 20);
        assert!(taken <= planned + beside, "{setup:?}: {taken} bytes, planned {planned}");
        assert!(planned <= taken + (40 << 20), "{setup:?}: {taken} bytes, planned {planned}");
    }
}

#[test]
fn slices_of_layers_and_of_query_rows_change_no_bits() {
    let (model, prompts) = fixtures::load(MODELS[0]).expect("in this repository");
    let ids: Vec<u32> = prompts.iter().flat_map(|prompt| &prompt.ids).take(400).copied().collect();
    for quality in [false, true] {
        let setup = run::Setup { chunk: 192, ..setup(quality, F16, F16) };
        let Some(mut run) = Run::new(&model, &setup) else { return };
        // All layers in one submission, then every layer in several.
        let times = [Duration::from_hours(1), Duration::from_nanos(1)];
        let [whole, sliced] = times.map(|slice| {
            run.set_slice(slice);
            run.restart();
            run.feed(&ids, 192)
        });
        assert!(whole == sliced, "slices gave other bits");
        let messages = run.messages();
        assert!(messages.is_empty(), "{}", messages.join("\n"));
    }
}
