//! Kinds of tools in the responses API (server.md 9.2).
//!
//! To the model all of them are functions. A client gets back the kind of item that it offered a tool of.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use super::super::content::Contents;
use super::super::node::{Node, Object};
use super::super::tools::{self, Function};
use crate::chat::Json;
use crate::server::Failure;

/// What a call of a function is to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A function of a namespace.
    Namespaced {
        /// The namespace.
        namespace: String,
        /// The function's name in it.
        name: String,
    },
    /// A tool that takes plain text.
    Custom,
    /// The search among the client's own tools.
    ToolSearch,
    /// The client's shell.
    LocalShell,
}

/// Kinds by the functions' names in the prompt; what is not here is a plain function.
pub(crate) type Kinds = BTreeMap<String, Kind>;

/// The tools of a request.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    /// As the model sees them.
    pub(crate) functions: Vec<Function>,
    /// What they are to the client.
    pub(crate) kinds: Kinds,
    names: HashSet<String>,
}

const SEARCH_NAME: &str = "tool_search";
const SHELL_NAME: &str = "local_shell";

const SEARCH_PARAMETERS: &str = r#"{"type":"object","properties":{"query":{"type":"string","description":"What the tools should be able to do."},"limit":{"type":"integer","description":"The most tools to find."}},"required":["query"]}"#;
const SHELL_PARAMETERS: &str = r#"{"type":"object","properties":{"command":{"type":"array","items":{"type":"string"},"description":"The program and its arguments."},"workdir":{"type":"string","description":"Where to run it."},"timeout_ms":{"type":"integer","description":"After how many milliseconds to stop it."}},"required":["command"]}"#;

/// The name that a function of a namespace has in the prompt.
pub(crate) fn flat(namespace: &str, name: &str) -> String {
    format!("{namespace}{name}")
}

