//! Links of the Markdown files: the file is there, and so is the heading.

use super::tree::{Kind, Source, Violation, exists};

/// Relative links that lead nowhere. `files` supplies the headings of other pages.
pub(super) fn check_links(file: &Source, files: &[Source]) -> Vec<Violation> {
    if file.kind != Kind::Markdown {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (line, target) in links(&file.text) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (path, heading) = target.split_once('#').map_or((target, None), |(p, h)| (p, Some(h)));
        let path = if path.is_empty() { file.path.clone() } else { join(&file.path, path) };
        if !exists(&path) && !files.iter().any(|f| f.path == path) {
            found.push(file.violation(line, format!("link to `{target}`: no such file")));
        } else if let (Some(heading), Some(page)) = (heading, files.iter().find(|f| f.path == path))
            && !headings(&page.text).iter().any(|h| h == heading)
        {
            found.push(file.violation(line, format!("link to `{target}`: no such heading")));
        }
    }
    found
}

/// (line, target) of inline links and link definitions outside code.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (line, prose) in prose_lines(text) {
        for part in prose.split("](").skip(1) {
            let target = part.split([')', ' ']).next().unwrap_or_default();
            found.push((line, target));
        }
        if prose.starts_with('[')
            && let Some((_, target)) = prose.split_once("]: ")
        {
            found.push((line, target.trim()));
        }
    }
    found
}

/// Lines outside fenced code blocks, with their numbers.
fn prose_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

/// The names that headings can be linked by: lower case, words joined by `-`, no punctuation.
fn headings(text: &str) -> Vec<String> {
    prose_lines(text)
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(_, line)| {
            let title = line.trim_start_matches('#').trim();
            let kept =
                title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

/// A link target relative to the page that has it, as a path from the root.
fn join(page: &str, target: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let page = Source::new("docs/page.md", text).unwrap();
        let other = Source::new("docs/other.md", "# A Title, with `code`\n").unwrap();
        let files = [page, other];
        check_links(&files[0], &files)
            .into_iter()
            .map(|v| format!("{}: {}", v.line, v.what))
            .collect()
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        assert_eq!(found("a [b](missing.md) c\n"), ["1: link to `missing.md`: no such file"]);
        assert_eq!(found("\n[b]: missing.md\n").len(), 1);
        assert_eq!(found("[b](other.md#nothing)").len(), 1);
        assert_eq!(found("[b](#nothing)").len(), 1);
    }

    #[test]
    fn links_that_lead_somewhere_are_not() {
        let good = "# Here\n[a](#here) [b](other.md#a-title-with-code) [c](../Cargo.toml) \
                    [d](https://example.org/x) [e](mailto:a@example.org)\n";
        assert!(found(good).is_empty());
        assert!(found("```\n[b](missing.md)\n```\n").is_empty());
    }
}
