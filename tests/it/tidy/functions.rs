//! How long functions may be, in every language of the tree.

use super::mask::{closing, find_word, is_word, mask};
use super::tree::{Kind, Source, Violation, line_of};

/// Comfortable is up to 60.
const FUNCTION_LINES: usize = 100;

pub(super) fn check(file: &Source) -> Vec<Violation> {
    let spans = match file.kind {
        Kind::Rust => rust_functions(&file.text),
        Kind::Glsl => glsl_functions(&file.text),
        Kind::Shell => shell_functions(&file.text),
        Kind::Python | Kind::Markdown | Kind::Config => Vec::new(),
    };
    let too_long = |span: &&Span| span.lines() > FUNCTION_LINES;
    spans.iter().filter(too_long).map(|span| span.violation(file)).collect()
}

/// First and last line of a function, signature and closing brace included.
#[derive(Debug, PartialEq, Eq)]
struct Span {
    name: String,
    first: usize,
    last: usize,
}

impl Span {
    fn lines(&self) -> usize {
        self.last - self.first + 1
    }

    fn violation(&self, file: &Source) -> Violation {
        let lines = self.lines();
        let what = format!("function `{}` has {lines} lines, at most {FUNCTION_LINES}", self.name);
        file.violation(self.first, what)
    }
}

fn word_at(text: &str, start: usize) -> String {
    text[start..].bytes().take_while(|&b| is_word(b)).map(char::from).collect()
}

fn rust_functions(text: &str) -> Vec<Span> {
    let masked = mask(text);
    let mut spans = Vec::new();
    for at in find_word(&masked, "fn") {
        let name = word_at(&masked, at + 3);
        // A function pointer type has no name.
        let Some(open) = body(&masked, at).filter(|_| !name.is_empty()) else { continue };
        let Some(close) = closing(&masked, open) else { continue };
        spans.push(Span { name, first: line_of(&masked, at), last: line_of(&masked, close) });
    }
    spans
}

/// The brace that opens the body of the signature at `at`; `None` for a declaration.
fn body(masked: &str, at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (offset, byte) in masked.bytes().enumerate().skip(at) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.checked_sub(1)?,
            b'{' if depth == 0 => return Some(offset),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// A body is a block at the outermost level that follows a parameter list.
fn glsl_functions(text: &str) -> Vec<Span> {
    let masked = mask(text);
    let mut spans = Vec::new();
    let mut next = 0;
    while let Some(open) = masked[next..].find('{').map(|at| next + at) {
        let Some(close) = closing(&masked, open) else { break };
        let head = masked[next..open].trim_end();
        if let Some(signature) = head.strip_suffix(')').and_then(|h| h.rsplit_once('(')) {
            let name =
                signature.0.trim_end().rsplit(|c: char| !c.is_alphanumeric() && c != '_').next();
            let first = line_of(&masked, next + signature.0.trim_end().len());
            let name = name.unwrap_or_default().to_string();
            spans.push(Span { name, first, last: line_of(&masked, close) });
        }
        next = close + 1;
    }
    spans
}

/// `name() {` up to a closing brace in the first column, or on the same line.
fn shell_functions(text: &str) -> Vec<Span> {
    let lines: Vec<&str> = text.lines().collect();
    let mut spans = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some((name, rest)) = line.split_once("() ") else { continue };
        if !name.bytes().all(is_word) || !rest.starts_with(['{', '(']) || rest.ends_with(['}', ')'])
        {
            continue;
        }
        let end = lines[index..].iter().position(|l| *l == "}" || *l == ")");
        let last = end.map_or(lines.len(), |length| index + length + 1);
        spans.push(Span { name: name.to_string(), first: index + 1, last });
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(spans: &[Span]) -> Vec<(&str, usize, usize)> {
        spans.iter().map(|s| (&*s.name, s.first, s.last)).collect()
    }

    #[test]
    fn rust_functions_are_measured() {
        let text =
            "trait T { fn a(&self) -> [u8; 4]; }\nfn b(f: fn(u8) -> u8)\nwhere\n{\n  \"}\";\n}\n";
        assert_eq!(spans(&rust_functions(text)), [("b", 2, 6)]);
        let text = "impl S {\n  fn c() {\n    fn d() {}\n  }\n}\n";
        assert_eq!(spans(&rust_functions(text)), [("c", 2, 4), ("d", 3, 3)]);
    }

    #[test]
    fn shader_functions_are_measured() {
        let text = "layout(x) in;\nstruct S { int a; };\nbuffer B { int b[]; };\nfloat f(int a)\n{\n  if (a) { }\n}\nvoid main() {\n}\n";
        assert_eq!(spans(&glsl_functions(text)), [("f", 4, 7), ("main", 8, 9)]);
    }

    #[test]
    fn shell_functions_are_measured() {
        let text = "a() { echo; }\nb() {\n    if x; then\n    fi\n}\nb\n";
        assert_eq!(spans(&shell_functions(text)), [("b", 2, 5)]);
    }

    #[test]
    fn long_functions_are_found() {
        let long = |lines: usize| "x;\n".repeat(lines - 2);
        for (path, head) in
            [("a.rs", "fn f() {\n"), ("a.comp", "void f() {\n"), ("a.sh", "f() {\n")]
        {
            let source = |lines| Source::new(path, format!("\n{head}{}}}\n", long(lines))).unwrap();
            assert_eq!(check(&source(100)), []);
            let found = check(&source(101));
            assert_eq!((found.len(), found[0].line), (1, 2), "{path}");
            assert!(found[0].what.contains("`f` has 101 lines"), "{}", found[0].what);
        }
    }
}
