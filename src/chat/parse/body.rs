//! A JSON body in place of tags: `{"name": …, "arguments": {…}}`.

use super::window::{Match, Window};
use crate::chat::{Arguments, Json, convert};

/// Looks for the end of an object, piece by piece.
#[derive(Debug, Clone, Default)]
pub(super) struct BodyScan {
    seen: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl BodyScan {
    /// The length of the object at the front of the window. `No` when a tag or the end of the reply comes first.
    pub(super) fn end(&mut self, window: &Window) -> Match {
        while let Some(byte) = window.rest().get(self.seen) {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = self.in_string,
                b'"' => self.in_string = !self.in_string,
                b'{' | b'[' if !self.in_string => self.depth += 1,
                b'}' | b']' if !self.in_string => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Match::Yes(self.seen + 1);
                    }
                }
                b'<' if !self.in_string => return Match::No,
                _ => {}
            }
            self.seen += 1;
        }
        window.undecided()
    }
}

/// Name and arguments of a body.
pub(super) fn parse(body: &[u8]) -> Option<(String, Arguments)> {
    let text = std::str::from_utf8(body).ok()?;
    let json = Json::parse(text).or_else(|_| Json::parse(&convert::strict(text))).ok()?;
    let fields = Arguments::from_json(&json).ok()?;
    let name = fields.get("name")?.as_str().filter(|name| !name.is_empty())?;
    let arguments = match fields.get("arguments").or_else(|| fields.get("parameters")) {
        Some(value) => Arguments::parse(value.text()).ok()?,
        None => Arguments::default(),
    };
    Some((name, arguments))
}
