//! Byte-level BPE of the `qwen35` vocabulary: text to ids and back (model.md 6).
//!
//! Text becomes ids in three steps: added tokens cut control text into runs (`special`), the pre-tokenizer cuts
//! a run into pieces (`split`), and merging turns a piece into vocabulary rows (`bpe`). Every byte string can
//! be encoded, valid UTF-8 or not, and decodes to the same bytes.
//!
//! Deliberately absent: normalisation (a matter of message text, before rendering), files (the vocabulary comes
//! from iterators, whoever reads them), and the template. Text of users and tools is *payload*: it can never
//! become an added token, whatever it spells.

mod alphabet;
mod bpe;
mod class;
mod decode;
mod encode;
mod error;
#[cfg(test)]
mod fixture;
mod mask;
mod merges;
mod prompt;
mod special;
mod split;
mod stand_in;
mod strings;
mod token;
mod vocab;

pub use decode::StreamDecoder;
pub use encode::{MarkedText, Tokenizer};
pub use error::Error;
pub use mask::TokenMask;
pub use prompt::{MarkedIds, Segment};
pub use special::{ADDED_TOKENS, Special};
pub use split::pieces;
pub use token::{Kind, TokenId};
pub use vocab::VocabSource;
