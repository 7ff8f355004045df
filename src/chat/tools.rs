//! What the tools of a request declare: parameter names and types, read once from their schemas.
//!
//! Model output is text; a schema decides whether `02134` is a number or a postal code. Schemas come from strangers and
//! are read leniently: what is not understood makes a parameter untyped, never an error.

use std::cell::Cell;
use std::collections::BTreeSet;

use serde_json::Value;

use super::{Arguments, Json, Tool, convert};

/// The JSON types a parameter may have. Empty when the schema does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ParamType(u8);

impl ParamType {
    /// Text.
    pub const STRING: Self = Self(1);
    /// Whole numbers.
    pub const INTEGER: Self = Self(2);
    /// Numbers.
    pub const NUMBER: Self = Self(4);
    /// `true` and `false`.
    pub const BOOLEAN: Self = Self(8);
    /// Lists.
    pub const ARRAY: Self = Self(16);
    /// Objects.
    pub const OBJECT: Self = Self(32);
    /// `null`.
    pub const NULL: Self = Self(64);
    /// Nothing is known.
    pub const ANY: Self = Self(0);

    /// True when one of the types of `other` is among these.
    pub fn allows(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Both.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True when every value becomes a JSON string whatever it says, so that it can be passed on while it arrives.
    pub fn is_text(self) -> bool {
        self == Self::STRING
    }

    fn named(name: &str) -> Self {
        match name {
            "string" => Self::STRING,
            "integer" => Self::INTEGER,
            "number" => Self::NUMBER,
            "boolean" => Self::BOOLEAN,
            "array" => Self::ARRAY,
            "object" => Self::OBJECT,
            "null" => Self::NULL,
            _ => Self::ANY,
        }
    }

    fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Number(n) if n.is_f64() => Self::NUMBER,
            Value::Number(_) => Self::INTEGER,
            Value::String(_) => Self::STRING,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }

    /// Types of alternatives; untyped as soon as one of them is.
    fn union(types: impl Iterator<Item = Self>) -> Self {
        let mut all = Self::ANY;
        for ty in types {
            if ty == Self::ANY {
                return Self::ANY;
            }
            all = all.or(ty);
        }
        all
    }
}

/// A parameter of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// What it may be.
    pub ty: ParamType,
    /// Whether a call must give it.
    pub required: bool,
}

impl Tool {
    /// The name of the function it offers, and the schema of its arguments; `null` without one.
    pub fn declaration(&self) -> Option<(String, Value)> {
        let root: Value = serde_json::from_str(self.json().text()).ok()?;
        let function = root.get("function").filter(|f| f.is_object()).unwrap_or(&root);
        let name = function.get("name")?.as_str()?.to_owned();
        let schema = function.get("parameters").or_else(|| function.get("input_schema"));
        Some((name, schema.cloned().unwrap_or_default()))
    }
}

/// A function a tool offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its parameters, in the order of the schema.
    pub params: Vec<Param>,
}

impl Function {
    /// The parameter of this name.
    pub fn param(&self, name: &str) -> Option<&Param> {
        self.params.iter().find(|param| param.name == name)
    }

    fn from_tool(tool: &Tool) -> Option<Self> {
        let (name, schema) = tool.declaration()?;
        Some(Self { name, params: params(&schema) })
    }
}

/// The functions of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Toolset {
    functions: Vec<Function>,
}

impl Toolset {
    /// Reads the schemas of `tools`. Of two functions with the same name the first counts.
    pub fn new(tools: &[Tool]) -> Self {
        let mut functions: Vec<Function> = Vec::new();
        for function in tools.iter().filter_map(Function::from_tool) {
            if functions.iter().all(|known| known.name != function.name) {
                functions.push(function);
            }
        }
        Self { functions }
    }

    /// Only the functions of these names.
    #[must_use]
    pub fn only(mut self, names: &BTreeSet<String>) -> Self {
        self.functions.retain(|function| names.contains(&function.name));
        self
    }

