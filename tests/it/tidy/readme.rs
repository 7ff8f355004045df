//! The pages for users show command lines that parse and flags that exist.

use std::collections::BTreeSet;
use std::ffi::OsString;

use super::tree::{Source, Violation};

/// Command lines of `q36` in the shell blocks of a page that its own parser refuses.
pub(super) fn check_commands(file: &Source) -> Vec<Violation> {
    let mut found = Vec::new();
    for (line, args) in commands(&file.text) {
        let args = std::iter::once("q36".to_string()).chain(args).map(OsString::from);
        if let Err(q36::cli::Stop::Usage(error)) = q36::cli::parse(args) {
            found.push(file.violation(line, format!("this command line does not parse: {error}")));
        }
    }
    found
}

/// Long flags in the code of a page that neither the program nor `others` (help texts of the
/// scripts) know.
pub(super) fn check_flags(file: &Source, others: &[&str]) -> Vec<Violation> {
    let mut known = program_flags();
    known.extend(others.iter().flat_map(|text| flags(text)));
    let mut found = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for flag in flags(line).filter(|flag| !known.contains(flag)) {
            found.push(file.violation(index + 1, format!("no such flag: {flag}")));
        }
    }
    found
}

/// Every long flag of the program and its commands.
fn program_flags() -> BTreeSet<String> {
    let root = q36::cli::command();
    let commands = std::iter::once(&root).chain(root.get_subcommands());
    let longs = commands.flat_map(clap::Command::get_arguments).filter_map(clap::Arg::get_long);
    longs.chain(["help"]).map(|name| format!("--{name}")).collect()
}

/// The `--words` of a text.
fn flags(text: &str) -> impl Iterator<Item = String> {
    let in_flag = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let words = text.split(move |c: char| !in_flag(c));
    let named = |word: &&str| {
        word.strip_prefix("--")
            .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
    };
    words.filter(named).map(str::to_string)
}

/// (line, arguments) of each call of `q36` in the shell blocks of a page.
fn commands(text: &str) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    let mut in_shell = false;
    for (index, line) in text.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            in_shell = matches!(language, "sh" | "console");
        } else if in_shell {
            found.extend(calls(line).into_iter().map(|args| (index + 1, args)));
        }
    }
    found
}

/// The arguments of each part of a pipeline that runs q36.
fn calls(line: &str) -> Vec<Vec<String>> {
    let words = shell_words(line.trim_start().trim_start_matches("$ "));
    let parts = words.split(|word| word == "|");
    let is_q36 = |part: &&[String]| {
        part.first().is_some_and(|program| program == "q36" || program.ends_with("/q36"))
    };
    parts
        .filter(is_q36)
        .map(|part| {
            let redirected = part.iter().position(|word| word == ">" || word == "<");
            part[1..redirected.unwrap_or(part.len())].to_vec()
        })
        .collect()
}

/// Words of a command line, quotes removed, up to a comment. A quoted operator is rare enough in
/// documentation to be taken for an operator.
fn shell_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, _) if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Source {
        Source::new("README.md", text).unwrap()
    }

    fn lines_with_bad_commands(text: &str) -> Vec<usize> {
        check_commands(&page(text)).into_iter().map(|v| v.line).collect()
    }

    #[test]
    fn bad_command_lines_are_found() {
        let text = "q36 nonsense\n```sh\nq36 run -p \"a b\" --no-such-flag\n```\n";
        assert_eq!(lines_with_bad_commands(text), [3]);
        let text = "```sh\ngit diff | target/release/q36 run --temp warm > x\n```\n";
        assert_eq!(lines_with_bad_commands(text), [2]);
    }

    #[test]
    fn good_command_lines_are_not() {
        let text = "```sh\n$ q36 run -p 'a # b' -sys \"\" --temp 0 # comment\nq36 inspect x.gguf > y\n\
                    cargo run --no-such-flag\n```\n```json\nq36 nonsense\n```\n";
        assert_eq!(lines_with_bad_commands(text), [0; 0]);
    }

    #[test]
    fn words_are_split_like_a_shell_does() {
        assert_eq!(shell_words("a 'b c' \"\" d\"e f\"g # h"), ["a", "b c", "", "de fg"]);
        assert_eq!(calls("x | q36 man run | man -l -"), [["man", "run"]]);
    }

    #[test]
    fn unknown_flags_are_found() {
        let found =
            check_flags(&page("`--temp`\n`--nowhere 1`, a--b --- `--build`\n"), &["  --build  x"]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].line, &*found[0].what), (2, "no such flag: --nowhere"));
    }
}
