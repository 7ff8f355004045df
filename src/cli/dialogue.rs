//! The commands and keys of a conversation: one list for help and for whoever reads them.

/// What stands behind a command's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// Nothing.
    Nothing,
    /// A path.
    File,
    /// A whole number.
    Number,
    /// Text, or nothing.
    Text,
}

/// A command of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlashCommand {
    /// Its name, slash included.
    pub name: &'static str,
    /// What follows it.
    pub argument: Argument,
    /// What it does.
    pub about: &'static str,
}

impl SlashCommand {
    const fn new(name: &'static str, argument: Argument, about: &'static str) -> Self {
        Self { name, argument, about }
    }

    /// Name and argument.
    pub fn usage(&self) -> String {
        let argument = match self.argument {
            Argument::Nothing => "",
            Argument::File => " FILE",
            Argument::Number => " N",
            Argument::Text => " TEXT",
        };
        format!("{}{argument}", self.name)
    }
}

/// Every command, in the order help lists them.
pub const SLASH_COMMANDS: [SlashCommand; 17] = [
    SlashCommand::new("/help", Argument::Nothing, "this list"),
    SlashCommand::new("/think", Argument::Nothing, "reason before answering"),
    SlashCommand::new(
        "/think-max",
        Argument::Nothing,
        "reason exhaustively; needs a context of 98304 tokens",
    ),
    SlashCommand::new("/nothink", Argument::Nothing, "answer at once"),
    SlashCommand::new(
        "/system",
        Argument::Text,
        "replace the system text (\"\" for none), or show it",
    ),
    SlashCommand::new("/read", Argument::File, "send a whole file as a message"),
    SlashCommand::new("/retry", Argument::Nothing, "another answer to the last message"),
    SlashCommand::new("/undo", Argument::Nothing, "take the last message and its answer back"),
    SlashCommand::new("/clear", Argument::Nothing, "begin anew with the same system text"),
    SlashCommand::new("/save", Argument::File, "keep the conversation and its state in a file"),
    SlashCommand::new("/load", Argument::File, "go on with a conversation that was kept"),
    SlashCommand::new("/ctx", Argument::Number, "a context of N tokens; the conversation stays"),
    SlashCommand::new(
        "/power",
        Argument::Number,
        "keep the machine busy for N percent of the time, 1 to 100",
    ),
    SlashCommand::new("/tokens", Argument::Nothing, "how much of the context is used"),
    SlashCommand::new(
        "/stats",
        Argument::Nothing,
        "tokens and times of the last answer and of all",
    ),
    SlashCommand::new("/quit", Argument::Nothing, "leave"),
    SlashCommand::new("/exit", Argument::Nothing, "the same"),
];

/// Keys, and what else is worth knowing about typing.
pub const KEYS: [(&str, &str); 6] = [
    ("\"\"\"", "begins a message of several lines; at the end of a line it ends it"),
    ("a paste", "of several lines is one message"),
    ("Alt+Enter", "breaks a line"),
    ("Tab", "completes commands and file names"),
    ("Ctrl+C", "stops a prompt or an answer, or clears the line; twice within a second leaves"),
    ("Ctrl+D", "leaves"),
];
