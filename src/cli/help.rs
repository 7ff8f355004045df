//! Help text, laid out from the flag definitions.
//!
//! Two columns: options padded to 30, a long option on a line of its own. The result is a list of
//! lines, so that whoever prints it decides about colour.

use super::debug;
use super::definition::{self, heading};
use super::dialogue::{KEYS, SLASH_COMMANDS};
use super::environment::VARIABLES;
use super::error::{self, UsageError};
use super::topics::{API, BENCHMARK, Content, KV_CACHE, RUNTIME, TOPICS, Topic};

/// Column where the explanation of an option begins.
const TEXT_COLUMN: usize = 30;
/// Lines are broken between these widths, whatever the terminal says.
const MIN_COLUMNS: usize = 60;
const MAX_COLUMNS: usize = 100;

/// What help was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HelpRequest {
    /// The command, or `None` for the program.
    pub command: Option<String>,
    /// The topic, or `None` for the usual page.
    pub topic: Option<String>,
}

/// A line of help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// The title of a group.
    Heading(String),
    /// Anything else; empty between groups.
    Text(String),
}

impl Line {
    /// The line without colour.
    pub fn text(&self) -> &str {
        match self {
            Self::Heading(text) | Self::Text(text) => text,
        }
    }
}

/// Lays out the page that was asked for, in `columns`. An unknown command is an error; an unknown
/// topic is a line in front of the usual page.
pub fn page(request: &HelpRequest, columns: usize) -> Result<Vec<Line>, UsageError> {
    let mut root = definition::command();
    root.build();
    let (command, topic) = resolve(request, &root)?;
    let mut page = Page { lines: Vec::new(), columns: columns.clamp(MIN_COLUMNS, MAX_COLUMNS) };
    let Some(topic) = topic else {
        page.usual(command);
        return Ok(page.lines);
    };
    // A bare `q36` runs, so its topics are those of `run`, too.
    let run = root.find_subcommand("run").filter(|_| command.get_name() == root.get_name());
    let known = TOPICS.iter().find(|known| known.name == topic);
    let shown = known.and_then(|known| {
        let mut owners = [Some(command), run].into_iter().flatten();
        owners.find(|owner| known.applies_to(owner)).map(|owner| (owner, *known))
    });
    if let Some((owner, known)) = shown {
        page.topic(owner, known);
    } else {
        page.text(&format!("unknown help topic: {topic}"));
        page.blank();
        page.usual(command);
    }
    Ok(page.lines)
}

/// The command that is meant, and the topic. Where there is only one word it may be either.
fn resolve<'a>(
    request: &'a HelpRequest,
    root: &'a clap::Command,
) -> Result<(&'a clap::Command, Option<&'a str>), UsageError> {
    match (request.command.as_deref(), request.topic.as_deref()) {
        (Some(name), topic) => match root.find_subcommand(name) {
            Some(found) => Ok((found, topic)),
            None if topic.is_none() && is_topic(name) => Ok((root, Some(name))),
            None => Err(error::unknown_command(None, name, root)),
        },
        (None, Some(name)) => Ok(match root.find_subcommand(name) {
            Some(found) => (found, None),
            None => (root, Some(name)),
        }),
        (None, None) => Ok((root, None)),
    }
}

fn is_topic(name: &str) -> bool {
    TOPICS.iter().any(|topic| topic.name == name)
}

struct Page {
    lines: Vec<Line>,
    columns: usize,
}

impl Page {
    fn text(&mut self, text: &str) {
        self.lines.push(Line::Text(text.to_owned()));
    }

    fn blank(&mut self) {
        if self.lines.last().is_some_and(|line| !line.text().is_empty()) {
            self.text("");
        }
    }

    fn heading(&mut self, title: &str) {
        self.blank();
        self.lines.push(Line::Heading(format!("{title}:")));
    }

    /// The page without a topic: what the command is, its flags, where there is more.
    fn usual(&mut self, command: &clap::Command) {
        self.introduction(command);
        let is_rarely_needed = |title: &str| {
            let is_topic = |topic: &Topic| match topic.content {
                Content::Headings(headings) => {
                    ![RUNTIME, BENCHMARK, API, KV_CACHE].contains(&headings)
                        && headings.contains(&title)
                }
                Content::Dialogue | Content::All | Content::Environment => false,
            };
            TOPICS.iter().any(is_topic)
        };
        for title in headings(command) {
            if !is_rarely_needed(title) {
                self.group(command, title);
            }
        }
        let name = bin_name(command);
        self.heading(&format!("More topics, {name} --help TOPIC"));
        for topic in TOPICS.iter().filter(|topic| topic.applies_to(command)) {
            self.entry(topic.name, topic.about);
        }
        self.examples(command);
    }

    fn topic(&mut self, command: &clap::Command, topic: Topic) {
        match topic.content {
            Content::Headings(titles) => {
                for title in titles {
                    self.group(command, title);
                }
            }
            Content::All => self.everything(command),
            Content::Dialogue => {
                self.heading("Commands of a conversation");
                for command in &SLASH_COMMANDS {
                    self.entry(&command.usage(), command.about);
                }
                self.heading("Keys");
                for (key, effect) in KEYS {
                    self.entry(key, effect);
                }
            }
            Content::Environment => {
                self.heading("Environment variables");
                for variable in VARIABLES {
                    self.entry(variable.name, variable.effect);
                }
                self.heading("Switches of Q36_DEBUG");
                for (spelling, effect) in debug::switches() {
                    self.entry(&spelling, effect);
                }
            }
        }
    }

