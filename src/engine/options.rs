//! What an engine is opened with. Raw flags become this once; what depends on the model file is
//! decided in [`super::open`].

use std::path::PathBuf;

use crate::quant::TensorType;
use crate::util::notice::Notice;

/// Context used when none is asked for, in tokens.
pub const DEFAULT_CTX_TOKENS: usize = 32_768;

/// Which backend to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackendChoice {
    /// A real GPU when one can run the model, else the CPU.
    #[default]
    Auto,
    /// The CPU backend.
    Cpu,
    /// A Vulkan device, or an error.
    Vulkan,
}

/// How many positions a session can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// A default; shrinks to what the model was made for.
    Default(usize),
    /// Asked for; refused above what the model was made for.
    Exactly(usize),
    /// Asked for, whatever the model was made for.
    Forced(usize),
}

impl Default for Context {
    fn default() -> Self {
        Self::Default(DEFAULT_CTX_TOKENS)
    }
}

/// Directional steering as asked for (model.md 4).
#[derive(Debug, Clone, PartialEq)]
pub struct SteeringChoice {
    /// Directions: one row of `hidden` f32 values for each layer.
    pub file: PathBuf,
    /// Scale of the edit after the mixer.
    pub attention: f32,
    /// Scale of the edit after the experts.
    pub ffn: f32,
}

/// Whether to take the instance lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Locking {
    /// This file, when the memory plan is large enough to matter.
    WhenLarge(PathBuf),
    /// Never.
    Never,
}

/// How weights get to a Vulkan device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoadWay {
    /// As suits device and machine.
    #[default]
    Auto,
    /// What can stay in the mapped file stays there.
    InPlace,
    /// Past the page cache.
    Direct,
    /// Through the page cache.
    Cached,
}

/// Failures of the Vulkan device to pretend, for trying out what happens then.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drill {
    /// Numbers of submissions, counted from 1, at which the device is lost.
    pub lose: Vec<u64>,
    /// Where its memory ends.
    pub memory_bytes: Option<u64>,
    /// Required features that it is not to have.
    pub lacks: Vec<&'static str>,
}

/// Everything an engine is opened with.
#[derive(Debug, Clone)]
pub struct Options {
    /// The model file.
    pub model: PathBuf,
    /// Which backend.
    pub backend: BackendChoice,
    /// The Vulkan device: an index, a UUID or part of a name; `None` is the best one.
    pub device: Option<String>,
    /// Abilities of the device to do without, by name.
    pub device_off: Vec<String>,
    /// Where compiled pipelines are kept between runs; `None` keeps none.
    pub cache_dir: Option<PathBuf>,
    /// Whether the device times every kernel, which slows it down.
    pub profile: bool,
    /// Worker threads; `None` is every core.
    pub threads: Option<usize>,
    /// Context of each session.
    pub context: Context,
    /// Storage of K rows; `None` is the backend's default.
    pub kv_k: Option<TensorType>,
    /// Storage of V rows; `None` is the backend's default.
    pub kv_v: Option<TensorType>,
    /// Prompt tokens evaluated at once; `None` is the backend's default.
    pub chunk: Option<usize>,
    /// Plain f32 mathematics instead of the fast integer path.
    pub quality: bool,
    /// Read every weight once before the first token.
    pub warm: bool,
    /// Duty cycle in percent, 1 to 100.
    pub power: u8,
    /// Sessions that a decode step takes together at most, where a device can take several.
    pub step_sessions: usize,
    /// Sessions that may be open at once.
    pub sessions: usize,
    /// State slots beyond one for each session and one for the open step: each holds a snapshot.
    pub snapshots: usize,
    /// State slots for anchors.
    pub anchors: Anchors,
    /// Directional steering.
    pub steering: Option<SteeringChoice>,
    /// Whether to take the instance lock.
    pub locking: Locking,
    /// How weights get to a device.
    pub load: LoadWay,
    /// Failures to pretend.
    pub drill: Drill,
    /// Hears what happens meanwhile: that the device is late, or was lost and is loaded again.
    pub notice: Notice,
}

impl Options {
    /// Defaults for a model file: one session, no snapshots, no lock.
    pub fn new(model: PathBuf) -> Self {
        Self {
            model,
            backend: BackendChoice::Auto,
            device: None,
            device_off: Vec::new(),
            cache_dir: None,
            profile: false,
            threads: None,
            context: Context::default(),
            kv_k: None,
            kv_v: None,
            chunk: None,
            quality: false,
            warm: false,
            power: 100,
            step_sessions: usize::MAX,
            sessions: 1,
            snapshots: 0,
            anchors: Anchors::default(),
            steering: None,
            locking: Locking::Never,
            load: LoadWay::Auto,
            drill: Drill::default(),
            notice: Notice::default(),
        }
    }

    /// Whether the CPU may stand in for a device that cannot be used.
    pub(super) fn may_use_cpu(&self) -> bool {
        self.backend == BackendChoice::Auto && self.device.is_none()
    }

    /// State slots the engine needs: one a session, one for the open step, one a snapshot, and those for anchors.
    pub fn slots(&self) -> usize {
        self.sessions + 1 + self.snapshots + self.anchors.slots
    }
}

/// States that the engine keeps at borders of prompts, for prompts that share a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchors {
    /// How many there may be, all sessions together. Each takes the memory of a state slot, which the plan counts.
    pub slots: usize,
    /// Tokens between two turns of a session that are both worth keeping.
    pub spacing: usize,
}

impl Anchors {
    /// The spacing unless somebody asks for another: what is saved by a closer one is hardly noticed.
    pub const SPACING: usize = 256;

    /// So many, at the usual spacing.
    pub fn of(slots: usize) -> Self {
        Self { slots, spacing: Self::SPACING }
    }
}

impl Default for Anchors {
    /// None.
    fn default() -> Self {
        Self::of(0)
    }
}
