//! Sessions on disk: KVC files, and directories of them.
//!
//! A file is a header, the rendered text, the session's payload, and sections behind it (`header`, `payload`,
//! `section`, `integrity`; each has its bytes in a table). `container` reads one, `source` turns its payload into a state
//! that a session takes, `encoder` writes one. Nothing in a file is believed: every length is checked against the
//! file, memory is bounded by what the present session could hold, and a state is adopted only when its last
//! checksum has matched.
//!
//! Deliberately absent: what a conversation is, when somebody wants to save, clients.

mod refusal;

mod header;
mod integrity;
mod payload;
mod section;

mod container;
mod encoder;
mod source;

mod digest;
mod directory;
mod evict;
mod index;
mod policy;
mod prompt;
mod scan;

mod describe;
mod error;
mod job;
mod save;
mod single;
mod store;
mod write;

#[cfg(test)]
mod tests;

pub use container::Container;
pub use describe::Described;
pub use digest::{BLOCK_BYTES, Chain, PIECE_BYTES};
pub use directory::Directory;
pub use encoder::{Encoder, Frame};
pub use error::Error;
pub use evict::{Candidate, NoRoom, victims};
pub use header::{Extensions, HEADER_BYTES, Header, Reason};
pub use index::{Entry, Fit, Index, Name};
pub use integrity::Integrity;
pub use payload::{Head, StateHead};
pub use policy::{Limits, Moment, Prefill, Stop, chat_anchor};
pub use prompt::Prompt;
pub use refusal::{Class, Refusal};
pub use save::{Extras, Saving, VisibleKey, session_name};
pub use scan::ModelKey;
pub use section::{KEYS, MARK, Sections, Tag, ToolBlock};
pub use single::{LoadedFile, load_file, save_file};
pub use source::{Loaded, Source};
pub use store::{Config, Hit, Restored, Store};
pub use write::SaveError;
