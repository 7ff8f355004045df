//! Writes small models with random weights: valid `qwen35moe` files of any shape, and, after a
//! change to their parts, invalid ones. They answer nonsense; [`super::tiny_model`] is the one that
//! was trained.

use std::path::Path;

use q36::gguf::{Header, Value, ValueType, Writer};
use q36::model::Shape;
use q36::model::layout::{self, Expected, Group, Role};
use q36::quant::TensorType;
use q36::util::rng::Rng;

/// What to write.
#[derive(Debug, Clone)]
pub(crate) struct Tiny {
    pub(crate) shape: Shape,
    /// Type of the routed gates and ups, and of the downs.
    pub(crate) experts: (TensorType, TensorType),
    pub(crate) seed: u64,
}

/// A metadata value that can be changed before it is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Meta {
    U32(u32),
    F32(f32),
    Bool(bool),
    Str(String),
    Strs(Vec<String>),
    I32s(Vec<i32>),
    Bools(Vec<bool>),
}

/// One tensor and its data.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) dims: Vec<u64>,
    pub(crate) ty: TensorType,
    pub(crate) data: Vec<u8>,
}

/// A file before it is written.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    pub(crate) meta: Vec<(String, Meta)>,
    pub(crate) tensors: Vec<Part>,
}

const SPECIAL: [(&str, i32); 9] = [
    ("<|endoftext|>", 3),
    ("<|im_start|>", 3),
    ("<|im_end|>", 3),
    ("<tool_call>", 4),
    ("</tool_call>", 4),
    ("<tool_response>", 4),
    ("</tool_response>", 4),
    ("<think>", 4),
    ("</think>", 4),
];
const MERGES: [&str; 3] = ["t h", "th e", "Ġ the"];
const BYTES: usize = 256;

impl Default for Tiny {
    /// Four layers, one of them with full attention; 2 of 4 experts; under 2 MB.
    fn default() -> Self {
        let shape = Shape {
            layers: 4,
            hidden: 256,
            vocab: 320,
            heads: 2,
            kv_heads: 1,
            head_dim: 256,
            rope_dims: 64,
            rope_base: 1e7,
            rms_eps: 1e-6,
            full_interval: 4,
            key_heads: 1,
            value_heads: 2,
            state_dim: 128,
            conv_taps: 4,
            inner: 256,
            conv_channels: 512,
            experts: 4,
            experts_used: 2,
            expert_ffn: 256,
            shared_ffn: 64,
            context_length: 4096,
        };
        Self { shape, experts: (TensorType::IQ2_XXS, TensorType::Q2_K), seed: 1 }
    }
}

impl Tiny {
    /// The main model's file.
    pub(crate) fn parts(&self) -> Parts {
        self.build(self.shape.layers, layout::main_file(&self.shape))
    }

    /// The MTP support file beside it.
    pub(crate) fn mtp_parts(&self) -> Parts {
        let mut parts = self.build(self.shape.layers + 1, layout::mtp_file(&self.shape));
        parts.meta.push(("qwen35moe.nextn_predict_layers".into(), Meta::U32(1)));
        parts
    }

    /// Writes the main model's file.
    pub(crate) fn write(&self, path: &Path) {
        std::fs::write(path, self.parts().bytes()).expect("a writable folder");
    }

    /// A main model's file of any size, of which only the header takes room on disk: all weights
    /// are zeros that were never written.
    pub(crate) fn write_sparse(&self, path: &Path, change: impl FnOnce(&mut Parts)) {
        let mut parts = Parts { meta: self.metadata(self.shape.layers), tensors: Vec::new() };
        change(&mut parts);
        let mut header = parts.header();
        for e in layout::main_file(&self.shape) {
            header.tensor(&e.name(), &e.role.dims(&self.shape), self.storage(e.role));
        }
        let bytes: u64 = header.tensors().iter().map(|t| t.bytes.next_multiple_of(32)).sum();
        let mut file = std::fs::File::create(path).expect("a writable folder");
        drop(Writer::new(&mut file, header).expect("a sound header"));
        let len = file.metadata().expect("an open file").len();
        file.set_len(len + bytes).expect("a file system with sparse files");
    }

