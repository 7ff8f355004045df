//! Which tensors a model has: names, shapes, accepted storage types, groups (model.md 2.1, 2.2,
//! 2.6). The one table behind binding, validation, summaries and the writers of test models.

use super::shape::Shape;
use crate::quant::TensorType;

/// What a tensor is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Token embedding.
    Embedding,
    /// Norm before the head.
    OutputNorm,
    /// The head: hidden to logits.
    Output,
    /// Norm before the mixer.
    AttnNorm,
    /// Norm before the experts.
    PostNorm,
    /// Recurrent: queries, keys and values.
    Qkv,
    /// Recurrent: the output gate z.
    Gate,
    /// Recurrent: decay of each value head.
    Alpha,
    /// Recurrent: write strength of each value head.
    Beta,
    /// Recurrent: convolution taps, oldest first, of each channel.
    Conv,
    /// Recurrent: `-exp(A_log)` of each value head.
    A,
    /// Recurrent: bias of the decay of each value head.
    Dt,
    /// Recurrent: norm of a value head, shared by all heads.
    SsmNorm,
    /// Recurrent: back to hidden.
    SsmOut,
    /// Attention: query and gate of each head, interleaved by head.
    Q,
    /// Attention: keys.
    K,
    /// Attention: values.
    V,
    /// Attention: norm of a query head, shared by all heads.
    QNorm,
    /// Attention: norm of a key head, shared by all heads.
    KNorm,
    /// Attention: back to hidden.
    AttnOutput,
    /// Router: hidden to experts.
    Router,
    /// Weight of the shared expert: hidden to one number.
    SharedGateIn,
    /// Routed experts: gate.
    ExpertGate,
    /// Routed experts: up.
    ExpertUp,
    /// Routed experts: down.
    ExpertDown,
    /// Shared expert: gate.
    SharedGate,
    /// Shared expert: up.
    SharedUp,
    /// Shared expert: down.
    SharedDown,
    /// MTP: embedding and hidden state, joined, to hidden.
    EhProj,
    /// MTP: norm of the embedding.
    EmbeddingNorm,
    /// MTP: norm of the hidden state.
    HiddenNorm,
    /// MTP: norm before the head.
    HeadNorm,
}

/// Parts of the model whose bytes are counted together (model.md 2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Token embedding.
    Embedding,
    /// Head and its norm.
    Head,
    /// The two norms of every layer.
    LayerNorms,
    /// Recurrent mixers.
    Recurrent,
    /// Full-attention mixers.
    Attention,
    /// Routers and the shared experts' gates.
    Router,
    /// Shared experts.
    SharedExperts,
    /// Routed experts.
    RoutedExperts,
    /// What only the MTP block has.
    Mtp,
}

impl Group {
    /// All groups, in the order of tables.
    pub const ALL: [Self; 9] = [
        Self::Embedding,
        Self::Head,
        Self::LayerNorms,
        Self::Recurrent,
        Self::Attention,
        Self::Router,
        Self::SharedExperts,
        Self::RoutedExperts,
        Self::Mtp,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Head => "head",
            Self::LayerNorms => "layer norms",
            Self::Recurrent => "recurrent layers",
            Self::Attention => "attention layers",
            Self::Router => "router",
            Self::SharedExperts => "shared experts",
            Self::RoutedExperts => "routed experts",
            Self::Mtp => "MTP",
        }
    }
}

/// Roles of a recurrent layer, in file order.
const RECURRENT: [Role; 19] = [
    Role::AttnNorm,
    Role::Qkv,
    Role::Gate,
    Role::Alpha,
    Role::Beta,
    Role::Conv,
    Role::Dt,
    Role::A,
    Role::SsmNorm,
    Role::SsmOut,
    Role::PostNorm,
    Role::Router,
    Role::ExpertGate,
    Role::ExpertUp,
    Role::ExpertDown,
    Role::SharedGateIn,
    Role::SharedGate,
    Role::SharedUp,
    Role::SharedDown,
];

/// Roles of a full-attention layer, in file order.
const ATTENTION: [Role; 16] = [
    Role::AttnNorm,
    Role::Q,
    Role::K,
    Role::V,
    Role::QNorm,
    Role::KNorm,
    Role::AttnOutput,
    Role::PostNorm,
    Role::Router,
    Role::ExpertGate,
    Role::ExpertUp,
    Role::ExpertDown,
    Role::SharedGateIn,
    Role::SharedGate,
    Role::SharedUp,
    Role::SharedDown,
];

