//! What the answer's text must be.

use super::node::{Node, Object};
use crate::server::{Failure, Format};

/// Reads a format: `response_format` of chat and completions, `text.format` of responses, `output_config.format` of
/// messages. The schema stands beside the type, or in `json_schema`.
pub(super) fn read(node: Option<&Node<'_>>) -> Result<Format, Failure> {
    let Some(node) = node else { return Ok(Format::Text) };
    let object = node.object()?;
    let kind = object.require("type")?;
    match kind.string()?.as_str() {
        "text" => Ok(Format::Text),
        "json_object" => Ok(Format::JsonObject),
        "json_schema" => {
            let nested = object.object("json_schema")?;
            schema(nested.as_ref().unwrap_or(&object))
        }
        other => Err(kind
            .refused(format!("must be `text`, `json_object` or `json_schema`, found `{other}`"))),
    }
}

fn schema(object: &Object<'_>) -> Result<Format, Failure> {
    let node = object.require("schema")?;
    if !node.is_object() && !node.is_boolean() {
        return Err(node.wrong("an object"));
    }
    let name = object.string("name")?.unwrap_or_else(|| "answer".to_owned());
    Ok(Format::JsonSchema { name, schema: node.json()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::Json;

    fn format(text: &str) -> Result<Format, Failure> {
        let body = format!("{{\"response_format\":{text}}}");
        read(Object::root(&body).get("response_format").as_ref())
    }

    #[test]
    fn formats_of_all_apis() {
        let schema = |name: &str| Format::JsonSchema {
            name: name.to_owned(),
            schema: Json::parse(r#"{"b":1,"a":1.0}"#).unwrap(),
        };
        let check = |text: &str, expected: Format| assert_eq!(format(text).unwrap(), expected);
        check("null", Format::Text);
        check(r#"{"type":"text"}"#, Format::Text);
        check(r#"{"type":"json_object"}"#, Format::JsonObject);
        check(
            r#"{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"b":1,"a":1.0}}}"#,
            schema("n"),
        );
        check(r#"{"type":"json_schema","schema":{"b":1,"a":1.0}}"#, schema("answer"));
    }

    #[test]
    fn broken_formats_are_named() {
        let check = |text: &str, message: &str| {
            assert_eq!(format(text).unwrap_err().message, message);
        };
        check("\"json\"", "`response_format` must be an object, found a string");
        check(
            r#"{"type":"xml"}"#,
            "`response_format.type` must be `text`, `json_object` or `json_schema`, found `xml`",
        );
        check(
            r#"{"type":"json_schema","json_schema":{}}"#,
            "missing schema in `response_format.json_schema`",
        );
    }
}
