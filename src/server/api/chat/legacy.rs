//! The older form of tools, which some clients still speak: `functions` and `function_call` in place of `tools`,
//! `tool_choice` and `tool_calls`. One call at a time, without an id.

use super::super::history;
use super::super::node::Object;
use super::super::tools::{self, Function};
use crate::chat::ToolCall;
use crate::server::{Choice, Failure};

/// Whether a request speaks the older form. One that has `tools` does not, whatever else it has.
pub(super) fn is_spoken(request: &Object<'_>) -> bool {
    request.get("tools").is_none() && request.get("functions").is_some()
}

/// The functions on offer.
pub(super) fn functions(request: &Object<'_>) -> Result<Vec<Function>, Failure> {
    request.items("functions")?.iter().map(|node| Function::read(&node.object()?)).collect()
}

/// Which calls there may be; the model decides where nothing is said.
pub(super) fn choice(request: &Object<'_>, functions: &[Function]) -> Result<Choice, Failure> {
    let Some(node) = request.get("function_call") else { return Ok(Choice::Auto) };
    if node.is_string() {
        return match node.string()?.as_str() {
            "auto" => Ok(Choice::Auto),
            "none" => Ok(Choice::None),
            other => {
                Err(node.refused(format!("must be `auto`, `none` or a name, found `{other}`")))
            }
        };
    }
    if !node.is_object() {
        return Err(node.wrong("a string or an object"));
    }
    let name = node.object()?.require("name")?;
    let wanted = name.string()?;
    match functions.iter().find(|function| function.name == wanted) {
        Some(function) => Ok(Choice::Function(function.name.clone())),
        None => Err(name.refused(format!("names `{wanted}`, which is not among the functions"))),
    }
}

/// The call of a message of the assistant's.
pub(super) fn call(message: &Object<'_>) -> Result<Option<ToolCall>, Failure> {
    let Some(function) = message.object("function_call")? else { return Ok(None) };
    let arguments = history::arguments(function.get("arguments").as_ref());
    Ok(Some(history::call(None, tools::name(&function)?, arguments)))
}
