//! A call's arguments as JSON, while the model writes them as tags.
//!
//! Texts of parameters that are declared as strings go out as they come, everything else when it is complete: only then
//! is it known what it is. What went out joined is exactly the final JSON, so the arguments are read from that.

use crate::chat::{Arguments, Json, ParamType, Toolset, canonical, convert};

/// The open call of a reply. Every method returns the piece of JSON that became certain.
#[derive(Debug, Clone)]
pub(super) struct CallJson {
    function: String,
    json: String,
    param: Option<Param>,
    /// A text in place of all parameters, as long as nothing follows it.
    object: Option<String>,
}

#[derive(Debug, Clone, Copy)]
enum Param {
    /// Its text goes out as it comes.
    Text,
    /// Its value goes out when it is complete.
    Value(ParamType),
    /// It may be a whole object in place of parameters.
    All,
}

impl CallJson {
    /// For a call of this function.
    pub(super) fn new(function: &str) -> Self {
        Self { function: function.to_owned(), json: String::new(), param: None, object: None }
    }

    /// Everything that went out.
    pub(super) fn json(&self) -> &str {
        &self.json
    }

    /// A parameter begins.
    pub(super) fn begin(&mut self, name: &str, tools: &Toolset) -> String {
        let before = self.json.len();
        self.pass_object();
        let known = tools.function(&self.function).is_some_and(|f| f.param(name).is_some());
        if name == "arguments" && !known && self.json.is_empty() {
            self.param = Some(Param::All);
            return String::new();
        }
        self.name(name);
        let ty = tools.param_type(&self.function, name);
        self.param = Some(if ty.is_text() { Param::Text } else { Param::Value(ty) });
        if ty.is_text() {
            self.json.push('"');
        }
        self.json[before..].to_owned()
    }

    /// A piece of its text.
    pub(super) fn text(&mut self, text: &str) -> String {
        if !matches!(self.param, Some(Param::Text)) {
            return String::new();
        }
        let quoted = Json::string(text);
        let inner = &quoted.text()[1..quoted.text().len() - 1];
        self.json.push_str(inner);
        inner.to_owned()
    }

    /// It is complete; `value` is its whole text.
    pub(super) fn end(&mut self, value: &str) -> String {
        let before = self.json.len();
        match self.param.take() {
            Some(Param::Text) => self.json.push('"'),
            Some(Param::Value(ty)) => self.json.push_str(convert::value(value, ty).text()),
            Some(Param::All) => self.object = Some(value.to_owned()),
            None => {}
        }
        self.json[before..].to_owned()
    }

    /// The call is complete: the last piece, and its arguments.
    pub(super) fn finish(&mut self) -> (String, Arguments) {
        let before = self.json.len();
        let whole = self.object.as_deref().and_then(|text| Json::parse(text).ok());
        let whole = whole.map(|json| json.as_str().map_or(Ok(json), |text| Json::parse(&text)));
        if let Some(Ok(object)) = whole.filter(|json| json.as_ref().is_ok_and(Json::is_object)) {
            self.object = None;
            self.json.push_str(&canonical::minified(&object));
        } else {
            self.pass_object();
            self.json.push_str(if self.json.is_empty() { "{}" } else { "}" });
        }
        let arguments = Arguments::parse(&self.json).expect("built from names and JSON values");
        (self.json[before..].to_owned(), arguments)
    }

    /// What was complete of the arguments when the reply was cut off.
    pub(super) fn cut(&self) -> Arguments {
        // The longest beginning that a brace completes.
        let commas = self.json.char_indices().rev().filter(|(_, c)| *c == ',').map(|(at, _)| at);
        let close = |at: usize| Arguments::parse(&format!("{}}}", &self.json[..at])).ok();
        std::iter::once(self.json.len()).chain(commas).find_map(close).unwrap_or_default()
    }

    /// What was to stand for all parameters was one of them.
    fn pass_object(&mut self) {
        if let Some(text) = self.object.take() {
            self.name("arguments");
            self.json.push_str(convert::value(&text, ParamType::ANY).text());
        }
    }

    fn name(&mut self, name: &str) {
        self.json.push(if self.json.is_empty() { '{' } else { ',' });
        self.json.push_str(Json::string(name).text());
        self.json.push(':');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::Tool;

    fn tools() -> Toolset {
        let schema = r#"{"name": "f", "parameters": {"properties": {"s": {"type": "string"},
            "i": {"type": "integer"}, "l": {"type": "array"}, "n": {"type": ["string", "null"]}}}}"#;
        Toolset::new(&[Tool::parse(schema).unwrap()])
    }

    /// Parameters as their texts come in pieces; the pieces that went out and the arguments.
    fn check(params: &[(&str, &[&str])], expected: &[&str]) {
        let mut call = CallJson::new("f");
        let mut pieces = Vec::new();
        for (name, texts) in params {
            pieces.push(call.begin(name, &tools()));
            pieces.extend(texts.iter().map(|text| call.text(text)));
            pieces.push(call.end(&texts.concat()));
        }
        let (last, arguments) = call.finish();
        pieces.push(last);
        assert_eq!(pieces.concat(), call.json());
        pieces.retain(|piece| !piece.is_empty());
        assert_eq!(pieces, expected);
        let texts: Vec<_> =
            params.iter().map(|(name, texts)| ((*name).to_owned(), texts.concat())).collect();
        assert_eq!(arguments, tools().arguments("f", &texts), "as the parser reads it");
    }

    #[test]
    fn texts_stream_and_values_wait() {
        check(&[], &["{}"]);
        check(&[("s", &["a\"", "b\n"])], &["{\"s\":\"", "a\\\"", "b\\n", "\"", "}"]);
        check(
            &[("i", &["1", "2"]), ("l", &["['a',", "]"]), ("s", &[])],
            &["{\"i\":", "12", ",\"l\":", "[\"a\"]", ",\"s\":\"", "\"", "}"],
        );
        check(&[("n", &["null"])], &["{\"n\":", "null", "}"]);
        check(&[("n", &["nil"])], &["{\"n\":", "\"nil\"", "}"]);
        check(&[("unknown \"é\"", &["7"])], &["{\"unknown \\\"é\\\"\":", "7", "}"]);
    }

    #[test]
    fn an_object_in_place_of_parameters_is_unpacked() {
        check(&[("arguments", &["{\"s\": ", "1}"])], &["{\"s\":1}"]);
        check(&[("arguments", &["\"{}\""])], &["{}"]);
        check(&[("arguments", &["[1]"])], &["{\"arguments\":[1]}"]);
        check(&[("arguments", &["{}"]), ("i", &["5"])], &["{\"arguments\":{},\"i\":", "5", "}"]);
    }

    #[test]
    fn of_a_cut_call_the_complete_arguments_are_known() {
        let mut call = CallJson::new("f");
        assert!(call.cut().is_empty());
        call.begin("i", &tools());
        call.end("5");
        assert_eq!(call.cut().len(), 1);
        call.begin("s", &tools());
        call.text("a,b, c");
        assert_eq!(call.cut(), Arguments::parse("{\"i\": 5}").unwrap());
        call.end("a,b, c");
        assert_eq!(call.cut().len(), 2);
        assert_eq!(call.json(), "{\"i\":5,\"s\":\"a,b, c\"");
    }
}
