//! The many ways of clients to say whether and how long to think (server.md 5.1).

use super::models::{ALIAS_NO_THINK, ALIAS_THINK};
use super::node::{Node, Object};
use crate::server::{Effort, Failure, Thinking};

/// Reads every control that any client is known to send. An explicit on or off beats an effort, which beats the
/// model's name.
pub(super) fn read(request: &Object<'_>, model: &str) -> Result<Thinking, Failure> {
    let template = request.object("chat_template_kwargs")?;
    let (switch, budget) = switch(request, template.as_ref())?;
    let effort = effort(request)?;
    let preserve =
        match template.map(|template| template.boolean("preserve_thinking")).transpose()? {
            Some(Some(preserve)) => Some(preserve),
            Some(None) | None => request.boolean("preserve_thinking")?,
        };
    let named = effort.map(|effort| effort != Named::None);
    let on = switch.or(named).or_else(|| alias(model));
    let effort = match effort {
        Some(Named::Effort(effort)) if on != Some(false) => Some(effort),
        Some(Named::None | Named::Effort(_)) | None => None,
    };
    Ok(Thinking { on, effort, budget, preserve })
}

/// The explicit switch, and the budget that came with it.
fn switch(
    request: &Object<'_>,
    template: Option<&Object<'_>>,
) -> Result<(Option<bool>, Option<usize>), Failure> {
    let (thinking, budget) = match request.get("thinking") {
        Some(node) => typed(&node)?,
        None => (None, None),
    };
    let reasoning = request.object("reasoning")?;
    let of = |object: Option<&Object<'_>>, name: &str| match object {
        Some(object) => object.boolean(name),
        None => Ok(None),
    };
    let others = [
        request.boolean("think")?,
        request.boolean("enable_thinking")?,
        of(template, "enable_thinking")?,
        of(reasoning.as_ref(), "enabled")?,
    ];
    Ok((thinking.or_else(|| others.into_iter().flatten().next()), budget))
}

/// `thinking`: a boolean, or an object with a type.
fn typed(node: &Node<'_>) -> Result<(Option<bool>, Option<usize>), Failure> {
    if node.is_boolean() {
        return Ok((Some(node.boolean()?), None));
    }
    if !node.is_object() {
        return Err(node.wrong("an object or a boolean"));
    }
    let object = node.object()?;
    let kind = object.require("type")?;
    match kind.string()?.as_str() {
        "enabled" => {
            let Some(budget) = object.get("budget_tokens") else { return Ok((Some(true), None)) };
            let tokens = budget.integer()?;
            if tokens < 0 {
                let found = budget.text();
                return Err(budget.refused(format!("must not be negative, found {found}")));
            }
            Ok((Some(true), Some(usize::try_from(tokens).unwrap_or(usize::MAX))))
        }
        "adaptive" => Ok((Some(true), None)),
        "disabled" => Ok((Some(false), None)),
        other => {
            Err(kind
                .refused(format!("must be `enabled`, `adaptive` or `disabled`, found `{other}`")))
        }
    }
}

/// An effort by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    /// No thought at all.
    None,
    Effort(Effort),
}

/// The effort that was named.
fn effort(request: &Object<'_>) -> Result<Option<Named>, Failure> {
    let inside = |name: &str| Ok(request.object(name)?.and_then(|object| object.get("effort")));
    let places = [request.get("reasoning_effort"), inside("reasoning")?, inside("output_config")?];
    let Some(node) = places.into_iter().flatten().next() else { return Ok(None) };
    let effort = match node.string()?.as_str() {
        "none" => Named::None,
        "minimal" => Named::Effort(Effort::Minimal),
        "low" => Named::Effort(Effort::Low),
        "medium" => Named::Effort(Effort::Medium),
        "high" => Named::Effort(Effort::High),
        "xhigh" => Named::Effort(Effort::XHigh),
        "max" => Named::Effort(Effort::Max),
        other => {
            return Err(node.refused(format!(
                "must be `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`, found `{other}`"
            )));
        }
    };
    Ok(Some(effort))
}

