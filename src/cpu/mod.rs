//! The CPU backend: the whole model, layer by layer. It is the oracle of every other backend.
//!
//! Two precisions. *Exact* (`--quality`) multiplies decoded weights with f32 activations; *fast* multiplies stored
//! weights with 8-bit activations in integers (model.md 5.7). Everything else is the same f32 mathematics of
//! [`crate::ops`].
//!
//! The contract that all code here keeps (design decision 18): **the bits of a row depend on its own tokens alone.**
//! Not on how the prompt was cut into chunks, not on the number of threads, not on the rows beside it. So a
//! reduction is never split between threads, and where one is cut at all (attention over long contexts), the cuts lie
//! at absolute positions and the parts are joined in order. Threads share work by rows, heads, experts and tokens.
//!
//! State: a session's K/V rows are a [`Kv`], its recurrent state a slot of the backend's arena. A [`Step`] names the
//! slot it reads and the one it writes. As long as they differ, a step that fails or is cancelled has changed nothing
//! that was valid: the source slot is never written, and rows at or beyond the committed length mean nothing.

mod error;
mod kv;
mod linear;
mod pool;
mod scratch;
mod slots;

mod attention;
mod ffn;
mod recurrent;

mod backend;
mod forward;
mod state;

pub use backend::{Backend, Options};
pub use error::Error;
pub use forward::{Logits, Step, Tap};
pub use kv::Kv;
pub use scratch::{DEFAULT_CHUNK_TOKENS, scratch_bytes};
