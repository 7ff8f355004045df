//! Collects what is known about a file. Also the shape of the JSON output: fields are added, never
//! renamed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::json;

use super::command::{Finding, InspectOptions};
use super::diff::Diff;
use super::verify::Verified;
use crate::engine::DEFAULT_CTX_TOKENS;
use crate::gguf::{File, Tensor, Value};
use crate::model::layout::Group;
use crate::model::memory::{Plan, Request};
use crate::model::mtp::{Mtp, is_mtp_file};
use crate::model::summary::{self, Total};
use crate::model::{Model, Shape};
use crate::util::hex;

/// Elements of an array that are shown.
const SHOWN_ELEMENTS: usize = 8;

/// All that is known about a file.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The container.
    pub file: FileFacts,
    /// Whether `q36` runs it.
    pub runnable: bool,
    /// Why not.
    pub reason: Option<String>,
    /// The model in it, if there is one.
    pub model: Option<ModelFacts>,
    /// Where the MTP block is.
    pub mtp: MtpFacts,
    /// The tokenizer, if there is one.
    pub tokenizer: Option<TokenizerFacts>,
    /// The chat template, if there is one.
    pub template: Option<TemplateFacts>,
    /// Sums by storage type.
    pub types: Vec<Row>,
    /// Sums by part of the model.
    pub groups: Vec<Row>,
    /// What decoding reads for each token.
    pub decode: Option<DecodeFacts>,
    /// Memory by purpose.
    pub memory: Option<MemoryFacts>,
    /// All keys.
    pub metadata: Vec<KeyFacts>,
    /// All tensors.
    pub tensors: Vec<TensorFacts>,
    /// Result of reading all weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verified>,
    /// Result of comparing with another file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<Diff>,
}

/// The container.
#[derive(Debug, Serialize)]
pub struct FileFacts {
    pub path: String,
    pub name: Option<String>,
    pub architecture: Option<String>,
    pub bytes: u64,
    pub gguf_version: u32,
    pub alignment: u64,
    pub metadata_count: usize,
    pub tensor_count: usize,
    pub tensor_bytes: u64,
    pub parameters: u64,
}

/// The model.
#[derive(Debug, Serialize)]
pub struct ModelFacts {
    pub shape: Shape,
    pub attention_layers: usize,
    pub recurrent_layers: usize,
    pub active_parameters: u64,
    /// Bits of routed experts' weights as cache files record them.
    pub expert_bits: u8,
    /// Bytes of one routed expert, smallest and largest over the layers.
    pub expert_bytes: [u64; 2],
    pub fingerprint: String,
}

/// Whether the file has the MTP block, and whether that is complete.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "block", content = "problem")]
pub enum MtpFacts {
    Absent,
    Complete,
    Unusable(String),
}

/// The tokenizer.
#[derive(Debug, Serialize)]
pub struct TokenizerFacts {
    pub model: Option<String>,
    pub pre: Option<String>,
    pub tokens: u64,
    pub kinds: BTreeMap<String, u64>,
    pub merges: u64,
    pub special: Vec<SpecialFacts>,
    pub add_bos: Option<bool>,
}

/// A special token: its role, id and text.
#[derive(Debug, Serialize)]
pub struct SpecialFacts {
    pub role: &'static str,
    pub id: u64,
    pub text: Option<String>,
}

/// The chat template, which is never executed.
#[derive(Debug, Serialize)]
pub struct TemplateFacts {
    pub bytes: usize,
    pub sha256: String,
}

/// One row of a table of sums.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    pub name: &'static str,
    pub tensors: u64,
    pub parameters: u64,
    pub bytes: u64,
}

/// The part of a group in a sum.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    pub name: &'static str,
    pub bytes: u64,
}

/// Bytes moved for one decoded token.
#[derive(Debug, Serialize)]
pub struct DecodeFacts {
    pub weights_by_group: Vec<Share>,
    pub weights: u64,
    /// Recurrent state, read and written, with the convolution's three older rows.
    pub state: u64,
    pub ctx: usize,
    /// K and V rows read when the context is full.
    pub kv_at_ctx: u64,
}

/// The memory plan and what it is for.
#[derive(Debug, Serialize)]
pub struct MemoryFacts {
    pub ctx: usize,
    pub kv_k: &'static str,
    pub kv_v: &'static str,
    #[serde(flatten)]
    pub plan: Plan,
    pub per_session: u64,
    pub beyond_weights: u64,
    pub total: u64,
}

/// One key.
#[derive(Debug, Serialize)]
pub struct KeyFacts {
    pub key: String,
    #[serde(rename = "type")]
    pub ty: &'static str,
    pub value: serde_json::Value,
    #[serde(skip)]
    pub text: String,
}

/// One tensor.
#[derive(Debug, Serialize)]
pub struct TensorFacts {
    pub name: String,
    pub dims: Vec<u64>,
    #[serde(rename = "type")]
    pub ty: &'static str,
    pub offset: u64,
    pub bytes: u64,
}

