//! From options to an open engine: everything that depends on the model file is decided here, once,
//! and said in notes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::options::{BackendChoice, Context, Locking, Options};
use super::slots::SlotBook;
use super::{BackendKind, Error, Info, ModelEngine, lock, steering};
use crate::cpu;
use crate::model::Model;
use crate::model::memory::{Plan, Request};
use crate::quant::TensorType;
use crate::tokenizer::{Tokenizer, VocabSource};

/// What was decided before anything large was allocated.
#[derive(Debug)]
pub struct Prepared {
    model: Arc<Model>,
    options: Options,
    info: Info,
    notes: Vec<String>,
}

impl Prepared {
    /// Opens and checks the model file and resolves the options against it. Allocates nothing that
    /// grows with the context.
    ///
    /// # Errors
    /// When the file is no model for this program, or an option does not fit it.
    pub fn new(options: Options) -> Result<Self, Error> {
        let model = Arc::new(Model::open(&options.model)?);
        let mut notes = Vec::new();
        let backend = choose_backend(options.backend, &mut notes)?;
        let ctx_tokens = choose_context(options.context, model.shape.context_length, &mut notes)?;
        let kv_k = options.kv_k.unwrap_or(TensorType::F16);
        let kv_v = options.kv_v.unwrap_or(TensorType::F16);
        let chunk_tokens = options.chunk.unwrap_or(cpu::DEFAULT_CHUNK_TOKENS).min(ctx_tokens);
        let threads = options.threads.unwrap_or_else(default_threads);
        let request = Request {
            kv_k,
            kv_v,
            ctx: ctx_tokens,
            sessions: options.sessions,
            slots: options.slots(),
            scratch_bytes: cpu::scratch_bytes(&model.shape, chunk_tokens, threads) as u64,
        };
        let info = Info {
            model: options.model.clone(),
            backend,
            ctx_tokens,
            chunk_tokens,
            kv_k,
            kv_v,
            threads,
            quant_bits: model.expert_bits(),
            vocab: model.shape.vocab,
            plan: Plan::new(&model.shape, model.file.tensor_bytes(), &request),
        };
        Ok(Self { model, options, info, notes })
    }

    /// What the engine will be.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// The model, open and checked.
    pub fn model(&self) -> &Model {
        &self.model
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
        tokenizer_of(&self.model)
    }

    /// Takes the instance lock, allocates, and opens the engine. `warmed` hears how many bytes of
    /// weights have been read when they are to be read first, and stops that by returning false.
    ///
    /// # Errors
    /// When another process holds the lock, or a file of the options cannot be used.
    pub fn open(self, warmed: &mut dyn FnMut(u64) -> bool) -> Result<ModelEngine, Error> {
        let Self { model, options, info, .. } = self;
        let lock = match &options.locking {
            Locking::WhenLarge(path) => lock::acquire_for(path, info.plan.total())?,
            Locking::Never => None,
        };
        let tokenizer = tokenizer_of(&model)?;
        if options.warm {
            model.file.warm(warmed);
        }
        let steering = steering::read(options.steering.as_ref(), &model.shape)?;
        let backend = cpu::Backend::new(
            model,
            cpu::Options {
                kv_k: info.kv_k,
                kv_v: info.kv_v,
                ctx: info.ctx_tokens,
                slots: options.slots(),
                threads: info.threads,
                quality: options.quality,
                chunk: info.chunk_tokens,
                steering,
            },
        )?;
        Ok(ModelEngine {
            info,
            tokenizer,
            backend,
            book: SlotBook::new(options.slots()),
            slots: options.slots(),
            snapshot_slots: options.snapshots,
            power: options.power,
            sessions: BTreeMap::new(),
            next_session: 0,
            next_snapshot: 0,
            _lock: lock,
        })
    }
}

/// Worker threads when nobody says: one for each processor this process may use.
pub fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn choose_backend(choice: BackendChoice, notes: &mut Vec<String>) -> Result<BackendKind, Error> {
    match choice {
        BackendChoice::Cpu => Ok(BackendKind::Cpu),
        BackendChoice::Auto => {
            notes.push("running on the CPU: this version has no Vulkan engine yet".to_owned());
            Ok(BackendKind::Cpu)
        }
        BackendChoice::Vulkan => Err(Error::BackendUnavailable {
            what: "this version cannot run the model on Vulkan yet".to_owned(),
            hint: "use --cpu",
        }),
    }
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
