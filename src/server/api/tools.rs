//! Tools of a request as the model is to see them, and which of them it may call (server.md 6.4).
//!
//! Name, description and parameters reach the prompt; whatever else clients attach to a tool does not, so that moving it
//! does not change the prompt.

use std::collections::BTreeSet;

use super::node::{Node, Object};
use crate::chat::{Json, Tool};
use crate::server::{Calls, Choice, Failure};

/// Most tools of a request: more than any context holds.
const TOOLS_MAX: usize = 4096;

/// Refuses more tools than [`TOOLS_MAX`]; `param` is the field that has them.
pub(super) fn check_count(param: &str, count: usize) -> Result<(), Failure> {
    if count <= TOOLS_MAX {
        return Ok(());
    }
    let message = format!("`{param}` has {count} tools, at most {TOOLS_MAX} are accepted");
    Err(Failure::invalid(param, message))
}

/// A function on offer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Function {
    /// Its name in the prompt.
    pub(super) name: String,
    /// What it does.
    pub(super) description: Option<String>,
    /// The schema of its arguments.
    pub(super) parameters: Option<Json>,
    /// Whether its arguments must obey the schema.
    pub(super) strict: bool,
}

impl Function {
    /// Reads a function: flat, or nested in `function`.
    pub(super) fn read(tool: &Object<'_>) -> Result<Self, Failure> {
        let nested = tool.object("function")?;
        let object = nested.as_ref().unwrap_or(tool);
        let parameters = object.first(&["parameters", "input_schema"]);
        if let Some(node) = parameters.as_ref().filter(|node| !node.is_object()) {
            return Err(node.wrong("an object"));
        }
        let strict = object.boolean("strict")?.or(tool.boolean("strict")?);
        Ok(Self {
            name: name(object)?,
            description: object.string("description")?,
            parameters: parameters.map(|node| node.json()).transpose()?,
            strict: strict.unwrap_or(false),
        })
    }

