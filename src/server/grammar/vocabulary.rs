//! The vocabulary as `llguidance` reads it.

use std::sync::Arc;

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokRxInfo, TokTrie};
use llguidance::{JsonCompileOptions, Matcher, ParserFactory};
use serde_json::{Value, json};

use super::Constraint;
use super::pattern::quoted;
use super::schema::{self, Checked};
use crate::chat::Json;
use crate::server::{Failure, FailureKind, Format};
use crate::tokenizer::{TokenId, Tokenizer};

/// White space between two tokens of JSON: none, a space, or a line break and its indentation. The grammar could allow
/// any amount of it, but then a model that is at a loss would write nothing else.
const WHITE_SPACE: &str = r"\x20|\r?\n(?:\x20{0,32}|\t{0,8})";

/// Parts of the vocabulary whose masks are kept ready: white space, and most of what a text between tags and a string of
/// JSON may hold.
const SLICES: [&str; 4] = [
    r"[\x20\x0A\x0D\x09]+",
    r#"[^<"\\\x00-\x1F\x7F]{1,30}"#,
    r#"[^"\\\x00-\x1F\x7F]{1,30}"#,
    r#"[^"\\\x00-\x1F\x7F]+"#,
];

/// What building the automaton for one mask may cost, in units of about 0.1 microseconds. Texts with limits on their
/// length need ten times the usual.
const STEP_FUEL: u64 = 2_000_000;

/// Most places of a grammar at which a text may be at a time: more than any schema has properties or alternatives.
const MAX_PLACES: usize = 10_000;

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
            factory.limits_mut().step_lexer_fuel = STEP_FUEL;
            factory.limits_mut().max_items_in_row = MAX_PLACES;
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

    /// A value between the line breaks around it: JSON by a schema that was checked, or a text by an expression for the
    /// whole of it, or either. Both must not begin with the same character.
    pub(super) fn value(
        &self,
        json: Option<Checked>,
        text: Option<&str>,
    ) -> Result<Constraint, String> {
        let end = quoted(VALUE_END);
        let ways = [json.as_ref().map(|_| "json"), text.map(|_| "TEXT")];
        let ways: Vec<&str> = ways.into_iter().flatten().collect();
        let mut rules = vec![format!("start: \"\\n\" ({})", ways.join(" | "))];
        rules.extend(json.as_ref().map(|_| format!("json: @value {end}")));
        // A text is one with its end, which nothing in it can be taken for: else it would have no end.
        rules.extend(text.map(|text| format!("TEXT: ({text}) {end}")));
        let mut grammar = TopLevelGrammar::from_lark(rules.join("\n"));
        let one_of = json.as_ref().and_then(|json| json.one_of.clone());
        if let Some(Checked { mut schema, .. }) = json {
            json_options().apply_to(&mut schema);
            let mut value = GrammarWithLexer::from_json_schema(schema);
            value.name = Some("value".to_owned());
            grammar.grammars.push(value);
        }
        let made =
            self.build(grammar).map_err(|error| schema::explain(&error, one_of.as_deref()))?;
        self.begins(made.clone())?;
        Ok(made)
    }

    /// Checks that something may stand in a value.
    fn begins(&self, mut value: Constraint) -> Result<(), String> {
        let line_break = self.factory.tok_env().tokenize("\n").into_iter().map(TokenId);
        let begins = value.accept_all(&line_break.collect::<Vec<_>>());
        match value.mask() {
            Ok(mask) if begins && !mask.is_empty() => Ok(()),
            Ok(_) => Err("nothing satisfies the schema".to_owned()),
            Err(failure) => Err(failure.message),
        }
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
