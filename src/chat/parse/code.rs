//! Which parts of an answer are code: tags there are quoted, not meant.

/// Follows Markdown fences and backticks through a text that arrives in pieces.
#[derive(Debug, Clone, Default)]
pub(in crate::chat) struct CodeSpans {
    line: Line,
    /// The fence that is open: its character and how many of them.
    fence: Option<(u8, usize)>,
    /// Backticks that opened a span.
    span: Option<usize>,
    /// Backticks that stand at the end of what was seen.
    ticks: usize,
}

/// What the present line is so far.
#[derive(Debug, Clone, Copy, Default)]
enum Line {
    /// Nothing but blanks.
    #[default]
    Blank,
    /// A run of this fence character.
    Fence(u8, usize),
    /// Such a run inside a fence, and blanks behind it.
    Closing(u8, usize),
    /// Anything else.
    Text,
}

impl CodeSpans {
    /// True where a line begins, blanks aside.
    pub(in crate::chat) fn at_line_start(&self) -> bool {
        matches!(self.line, Line::Blank)
    }

    /// True inside fenced code or a span in backticks.
    pub(in crate::chat) fn inside(&self) -> bool {
        self.fence.is_some() || self.span.is_some()
    }

    /// Passes over `bytes`.
    pub(in crate::chat) fn advance(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.step(byte);
        }
    }

    fn step(&mut self, byte: u8) {
        if byte == b'\n' {
            self.end_line();
            return;
        }
        self.line = match (self.line, byte) {
            (Line::Blank, b' ' | b'\t') => Line::Blank,
            (Line::Blank, b'`' | b'~') => Line::Fence(byte, 1),
            (Line::Fence(of, n), _) if of == byte => Line::Fence(of, n + 1),
            (Line::Fence(of, n) | Line::Closing(of, n), b' ' | b'\t') if self.fence.is_some() => {
                Line::Closing(of, n)
            }
            (Line::Fence(of, n), _) => {
                self.end_run(of, n);
                Line::Text
            }
            _ => Line::Text,
        };
        if matches!(self.line, Line::Text) && self.fence.is_none() {
            if byte == b'`' { self.ticks += 1 } else { self.end_ticks() }
        }
    }

    /// A line began with `n` fence characters: outside a fence they open one, or a span.
    fn end_run(&mut self, of: u8, n: usize) {
        if self.fence.is_some() {
            return;
        }
        if n >= 3 {
            self.fence = Some((of, n));
        } else if of == b'`' {
            self.ticks = n;
            self.end_ticks();
        }
    }

    fn end_ticks(&mut self) {
        let ticks = std::mem::take(&mut self.ticks);
        match self.span {
            _ if ticks == 0 => {}
            None => self.span = Some(ticks),
            Some(open) if open == ticks => self.span = None,
            Some(_) => {}
        }
    }

    fn end_line(&mut self) {
        match self.line {
            // A span does not reach over an empty line.
            Line::Blank => self.span = None,
            Line::Fence(of, n) | Line::Closing(of, n) => match self.fence {
                Some((open, least)) if open == of && n >= least => self.fence = None,
                _ => self.end_run(of, n),
            },
            Line::Text => self.end_ticks(),
        }
        self.line = Line::Blank;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a tag behind `text` would be meant.
    fn check(text: &str, meant: bool) {
        let mut code = CodeSpans::default();
        code.advance(text.as_bytes());
        assert_eq!(code.at_line_start() && !code.inside(), meant, "{text:?}");
    }

    #[test]
    fn tags_are_meant_at_the_start_of_a_line_outside_code() {
        check("", true);
        check("  ", true);
        check("see\n", true);
        check("see ", false);
        check("`x` and ``y ` z``\n", true);
        check("a `span\n", false);
        check("a `span\n\n", true);
        check("`` ` ``\n", true);
        check("```xml\n", false);
        check("```xml\n<a>\n```\n", true);
        check("```\ncode\n````\n", true);
        check("````\n```\n", false);
        check("```\n``` not the end\n", false);
        check("~~~\n```\n", false);
        check("~~~\n~~~\n", true);
        check("~~ struck\n", true);
    }
}