impl Report {
    /// Reads the header; of the weights only the samples behind the fingerprint.
    pub(super) fn new(file: &Arc<File>, options: &InspectOptions) -> Self {
        let model = Model::from_file(Arc::clone(file));
        let reason = model.as_ref().err().map(|e| without_path(&e.to_string(), file));
        let model = model.ok();
        let shape = model.as_ref().map(|m| &m.shape);
        let tensors = file.tensors();
        let row = |name, t: Total| Row {
            name,
            tensors: t.tensors,
            parameters: t.parameters,
            bytes: t.bytes,
        };
        let groups = summary::by_group(tensors);
        Self {
            file: file_facts(file),
            runnable: model.is_some(),
            reason,
            mtp: mtp_facts(file),
            tokenizer: tokenizer_facts(file),
            template: template_facts(file),
            types: summary::by_type(tensors).into_iter().map(|(ty, t)| row(ty.name(), t)).collect(),
            groups: groups.into_iter().map(|(g, t)| row(g.name(), t)).collect(),
            decode: shape.map(|s| decode_facts(tensors, s, options)),
            memory: shape.map(|s| memory_facts(file, s, options)),
            model: model.as_ref().map(model_facts),
            metadata: file.metadata().iter().map(|(key, v)| key_facts(key, v)).collect(),
            tensors: tensors.iter().map(tensor_facts).collect(),
            verify: None,
            diff: None,
        }
    }

    pub(super) fn finding(&self) -> Finding {
        let bad = self.verify.as_ref().is_some_and(|v| !v.is_clean())
            || self.diff.as_ref().is_some_and(|d| !d.is_empty());
        if bad { Finding::Problems } else { Finding::Clean }
    }
}

/// The report names the file already.
fn without_path(message: &str, file: &File) -> String {
    let prefix = format!("{}: ", file.path().display());
    message.strip_prefix(&prefix).unwrap_or(message).to_owned()
}

fn file_facts(file: &File) -> FileFacts {
    let text = |key: &str| file.metadata().str(key).ok().map(str::to_owned);
    let total = summary::total(file.tensors());
    FileFacts {
        path: file.path().display().to_string(),
        name: text("general.name"),
        architecture: text("general.architecture"),
        bytes: file.size(),
        gguf_version: file.version(),
        alignment: file.alignment(),
        metadata_count: file.metadata().len(),
        tensor_count: file.tensors().len(),
        tensor_bytes: total.bytes,
        parameters: total.parameters,
    }
}

fn model_facts(model: &Model) -> ModelFacts {
    let (shape, tensors) = (&model.shape, model.file.tensors());
    let mut active = summary::parameters_per_token(tensors, shape);
    // One row of a table is not arithmetic.
    active.remove(&Group::Embedding);
    let sizes = model.weights.layers.iter().map(|l| {
        (l.moe.gate.expert_bytes + l.moe.up.expert_bytes + l.moe.down.expert_bytes) as u64
    });
    let (min, max) = sizes.fold((u64::MAX, 0), |(min, max), n| (min.min(n), max.max(n)));
    ModelFacts {
        shape: shape.clone(),
        attention_layers: shape.attention_layers(),
        recurrent_layers: shape.recurrent_layers(),
        active_parameters: active.values().sum(),
        expert_bits: model.expert_bits(),
        expert_bytes: [min, max],
        fingerprint: hex::encode(&model.fingerprint()),
    }
}

/// A support file is checked against the dimensions in its own metadata.
fn mtp_facts(file: &Arc<File>) -> MtpFacts {
    if !is_mtp_file(file) {
        return MtpFacts::Absent;
    }
    let checked = Shape::from_file(file).and_then(|shape| Mtp::from_file(file, &shape));
    match checked {
        Ok(_) => MtpFacts::Complete,
        Err(e) => MtpFacts::Unusable(without_path(&e.to_string(), file)),
    }
}

fn tokenizer_facts(file: &File) -> Option<TokenizerFacts> {
    let meta = file.metadata();
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let text = |name: &str| meta.str(&key(name)).ok().map(str::to_owned);
    let count = |name: &str| meta.array(&key(name)).map_or(0, |a| a.count());
    let tokens = meta.strings(&key("tokens")).ok()?;
    let mut kinds = BTreeMap::new();
    for kind in meta.i32s(&key("token_type")).unwrap_or_default() {
        *kinds.entry(kind_name(kind)).or_insert(0) += 1;
    }
    let special = ["bos", "eos", "padding"].into_iter().filter_map(|role| {
        let id = meta.u64(&key(&format!("{role}_token_id"))).ok()?;
        let text = tokens.clone().nth(usize::try_from(id).ok()?);
        let text = text.map(|t| String::from_utf8_lossy(t).into_owned());
        Some(SpecialFacts { role, id, text })
    });
    Some(TokenizerFacts {
        model: text("model"),
        pre: text("pre"),
        tokens: tokens.len() as u64,
        kinds,
        merges: count("merges"),
        special: special.collect(),
        add_bos: meta.bool(&key("add_bos_token")).ok(),
    })
}

