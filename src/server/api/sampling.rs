//! How tokens are drawn, how many of them, and what ends them (server.md 4.1, 4.2, 4.5).

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::node::{Node, Object};
use crate::engine::sample::TOP_K_MAX;
use crate::server::{Failure, LogitBias, Penalty, Sampling};
use crate::tokenizer::TokenId;

/// Most stop texts of a request.
const STOPS_MAX: usize = 16;
/// Longest of them, in bytes.
const STOP_MAX_BYTES: usize = 256;
/// Most likely tokens that are reported.
const TOP_LOGPROBS_MAX: i128 = 20;

/// The knobs of a request whose model has `vocab` tokens. Knobs that are left out stay open.
pub(super) fn read(request: &Object<'_>, vocab: usize) -> Result<Sampling, Failure> {
    alone(request, "n")?;
    alone(request, "best_of")?;
    let top_p = number(request, "top_p", 0.0..=f64::MAX, "0 or more")?;
    let repetition = number(
        request,
        "repetition_penalty",
        f64::MIN_POSITIVE..=100.0,
        "above 0 and at most 100",
    )?;
    let penalty =
        |name| Ok(number(request, name, -100.0..=100.0, "from -100 to 100")?.unwrap_or_default());
    Ok(Sampling {
        temperature: number(request, "temperature", 0.0..=100.0, "from 0 to 100")?,
        // 0 and everything above 1 cut nothing.
        top_p: top_p.map(|p| if p == 0.0 || p > 1.0 { 1.0 } else { p }),
        top_k: top_k(request)?,
        min_p: number(request, "min_p", 0.0..=1.0, "from 0 to 1")?,
        seed: seed(request)?,
        penalties: Penalty {
            presence: penalty("presence_penalty")?,
            frequency: penalty("frequency_penalty")?,
            repetition: repetition.unwrap_or(1.0),
        },
        bias: bias(request, vocab)?,
    })
}

/// Several answers to one request are not made.
fn alone(request: &Object<'_>, name: &str) -> Result<(), Failure> {
    let Some(node) = request.get(name) else { return Ok(()) };
    match node.integer()? {
        1 => Ok(()),
        other => Err(node.refused(format!("must be 1, found {other}: one answer to a request"))),
    }
}

/// A number in `range`, which is `expected` in words.
fn number(
    request: &Object<'_>,
    name: &str,
    range: RangeInclusive<f64>,
    expected: &str,
) -> Result<Option<f32>, Failure> {
    let Some(node) = request.get(name) else { return Ok(None) };
    let number = node.number()?;
    if range.contains(&number) {
        return Ok(Some(single(number)));
    }
    Err(node.refused(format!("must be {expected}, found {}", node.text())))
}

/// As f32; a positive number stays one.
#[expect(clippy::cast_possible_truncation, reason = "knobs need no more digits")]
fn single(number: f64) -> f32 {
    let narrow = (number as f32).min(f32::MAX);
    if number > 0.0 { narrow.max(f32::MIN_POSITIVE) } else { narrow }
}

/// Negative numbers, which some clients send for "all", are 0.
fn top_k(request: &Object<'_>) -> Result<Option<usize>, Failure> {
    let Some(node) = request.get("top_k") else { return Ok(None) };
    let wanted = node.integer()?.max(0);
    Ok(Some(usize::try_from(wanted).map_or(TOP_K_MAX, |k| k.min(TOP_K_MAX))))
}

/// 0 and less ask for a random one.
fn seed(request: &Object<'_>) -> Result<Option<u64>, Failure> {
    let Some(node) = request.get("seed") else { return Ok(None) };
    let seed = node.integer()?;
    if seed <= 0 {
        return Ok(None);
    }
    let most = u64::MAX;
    let seed = u64::try_from(seed)
        .map_err(|_| node.refused(format!("must be at most {most}, found {seed}")))?;
    Ok(Some(seed))
}

fn bias(request: &Object<'_>, vocab: usize) -> Result<LogitBias, Failure> {
    let Some(object) = request.object("logit_bias")? else { return Ok(LogitBias::new()) };
    let mut bias = BTreeMap::new();
    for (name, node) in object.iter() {
        let id = name.parse().ok().filter(|&id: &u32| usize::try_from(id).is_ok_and(|i| i < vocab));
        let id =
            id.ok_or_else(|| node.refused(format!("is not a token: ids are below {vocab}")))?;
        let addend = node.number()?;
        if !(-100.0..=100.0).contains(&addend) {
            return Err(node.refused(format!("must be from -100 to 100, found {}", node.text())));
        }
        bias.insert(TokenId(id), single(addend));
    }
    Ok(bias.into_iter().collect())
}

/// The most tokens of the reply: the first of `names` that is there. Negative numbers are the server's default.
pub(super) fn limit(request: &Object<'_>, names: &[&str]) -> Result<Option<usize>, Failure> {
    let Some(node) = request.first(names) else { return Ok(None) };
    let limit = node.integer()?;
    if limit < 0 {
        return Ok(None);
    }
    Ok(Some(usize::try_from(limit).unwrap_or(usize::MAX)))
}

