//! Contents of messages to text (server.md 4.3).

use super::node::Node;
use crate::chat::canonical;
use crate::server::Failure;

/// Most things that are noted of a request.
const WARNINGS_MAX: usize = 16;

/// Reads contents, and notes what they left out.
#[derive(Debug)]
pub(super) struct Contents {
    strict_media: bool,
    warnings: Vec<String>,
}

impl Contents {
    /// A reader that refuses pictures and the like, or replaces them by a line that says so.
    pub(super) fn new(strict_media: bool) -> Self {
        Self { strict_media, warnings: Vec::new() }
    }

    /// Notes something for the log, once. A log needs no more than the first few.
    pub(super) fn warn(&mut self, warning: String) {
        if self.warnings.len() < WARNINGS_MAX && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// What was noted.
    pub(super) fn warnings(self) -> Vec<String> {
        self.warnings
    }

    /// The text of a content: a string, or an array of strings and typed parts, joined by nothing. Absent is empty.
    pub(super) fn text(&mut self, content: Option<&Node<'_>>) -> Result<String, Failure> {
        let Some(content) = content else { return Ok(String::new()) };
        if content.is_string() {
            return content.string();
        }
        if !content.is_array() {
            return Err(content.wrong("a string or an array of parts"));
        }
        let mut out = String::new();
        for part in content.items()? {
            self.part(&part, &mut out)?;
        }
        Ok(out)
    }

    /// The text of a tool's result: a content, or data of the tool's, which is given as JSON without white space. Absent is
    /// empty.
    pub(super) fn result(&mut self, result: Option<&Node<'_>>) -> Result<String, Failure> {
        let Some(node) = result.filter(|node| !node.is_null()) else { return Ok(String::new()) };
        let is_text = node.is_string() || (node.is_array() && node.items()?.iter().all(is_part));
        if is_text { self.text(Some(node)) } else { Ok(canonical::minified(&node.json()?)) }
    }

    /// Adds one part of a content.
    pub(super) fn part(&mut self, part: &Node<'_>, out: &mut String) -> Result<(), Failure> {
        if part.is_null() {
            return Ok(());
        }
        if part.is_string() {
            out.push_str(&part.string()?);
            return Ok(());
        }
        if !part.is_object() {
            return Err(part.wrong("a string or an object with a type"));
        }
        let object = part.object()?;
        let kind = object.string("type")?.unwrap_or_else(|| "text".to_owned());
        if let Some(text) = object.first(&["text", "refusal"]) {
            out.push_str(&text.string()?);
            return Ok(());
        }
        if matches!(kind.as_str(), "text" | "input_text" | "output_text" | "summary_text") {
            return Ok(());
        }
        // A document may be plain text in a part's clothes.
        if let Some(source) = object.get("source").filter(Node::is_object)
            && let Ok(source) = source.object()
            && source.get("type").and_then(|t| t.as_str()).as_deref() == Some("text")
            && let Some(text) = source.string("data")?
        {
            out.push_str(&text);
            return Ok(());
        }
        if self.strict_media {
            return Err(
                part.refused(format!("has the type `{kind}`, but this engine is text only"))
            );
        }
        self.warn(format!("a part of type `{kind}` is left out: this engine is text only"));
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        out.push_str(&omitted(&kind));
        Ok(())
    }
}

/// Whether a value is a part of a content rather than data of a tool's.
pub(super) fn is_part(node: &Node<'_>) -> bool {
    if node.is_string() || node.is_null() {
        return true;
    }
    let Ok(object) = node.object() else { return false };
    let kind = object.get("type").and_then(|kind| kind.as_str());
    kind.map_or_else(|| object.get("text").is_some(), |kind| PARTS.contains(&kind.as_str()))
}

/// Types of parts.
const PARTS: [&str; 13] = [
    "text",
    "input_text",
    "output_text",
    "refusal",
    "input_image",
    "input_file",
    "input_audio",
    "image",
    "image_url",
    "file",
    "audio",
    "document",
    "search_result",
];

/// The line that stands in for a part.
fn omitted(kind: &str) -> String {
    let kind: String = kind.chars().filter(|c| !c.is_control()).take(64).collect();
    format!("[A part of type `{kind}` was omitted, because this engine is text only.]\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::api::node::Object;

    fn text(content: &str, strict: bool) -> Result<(String, Vec<String>), Failure> {
        let body = format!("{{\"content\":{content}}}");
        let mut contents = Contents::new(strict);
        let text = contents.text(Object::root(&body).get("content").as_ref())?;
        Ok((text, contents.warnings()))
    }

    #[test]
    fn texts_are_joined_by_nothing() {
        let check = |content: &str, expected: &str| {
            assert_eq!(text(content, true).unwrap(), (expected.to_owned(), vec![]), "{content}");
        };
        check("null", "");
        check("\"a\"", "a");
        check("[]", "");
        check(
            r#"["a",null,{"type":"text","text":"b"},{"text":"c"},{"type":"output_text"}]"#,
            "abc",
        );
        check(r#"[{"text":"x","type":"input_text"},{"type":"refusal","refusal":"no"}]"#, "xno");
        check(r#"[{"type":"document","source":{"type":"text","data":"page"}}]"#, "page");
    }

    #[test]
    fn pictures_are_a_line_or_a_refusal() {
        let image = r#"[{"type":"text","text":"see"},{"type":"image_url","image_url":{}},"end"]"#;
        let line = "[A part of type `image_url` was omitted, because this engine is text only.]";
        let (found, warnings) = text(image, false).unwrap();
        assert_eq!(found, format!("see\n{line}\nend"));
        assert_eq!(warnings, ["a part of type `image_url` is left out: this engine is text only"]);
        assert_eq!(
            text(image, true).unwrap_err().message,
            "`content[1]` has the type `image_url`, but this engine is text only"
        );
    }

    #[test]
    fn other_kinds_are_refused() {
        let check = |content: &str, message: &str| {
            assert_eq!(text(content, false).unwrap_err().message, message);
        };
        check("5", "`content` must be a string or an array of parts, found a number");
        check("{}", "`content` must be a string or an array of parts, found an object");
        check("[5]", "`content[0]` must be a string or an object with a type, found a number");
        check(r#"[{"text":5}]"#, "`content[0].text` must be a string, found a number");
    }
}