fn kind_name(kind: i32) -> String {
    match kind {
        1 => "normal".into(),
        2 => "unknown".into(),
        3 => "control".into(),
        4 => "user-defined".into(),
        5 => "unused".into(),
        6 => "byte".into(),
        other => format!("kind {other}"),
    }
}

fn template_facts(file: &File) -> Option<TemplateFacts> {
    let text = file.metadata().str("tokenizer.chat_template").ok()?;
    Some(TemplateFacts { bytes: text.len(), sha256: hex::sha256(text.as_bytes()) })
}

fn context(shape: &Shape, options: &InspectOptions) -> usize {
    options.ctx.unwrap_or(DEFAULT_CTX_TOKENS.min(shape.context_length))
}

fn decode_facts(tensors: &[Tensor], shape: &Shape, options: &InspectOptions) -> DecodeFacts {
    let groups = summary::bytes_per_token(tensors, shape);
    let ctx = context(shape, options);
    let share = |(group, bytes): (Group, u64)| Share { name: group.name(), bytes };
    let older_rows = (shape.conv_taps - 1) * shape.conv_channels;
    let state = shape.recurrent_layers() * (shape.state_len() + older_rows) * size_of::<f32>();
    DecodeFacts {
        weights: groups.values().sum(),
        weights_by_group: groups.into_iter().map(share).collect(),
        state: 2 * state as u64,
        ctx,
        kv_at_ctx: (ctx as u64)
            .saturating_mul(shape.kv_token_bytes(options.kv_k, options.kv_v) as u64),
    }
}

fn memory_facts(file: &File, shape: &Shape, options: &InspectOptions) -> MemoryFacts {
    let ctx = context(shape, options);
    let request = Request {
        sessions: options.sessions,
        slots: options.sessions + 1,
        scratch_bytes: options.scratch_bytes.map_or(0, |bytes| bytes(shape)),
        ..Request::single(options.kv_k, options.kv_v, ctx)
    };
    let plan = Plan::new(shape, file.tensor_bytes(), &request);
    MemoryFacts {
        ctx,
        kv_k: options.kv_k.name(),
        kv_v: options.kv_v.name(),
        plan,
        per_session: plan.per_session(),
        beyond_weights: plan.beyond_weights(),
        total: plan.total(),
    }
}

fn key_facts(key: &str, value: Value<'_>) -> KeyFacts {
    let (json, text) = match value {
        Value::Array(array) => {
            let first: Vec<_> = array.iter().take(SHOWN_ELEMENTS).map(|v| v.describe()).collect();
            let more = if array.count() > first.len() as u64 { ", …" } else { "" };
            let text = format!("{}: {}{more}", value.describe(), first.join(", "));
            let first: Vec<_> = array.iter().take(SHOWN_ELEMENTS).map(json_of).collect();
            let element = array.element().name();
            (json!({"element": element, "count": array.count(), "first": first}), text)
        }
        Value::U8(_)
        | Value::I8(_)
        | Value::U16(_)
        | Value::I16(_)
        | Value::U32(_)
        | Value::I32(_)
        | Value::F32(_)
        | Value::Bool(_)
        | Value::String(_)
        | Value::U64(_)
        | Value::I64(_)
        | Value::F64(_) => (json_of(value), value.describe()),
    };
    KeyFacts { key: key.to_owned(), ty: value.ty().name(), value: json, text }
}

/// A value as JSON; not-a-number and infinities become text.
fn json_of(value: Value<'_>) -> serde_json::Value {
    let float = |v: f64, text: String| if v.is_finite() { json!(v) } else { json!(text) };
    match value {
        // Through the shortest decimal form, so that 1e-6 does not become 9.999999974752427e-7.
        Value::F32(v) => float(v.to_string().parse().unwrap_or(f64::NAN), value.describe()),
        Value::F64(v) => float(v, value.describe()),
        Value::Bool(v) => json!(v),
        Value::String(v) => json!(String::from_utf8_lossy(v)),
        Value::U64(v) => json!(v),
        Value::Array(_) => json!(value.describe()),
        Value::U8(_)
        | Value::I8(_)
        | Value::U16(_)
        | Value::I16(_)
        | Value::U32(_)
        | Value::I32(_)
        | Value::I64(_) => {
            let number = value.integer().and_then(|v| i64::try_from(v).ok());
            json!(number.expect("these widths fit 64 bits with a sign"))
        }
    }
}

fn tensor_facts(t: &Tensor) -> TensorFacts {
    TensorFacts {
        name: t.name.clone(),
        dims: t.dims.clone(),
        ty: t.ty.name(),
        offset: t.offset,
        bytes: t.bytes,
    }
}
