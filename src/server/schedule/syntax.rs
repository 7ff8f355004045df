//! Which tokens can continue the tags of a call (server.md 11.2): the names that the request declares, the tags that the
//! template has, and nothing else. So a tag cannot be invented, and a name cannot be misspelled.
//!
//! ```text
//!  <tool_call> ─ \n<function=NAME> ─┬─ \n<parameter=KEY> … </parameter> ─┐
//!                                   ├────────────────────────────────────┘
//!                                   └─ \n</function> ─ \n</tool_call>
//! ```

use crate::chat::Toolset;
use crate::tokenizer::{TokenId, TokenMask, Tokenizer};

/// Bytes that are remembered of what was written: more than any tag that matters.
const TAIL_BYTES: usize = 1024;
/// The longest piece of a tag that one token is looked for.
const MAX_TOKEN_BYTES: usize = 24;
const PARAMETER_END: &[u8] = b"</parameter>";

/// Where the tags of a call stand.
#[derive(Debug, Clone, Default)]
pub(super) struct Tags {
    /// The end of what was written.
    tail: Vec<u8>,
    function: Option<String>,
    given: Vec<String>,
    in_value: bool,
    /// The function is closed.
    closed: bool,
}

impl Tags {
    /// A token was written.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        if self.tail.len() > 2 * TAIL_BYTES {
            self.tail.drain(..self.tail.len() - TAIL_BYTES);
        }
    }

    /// A block began.
    pub(super) fn begin(&mut self) {
        *self = Self::default();
    }

    /// The tag of a function is complete.
    pub(super) fn function(&mut self, name: &str) {
        self.function = Some(name.to_owned());
        self.given.clear();
        self.closed = false;
    }

    /// The tag of a parameter is complete.
    pub(super) fn parameter(&mut self, name: &str) {
        self.given.push(name.to_owned());
        self.in_value = true;
    }

    /// Its value is complete.
    pub(super) fn value(&mut self) {
        self.in_value = false;
    }

    /// The function is closed.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// The tokens that may come next; `None` where the request does not say.
    pub(super) fn legal(&self, tokenizer: &Tokenizer, tools: &Toolset) -> Option<TokenMask> {
        let mut mask = TokenMask::none(tokenizer.vocab_size());
        for rest in self.continuations(tools)? {
            for id in first_tokens(tokenizer, &rest) {
                mask.insert(id);
            }
        }
        (!mask.is_empty()).then_some(mask)
    }

    /// What may follow, from here to the end of the tag and its line: vocabularies have tokens that reach over both.
    fn continuations(&self, tools: &Toolset) -> Option<Vec<String>> {
        let (begun, whole) = match self.open_end() {
            Some(n) => (&PARAMETER_END[..n], vec!["</parameter>\n".to_owned()]),
            None => (self.behind_tag(), self.tags(tools)?),
        };
        let begun = std::str::from_utf8(begun).ok()?;
        let rest = |tag: &String| tag.strip_prefix(begun).map(str::to_owned);
        Some(whole.iter().filter_map(rest).filter(|rest| !rest.is_empty()).collect())
    }

    /// How much of the end tag of a value is written, where it is not complete. A complete one is not yet known to be
    /// one, but what follows it can only be another tag.
    fn open_end(&self) -> Option<usize> {
        if !self.in_value || self.tail[..self.tag_end()].ends_with(PARAMETER_END) {
            return None;
        }
        (2..PARAMETER_END.len()).rev().find(|&n| self.tail.ends_with(&PARAMETER_END[..n]))
    }

    /// What was written behind the last tag.
    fn behind_tag(&self) -> &[u8] {
        &self.tail[self.tag_end()..]
    }

    fn tag_end(&self) -> usize {
        self.tail.iter().rposition(|byte| *byte == b'>').map_or(0, |at| at + 1)
    }

    /// The tags that may stand here.
    fn tags(&self, tools: &Toolset) -> Option<Vec<String>> {
        if self.closed {
            return Some(vec!["\n</tool_call>".to_owned()]);
        }
        let Some(name) = &self.function else {
            let functions = tools.functions().iter();
            return Some(functions.map(|f| format!("\n<function={}>\n", f.name)).collect());
        };
        // One that declares nothing may take anything.
        let function = tools.function(name).filter(|function| !function.params.is_empty())?;
        let left = function.params.iter().filter(|param| !self.given.contains(&param.name));
        let mut tags: Vec<String> =
            left.map(|param| format!("\n<parameter={}>\n", param.name)).collect();
        tags.push("\n</function>\n</tool_call>".to_owned());
        Some(tags)
    }
}