    /// All functions, in the order of the request.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The function of this name.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.name == name)
    }

    /// What a parameter may be; [`ParamType::ANY`] for unknown ones.
    pub fn param_type(&self, function: &str, param: &str) -> ParamType {
        self.function(function).and_then(|f| f.param(param)).map_or(ParamType::ANY, |p| p.ty)
    }

    /// Arguments from the texts of a call, converted by type (server.md 11.4). A repeated name keeps its place and takes
    /// the last text. A whole object given as the only parameter `arguments` is unpacked, unless the function has a
    /// parameter of that name.
    pub fn arguments(&self, function: &str, texts: &[(String, String)]) -> Arguments {
        let known = |name: &str| self.function(function).is_some_and(|f| f.param(name).is_some());
        if let [(name, text)] = texts
            && name == "arguments"
            && !known(name)
            && let Ok(unpacked) = Arguments::parse(text)
        {
            return unpacked;
        }
        let mut arguments = Arguments::default();
        for (name, text) in texts {
            arguments.set(name, convert::value(text, self.param_type(function, name)));
        }
        arguments
    }

    /// Brings arguments into the order of the schema, unknown ones last: how a call is rendered when the model's own
    /// spelling of it is lost (server.md 11.7).
    pub fn order(&self, function: &str, arguments: &mut Arguments) {
        if let Some(function) = self.function(function) {
            let names: Vec<&str> = function.params.iter().map(|p| p.name.as_str()).collect();
            arguments.order_by(&names);
        }
    }
}

/// Arguments as a client sent them: an object, a string with one, or something else, which becomes the one parameter
/// `input`.
pub fn arguments_or_input(text: &str) -> Arguments {
    Arguments::parse(text).unwrap_or_else(|_| {
        let mut arguments = Arguments::default();
        arguments.set("input", Json::string(text));
        arguments
    })
}

fn params(schema: &Value) -> Vec<Param> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Vec::new();
    };
    let required = schema.get("required").and_then(Value::as_array);
    let is_required =
        |name: &str| required.is_some_and(|list| list.iter().any(|r| r.as_str() == Some(name)));
    let param = |(name, property): (&String, &Value)| Param {
        name: name.clone(),
        ty: Types { root: schema, looks: Cell::new(MAX_LOOKS) }.of(property, MAX_SCHEMA_DEPTH),
        required: is_required(name),
    };
    properties.iter().map(param).collect()
}

/// How many references and alternatives are followed.
const MAX_SCHEMA_DEPTH: usize = 8;

/// Most looks at parts of one parameter's schema: alternatives that refer to alternatives would take for ever.
const MAX_LOOKS: usize = 20_000;

/// What schemas allow; references start at `root`.
struct Types<'a> {
    root: &'a Value,
    looks: Cell<usize>,
}

