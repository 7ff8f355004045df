//! When output is coloured, and with which codes.

/// What the user said about colour on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// Nothing: the environment and the destination decide.
    #[default]
    Auto,
    /// Colour, whatever the destination.
    Always,
    /// No escape codes at all.
    Never,
}

/// What the environment says about colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Environment {
    /// `NO_COLOR` is set and not empty.
    pub no_color: bool,
    /// `CLICOLOR_FORCE` is set and not `0`.
    pub force: bool,
    /// `TERM` is `dumb`.
    pub dumb: bool,
}

impl Choice {
    /// Whether a destination gets colours. The command line beats the environment, and `NO_COLOR`
    /// beats `CLICOLOR_FORCE`.
    pub fn is_colored(self, environment: Environment, is_terminal: bool) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto if environment.no_color => false,
            Self::Auto if environment.force => true,
            Self::Auto => is_terminal && !environment.dumb,
        }
    }
}

/// What kind of text a piece of output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Nothing particular.
    Plain,
    /// A heading of help or of a report.
    Heading,
    /// Prompt processing.
    Prefill,
    /// Rates and durations.
    Timing,
    /// Token generation.
    Generation,
    /// A check that passed.
    Good,
    /// The KV cache.
    Cache,
    /// Tool calls.
    Tool,
    /// The model's reasoning.
    Thinking,
    /// Something to know that does not stop the work.
    Warning,
    /// Something that did.
    Error,
}

impl Class {
    /// The escape sequence that begins text of this class; empty for plain text.
    pub fn start(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Heading => "\x1b[1m",
            Self::Prefill | Self::Timing => "\x1b[36m",
            Self::Generation | Self::Good => "\x1b[32m",
            Self::Cache => "\x1b[33m",
            Self::Tool | Self::Thinking => "\x1b[90m",
            Self::Warning => "\x1b[38;5;208m",
            Self::Error => "\x1b[31m",
        }
    }

    /// The escape sequence that ends it.
    pub fn end(self) -> &'static str {
        if self == Self::Plain { "" } else { "\x1b[0m" }
    }

    /// `text`, between codes if `colored`.
    pub fn paint(self, text: &str, colored: bool) -> String {
        if colored { format!("{}{text}{}", self.start(), self.end()) } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_beats_the_environment_beats_the_terminal() {
        let none = Environment::default();
        let no_color = Environment { no_color: true, ..none };
        let force = Environment { force: true, ..none };
        let both = Environment { no_color: true, force: true, dumb: false };
        let dumb = Environment { dumb: true, ..none };
        for (choice, environment, is_terminal, expected) in [
            (Choice::Auto, none, true, true),
            (Choice::Auto, none, false, false),
            (Choice::Auto, no_color, true, false),
            (Choice::Auto, force, false, true),
            (Choice::Auto, both, true, false),
            (Choice::Auto, dumb, true, false),
            (Choice::Always, no_color, false, true),
            (Choice::Never, force, true, false),
        ] {
            let got = choice.is_colored(environment, is_terminal);
            assert_eq!(got, expected, "{choice:?} {environment:?} {is_terminal}");
        }
    }

    #[test]
    fn paints_only_when_asked() {
        assert_eq!(Class::Error.paint("x", true), "\x1b[31mx\x1b[0m");
        assert_eq!(Class::Error.paint("x", false), "x");
        assert_eq!(Class::Plain.paint("x", true), "x");
    }
}