/// Roles that only the MTP block has, in file order.
const MTP: [Role; 4] = [Role::EhProj, Role::EmbeddingNorm, Role::HiddenNorm, Role::HeadNorm];

/// Roles outside the layers, in file order.
const GLOBAL: [Role; 3] = [Role::Embedding, Role::OutputNorm, Role::Output];

const ALL_ROLES: [&[Role]; 4] = [&GLOBAL, &RECURRENT, &ATTENTION, &MTP];

/// A tensor that a file must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// What it is for.
    pub role: Role,
    /// The layer it belongs to.
    pub layer: Option<usize>,
}

impl Expected {
    /// Its name in the file.
    pub fn name(&self) -> String {
        name(self.role, self.layer)
    }
}

/// The tensors of a main model file, in the order in which converters write them.
pub fn main_file(shape: &Shape) -> Vec<Expected> {
    let global = GLOBAL.iter().map(|&role| Expected { role, layer: None });
    let layers = (0..shape.layers).flat_map(|layer| {
        let roles: &[Role] = if shape.is_full_attention(layer) { &ATTENTION } else { &RECURRENT };
        roles.iter().map(move |&role| Expected { role, layer: Some(layer) })
    });
    global.chain(layers).collect()
}

/// The tensors of an MTP support file: copies of the main model's embedding and head, and one
/// block, numbered after the main model's layers.
pub fn mtp_file(shape: &Shape) -> Vec<Expected> {
    let global = GLOBAL.iter().map(|&role| Expected { role, layer: None });
    let block = ATTENTION.iter().chain(&MTP);
    let block = block.map(|&role| Expected { role, layer: Some(shape.layers) });
    global.chain(block).collect()
}

/// Name of a tensor; `layer` is `None` for those outside the layers.
pub fn name(role: Role, layer: Option<usize>) -> String {
    match layer {
        Some(layer) => format!("blk.{layer}.{}", role.suffix()),
        None => role.suffix().to_owned(),
    }
}

/// The role and the layer of a tensor name.
pub fn parse_name(name: &str) -> Option<Expected> {
    let in_layer = |rest: &str| {
        let (number, suffix) = rest.split_once('.')?;
        Some((suffix.to_owned(), Some(number.parse().ok()?)))
    };
    let (suffix, layer) = match name.strip_prefix("blk.") {
        Some(rest) => in_layer(rest)?,
        None => (name.to_owned(), None),
    };
    let role = ALL_ROLES.iter().copied().flatten().copied().find(|r| r.suffix() == suffix)?;
    (layer.is_none() == GLOBAL.contains(&role)).then_some(Expected { role, layer })
}