impl Types<'_> {
    /// The types that a schema allows; untyped where it is too deep or refers to too much.
    fn of(&self, schema: &Value, depth: usize) -> ParamType {
        let looks = self.looks.get();
        if depth == 0 || looks == 0 {
            return ParamType::ANY;
        }
        self.looks.set(looks - 1);
        let inner = |schema: &Value| self.of(schema, depth - 1);
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let target = reference.strip_prefix('#').and_then(|path| self.root.pointer(path));
            return target.map_or(ParamType::ANY, inner);
        }
        let list = |key: &str| schema.get(key).and_then(Value::as_array);
        let ty = match schema.get("type") {
            Some(Value::String(name)) => ParamType::named(name),
            Some(Value::Array(names)) => {
                ParamType::union(names.iter().filter_map(Value::as_str).map(ParamType::named))
            }
            _ => {
                if let Some(values) = list("enum") {
                    ParamType::union(values.iter().map(ParamType::of))
                } else if let Some(value) = schema.get("const") {
                    ParamType::of(value)
                } else if let Some(choices) = list("anyOf").or_else(|| list("oneOf")) {
                    ParamType::union(choices.iter().map(inner))
                } else if let Some(parts) = list("allOf") {
                    let known = parts.iter().map(inner).find(|ty| *ty != ParamType::ANY);
                    known.unwrap_or_default()
                } else if schema.get("properties").is_some() {
                    ParamType::OBJECT
                } else if schema.get("items").is_some() {
                    ParamType::ARRAY
                } else {
                    ParamType::ANY
                }
            }
        };
        let nullable = schema.get("nullable").and_then(Value::as_bool) == Some(true);
        if nullable && ty != ParamType::ANY { ty.or(ParamType::NULL) } else { ty }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(property: &str, expected: ParamType) {
        let schema = format!(
            r##"{{"type": "object", "$defs": {{"S": {{"type": "string"}}, "L": {{"$ref": "#/$defs/L"}}}},
                "properties": {{"p": {property}}}}}"##
        );
        let wrapped = format!(
            r#"{{"type": "function", "function": {{"name": "f", "parameters": {schema}}}}}"#
        );
        let bare = format!(r#"{{"name": "f", "input_schema": {schema}}}"#);
        for text in [wrapped, bare] {
            let tools = Toolset::new(&[Tool::parse(&text).unwrap()]);
            assert_eq!(tools.param_type("f", "p"), expected, "{property}");
            assert_eq!(tools.param_type("f", "q"), ParamType::ANY);
            assert_eq!(tools.param_type("g", "p"), ParamType::ANY);
        }
    }

    #[test]
    fn schemas_name_types() {
        let (text, whole) = (ParamType::STRING, ParamType::INTEGER);
        check(r#"{"type": "string", "enum": ["a"]}"#, text);
        check(r#"{"enum": ["a", "b"]}"#, text);
        check(r#"{"enum": ["a", 1]}"#, text.or(whole));
        check(r#"{"const": 1.5}"#, ParamType::NUMBER);
        check(r#"{"type": ["integer", "null"]}"#, whole.or(ParamType::NULL));
        check(r#"{"type": "integer", "nullable": true}"#, whole.or(ParamType::NULL));
        check(r#"{"anyOf": [{"type": "string"}, {"type": "array"}]}"#, text.or(ParamType::ARRAY));
        check(r#"{"oneOf": [{"type": "string"}, {}]}"#, ParamType::ANY);
        check(r#"{"allOf": [{}, {"type": "boolean"}]}"#, ParamType::BOOLEAN);
        check(r##"{"$ref": "#/$defs/S"}"##, text);
        check(r##"{"$ref": "#/$defs/L"}"##, ParamType::ANY);
        check(r#"{"properties": {}}"#, ParamType::OBJECT);
        check(r#"{"items": {}}"#, ParamType::ARRAY);
        check("{}", ParamType::ANY);
        check("true", ParamType::ANY);
        check("7", ParamType::ANY);
        check(r#"{"type": "date"}"#, ParamType::ANY);
    }

    #[test]
    fn alternatives_of_alternatives_end_soon() {
        let choice = |n: usize| format!(r##"{{"$ref": "#/$defs/d{n}"}}"##);
        let level = |n: usize| {
            let choices = vec![choice(n + 1); 200].join(", ");
            format!(r#""d{n}": {{"anyOf": [{choices}]}}"#)
        };
        let levels: Vec<String> = (0..4).map(level).collect();
        let text = format!(
            r#"{{"name": "f", "parameters": {{"properties": {{"p": {}}}, "$defs": {{{}, "d4": {{"type": "string"}}}}}}}}"#,
            choice(0),
            levels.join(", "),
        );
        let tools = Toolset::new(&[Tool::parse(&text).unwrap()]);
        assert_eq!(tools.param_type("f", "p"), ParamType::ANY);
    }

    #[test]
    fn odd_tools_are_passed_over() {
        let tools: Vec<Tool> = [
            "{}",
            r#"{"function": {"name": 3}}"#,
            r#"{"name": "f"}"#,
            r#"{"name": "f", "parameters": {"properties": {"x": {}}}}"#,
        ]
        .iter()
        .map(|text| Tool::parse(text).unwrap())
        .collect();
        let tools = Toolset::new(&tools);
        assert_eq!(tools.functions().len(), 1);
        assert!(tools.function("f").unwrap().params.is_empty());
    }

    #[test]
    fn a_single_argument_object_is_unpacked() {
        let tools = Toolset::default();
        let text = |name: &str, text: &str| vec![(name.to_owned(), text.to_owned())];
        let unpacked = tools.arguments("f", &text("arguments", r#"{"a": 1}"#));
        assert_eq!(unpacked, Arguments::parse(r#"{"a": 1}"#).unwrap());
        let kept = tools.arguments("f", &text("arguments", "[1]"));
        assert_eq!(kept, Arguments::parse(r#"{"arguments": [1]}"#).unwrap());
    }

    #[test]
    fn arguments_take_the_order_of_the_schema() {
        let tool = r#"{"name": "f", "parameters": {"properties": {"b": {}, "a": {}}}}"#;
        let tools = Toolset::new(&[Tool::parse(tool).unwrap()]);
        let mut arguments = Arguments::parse(r#"{"z": 1, "a": 2, "y": 3, "b": 4}"#).unwrap();
        tools.order("f", &mut arguments);
        let names: Vec<&str> = arguments.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["b", "a", "z", "y"]);
        assert_eq!(arguments_or_input("oops").get("input").unwrap().text(), "\"oops\"");
    }
}
