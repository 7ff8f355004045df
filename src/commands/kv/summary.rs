//! A file as scripts see it. Additive: they read these names.

use serde::Serialize;

use crate::kv::{Described, Extensions, Head};
use crate::util::hex;

/// What is known of a file.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) id: String,
    pub(super) file: String,
    pub(super) bytes: u64,
    /// `ok`, `stripped`, `foreign`, `damaged`, `alien` or `unreadable`.
    pub(super) status: &'static str,
    /// Why it is not `ok`.
    pub(super) problem: Option<String>,
    pub(super) reason: Option<&'static str>,
    pub(super) tokens: Option<u32>,
    pub(super) hits: Option<u32>,
    pub(super) created: Option<u64>,
    pub(super) last_used: Option<u64>,
    pub(super) ctx: Option<u32>,
    pub(super) quant_bits: Option<u8>,
    pub(super) model: Option<String>,
    pub(super) text_bytes: Option<u32>,
    pub(super) payload_bytes: Option<u64>,
    pub(super) payload_version: Option<u32>,
    pub(super) kv_k: Option<&'static str>,
    pub(super) kv_v: Option<&'static str>,
    pub(super) title: Option<String>,
    pub(super) visible_text: bool,
    pub(super) markers: Option<usize>,
    pub(super) tool_ids: Vec<String>,
    pub(super) sections: Vec<String>,
    pub(super) dropped: Vec<String>,
    /// The beginning of the text, in one line.
    pub(super) text: String,
}

impl Summary {
    pub(super) fn of(file: &Described) -> Self {
        let header = file.header.as_ref();
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let state = match &file.head {
            Some(Head::State(state)) => Some(state),
            Some(Head::Tokens { .. }) | None => None,
        };
        let version = file.head.as_ref().map(|head| match head {
            Head::Tokens { .. } => 1,
            Head::State(state) if state.head_bytes() == 56 => 2,
            Head::State(_) => 3,
        });
        let markers = header.and_then(|h| file.sections.markers(h.text_bytes));
        Self {
            id: file.id(),
            file: file.path.display().to_string(),
            bytes: file.bytes,
            status: status(file),
            problem: file.problem.as_ref().map(ToString::to_string),
            reason: header.map(|h| h.reason.name()),
            tokens: header.map(|h| h.tokens),
            hits: header.map(|h| h.hits),
            created: header.map(|h| h.created),
            last_used: header.map(|h| h.last_used),
            ctx: header.map(|h| h.ctx),
            quant_bits: header.map(|h| h.quant_bits),
            model: file.fingerprint.map(|f| hex::encode(&f)),
            text_bytes: header.map(|h| h.text_bytes),
            payload_bytes: header.map(|h| h.payload_bytes),
            payload_version: version,
            kv_k: state.map(|s| s.kv_k.name()),
            kv_v: state.map(|s| s.kv_v.name()),
            title: file.sections.title.as_deref().map(lossy),
            visible_text: header.is_some_and(|h| h.extensions.is_visible_key()),
            markers: markers.map(|m| m.len()),
            tool_ids: file.sections.tools.iter().map(|t| lossy(&t.id)).collect(),
            sections: file
                .sections
                .tagged
                .iter()
                .map(|(tag, _)| tag.escape_ascii().to_string())
                .collect(),
            dropped: file.dropped.clone(),
            text: one_line(&lossy(&file.text)),
        }
    }
}

fn status(file: &Described) -> &'static str {
    let stripped =
        |h: &crate::kv::Header| h.payload_bytes == 0 && h.extensions.has(Extensions::INTEGRITY);
    match &file.problem {
        Some(problem) => problem.kind(),
        None if file.header.as_ref().is_some_and(stripped) => "stripped",
        None => "ok",
    }
}

/// Text in one line that a terminal can be given: runs of white space are a space, other control characters are left
/// out.
pub(super) fn one_line(text: &str) -> String {
    let words: Vec<String> = text
        .split_whitespace()
        .map(|word| word.chars().filter(|c| !c.is_control()).collect())
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_write_to_a_terminal() {
        assert_eq!(one_line("a\n\n b\u{1b}[31m\tc\u{7}"), "a b[31m c");
    }
}
