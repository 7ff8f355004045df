//! Regular expressions of schemas, which are those of ECMAScript, in the grammar language.

use llguidance::derivre::{RegexAst, RegexBuilder};
use llguidance::regex_to_lark;
use serde_json::Value;

/// An expression for any text.
pub(super) const ANY: &str = "/(?s:.*)/";

/// Classes of characters that both languages know, but ECMAScript only for ASCII.
const ASCII: &str = "dw";

/// Checks that a pattern can be enforced.
///
/// # Errors
/// Why not, in words.
pub(super) fn check(pattern: &str) -> Result<(), String> {
    if let Some(found) = foreign(pattern) {
        return Err(format!("`{found}` in a class means different things to different readers"));
    }
    let ast = RegexAst::SearchRegex(regex_to_lark(pattern, ASCII));
    let made = RegexBuilder::new().mk(&ast).map(|_| ());
    made.map_err(|error| error.to_string().lines().last().unwrap_or_default().to_owned())
}

/// What stands in a class and is a plain character to ECMAScript, but not here.
fn foreign(pattern: &str) -> Option<String> {
    let mut class: Option<String> = None;
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match (&mut class, c) {
            (Some(inside), '\\') => inside.extend([c].into_iter().chain(chars.next())),
            (None, '\\') => _ = chars.next(),
            (None, '[') => class = Some(String::new()),
            (None, _) => {}
            (Some(inside), ']') if inside.is_empty() || inside == "^" => return Some("]".into()),
            (Some(_), ']') => class = None,
            (Some(_), '[') => return Some("[".into()),
            (Some(inside), _) => {
                let doubled = inside.ends_with(c) && "&-~".contains(c);
                inside.push(c);
                if doubled {
                    return Some(format!("{c}{c}"));
                }
            }
        }
    }
    None
}

/// An expression for texts in which a checked pattern is found. Expressions match whole texts, so anchors are read here:
/// at the beginning and the end of the pattern's alternatives, where nearly all stand.
///
/// # Errors
/// Where an anchor stands elsewhere.
pub(super) fn search(pattern: &str) -> Result<String, String> {
    let mut alternatives = vec![Alternative::default()];
    let (mut depth, mut class, mut escaped) = (0_usize, false, false);
    for c in pattern.chars() {
        let is_plain = !escaped && !class;
        match c {
            '(' if is_plain => depth += 1,
            ')' if is_plain => depth = depth.saturating_sub(1),
            '[' if is_plain => class = true,
            ']' if !escaped => class = false,
            _ => {}
        }
        escaped = c == '\\' && !escaped;
        let current = alternatives.last_mut().expect("there is always one");
        match c {
            '|' if is_plain && depth == 0 => alternatives.push(Alternative::default()),
            '^' if is_plain && depth == 0 && current.body.is_empty() => current.begins = true,
            '$' if is_plain && depth == 0 => current.ends = true,
            '^' | '$' if is_plain => return Err(elsewhere(pattern)),
            _ if current.ends => return Err(elsewhere(pattern)),
            _ => current.body.push(c),
        }
    }
    let all: Vec<String> = alternatives.iter().map(Alternative::expression).collect();
    Ok(joined(&all, " | ", ANY))
}

fn elsewhere(pattern: &str) -> String {
    format!(
        "`pattern` `{pattern}` is not supported for a plain text: `^` and `$` can only stand at the ends of the pattern"
    )
}

/// One of the alternatives of a pattern.
#[derive(Debug, Default)]
struct Alternative {
    body: String,
    /// It begins where the text begins.
    begins: bool,
    /// It ends where the text ends.
    ends: bool,
}

impl Alternative {
    fn expression(&self) -> String {
        let before = if self.begins { "" } else { ANY };
        let behind = if self.ends { "" } else { ANY };
        format!("({before} /(?:{})/ {behind})", regex_to_lark(&self.body, ASCII))
    }
}

/// Several expressions as one; `empty` for none.
pub(super) fn joined(all: &[String], operator: &str, empty: &str) -> String {
    match all {
        [] => empty.to_owned(),
        [one] => one.clone(),
        _ => format!("({})", all.join(operator)),
    }
}

/// A text as a literal of the grammar language, which is that of JSON.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_read_at_the_ends_of_alternatives() {
        let check = |pattern: &str, expected: &str| {
            assert_eq!(search(pattern).unwrap().replace(ANY, "*"), expected, "{pattern}");
        };
        check("a", "(* /(?:a)/ *)");
        check("^a$", "( /(?:a)/ )");
        check("^$", "( /(?:)/ )");
        check("^a|b$", "(( /(?:a)/ *) | (* /(?:b)/ ))");
        check(r"^(a|b)/\d[|^$]\$$", r"( /(?:(a|b)\/[0-9][|^$]\$)/ )");
        for inner in ["(^a)", "a^", "a$b", "(a|b$)c"] {
            assert!(search(inner).unwrap_err().contains("ends of the pattern"), "{inner}");
        }
    }

    #[test]
    fn what_reads_differently_elsewhere_is_refused() {
        for pattern in ["[a[b]", "[]a]", "[^]]", "[a&&b]", "[+--]", "[[:alpha:]]"] {
            assert!(check(pattern).unwrap_err().contains("in a class"), "{pattern}");
        }
        for pattern in [r"[\[\]]", "[a-z&-]", r"\[--", "[-+]&&", r"[\\-]"] {
            check(pattern).unwrap();
        }
        for pattern in ["(?=a)", r"\bword", "(", "a**b{", r"(a)\1"] {
            assert!(check(pattern).is_err(), "{pattern}");
        }
    }
}