    fn storage(&self, role: Role) -> TensorType {
        match (role.group(), role) {
            (Group::RoutedExperts, Role::ExpertDown) => self.experts.1,
            (Group::RoutedExperts, _) => self.experts.0,
            _ => role.accepted()[0],
        }
    }

    fn build(&self, blocks: usize, list: Vec<Expected>) -> Parts {
        let mut rng = Rng::new(self.seed);
        let tensor = |e: Expected| {
            let ty = self.storage(e.role);
            let dims = e.role.dims(&self.shape);
            let data = random_data(e.role, ty, &dims, &mut rng);
            Part { name: e.name(), dims, ty, data }
        };
        Parts { meta: self.metadata(blocks), tensors: list.into_iter().map(tensor).collect() }
    }

    fn metadata(&self, blocks: usize) -> Vec<(String, Meta)> {
        let s = &self.shape;
        let text = |key: &str, v: &str| (key.to_owned(), Meta::Str(v.to_owned()));
        let arch = |key: &str, v: usize| {
            (format!("qwen35moe.{key}"), Meta::U32(u32::try_from(v).expect("small")))
        };
        let half = i32::try_from(s.rope_dims / 2).expect("small");
        let sections = vec![half - 2 * (half / 3), half / 3, half / 3, 0];
        let mut meta = vec![
            text("general.architecture", "qwen35moe"),
            text("general.name", "random"),
            arch("block_count", blocks),
            arch("context_length", s.context_length),
            arch("embedding_length", s.hidden),
            arch("attention.head_count", s.heads),
            arch("attention.head_count_kv", s.kv_heads),
            arch("attention.key_length", s.head_dim),
            arch("attention.value_length", s.head_dim),
            arch("rope.dimension_count", s.rope_dims),
            ("qwen35moe.rope.dimension_sections".into(), Meta::I32s(sections)),
            ("qwen35moe.rope.freq_base".into(), Meta::F32(s.rope_base)),
            ("qwen35moe.attention.layer_norm_rms_epsilon".into(), Meta::F32(s.rms_eps)),
            arch("full_attention_interval", s.full_interval),
            arch("expert_count", s.experts),
            arch("expert_used_count", s.experts_used),
            arch("expert_feed_forward_length", s.expert_ffn),
            arch("expert_shared_feed_forward_length", s.shared_ffn),
            arch("ssm.conv_kernel", s.conv_taps),
            arch("ssm.state_size", s.state_dim),
            arch("ssm.group_count", s.key_heads),
            arch("ssm.time_step_rank", s.value_heads),
            arch("ssm.inner_size", s.inner),
        ];
        meta.extend(self.tokenizer());
        meta
    }

    /// The 256 bytes, three merged tokens, the special ones, and unused rows up to the vocabulary.
    fn tokenizer(&self) -> Vec<(String, Meta)> {
        let mut tokens: Vec<String> = (0..=u8::MAX).map(|b| byte_letter(b).to_string()).collect();
        tokens.extend(MERGES.map(|m| m.replace(' ', "")));
        let special = tokens.len();
        tokens.extend(SPECIAL.map(|(text, _)| text.to_owned()));
        assert!(tokens.len() <= self.shape.vocab, "the vocabulary holds {} tokens", tokens.len());
        let mut types = vec![1; BYTES + MERGES.len()];
        types.extend(SPECIAL.map(|(_, ty)| ty));
        for i in tokens.len()..self.shape.vocab {
            tokens.push(format!("[PAD{i}]"));
            types.push(5);
        }
        let id = |i: usize| Meta::U32(u32::try_from(special + i).expect("small"));
        let key = |name: &str, value| (format!("tokenizer.ggml.{name}"), value);
        vec![
            key("model", Meta::Str("gpt2".into())),
            key("pre", Meta::Str("qwen35".into())),
            key("tokens", Meta::Strs(tokens)),
            key("token_type", Meta::I32s(types)),
            key("merges", Meta::Strs(MERGES.map(str::to_owned).to_vec())),
            key("bos_token_id", id(0)),
            key("eos_token_id", id(2)),
            key("add_bos_token", Meta::Bool(false)),
            ("tokenizer.chat_template".into(), Meta::Str("{{ messages }}".into())),
        ]
    }
}

