//! How many columns text takes, and how many there are.

use std::os::fd::{AsFd as _, BorrowedFd};

use unicode_width::UnicodeWidthChar as _;
use unicode_width::UnicodeWidthStr as _;

/// Columns of a terminal that does not say.
pub const DEFAULT_COLUMNS: usize = 80;

/// Columns that `text`, a single line, takes on a terminal.
pub fn columns_of(text: &str) -> usize {
    text.width()
}

/// The longest start of `text` that fits into `columns`.
pub fn truncate(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += c.width().unwrap_or(0);
        if used > columns {
            return &text[..at];
        }
    }
    text
}

/// Columns of the terminal on stderr or stdout; `override_columns` is what `COLUMNS` says.
pub fn terminal_columns(override_columns: Option<usize>) -> usize {
    let ask = |fd: BorrowedFd<'_>| {
        rustix::termios::tcgetwinsize(fd).ok().map(|size| usize::from(size.ws_col))
    };
    override_columns
        .or_else(|| ask(std::io::stderr().as_fd()))
        .or_else(|| ask(std::io::stdout().as_fd()))
        .filter(|&columns| columns > 0)
        .unwrap_or(DEFAULT_COLUMNS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(columns_of("abc"), 3);
        assert_eq!(columns_of("日本"), 4);
        assert_eq!(truncate("日本語", 5), "日本");
        assert_eq!(truncate("abc", 3), "abc");
        assert_eq!(truncate("abc", 0), "");
    }
}
