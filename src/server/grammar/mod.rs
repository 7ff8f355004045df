//! What holds a reply to a form: masks of the tokens that may come next, from a grammar over their bytes.
//!
//! ```text
//!  Format ── schema check ──► llguidance ──► Constraint ── mask ──► draw ── accept ──► …
//!                                  ▲
//!                    Grammar: a trie of the vocabulary's bytes, once per model
//! ```
//!
//! A grammar speaks of bytes. Added tokens have none here, so a marker can never stand for the same letters inside a
//! text; the end of a turn may be drawn exactly where the text may end. What a schema says and `llguidance` cannot hold
//! a text to is refused with its name: nothing is left out silently. Nothing here knows engines, sessions or thoughts.

mod call;
mod constraint;
mod formats;
mod pattern;
mod schema;
mod text;
mod vocabulary;

pub use call::ValueForms;
pub use constraint::Constraint;
pub use vocabulary::Grammar;