impl Offer {
    /// Adds a list of tools. Those that only the API's inventor could run are left out.
    pub(crate) fn add(
        &mut self,
        nodes: &[Node<'_>],
        contents: &mut Contents,
    ) -> Result<(), Failure> {
        for node in nodes {
            let tool = node.object()?;
            match tool.string("type")?.as_deref() {
                None | Some("function") => self.push(Function::read(&tool)?, None),
                Some("custom") => self.push(custom(&tool)?, Some(Kind::Custom)),
                Some("namespace") => self.namespace(&tool, contents)?,
                Some("tool_search") => {
                    let function = built_in(&tool, SEARCH_NAME, SEARCH_PARAMETERS)?;
                    self.push(function, Some(Kind::ToolSearch));
                }
                Some("local_shell") => {
                    let function = built_in(&tool, SHELL_NAME, SHELL_PARAMETERS)?;
                    self.push(function, Some(Kind::LocalShell));
                }
                Some(kind) => contents.warn(format!("a tool of type `{kind}` is left out")),
            }
        }
        tools::check_count("tools", self.functions.len())
    }

    /// The prompt's name of a function that a client calls `name`: with its namespace, or without where that is clear.
    pub(crate) fn known(&self, name: &str) -> Option<String> {
        if self.names.contains(name) {
            return Some(name.to_owned());
        }
        let bare =
            |kind: &Kind| matches!(kind, Kind::Namespaced { name: bare, .. } if bare == name);
        let mut found = self.kinds.iter().filter(|(_, kind)| bare(kind));
        match (found.next(), found.next()) {
            (Some((flat, _)), None) => Some(flat.clone()),
            _ => None,
        }
    }

    /// Adds a function. One that is on offer already, as a search may find it, stays as it is.
    fn push(&mut self, function: Function, kind: Option<Kind>) {
        if !self.names.insert(function.name.clone()) {
            return;
        }
        if let Some(kind) = kind {
            self.kinds.insert(function.name.clone(), kind);
        }
        self.functions.push(function);
    }

    fn namespace(&mut self, tool: &Object<'_>, contents: &mut Contents) -> Result<(), Failure> {
        let namespace = tools::name(tool)?;
        for node in tool.items("tools")? {
            let member = node.object()?;
            let mut function = match member.string("type")?.as_deref() {
                None | Some("function") => Function::read(&member)?,
                Some(kind) => {
                    contents.warn(format!("a tool of type `{kind}` in a namespace is left out"));
                    continue;
                }
            };
            let name = function.name.clone();
            function.name = flat(&namespace, &name);
            let kind = Kind::Namespaced { namespace: namespace.clone(), name };
            self.push(function, Some(kind));
        }
        Ok(())
    }
}

/// A tool whose form is known; a client may describe it in its own words.
fn built_in(tool: &Object<'_>, name: &str, parameters: &str) -> Result<Function, Failure> {
    let own = tool.get("parameters").filter(Node::is_object);
    let parameters = match own {
        Some(node) => node.json()?,
        None => Json::parse(parameters).expect("a constant that tests read"),
    };
    let description = tool.string("description")?.unwrap_or_else(|| match name {
        SHELL_NAME => "Runs a program on the user's machine.".to_owned(),
        _ => "Finds more tools.".to_owned(),
    });
    Ok(Function {
        name: name.to_owned(),
        description: Some(description),
        parameters: Some(parameters),
        strict: false,
    })
}

/// A tool that takes text, with its grammar in words.
fn custom(tool: &Object<'_>) -> Result<Function, Failure> {
    let mut about = "The whole input, as plain text and not as JSON.".to_owned();
    if let Some(format) = tool.object("format")?
        && let Some(definition) = format.string("definition")?
    {
        let syntax = format.string("syntax")?.unwrap_or_else(|| "grammar".to_owned());
        write!(about, " It obeys this {syntax} definition:\n{definition}")
            .expect("writing to a string cannot fail");
    }
    let about = Json::string(&about);
    let parameters = format!(
        r#"{{"type":"object","properties":{{"input":{{"type":"string","description":{}}}}},"required":["input"]}}"#,
        about.text()
    );
    Ok(Function {
        name: tools::name(tool)?,
        description: tool.string("description")?,
        parameters: Some(Json::parse(&parameters).expect("built from checked parts")),
        strict: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(tools: &str) -> Result<(Offer, Vec<String>), Failure> {
        let body = format!("{{\"tools\":{tools}}}");
        let mut contents = Contents::new(false);
        let mut offer = Offer::default();
        offer.add(&Object::root(&body).items("tools")?, &mut contents)?;
        Ok((offer, contents.warnings()))
    }

    #[test]
    fn every_kind_becomes_a_function() {
        let (offer, warnings) = offer(
            r#"[{"type":"function","name":"read","parameters":{}},
                {"type":"function","function":{"name":"nested"}},
                {"type":"custom","name":"apply_patch","description":"Patches.","format":{"type":"grammar","syntax":"lark","definition":"start: x"}},
                {"type":"namespace","name":"mcp__a__","tools":[{"type":"function","name":"find"},{"type":"custom","name":"x"}]},
                {"type":"tool_search","description":"Find.","parameters":{"type":"object"}},
                {"type":"local_shell"},
                {"type":"web_search"},{"type":"web_search"},{"type":"mcp"}]"#,
        )
        .unwrap();
        let names: Vec<&str> = offer.functions.iter().map(|f| &*f.name).collect();
        assert_eq!(
            names,
            ["read", "nested", "apply_patch", "mcp__a__find", "tool_search", "local_shell"]
        );
        let patch = offer.functions[2].parameters.as_ref().unwrap().text();
        assert!(patch.contains("lark definition:\\nstart: x"), "{patch}");
        assert_eq!(offer.functions[4].parameters.as_ref().unwrap().text(), r#"{"type":"object"}"#);
        assert_eq!(
            offer.kinds["mcp__a__find"],
            Kind::Namespaced { namespace: "mcp__a__".to_owned(), name: "find".to_owned() }
        );
        assert_eq!(offer.kinds["apply_patch"], Kind::Custom);
        assert_eq!(
            warnings,
            [
                "a tool of type `custom` in a namespace is left out",
                "a tool of type `web_search` is left out",
                "a tool of type `mcp` is left out"
            ]
        );
        assert_eq!(offer.known("find").as_deref(), Some("mcp__a__find"));
        assert_eq!(offer.known("mcp__a__find").as_deref(), Some("mcp__a__find"));
        assert_eq!(offer.known("other"), None);
    }

    #[test]
    fn a_bare_name_in_two_namespaces_names_none() {
        let (offer, _) = offer(
            r#"[{"type":"namespace","name":"a_","tools":[{"name":"x"}]},{"type":"namespace","name":"b_","tools":[{"name":"x"}]}]"#,
        )
        .unwrap();
        assert_eq!(offer.known("x"), None);
    }

    #[test]
    fn what_is_found_again_is_on_offer_once() {
        let (offer, _) = offer(
            r#"[{"name":"x","description":"first"},{"type":"custom","name":"x"},{"name":"x"}]"#,
        )
        .unwrap();
        assert_eq!(offer.functions.len(), 1);
        assert_eq!(offer.functions[0].description.as_deref(), Some("first"));
        assert!(offer.kinds.is_empty());
    }
}
