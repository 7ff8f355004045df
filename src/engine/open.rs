//! From options to an open engine: everything that depends on the model file is decided here, once,
//! and said in notes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::backend::Backend;
use super::local::AnchorSlots;
use super::options::{BackendChoice, Context, Locking, Options};
use super::slots::SlotBook;
use super::state::Identity;
use super::{BackendKind, Draws, Error, Info, ModelEngine, gpu, lock, steering};
use crate::cpu;
use crate::model::memory::{Plan, Request};
use crate::model::{Model, Shape, Weights};
use crate::quant::TensorType;
use crate::tokenizer::{TokenMask, Tokenizer, VocabSource};
use crate::util::notice::Notice;

/// What was decided before anything large was allocated.
pub struct Prepared {
    origin: Origin,
    options: Options,
    info: Info,
    device: Option<gpu::Device>,
    notes: Vec<String>,
}

/// Where the model comes from.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of it")]
pub(super) enum Origin {
    /// A file, open and checked.
    File(Arc<Model>),
    /// Random weights of this shape and these types.
    Random { shape: Shape, weights: Weights },
}

impl Origin {
    pub(super) fn shape(&self) -> &Shape {
        match self {
            Self::File(model) => &model.shape,
            Self::Random { shape, .. } => shape,
        }
    }

    fn weight_bytes(&self) -> u64 {
        match self {
            Self::File(model) => model.file.tensor_bytes(),
            Self::Random { weights, .. } => weights.bytes(),
        }
    }

    fn expert_bits(&self) -> u8 {
        match self {
            Self::File(model) => model.expert_bits(),
            Self::Random { .. } => 2,
        }
    }

    fn tokenizer(&self) -> Result<Tokenizer, Error> {
        match self {
            Self::File(model) => tokenizer_of(model),
            Self::Random { shape, .. } => Tokenizer::stand_in(shape.vocab)
                .map_err(|source| Error::Tokenizer { model: "random weights".into(), source }),
        }
    }
}

/// What a device backend is opened with.
pub(super) struct Settings<'a> {
    pub(super) info: &'a Info,
    pub(super) options: &'a Options,
    /// Tokens that may be drawn.
    pub(super) drawable: &'a TokenMask,
}

impl Prepared {
    /// Opens and checks the model file, opens the device if one is used, and resolves the options against both.
    /// Allocates nothing that grows with the context.
    ///
    /// # Errors
    /// When the file is no model for this program, or an option does not fit it.
    pub fn new(options: Options) -> Result<Self, Error> {
        let model = Arc::new(Model::open(&options.model)?);
        let mut notes = Vec::new();
        let device = choose_device(&options, model.file.tensor_bytes(), &mut notes)?;
        Self::resolve(options, Origin::File(model), device, notes)
    }

    /// Everything that depends on the model and the device.
    fn resolve(
        options: Options,
        origin: Origin,
        device: Option<gpu::Device>,
        mut notes: Vec<String>,
    ) -> Result<Self, Error> {
        let shape = origin.shape();
        let ctx_tokens = choose_context(options.context, shape.context_length, &mut notes)?;
        let default_kv = match device {
            Some(_) => (TensorType::Q8_0, TensorType::Q4_0),
            None => (TensorType::F16, TensorType::F16),
        };
        let (kv_k, kv_v) =
            (options.kv_k.unwrap_or(default_kv.0), options.kv_v.unwrap_or(default_kv.1));
        let default_chunk =
            device.as_ref().map_or(cpu::DEFAULT_CHUNK_TOKENS, gpu::Device::default_chunk);
        let chunk_tokens = options.chunk.unwrap_or(default_chunk).min(ctx_tokens);
        let threads = options.threads.unwrap_or_else(default_threads);
        let scratch_bytes = match &device {
            Some(device) => device.scratch_bytes(shape, &options, chunk_tokens),
            None => cpu::scratch_bytes(shape, chunk_tokens, threads) as u64,
        };
        let request = Request {
            kv_k,
            kv_v,
            ctx: ctx_tokens,
            sessions: options.sessions,
            slots: options.slots(),
            scratch_bytes,
        };
        if let (Some(candidate), true) = (&device, options.may_use_cpu())
            && let Err(why) = candidate.check_room(shape, origin.weight_bytes(), &request)
        {
            notes.push(on_the_cpu(&why));
            return Self::resolve(options, origin, None, notes);
        }
        let info = Info {
            model: options.model.clone(),
            backend: if device.is_some() { BackendKind::Vulkan } else { BackendKind::Cpu },
            device: device.as_ref().map(gpu::Device::describe),
            ctx_tokens,
            chunk_tokens,
            kv_k,
            kv_v,
            threads,
            quant_bits: origin.expert_bits(),
            vocab: shape.vocab,
            plan: Plan::new(shape, origin.weight_bytes(), &request),
            device_usable: device.as_ref().map(gpu::Device::usable),
        };
        Ok(Self { origin, options, info, device, notes })
    }