impl Role {
    /// The name after `blk.N.`, or the whole name outside the layers.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Embedding => "token_embd.weight",
            Self::OutputNorm => "output_norm.weight",
            Self::Output => "output.weight",
            Self::AttnNorm => "attn_norm.weight",
            Self::PostNorm => "post_attention_norm.weight",
            Self::Qkv => "attn_qkv.weight",
            Self::Gate => "attn_gate.weight",
            Self::Alpha => "ssm_alpha.weight",
            Self::Beta => "ssm_beta.weight",
            Self::Conv => "ssm_conv1d.weight",
            Self::A => "ssm_a",
            Self::Dt => "ssm_dt.bias",
            Self::SsmNorm => "ssm_norm.weight",
            Self::SsmOut => "ssm_out.weight",
            Self::Q => "attn_q.weight",
            Self::K => "attn_k.weight",
            Self::V => "attn_v.weight",
            Self::QNorm => "attn_q_norm.weight",
            Self::KNorm => "attn_k_norm.weight",
            Self::AttnOutput => "attn_output.weight",
            Self::Router => "ffn_gate_inp.weight",
            Self::SharedGateIn => "ffn_gate_inp_shexp.weight",
            Self::ExpertGate => "ffn_gate_exps.weight",
            Self::ExpertUp => "ffn_up_exps.weight",
            Self::ExpertDown => "ffn_down_exps.weight",
            Self::SharedGate => "ffn_gate_shexp.weight",
            Self::SharedUp => "ffn_up_shexp.weight",
            Self::SharedDown => "ffn_down_shexp.weight",
            Self::EhProj => "nextn.eh_proj.weight",
            Self::EmbeddingNorm => "nextn.enorm.weight",
            Self::HiddenNorm => "nextn.hnorm.weight",
            Self::HeadNorm => "nextn.shared_head_norm.weight",
        }
    }

    /// Its dimensions, fastest first.
    pub fn dims(self, s: &Shape) -> Vec<u64> {
        let dims: &[usize] = match self {
            Self::Embedding | Self::Output => &[s.hidden, s.vocab],
            Self::OutputNorm
            | Self::AttnNorm
            | Self::PostNorm
            | Self::SharedGateIn
            | Self::EmbeddingNorm
            | Self::HiddenNorm
            | Self::HeadNorm => &[s.hidden],
            Self::Qkv => &[s.hidden, s.conv_channels],
            Self::Gate => &[s.hidden, s.inner],
            Self::Alpha | Self::Beta => &[s.hidden, s.value_heads],
            Self::Conv => &[s.conv_taps, s.conv_channels],
            Self::A | Self::Dt => &[s.value_heads],
            Self::SsmNorm => &[s.state_dim],
            Self::SsmOut => &[s.inner, s.hidden],
            Self::Q => &[s.hidden, 2 * s.query_width()],
            Self::K | Self::V => &[s.hidden, s.kv_width()],
            Self::QNorm | Self::KNorm => &[s.head_dim],
            Self::AttnOutput => &[s.query_width(), s.hidden],
            Self::Router => &[s.hidden, s.experts],
            Self::ExpertGate | Self::ExpertUp => &[s.hidden, s.expert_ffn, s.experts],
            Self::ExpertDown => &[s.expert_ffn, s.hidden, s.experts],
            Self::SharedGate | Self::SharedUp => &[s.hidden, s.shared_ffn],
            Self::SharedDown => &[s.shared_ffn, s.hidden],
            Self::EhProj => &[2 * s.hidden, s.hidden],
        };
        dims.iter().map(|&d| d as u64).collect()
    }

    /// Storage types that it may have, the published one first (model.md 2.6, without the types
    /// that this program does not compute with).
    pub fn accepted(self) -> &'static [TensorType] {
        use TensorType::{F32, IQ2_XXS, Q2_K, Q4_K, Q5_K, Q6_K, Q8_0};
        match self {
            Self::OutputNorm
            | Self::AttnNorm
            | Self::PostNorm
            | Self::SharedGateIn
            | Self::Conv
            | Self::A
            | Self::Dt
            | Self::SsmNorm
            | Self::QNorm
            | Self::KNorm
            | Self::EmbeddingNorm
            | Self::HiddenNorm
            | Self::HeadNorm => &[F32],
            Self::Router => &[F32, Q8_0],
            Self::Alpha | Self::Beta => &[Q8_0, F32],
            Self::ExpertGate | Self::ExpertUp => &[IQ2_XXS, Q4_K, Q8_0],
            Self::ExpertDown => &[Q2_K, Q4_K, Q5_K, Q6_K, Q8_0],
            Self::Embedding => &[Q8_0, Q4_K],
            Self::Output => &[Q8_0, Q4_K, Q6_K],
            Self::Qkv | Self::Gate | Self::Q | Self::K | Self::V | Self::AttnOutput => {
                &[Q8_0, Q5_K]
            }
            Self::SharedGate | Self::SharedUp => &[Q8_0, Q5_K],
            Self::SsmOut | Self::SharedDown => &[Q8_0, Q6_K],
            Self::EhProj => &[Q8_0],
        }
    }

    /// The group it is counted in.
    pub fn group(self) -> Group {
        match self {
            Self::Embedding => Group::Embedding,
            Self::OutputNorm | Self::Output => Group::Head,
            Self::AttnNorm | Self::PostNorm => Group::LayerNorms,
            Self::Qkv
            | Self::Gate
            | Self::Alpha
            | Self::Beta
            | Self::Conv
            | Self::A
            | Self::Dt
            | Self::SsmNorm
            | Self::SsmOut => Group::Recurrent,
            Self::Q | Self::K | Self::V | Self::QNorm | Self::KNorm | Self::AttnOutput => {
                Group::Attention
            }
            Self::Router | Self::SharedGateIn => Group::Router,
            Self::ExpertGate | Self::ExpertUp | Self::ExpertDown => Group::RoutedExperts,
            Self::SharedGate | Self::SharedUp | Self::SharedDown => Group::SharedExperts,
            Self::EhProj | Self::EmbeddingNorm | Self::HiddenNorm | Self::HeadNorm => Group::Mtp,
        }
    }
}