/// What the model's name says.
fn alias(model: &str) -> Option<bool> {
    match model {
        ALIAS_THINK => Some(true),
        ALIAS_NO_THINK => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thinking(text: &str) -> Result<Thinking, Failure> {
        let request = Object::root(text);
        let model = request.string("model")?.unwrap_or_default();
        read(&request, &model)
    }

    #[test]
    fn every_control_is_understood_and_the_explicit_one_wins() {
        let check =
            |text: &str, on: Option<bool>, effort: Option<Effort>, budget: Option<usize>| {
                let found = thinking(text).unwrap();
                assert_eq!((found.on, found.effort, found.budget), (on, effort, budget), "{text}");
            };
        let (yes, no) = (Some(true), Some(false));
        check("{}", None, None, None);
        check(r#"{"thinking":{"type":"enabled","budget_tokens":2000}}"#, yes, None, Some(2000));
        let endless = r#"{"thinking":{"type":"enabled","budget_tokens":99999999999999999999}}"#;
        check(endless, yes, None, Some(usize::MAX));
        check(r#"{"thinking":{"type":"adaptive"}}"#, yes, None, None);
        check(r#"{"thinking":{"type":"disabled"},"think":true}"#, no, None, None);
        check(r#"{"thinking":true}"#, yes, None, None);
        check(r#"{"think":false}"#, no, None, None);
        check(r#"{"enable_thinking":false}"#, no, None, None);
        check(r#"{"chat_template_kwargs":{"enable_thinking":true}}"#, yes, None, None);
        check(r#"{"reasoning":{"enabled":false}}"#, no, None, None);
        check(r#"{"reasoning":{"effort":"high"}}"#, yes, Some(Effort::High), None);
        check(
            r#"{"reasoning":null,"reasoning_effort":"minimal"}"#,
            yes,
            Some(Effort::Minimal),
            None,
        );
        check(r#"{"output_config":{"effort":"max"}}"#, yes, Some(Effort::Max), None);
        check(r#"{"reasoning_effort":"none"}"#, no, None, None);
        check(r#"{"reasoning_effort":"none","think":true}"#, yes, None, None);
        check(r#"{"reasoning_effort":"low","think":false}"#, no, None, None);
        check(r#"{"model":"qwen3.6-35b-a3b-nothink"}"#, no, None, None);
        check(r#"{"model":"qwen3.6-35b-a3b-think"}"#, yes, None, None);
        check(
            r#"{"model":"qwen3.6-35b-a3b-nothink","reasoning_effort":"low"}"#,
            yes,
            Some(Effort::Low),
            None,
        );
    }

    #[test]
    fn thoughts_of_older_turns_can_be_kept() {
        let text = r#"{"chat_template_kwargs":{"preserve_thinking":true}}"#;
        assert_eq!(thinking(text).unwrap().preserve, Some(true));
        assert_eq!(thinking(r#"{"preserve_thinking":true}"#).unwrap().preserve, Some(true));
        assert_eq!(thinking("{}").unwrap().preserve, None);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let check = |text: &str, message: &str| {
            assert_eq!(thinking(text).unwrap_err().message, message);
        };
        check(
            r#"{"reasoning_effort":"huge"}"#,
            "`reasoning_effort` must be `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`, found `huge`",
        );
        check(
            r#"{"reasoning":{"effort":3}}"#,
            "`reasoning.effort` must be a string, found a number",
        );
        check(r#"{"thinking":"yes"}"#, "`thinking` must be an object or a boolean, found a string");
        check(
            r#"{"thinking":{"type":"on"}}"#,
            "`thinking.type` must be `enabled`, `adaptive` or `disabled`, found `on`",
        );
        check(r#"{"thinking":{}}"#, "missing type in `thinking`");
        check(
            r#"{"thinking":{"type":"enabled","budget_tokens":-1}}"#,
            "`thinking.budget_tokens` must not be negative, found -1",
        );
    }
}