    /// A model of the published shape with so many layers and random weights, made on the device: for measuring
    /// what a machine will do without the file.
    ///
    /// # Errors
    /// When no device can run it.
    pub fn synthetic(options: Options, layers: usize) -> Result<Self, Error> {
        let shape = Shape::published(layers);
        let weights = Weights::unplaced(&shape);
        if options.backend == BackendChoice::Cpu {
            return Err(Error::BackendUnavailable {
                what: "a model of random weights needs a Vulkan device".to_owned(),
                hint: "leave out --cpu, or give a model file with -m and a prompt with --prompt-file",
            });
        }
        let device = gpu::Device::choose(&options, weights.bytes())?;
        let origin = Origin::Random { shape, weights };
        Self::resolve(options, origin, Some(device), Vec::new())
    }

    /// What the engine will be.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// The model file, open and checked; `None` for random weights.
    pub fn model(&self) -> Option<&Model> {
        match &self.origin {
            Origin::File(model) => Some(model),
            Origin::Random { .. } => None,
        }
    }

    /// Sends lines about what happens while the engine works to `notice`.
    #[must_use]
    pub fn with_notice(mut self, notice: Notice) -> Self {
        self.options.notice = notice;
        self
    }

    /// One line for each decision that the user did not make.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The vocabulary alone, for work that needs no weights.
    ///
    /// # Errors
    /// When the file's tokenizer cannot be used.
    pub fn tokenizer(&self) -> Result<Tokenizer, Error> {
        self.origin.tokenizer()
    }

    /// Takes the instance lock, allocates, and opens the engine. `loaded` hears how many bytes of weights, of how
    /// many, have been read when they are copied to a device or are to be read first, and stops that by returning
    /// false.
    ///
    /// # Errors
    /// When another process holds the lock, or a file of the options cannot be used.
    pub fn open(self, loaded: &mut dyn FnMut(u64, u64) -> bool) -> Result<ModelEngine, Error> {
        let Self { origin, options, info, device, .. } = self;
        let lock = match &options.locking {
            Locking::WhenLarge(path) => lock::acquire_for(path, info.plan.total())?,
            Locking::Never => None,
        };
        let tokenizer = origin.tokenizer()?;
        let identity = Identity::new(&origin, &options, &info)?;
        let slots = options.slots();
        let anchors =
            AnchorSlots { slots: options.anchors.slots, spacing: options.anchors.spacing };
        let origin = Arc::new(origin);
        let backend = match (device, &*origin) {
            (Some(device), _) => {
                let drawable = tokenizer.drawable();
                let settings = Settings { info: &info, options: &options, drawable };
                Backend::Gpu(Box::new(device.open(&origin, &settings, loaded)?))
            }
            (None, Origin::File(model)) => {
                Backend::Cpu(Box::new(open_cpu(Arc::clone(model), &info, &options, loaded)?))
            }
            (None, Origin::Random { .. }) => unreachable!("random weights are made on a device"),
        };
        Ok(ModelEngine {
            info,
            tokenizer,
            backend,
            identity,
            book: SlotBook::new(slots),
            slots,
            snapshot_slots: options.snapshots,
            anchors,
            uses: 0,
            step_sessions: options.step_sessions,
            power: options.power,
            notice: options.notice,
            token_seconds: 0.0,
            sessions: BTreeMap::new(),
            next_session: 0,
            next_snapshot: 0,
            rule_versions: 0,
            draws: Draws::default(),
            _lock: lock,
        })
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("info", &self.info).finish_non_exhaustive()
    }
}