/// The texts that end the answer, from `stop` and `stop_sequences`.
pub(super) fn stops(request: &Object<'_>) -> Result<Vec<String>, Failure> {
    let mut stops = Vec::new();
    for name in ["stop", "stop_sequences"] {
        let Some(node) = request.get(name) else { continue };
        let candidates = if node.is_array() {
            node.items()?
        } else if node.is_string() {
            vec![node.clone()]
        } else {
            return Err(node.wrong("a string or an array of strings"));
        };
        for candidate in candidates {
            let Some(text) = candidate.as_str().filter(|text| !text.is_empty()) else { continue };
            if text.len() > STOP_MAX_BYTES {
                let bytes = text.len();
                return Err(candidate
                    .refused(format!("has {bytes} bytes, at most {STOP_MAX_BYTES} are accepted")));
            }
            stops.push(text);
        }
        if stops.len() > STOPS_MAX {
            let count = stops.len();
            return Err(
                node.refused(format!("has {count} texts, at most {STOPS_MAX} are accepted"))
            );
        }
    }
    Ok(stops)
}

/// How many likely tokens are to be reported beside each, where the number is `node`.
pub(super) fn top_logprobs(node: &Node<'_>) -> Result<u8, Failure> {
    let count = node.integer()?;
    if !(0..=TOP_LOGPROBS_MAX).contains(&count) {
        return Err(node.refused(format!("must be from 0 to {TOP_LOGPROBS_MAX}, found {count}")));
    }
    Ok(u8::try_from(count).expect("checked above"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling(text: &str) -> Result<Sampling, Failure> {
        read(&Object::root(text), 1000)
    }

    #[test]
    fn absent_and_null_knobs_stay_open() {
        assert_eq!(sampling("{}").unwrap(), Sampling::default());
        let nulls = r#"{"temperature":null,"top_p":null,"top_k":null,"min_p":null,"seed":null,"n":null,
            "presence_penalty":null,"logit_bias":null,"repetition_penalty":null}"#;
        assert_eq!(sampling(nulls).unwrap(), Sampling::default());
        assert_eq!(limit(&Object::root(r#"{"max_tokens":null}"#), &["max_tokens"]).unwrap(), None);
        assert!(stops(&Object::root(r#"{"stop":null}"#)).unwrap().is_empty());
    }

    #[test]
    fn values_at_the_edges() {
        let top_p = |text: &str| sampling(&format!("{{\"top_p\":{text}}}")).unwrap().top_p;
        assert_eq!([top_p("0"), top_p("1.5"), top_p("0.25")], [Some(1.0), Some(1.0), Some(0.25)]);
        assert!(top_p("1e-300").unwrap() > 0.0);
        let top_k = |text: &str| sampling(&format!("{{\"top_k\":{text}}}")).unwrap().top_k;
        assert_eq!(
            [top_k("-1"), top_k("40"), top_k("99999999999999999999")],
            [Some(0), Some(40), Some(1024)]
        );
        let seed = |text: &str| sampling(&format!("{{\"seed\":{text}}}")).unwrap().seed;
        assert_eq!(
            [seed("0"), seed("-5"), seed("18446744073709551615")],
            [None, None, Some(u64::MAX)]
        );
        let limit = |text: &str| {
            let text = format!("{{\"m\":{text}}}");
            super::limit(&Object::root(&text), &["x", "m"]).unwrap()
        };
        assert_eq!([limit("0"), limit("-1"), limit("5.0")], [Some(0), None, Some(5)]);
        let bias = sampling(r#"{"logit_bias":{"999":1,"5":-100,"999":2}}"#).unwrap().bias;
        assert_eq!(bias, [(TokenId(5), -100.0), (TokenId(999), 2.0)]);
    }

    #[test]
    fn values_beyond_them_are_refused_by_name() {
        let check = |text: &str, message: &str| {
            assert_eq!(sampling(text).unwrap_err().message, message);
        };
        check(r#"{"temperature":-0.1}"#, "`temperature` must be from 0 to 100, found -0.1");
        check(r#"{"temperature":1e999}"#, "`temperature` must be a finite number, found 1e999");
        check(r#"{"temperature":"hot"}"#, "`temperature` must be a number, found a string");
        check(r#"{"top_p":-1}"#, "`top_p` must be 0 or more, found -1");
        check(r#"{"min_p":1.5}"#, "`min_p` must be from 0 to 1, found 1.5");
        check(r#"{"seed":1.5}"#, "`seed` must be an integer, found 1.5");
        check(r#"{"seed":true}"#, "`seed` must be an integer, found a boolean");
        check(r#"{"n":2}"#, "`n` must be 1, found 2: one answer to a request");
        check(
            r#"{"repetition_penalty":0}"#,
            "`repetition_penalty` must be above 0 and at most 100, found 0",
        );
        check(
            r#"{"logit_bias":{"1000":1}}"#,
            "`logit_bias.1000` is not a token: ids are below 1000",
        );
        check(r#"{"logit_bias":{"a":1}}"#, "`logit_bias.a` is not a token: ids are below 1000");
        check(r#"{"logit_bias":[]}"#, "`logit_bias` must be an object, found an array");
    }

    #[test]
    fn stop_texts() {
        let read = |text: &str| stops(&Object::root(text));
        assert_eq!(read(r#"{"stop":"a"}"#).unwrap(), ["a"]);
        assert_eq!(
            read(r#"{"stop":["b","",7,null,"a"],"stop_sequences":["c"]}"#).unwrap(),
            ["b", "a", "c"]
        );
        let many = format!("{{\"stop\":[{}\"x\"]}}", "\"x\",".repeat(16));
        assert_eq!(
            read(&many).unwrap_err().message,
            "`stop` has 17 texts, at most 16 are accepted"
        );
        let long = format!("{{\"stop\":[\"{}\"]}}", "x".repeat(257));
        assert_eq!(
            read(&long).unwrap_err().message,
            "`stop[0]` has 257 bytes, at most 256 are accepted"
        );
        assert!(read(r#"{"stop":5}"#).is_err());
    }
}
