//! Masks over the published vocabulary: against the grammar read byte by byte, and against what a JSON parser and the
//! schema say of the texts that they lead to.

mod schema;
mod texts;
mod values;

use std::sync::LazyLock;

use q36::chat::Json;
use q36::server::grammar::{Constraint, Grammar};
use q36::server::{Failure, Format};

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