    /// Every flag of a command, or of the program with all its commands.
    fn everything(&mut self, command: &clap::Command) {
        self.introduction(command);
        for title in headings(command) {
            self.group(command, title);
        }
        for sub in command.get_subcommands() {
            self.blank();
            self.introduction(sub);
            for title in headings(sub).into_iter().filter(|title| *title != heading::GENERAL) {
                self.group(sub, title);
            }
        }
        self.examples(command);
    }

    fn introduction(&mut self, command: &clap::Command) {
        let about = command.get_long_about().or(command.get_about());
        for line in about.map(ToString::to_string).unwrap_or_default().lines() {
            self.text(line);
        }
        self.blank();
        self.text(&format!("Usage: {}", usage(command)));
        if command.has_subcommands() {
            self.heading("Commands");
            for sub in command.get_subcommands() {
                self.entry(sub.get_name(), &sub.get_about().unwrap_or_default().to_string());
            }
        }
        if command.get_positionals().next().is_some() {
            self.heading("Arguments");
            for arg in command.get_positionals() {
                self.entry(&value_name(arg), &explanation(arg));
            }
        }
    }

    /// The flags under one heading.
    fn group(&mut self, command: &clap::Command, title: &str) {
        self.heading(title);
        for arg in options(command).filter(|arg| heading_of(arg) == title) {
            self.entry(&spelling(arg), &explanation(arg));
        }
    }

    fn examples(&mut self, command: &clap::Command) {
        let Some(text) = command.get_after_help() else { return };
        self.blank();
        for line in text.to_string().lines() {
            match line.strip_suffix(':').filter(|title| !title.starts_with(' ')) {
                Some(title) => self.heading(title),
                None => self.text(line),
            }
        }
    }

    /// An option and its explanation, broken between words.
    fn entry(&mut self, option: &str, explanation: &str) {
        let mut line = format!("  {option}");
        while let Some(at) = alternative_beyond(&line, self.columns) {
            let rest = line.split_off(at);
            self.lines.push(Line::Text(line));
            line = format!("    {rest}");
        }
        if line.chars().count() + 2 > TEXT_COLUMN {
            self.lines.push(Line::Text(std::mem::take(&mut line)));
        }
        let mut is_fresh = true;
        for word in explanation.split_whitespace() {
            if !is_fresh && line.chars().count() + 1 + word.chars().count() > self.columns {
                self.lines.push(Line::Text(std::mem::take(&mut line)));
                is_fresh = true;
            }
            if is_fresh {
                line = format!("{line:TEXT_COLUMN$}{word}");
            } else {
                line = format!("{line} {word}");
            }
            is_fresh = false;
        }
        self.lines.push(Line::Text(line));
    }
}

/// Where to break a line that is longer than `columns`: in front of the last `|` that still fits.
fn alternative_beyond(line: &str, columns: usize) -> Option<usize> {
    if line.len() <= columns {
        return None;
    }
    // A break inside the indentation would not shorten the line.
    line.get(..columns)?.rfind('|').filter(|at| *at > 4)
}

/// `q36 inspect [OPTIONS] [FILE]`
pub(super) fn usage(command: &clap::Command) -> String {
    let mut usage = format!("{} [OPTIONS]", bin_name(command));
    for arg in command.get_positionals() {
        let name = value_name(arg);
        let shown = if arg.is_required_set() { name } else { format!("[{name}]") };
        usage = format!("{usage} {shown}");
    }
    if command.has_subcommands() {
        usage.push_str(" [COMMAND]");
    }
    usage
}

fn bin_name(command: &clap::Command) -> &str {
    command.get_bin_name().unwrap_or_else(|| command.get_name())
}

fn options(command: &clap::Command) -> impl Iterator<Item = &clap::Arg> {
    command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set())
}

fn heading_of(arg: &clap::Arg) -> &str {
    arg.get_help_heading().unwrap_or(heading::GENERAL)
}

/// Headings in order of definition, the general one last.
fn headings(command: &clap::Command) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for title in options(command).map(heading_of).filter(|title| *title != heading::GENERAL) {
        if !found.contains(&title) {
            found.push(title);
        }
    }
    found.push(heading::GENERAL);
    found
}

fn value_name(arg: &clap::Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// `-m, --model FILE`
fn spelling(arg: &clap::Arg) -> String {
    let short = arg.get_short().map(|c| format!("-{c}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let names = short.into_iter().chain(long).collect::<Vec<_>>().join(", ");
    #[expect(clippy::wildcard_enum_match_arm, reason = "only two questions are asked of an action")]
    match arg.get_action() {
        clap::ArgAction::Help => format!("{names} [TOPIC]"),
        action if !action.takes_values() => names,
        _ if arg.is_require_equals_set() => format!("{names}[={}]", value_name(arg)),
        _ => format!("{names} {}", value_name(arg)),
    }
}

/// The flag's text, and its default unless the text tells it.
fn explanation(arg: &clap::Arg) -> String {
    let text = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let default = arg.get_default_values().first().filter(|_| arg.get_action().takes_values());
    match default {
        Some(default) => format!("{text} (default: {})", default.to_string_lossy()),
        None => text,
    }
}
