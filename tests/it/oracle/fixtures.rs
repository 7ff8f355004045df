//! The fixture files: prompts with what exact mathematics says about them (Hugging Face transformers in f32 on the
//! values dequantized from the very model file).

use crate::support;
use q36::model::Model;
use serde::Deserialize;
use std::path::Path;
use std::sync::Arc;

/// One prompt.
#[derive(Deserialize)]
pub(crate) struct Prompt {
    pub(crate) name: String,
    pub(crate) ids: Vec<u32>,
    /// The 20 most likely tokens after the prompt, with log-probabilities.
    pub(crate) hf_top: Vec<(u32, f64)>,
    /// The most likely tokens up to the end of the turn.
    pub(crate) hf_greedy: Vec<u32>,
    /// How far apart the two best logits are at each of those steps.
    pub(crate) hf_margin: Vec<f64>,
}

#[derive(Deserialize)]
struct Prompts {
    prompts: Vec<Prompt>,
}

/// The residual stream of one prompt, after the embedding and after each layer but the last, then after the last norm.
#[derive(Deserialize)]
pub(crate) struct Layers {
    pub(crate) name: String,
    #[serde(rename = "layers")]
    pub(crate) depths: Vec<LayerValues>,
    pub(crate) last_logits_l2: f64,
    pub(crate) last_logits_first16: Vec<f64>,
    pub(crate) last_logits_argmax: usize,
    pub(crate) mean_nll: f64,
}

#[derive(Deserialize)]
pub(crate) struct LayerValues {
    pub(crate) what: String,
    pub(crate) last_token_l2: f64,
    pub(crate) all_tokens_l2: f64,
    pub(crate) last_token_first16: Vec<f64>,
}

#[derive(Deserialize)]
struct LayersFile {
    prompts: Vec<Layers>,
}

/// The names of the model fixtures; the first is the demo model of this repository.
pub(crate) const MODELS: [&str; 3] = ["tiny-q2", "tiny-q2-q4", "tiny-q8"];

/// A model with its prompts; `None`, said aloud, where the file is not here.
pub(crate) fn load(name: &str) -> Option<(Arc<Model>, Vec<Prompt>)> {
    let (model, prompts) = if name == MODELS[0] {
        (support::tiny_model(), support::repo("tests/test-vectors/tiny-q2.json"))
    } else {
        let file = |extension: &str| support::fixture(&format!("tiny/{name}.{extension}"));
        (file("gguf")?, file("json")?)
    };
    let prompts: Prompts = read(&prompts);
    Some((open(&model), prompts.prompts))
}

/// Values of every layer of the demo model for some of its prompts.
pub(crate) fn layers() -> Vec<Layers> {
    read::<LayersFile>(&support::repo("tests/test-vectors/tiny-q2.layers.json")).prompts
}

fn open(path: &Path) -> Arc<Model> {
    Arc::new(Model::open(path).expect("a fixture model"))
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> T {
    let text = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
