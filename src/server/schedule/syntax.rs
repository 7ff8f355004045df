//! Which tokens can continue the tags of a call (server.md 11.2): the names that the request declares, the tags that the
//! template has, and nothing else. So a tag cannot be invented, and a name cannot be misspelled.
//!
//! ```text
//!  <tool_call> ─ \n<function=NAME> ─┬─ \n<parameter=KEY> … </parameter> ─┐
//!                                   ├────────────────────────────────────┘
//!                                   └─ \n</function> ─ \n</tool_call>
//! ```

use std::collections::BTreeSet;

use crate::chat::{Function, Toolset};
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
    /// Functions that are closed only when everything that they require is there.
    strict: BTreeSet<String>,
}

impl Tags {
    /// Before any call; functions named in `strict` are called with everything that they require.
    pub(super) fn new(strict: BTreeSet<String>) -> Self {
        Self { strict, ..Self::default() }
    }

    /// A token was written.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        if self.tail.len() > 2 * TAIL_BYTES {
            self.tail.drain(..self.tail.len() - TAIL_BYTES);
        }
    }

    /// A block began.
    pub(super) fn begin(&mut self) {
        *self = Self::new(std::mem::take(&mut self.strict));
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

    /// The value that is open: its function, its parameter, and how many were there before it.
    pub(super) fn open_value(&self) -> Option<(&str, &str, usize)> {
        let (function, param) = (self.function.as_ref()?, self.given.last()?);
        self.in_value.then_some((function, param, self.given.len()))
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
    /// What begins like the end tag of a value may be any other tag, for values are any text: `None`.
    fn continuations(&self, tools: &Toolset) -> Option<Vec<String>> {
        if self.is_end_open() {
            return None;
        }
        let whole = self.tags(tools)?;
        let begun = std::str::from_utf8(self.behind_tag()).ok()?;
        let rest = |tag: &String| tag.strip_prefix(begun).map(str::to_owned);
        Some(whole.iter().filter_map(rest).filter(|rest| !rest.is_empty()).collect())
    }

    /// Whether a part of the end tag of a value is written. A complete one is not yet known to be one, but what follows
    /// it can only be another tag.
    fn is_end_open(&self) -> bool {
        let is_complete = self.tail[..self.tag_end()].ends_with(PARAMETER_END);
        let ends = |n| self.tail.ends_with(&PARAMETER_END[..n]);
        self.in_value && !is_complete && (2..PARAMETER_END.len()).any(ends)
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
        let is_strict = self.strict.contains(name);
        let declares = |function: &&Function| is_strict || !function.params.is_empty();
        let function = tools.function(name).filter(declares)?;
        let left = function.params.iter().filter(|param| !self.given.contains(&param.name));
        let must_go_on = is_strict && left.clone().any(|param| param.required);
        let mut tags: Vec<String> =
            left.map(|param| format!("\n<parameter={}>\n", param.name)).collect();
        if !must_go_on {
            tags.push("\n</function>\n</tool_call>".to_owned());
        }
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
        assert_eq!(after(&tags, "\n</"), None, "it may be any tag of a text");
        assert_eq!(after(&tags, "\n</parameter"), None);
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
    fn a_strict_function_is_closed_with_everything_that_it_requires() {
        let text =
            r#"{"name": "f", "parameters": {"properties": {"a": {}, "b": {}}, "required": ["b"]}}"#;
        let tools = Toolset::new(&[Tool::parse(text).unwrap()]);
        let tokenizer = Tokenizer::stand_in(400).unwrap();
        let can_close = |tags: &Tags| {
            let slash = tokenizer.encode_text(b"/")[0];
            let mut tags = tags.clone();
            tags.write(b"\n<");
            tags.legal(&tokenizer, &tools).unwrap().contains(slash)
        };
        for (strict, expected) in [(false, true), (true, false)] {
            let mut tags = Tags::new(strict.then(|| "f".to_owned()).into_iter().collect());
            tags.begin();
            tags.write(b"\n<function=f>");
            tags.function("f");
            assert_eq!(can_close(&tags), expected, "nothing is given");
            tags.write(b"\n<parameter=b>\n1\n</parameter>");
            tags.parameter("b");
            tags.value();
            assert!(can_close(&tags), "what is left is optional");
        }
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
