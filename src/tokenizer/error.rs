//! Why a vocabulary is refused.

use super::TokenId;

/// A vocabulary that cannot be used. Texts of tokens are shown lossily.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The arrays describe different numbers of rows.
    #[error("tokenizer: {tokens} tokens but {types} token types")]
    UnequalLengths {
        /// Entries of `tokenizer.ggml.tokens`.
        tokens: usize,
        /// Entries of `tokenizer.ggml.token_type`.
        types: usize,
    },
    /// No rows, or more than the limit.
    #[error("tokenizer: expected 1 to {limit} tokens, got {found}")]
    RowCount {
        /// Entries found before giving up.
        found: usize,
        /// Largest accepted number.
        limit: usize,
    },
    /// A token of absurd length.
    #[error("tokenizer: token {id} has {found} bytes, expected at most {limit}")]
    TokenTooLong {
        /// The row.
        id: TokenId,
        /// Its bytes.
        found: usize,
        /// Largest accepted number.
        limit: usize,
    },
    /// A number that is no token type.
    #[error("tokenizer: token {id} has type {found}, expected 1 to 6")]
    UnknownType {
        /// The row.
        id: TokenId,
        /// The number found.
        found: i32,
    },
    /// A normal token with a character outside the byte alphabet.
    #[error("tokenizer: token {id} `{spelling}` is not spelled in the byte alphabet")]
    BadSpelling {
        /// The row.
        id: TokenId,
        /// Its spelling.
        spelling: String,
    },
    /// A byte that no row stands for.
    #[error("tokenizer: no token for the byte 0x{byte:02x}")]
    MissingByte {
        /// The byte.
        byte: u8,
    },
    /// A merge that is not two spellings with a space between them, or one whose parts or result are no tokens.
    #[error("tokenizer: merge {rank} `{merge}`: {what}")]
    BadMerge {
        /// Index in `tokenizer.ggml.merges`.
        rank: u32,
        /// The entry.
        merge: String,
        /// What is wrong.
        what: &'static str,
    },
    /// More merges than the limit.
    #[error("tokenizer: more than {limit} merges")]
    TooManyMerges {
        /// Largest accepted number.
        limit: usize,
    },
    /// A marker the chat format needs.
    #[error("tokenizer: required special token is missing: {text}")]
    MissingSpecial {
        /// Its text.
        text: &'static str,
    },
    /// The published vocabulary with a marker somewhere else.
    #[error("tokenizer: expected id {id} = {expected}, got {found}")]
    MovedSpecial {
        /// The row.
        id: TokenId,
        /// What the publisher has there.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// An end or begin id beyond the rows.
    #[error("tokenizer: {key} is {found}, expected less than {rows}")]
    IdOutOfRange {
        /// Metadata key.
        key: &'static str,
        /// The id found.
        found: u32,
        /// Rows of the vocabulary.
        rows: usize,
    },
}