    /// As the template shows it.
    pub(super) fn tool(&self) -> Tool {
        let quoted = |text: &str| Json::string(text).text().to_owned();
        let description = self.description.as_ref();
        let description = description.map(|text| format!(r#","description":{}"#, quoted(text)));
        let parameters = self.parameters.as_ref();
        let parameters = parameters.map(|json| format!(r#","parameters":{}"#, json.text()));
        let text = format!(
            r#"{{"type":"function","function":{{"name":{}{}{}}}}}"#,
            quoted(&self.name),
            description.unwrap_or_default(),
            parameters.unwrap_or_default(),
        );
        Tool::parse(&text).expect("built from checked parts, at most two levels deeper")
    }
}

/// The name of a tool: something that can stand in a call's tag.
pub(super) fn name(object: &Object<'_>) -> Result<String, Failure> {
    let node = object.require("name")?;
    let name = node.string()?;
    if name.is_empty() {
        return Err(node.refused("must not be empty"));
    }
    if name.contains(|c: char| c.is_control() || matches!(c, '<' | '>')) {
        return Err(node.refused("must not have angle brackets or control characters"));
    }
    Ok(name)
}

/// The functions as the prompt has them.
pub(super) fn tools(functions: &[Function]) -> Vec<Tool> {
    functions.iter().map(Function::tool).collect()
}

/// Functions whose arguments must obey their schema.
fn strict(functions: &[Function]) -> BTreeSet<String> {
    functions.iter().filter(|f| f.strict).map(|f| f.name.clone()).collect()
}

/// Which calls the reply may have: `tool_choice` in any of its forms, and `parallel_tool_calls`. `known` gives the prompt's
/// name of a function that a client names.
pub(super) fn calls(
    request: &Object<'_>,
    functions: &[Function],
    known: impl Fn(&str) -> Option<String>,
) -> Result<Calls, Failure> {
    let mut parallel = request.boolean("parallel_tool_calls")?.unwrap_or(true);
    let mut choice = Choice::Auto;
    let mut allowed = None;
    if let Some(node) = request.get("tool_choice") {
        (choice, allowed) =
            if node.is_string() { (word(&node, &node)?, None) } else { object(&node, known)? };
        if node.is_object() && node.object()?.boolean("disable_parallel_tool_use")?.unwrap_or(false)
        {
            parallel = false;
        }
        if choice == Choice::Required && functions.is_empty() {
            return Err(node.refused("asks for a call, but the request has no tools"));
        }
    }
    Ok(Calls { choice, parallel, strict: strict(functions), allowed })
}

/// A choice without a name; `choice` is the whole of it, for refusals.
fn word(node: &Node<'_>, choice: &Node<'_>) -> Result<Choice, Failure> {
    match node.string()?.as_str() {
        "auto" => Ok(Choice::Auto),
        "none" => Ok(Choice::None),
        "required" | "any" => Ok(Choice::Required),
        other => Err(choice.refused(format!("`{other}` is not supported"))),
    }
}

/// A choice that is an object, and the functions that it leaves.
fn object(
    node: &Node<'_>,
    known: impl Fn(&str) -> Option<String>,
) -> Result<(Choice, Option<BTreeSet<String>>), Failure> {
    if !node.is_object() {
        return Err(node.wrong("a string or an object"));
    }
    let object = node.object()?;
    let kind = object.require("type")?;
    match kind.string()?.as_str() {
        "function" | "tool" | "custom" => Ok((Choice::Function(function(&object, known)?), None)),
        "allowed_tools" => allowed(node, &object, known),
        _ => Ok((word(&kind, node)?, None)),
    }
}

/// The function that a tool of a choice names.
fn function(tool: &Object<'_>, known: impl Fn(&str) -> Option<String>) -> Result<String, Failure> {
    let nested = tool.first(&["function", "custom"]).map(|inner| inner.object()).transpose()?;
    let inner = nested.as_ref().unwrap_or(tool);
    let name = inner.require("name")?;
    let wanted = name.string()?;
    let wanted = match inner.string("namespace")? {
        Some(namespace) => format!("{namespace}{wanted}"),
        None => wanted,
    };
    known(&wanted)
        .ok_or_else(|| name.refused(format!("names `{wanted}`, which is not among the tools")))
}

/// Some of the tools, flat or nested as each of the APIs has it. Tools of kinds that were left out are passed over; where
/// nothing is left no call may come.
fn allowed(
    choice: &Node<'_>,
    object: &Object<'_>,
    known: impl Fn(&str) -> Option<String>,
) -> Result<(Choice, Option<BTreeSet<String>>), Failure> {
    let nested = object.object("allowed_tools")?;
    let inner = nested.as_ref().unwrap_or(object);
    let mode = match inner.get("mode") {
        Some(mode) => match mode.string()?.as_str() {
            "auto" => Choice::Auto,
            "required" => Choice::Required,
            other => {
                return Err(mode.refused(format!("must be `auto` or `required`, found `{other}`")));
            }
        },
        None => Choice::Auto,
    };
    let mut names = BTreeSet::new();
    for node in inner.require("tools")?.items()? {
        let tool = node.object()?;
        let kind = tool.string("type")?.unwrap_or_else(|| "function".to_owned());
        if matches!(kind.as_str(), "function" | "custom") {
            names.insert(function(&tool, &known)?);
        } else {
            // Tools without a name of their own have that of their kind.
            names.extend(known(&kind));
        }
    }
    let choice = match (mode, names.len()) {
        (Choice::Required, 0) => {
            return Err(choice.refused("asks for a call, but names none of the tools"));
        }
        (_, 0) => Choice::None,
        (Choice::Required, 1) => names.first().cloned().map_or(Choice::Required, Choice::Function),
        (mode, _) => mode,
    };
    Ok((choice, Some(names)))
}

/// The name itself, where it is a function's.
pub(super) fn itself(functions: &[Function]) -> impl Fn(&str) -> Option<String> {
    |name: &str| functions.iter().any(|f| f.name == name).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::canonical;

    fn function(text: &str) -> Result<Function, Failure> {
        Function::read(&Object::root(text))
    }

    #[test]
    fn every_form_of_a_tool_gives_the_same_prompt() {
        let expected = r#"{"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": {"type": "object", "properties": {"b": {"maximum": 1e3}, "a": {}}}}}"#;
        let schema = r#"{"type":"object","properties":{"b":{"maximum":1e3},"a":{}}}"#;
        for text in [
            format!(
                r#"{{"type":"function","function":{{"name":"read","strict":true,"parameters":{schema},"description":"Reads."}}}}"#
            ),
            format!(
                r#"{{"type":"function","parameters":{schema},"strict":false,"description":"Reads.","name":"read"}}"#
            ),
            format!(
                r#"{{"name":"read","description":"Reads.","input_schema":{schema},"cache_control":{{"type":"ephemeral"}}}}"#
            ),
        ] {
            let tool = function(&text).unwrap().tool();
            assert_eq!(
                canonical::json(tool.json()),
                expected.replace("1e3", &canonical_number("1e3"))
            );
        }
    }

    fn canonical_number(text: &str) -> String {
        canonical::json(&Json::parse(text).unwrap())
    }

    #[test]
    fn absent_parts_stay_absent() {
        let tool =
            function(r#"{"name":"é\"x","description":null,"parameters":null}"#).unwrap().tool();
        assert_eq!(tool.json().text(), r#"{"type":"function","function":{"name":"é\"x"}}"#);
    }

    #[test]
    fn broken_tools_are_named() {
        let check = |text: &str, message: &str| {
            assert_eq!(function(text).unwrap_err().message, message);
        };
        check("{}", "missing name");
        check(r#"{"function":{"name":7}}"#, "`function.name` must be a string, found a number");
        check(r#"{"name":""}"#, "`name` must not be empty");
        check(r#"{"name":"a>b"}"#, "`name` must not have angle brackets or control characters");
        check(r#"{"name":"a","parameters":[]}"#, "`parameters` must be an object, found an array");
    }

    fn choice(text: &str) -> Result<Calls, Failure> {
        let functions = [function(r#"{"name":"read","strict":true}"#).unwrap()];
        calls(&Object::root(text), &functions, itself(&functions))
    }

    #[test]
    fn choices_of_all_apis() {
        let check = |text: &str, expected: Choice, parallel: bool| {
            let calls = choice(text).unwrap();
            assert_eq!((calls.choice, calls.parallel), (expected, parallel), "{text}");
            assert!(calls.strict.contains("read"));
        };
        let read = || Choice::Function("read".to_owned());
        check("{}", Choice::Auto, true);
        check(r#"{"tool_choice":"none","parallel_tool_calls":false}"#, Choice::None, false);
        check(r#"{"tool_choice":"required"}"#, Choice::Required, true);
        check(r#"{"tool_choice":{"type":"function","function":{"name":"read"}}}"#, read(), true);
        check(r#"{"tool_choice":{"type":"function","name":"read"}}"#, read(), true);
        check(
            r#"{"tool_choice":{"type":"tool","name":"read","disable_parallel_tool_use":true}}"#,
            read(),
            false,
        );
        check(r#"{"tool_choice":{"type":"any"}}"#, Choice::Required, true);
        check(
            r#"{"tool_choice":{"type":"auto","disable_parallel_tool_use":true}}"#,
            Choice::Auto,
            false,
        );
    }

    #[test]
    fn allowed_tools_are_some_of_them_in_the_form_of_each_api() {
        let functions = ["read", "write", "local_shell"]
            .map(|name| function(&format!("{{\"name\":\"{name}\"}}")).unwrap());
        let check = |tool_choice: &str, expected: Choice, names: &[&str]| {
            let body = format!("{{\"tool_choice\":{tool_choice}}}");
            let found = calls(&Object::root(&body), &functions, itself(&functions)).unwrap();
            let allowed = found.allowed.unwrap();
            assert_eq!(found.choice, expected, "{tool_choice}");
            assert!(allowed.iter().eq(names), "{allowed:?}");
        };
        check(
            r#"{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"read"}}]}}"#,
            Choice::Auto,
            &["read"],
        );
        check(
            r#"{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"write"},{"type":"local_shell"},{"type":"mcp","server_label":"x"}]}"#,
            Choice::Required,
            &["local_shell", "write"],
        );
        check(
            r#"{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"write"}]}"#,
            Choice::Function("write".to_owned()),
            &["write"],
        );
        check(r#"{"type":"allowed_tools","tools":[{"type":"web_search"}]}"#, Choice::None, &[]);
    }

    #[test]
    fn choices_that_cannot_be_kept_are_refused() {
        let check = |text: &str, message: &str| {
            assert_eq!(choice(text).unwrap_err().message, message);
        };
        check(
            r#"{"tool_choice":{"type":"tool","name":"write"}}"#,
            "`tool_choice.name` names `write`, which is not among the tools",
        );
        check(r#"{"tool_choice":"sometimes"}"#, "`tool_choice` `sometimes` is not supported");
        check(
            r#"{"tool_choice":{"type":"auto_tools"}}"#,
            "`tool_choice` `auto_tools` is not supported",
        );
        check(r#"{"tool_choice":{"type":"allowed_tools"}}"#, "missing tools in `tool_choice`");
        check(
            r#"{"tool_choice":{"type":"allowed_tools","mode":"none","tools":[]}}"#,
            "`tool_choice.mode` must be `auto` or `required`, found `none`",
        );
        check(
            r#"{"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"mcp"}]}}"#,
            "`tool_choice` asks for a call, but names none of the tools",
        );
        check(
            r#"{"tool_choice":{"type":"allowed_tools","tools":[{"type":"function","name":"write"}]}}"#,
            "`tool_choice.tools[0].name` names `write`, which is not among the tools",
        );
        check(
            r#"{"tool_choice":5}"#,
            "`tool_choice` must be a string or an object, found a number",
        );
        let failure = calls(&Object::root(r#"{"tool_choice":"any"}"#), &[], |_| None).unwrap_err();
        assert!(failure.message.contains("no tools"), "{}", failure.message);
    }
}
