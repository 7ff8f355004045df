//! Masks over the published vocabulary: against the grammar read byte by byte, and against what a JSON parser and the
//! schema say of the texts that they lead to.

mod hostile;
mod schema;
mod texts;
mod values;
mod walk;

use std::sync::LazyLock;

use q36::chat::Json;
use q36::server::grammar::{Constraint, Grammar};
use q36::server::{Failure, Format};
use serde_json::Value;

use crate::tokenizer::published;

/// Read once for all tests.
fn grammar() -> &'static Grammar {
    static GRAMMAR: LazyLock<Grammar> = LazyLock::new(|| Grammar::new(published()).unwrap());
    &GRAMMAR
}

fn by_schema(schema: &str) -> Result<Constraint, Failure> {
    let schema = Json::parse(schema).unwrap();
    let made = grammar().constraint(&Format::JsonSchema { name: "answer".into(), schema });
    made.map(|constraint| constraint.expect("a schema constrains"))
}

fn any_object() -> Constraint {
    grammar().constraint(&Format::JsonObject).unwrap().expect("an object constrains")
}

/// What others say of values by a schema, formats included.
fn validator(schema: &Value) -> jsonschema::Validator {
    jsonschema::options().should_validate_formats(true).build(schema).unwrap()
}