/// Tokens that a text can begin with.
fn first_tokens(tokenizer: &Tokenizer, text: &str) -> Vec<TokenId> {
    if text.starts_with("</tool_call>") {
        return vec![tokenizer.special().tool_call_end];
    }
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    // A marker is a token of its own, never a part of a longer one.
    let end = text.find("</tool_call>").unwrap_or(text.len()).min(MAX_TOKEN_BYTES);
    let pieces = ends.take_while(|&at| at <= end).map(|at| &text[..at]);
    pieces
        .filter_map(|piece| match tokenizer.encode_text(piece.as_bytes())[..] {
            [id] => Some(id),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::Tool;

    fn tools() -> Toolset {
        let tool = |name: &str, params: &str| {
            let text = format!(r#"{{"name": "{name}", "parameters": {{"properties": {params}}}}}"#);
            Tool::parse(&text).unwrap()
        };
        let params = r#"{"path": {"type": "string"}, "page": {"type": "integer"}}"#;
        Toolset::new(&[tool("read", params), tool("run", "{}")])
    }

    /// The letters that may follow.
    fn next(tags: &Tags) -> Option<String> {
        let tokenizer = Tokenizer::stand_in(400).unwrap();
        let mask = tags.legal(&tokenizer, &tools())?;
        let ids = (0..400).map(TokenId).filter(|id| mask.contains(*id));
        Some(ids.map(|id| String::from_utf8_lossy(tokenizer.bytes(id)).into_owned()).collect())
    }

    fn after(tags: &Tags, text: &str) -> Option<String> {
        let mut tags = tags.clone();
        tags.write(text.as_bytes());
        next(&tags)
    }

    #[test]
    fn only_declared_names_can_be_spelled() {
        let mut tags = Tags::default();
        tags.begin();
        assert_eq!(after(&tags, ""), Some("\n".into()));
        assert_eq!(after(&tags, "\n<function"), Some("=".into()));
        assert_eq!(after(&tags, "\n<function=r"), Some("eu".into()));
        assert_eq!(after(&tags, "\n<function=read"), Some(">".into()));
        assert_eq!(after(&tags, "\n<function=x"), None, "whatever it is, it is no help");
    }

    #[test]
    fn parameters_are_given_once() {
        let mut tags = Tags::default();
        tags.write(b"\n<function=read>");
        tags.function("read");
        assert_eq!(after(&tags, "\n<"), Some("/p".into()));
        assert_eq!(after(&tags, "\n</"), Some("f".into()));
        assert_eq!(after(&tags, "\n<parameter=pa"), Some("gt".into()));
        tags.write(b"\n<parameter=path>\nany <b>text");
        tags.parameter("path");
        assert_eq!(after(&tags, "\n</"), Some("p".into()));
        assert_eq!(after(&tags, "\n</parameter"), Some(">".into()));
        assert_eq!(after(&tags, "\n</parameter>\n<parameter=pa"), Some("g".into()));
        assert_eq!(after(&tags, "\n</parameter>\n</"), Some("f".into()));
        tags.write(b"\n</parameter>\n<parameter=page>\n1\n</parameter>");
        tags.parameter("page");
        tags.value();
        assert_eq!(after(&tags, "\n<"), Some("/".into()));
        tags.write(b"\n</function>");
        tags.close();
        assert_eq!(after(&tags, ""), Some("\n".into()));
        assert_eq!(after(&tags, "\n"), Some("</tool_call>".into()));
    }

    #[test]
    fn a_function_that_declares_nothing_takes_anything() {
        let mut tags = Tags::default();
        tags.write(b"\n<function=run>");
        tags.function("run");
        assert_eq!(after(&tags, "\n<"), None);
    }

    #[test]
    fn long_values_are_not_kept() {
        let mut tags = Tags::default();
        for _ in 0..10_000 {
            tags.write(b"0123456789");
        }
        assert!(tags.tail.len() <= 2 * TAIL_BYTES);
    }
}