fn open_cpu(
    model: Arc<Model>,
    info: &Info,
    options: &Options,
    loaded: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<cpu::Backend, Error> {
    if options.warm {
        let total = info.plan.weights;
        model.file.warm(&mut |done| loaded(done, total));
    }
    let steering = steering::read(options.steering.as_ref(), &model.shape)?;
    let slots = options.slots();
    let options = cpu::Options {
        kv_k: info.kv_k,
        kv_v: info.kv_v,
        ctx: info.ctx_tokens,
        slots,
        threads: info.threads,
        quality: options.quality,
        chunk: info.chunk_tokens,
        steering,
    };
    Ok(cpu::Backend::new(model, options)?)
}

/// Worker threads when nobody says: one for each processor this process may use.
pub fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The device to use, `None` for the CPU backend.
fn choose_device(
    options: &Options,
    weight_bytes: u64,
    notes: &mut Vec<String>,
) -> Result<Option<gpu::Device>, Error> {
    match options.backend {
        BackendChoice::Cpu => Ok(None),
        BackendChoice::Vulkan => gpu::Device::choose(options, weight_bytes).map(Some),
        BackendChoice::Auto if !options.may_use_cpu() => {
            gpu::Device::choose(options, weight_bytes).map(Some)
        }
        BackendChoice::Auto => match gpu::Device::choose(options, weight_bytes) {
            Ok(device) => Ok(Some(device)),
            Err(why) => {
                notes.push(on_the_cpu(&why));
                Ok(None)
            }
        },
    }
}

/// The note that a device was not taken.
fn on_the_cpu(why: &Error) -> String {
    let why = why.to_string();
    format!("running on the CPU: {}", why.lines().next().unwrap_or_default())
}

fn choose_context(asked: Context, limit: usize, notes: &mut Vec<String>) -> Result<usize, Error> {
    match asked {
        Context::Default(n) if n > limit => {
            notes.push(format!("context is {limit} tokens, all that this model was made for"));
            Ok(limit)
        }
        Context::Exactly(asked) if asked > limit => Err(Error::ContextTooLarge { asked, limit }),
        Context::Default(n) | Context::Exactly(n) | Context::Forced(n) => Ok(n),
    }
}

/// The vocabulary of a model.
///
/// # Errors
/// When the file's tokenizer cannot be used.
pub fn tokenizer_of(model: &Model) -> Result<Tokenizer, Error> {
    let vocabulary = model.vocabulary()?;
    let source = VocabSource {
        tokens: Box::new(vocabulary.tokens),
        types: Box::new(vocabulary.types.iter().copied()),
        merges: Box::new(vocabulary.merges),
        eos: Some(vocabulary.eos),
        bos: vocabulary.bos,
    };
    Tokenizer::new(source)
        .map_err(|source| Error::Tokenizer { model: model.file.path().to_path_buf(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_explicit_context_is_refused() {
        let mut notes = Vec::new();
        assert_eq!(choose_context(Context::Default(32_768), 8192, &mut notes).unwrap(), 8192);
        assert_eq!(notes.len(), 1);
        assert_eq!(choose_context(Context::Exactly(8192), 8192, &mut notes).unwrap(), 8192);
        assert_eq!(choose_context(Context::Forced(9000), 8192, &mut notes).unwrap(), 9000);
        assert_eq!(notes.len(), 1);
        let error = choose_context(Context::Exactly(9000), 8192, &mut notes).unwrap_err();
        assert!(error.to_string().starts_with("--ctx 9000 exceeds the model's context"), "{error}");
    }
}