/// GPT-2's letter for a byte.
fn byte_letter(byte: u8) -> char {
    let plain = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if plain(byte) {
        return char::from(byte);
    }
    let nth = (0..byte).filter(|&b| !plain(b)).count();
    char::from_u32(256 + u32::try_from(nth).expect("below 256")).expect("a letter")
}

impl Parts {
    /// Sets a key, or adds it.
    pub(crate) fn set(&mut self, key: &str, value: Meta) {
        match self.meta.iter_mut().find(|(k, _)| k == key) {
            Some(entry) => entry.1 = value,
            None => self.meta.push((key.to_owned(), value)),
        }
    }

    /// Removes a key.
    pub(crate) fn remove(&mut self, key: &str) {
        self.meta.retain(|(k, _)| k != key);
    }

    /// A tensor to change.
    pub(crate) fn tensor(&mut self, name: &str) -> &mut Part {
        self.tensors.iter_mut().find(|t| t.name == name).expect("a tensor of the model")
    }

    fn header(&self) -> Header {
        let mut header = Header::new();
        self.meta.iter().for_each(|(key, value)| value.put(key, &mut header));
        header
    }

    /// The file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut header = self.header();
        self.tensors.iter().for_each(|t| header.tensor(&t.name, &t.dims, t.ty));
        let mut writer = Writer::new(Vec::new(), header).expect("a sound header");
        for t in &self.tensors {
            writer.tensor(&t.name, &t.data).expect("data as announced");
        }
        writer.finish().expect("all tensors written")
    }
}

impl Meta {
    fn put(&self, key: &str, header: &mut Header) {
        match self {
            Self::U32(v) => header.set(key, Value::U32(*v)),
            Self::F32(v) => header.set(key, Value::F32(*v)),
            Self::Bool(v) => header.set(key, Value::Bool(*v)),
            Self::Str(v) => header.set_str(key, v),
            Self::Strs(v) => header.set_strings(key, v),
            Self::I32s(v) => {
                let values: Vec<_> = v.iter().map(|&v| Value::I32(v)).collect();
                header.set_array(key, ValueType::I32, &values);
            }
            Self::Bools(v) => {
                let values: Vec<_> = v.iter().map(|&v| Value::Bool(v)).collect();
                header.set_array(key, ValueType::Bool, &values);
            }
        }
    }
}

/// Offsets of the f16 scales in a block, and the standard deviation of what they multiply.
const SCALES: [(TensorType, &[usize], f32); 4] = [
    (TensorType::Q8_0, &[0], 73.9),
    (TensorType::Q2_K, &[80, 82], 8.0),
    (TensorType::Q4_K, &[0, 2], 150.0),
    (TensorType::IQ2_XXS, &[0], 45.0),
];

/// Random data of a plausible size: activations stay near one through the layers.
fn random_data(role: Role, ty: TensorType, dims: &[u64], rng: &mut Rng) -> Vec<u8> {
    let cols = usize::try_from(dims[0]).expect("small");
    let rows = usize::try_from(dims[1..].iter().product::<u64>()).expect("small");
    let scale = 1.0 / (cols as f32).sqrt();
    let symmetric = |rng: &mut Rng, size: f32| (2.0 * rng.unit_f32() - 1.0) * size;
    if ty == TensorType::F32 {
        let value = |rng: &mut Rng| match (role, dims.len()) {
            (Role::A, _) => -0.1 - rng.unit_f32(),
            (Role::Dt, _) => symmetric(rng, 1.0),
            (Role::SharedGateIn, _) | (_, 2) => symmetric(rng, scale),
            _ => 1.0 + symmetric(rng, 0.1),
        };
        return (0..rows * cols).flat_map(|_| value(rng).to_le_bytes()).collect();
    }
    let bytes = rows * ty.row_bytes(cols).expect("whole blocks");
    let mut data: Vec<u8> = (0..bytes).map(|_| rng.next_u64().to_le_bytes()[4]).collect();
    let (_, scales, spread) = *SCALES.iter().find(|s| s.0 == ty).expect("a type with known scales");
    for block in data.chunks_exact_mut(ty.block_bytes()) {
        let d = half::f16::from_f32(scale / spread * (0.8 + 0.4 * rng.unit_f32()));
        for &at in scales {
            block[at..at + 2].copy_from_slice(&d.to_le_bytes());
        }
    }
    data
}
