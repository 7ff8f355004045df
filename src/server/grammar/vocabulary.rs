//! The vocabulary as `llguidance` reads it.

use std::sync::Arc;

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokRxInfo, TokTrie};
use llguidance::{JsonCompileOptions, Matcher, ParserFactory};
use serde_json::{Value, json};

use super::Constraint;
use super::schema;
use crate::chat::Json;
use crate::server::{Failure, FailureKind, Format};
use crate::tokenizer::{TokenId, Tokenizer};

/// White space between two tokens of JSON: none, a space, or a line break and its indentation. The grammar could allow
/// any amount of it, but then a model that is at a loss would write nothing else.
const WHITE_SPACE: &str = r"\x20|\r?\n(?:\x20{0,32}|\t{0,8})";

/// Parts of the vocabulary whose masks are kept ready: most of what a string of JSON may hold, and white space.
const SLICES: [&str; 3] =
    [r"[\x20\x0A\x0D\x09]+", r#"[^"\\\x00-\x1F\x7F]{1,30}"#, r#"[^"\\\x00-\x1F\x7F]+"#];

/// What closes the value of a parameter.
const VALUE_END: &str = "\n</parameter>";

/// The stack that grammars are built on; only what is used of it is ever there.
const STACK_BYTES: usize = 64 << 20;

/// Makes constraints for one vocabulary.
pub struct Grammar {
    factory: ParserFactory,
    rows: usize,
}

impl Grammar {
    /// Reads a vocabulary, which takes a good part of a second for the published one.
    ///
    /// # Errors
    /// [`FailureKind::Engine`] when its trie cannot be made.
    pub fn new(tokenizer: &Tokenizer) -> Result<Self, Failure> {
        let broken = |text: String| {
            let text = format!("the vocabulary cannot be used for structured output: {text}");
            Failure::new(FailureKind::Engine, text)
        };
        let rows = tokenizer.vocab_size();
        let end = tokenizer.special().im_end;
        let len = u32::try_from(rows).map_err(|error| broken(error.to_string()))?;
        let ids = (0..len).map(TokenId);
        // Rows without bytes are in no branch of the trie.
        let is_text =
            |id: TokenId| tokenizer.drawable().contains(id) && !tokenizer.kind(id).is_added();
        let words: Vec<Vec<u8>> = ids
            .map(|id| if is_text(id) { tokenizer.bytes(id).to_vec() } else { Vec::new() })
            .collect();
        let made = guarded(|| {
            let trie = TokTrie::from(&TokRxInfo::new(len, end.0), &words);
            let env: llguidance::toktrie::TokEnv = Arc::new(ApproximateTokEnv::new(trie));
            let slices = SLICES.map(str::to_owned);
            let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)
                .map_err(|error| error.to_string())?;
            factory.quiet();
            // Errors reach clients: they need no dump of the grammar.
            factory.limits_mut().verbose_errors = false;
            Ok(factory)
        });
        Ok(Self { factory: made.map_err(broken)?, rows })
    }

    /// What holds a text to a format; `None` where anything goes. Takes as long as the schema is large: not for the
    /// engine's thread.
    ///
    /// # Errors
    /// [`FailureKind::Invalid`] that names the keyword of a schema which cannot be enforced, and where it stands.
    pub fn constraint(&self, format: &Format) -> Result<Option<Constraint>, Failure> {
        match format {
            Format::Text => Ok(None),
            Format::JsonObject => self.json(json!({"type": "object"})).map(Some),
            Format::JsonSchema { schema, .. } => self.schema(schema).map(Some),
        }
        .map_err(|text| Failure::new(FailureKind::Invalid, text))
    }

    fn schema(&self, schema: &Json) -> Result<Constraint, String> {
        let checked = schema::read(schema)?;
        let one_of = checked.one_of;
        self.json(checked.schema).map_err(|error| schema::explain(&error, one_of.as_deref()))
    }

    /// A constraint by a schema that was checked: an object.
    fn json(&self, mut schema: Value) -> Result<Constraint, String> {
        json_options().apply_to(&mut schema);
        self.build(TopLevelGrammar::from_json_schema(schema))
    }

    /// The value of a parameter that is written as JSON, between the line breaks around it, by a schema of any kind.
    pub(super) fn json_value(&self, schema: &Json) -> Result<Constraint, String> {
        let checked = schema::read(schema)?;
        let one_of = checked.one_of;
        let mut schema = checked.schema;
        json_options().apply_to(&mut schema);
        let around = format!("start: \"\\n\" @value {}", quoted(VALUE_END));
        let mut grammar = TopLevelGrammar::from_lark(around);
        let mut value = GrammarWithLexer::from_json_schema(schema);
        value.name = Some("value".to_owned());
        grammar.grammars.push(value);
        self.build(grammar).map_err(|error| schema::explain(&error, one_of.as_deref()))
    }

    /// The value of a parameter that is one of these texts, between the line breaks around it.
    pub(super) fn texts(&self, texts: &[String]) -> Result<Constraint, String> {
        let whole: Vec<String> =
            texts.iter().map(|text| quoted(&format!("\n{text}{VALUE_END}"))).collect();
        if whole.is_empty() {
            return Err("nothing is among its values".to_owned());
        }
        let grammar = format!("start: VALUE\nVALUE: {}", whole.join(" | "));
        self.build(TopLevelGrammar::from_lark(grammar))
    }

    /// A constraint by any grammar, at whose end the end of the turn may be drawn.
    fn build(&self, grammar: TopLevelGrammar) -> Result<Constraint, String> {
        let made = guarded(|| {
            let parser = self.factory.create_parser(grammar).map_err(|error| error.to_string())?;
            Ok(Matcher::new(Ok(parser)))
        });
        Ok(Constraint::new(made?, self.rows))
    }
}

/// How JSON is written.
fn json_options() -> JsonCompileOptions {
    JsonCompileOptions {
        whitespace_pattern: Some(WHITE_SPACE.to_owned()),
        // Half of a surrogate pair is no text: only whole ones may be escaped.
        json_allow_general_unicode_escapes: true,
        ..JsonCompileOptions::default()
    }
}

/// A text as a literal of the grammar language, which is that of JSON.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

impl std::fmt::Debug for Grammar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grammar").field("rows", &self.rows).finish_non_exhaustive()
    }
}

/// Runs code of others on input of strangers: where it panics, that is an error like any other. It works recursively on
/// schemas whose depth and size are limited, with a stack that holds the largest.
fn guarded<T: Send>(work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
        let spawned = builder.spawn_scoped(scope, work).map_err(|error| error.to_string())?;
        spawned.join().unwrap_or_else(|_| Err("the grammar could not be built".to_owned()))
    })
}
