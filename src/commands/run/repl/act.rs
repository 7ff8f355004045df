//! What commands do, but for files.

use anyhow::Result;

use super::command::Command;
use super::dialogue::{Desk, Dialogue, Outcome};
use super::stats;
use crate::chat::{THINK_MAX_MIN_CTX_TOKENS, ThinkMode};
use crate::cli::HelpRequest;
use crate::cli::help;
use crate::engine;
use crate::kv::Moment;
use crate::term::{Class, width};

/// How much of a message is shown to tell which one is meant.
const SHOWN_COLUMNS: usize = 60;

impl Dialogue<'_> {
    /// Does what was asked for. The commands that end the loop are none of these.
    pub(super) fn act(&mut self, desk: &mut Desk<'_>, command: Command) -> Result<()> {
        match command {
            Command::Help => self.help()?,
            Command::Think(mode) => self.think(desk, mode)?,
            Command::System(None) => match self.transcript.system() {
                "" => self.say("there is no system text"),
                text => self.say(text),
            },
            Command::System(Some(text)) => self.set_system(desk, &text)?,
            Command::Read(path) => self.read_file(desk, &path)?,
            Command::Retry => self.retry(desk)?,
            Command::Undo => self.undo(),
            Command::Clear => self.clear(desk)?,
            Command::Save(path) => self.save(desk, &path)?,
            Command::Load(path) => self.load(desk, &path)?,
            Command::Power(percent) => {
                desk.engine.set_power(percent);
                self.say(&format!("busy for at most {percent}% of the time"));
            }
            Command::Tokens => {
                let (used, turns) = (self.transcript.tokens().len(), self.transcript.turns().len());
                self.say(&stats::room(used, desk.engine.info().ctx_tokens, turns));
            }
            Command::Stats => self.say(&self.stats.table()),
            Command::Quit | Command::Context(_) => unreachable!("these end the loop"),
        }
        Ok(())
    }

    /// What the command line's help has on this, as wide as the terminal.
    fn help(&self) -> Result<()> {
        let (command, topic) = (Some("run".to_owned()), Some("commands".to_owned()));
        let columns = width::terminal_columns(self.context.terminal.columns);
        for line in help::page(&HelpRequest { command, topic }, columns)? {
            let class = match line {
                help::Line::Heading(_) => Class::Heading,
                help::Line::Text(_) => Class::Plain,
            };
            self.context.printer.message(class, line.text());
        }
        Ok(())
    }

    fn think(&mut self, desk: &Desk<'_>, asked: ThinkMode) -> Result<()> {
        let mode = asked.within(desk.engine.info().ctx_tokens);
        if mode != asked {
            let text = format!("/think-max needs a context of {THINK_MAX_MIN_CTX_TOKENS} tokens");
            self.context.printer.warning(&text);
        }
        let system = self.transcript.system().to_owned();
        self.transcript.set_head(desk.engine.tokenizer(), &system, mode)?;
        self.mode = mode;
        self.say(match mode {
            ThinkMode::Off => "thinking: off",
            ThinkMode::On => "thinking: on",
            ThinkMode::Max => "thinking: max",
        });
        Ok(())
    }

    fn set_system(&mut self, desk: &Desk<'_>, text: &str) -> Result<()> {
        self.transcript.set_head(desk.engine.tokenizer(), text, self.mode)?;
        self.say(if text.is_empty() { "system text removed" } else { "system text replaced" });
        Ok(())
    }

    fn retry(&mut self, desk: &mut Desk<'_>) -> Result<()> {
        if self.transcript.ask_again(desk.engine.tokenizer(), self.mode)? {
            return self.exchange(desk);
        }
        self.say("there is nothing to answer again");
        Ok(())
    }

    fn undo(&mut self) {
        let Some(turn) = self.transcript.undo() else {
            return self.say("there is nothing to undo");
        };
        self.say(&format!("taken back: {}", excerpt(&turn.text)));
    }

    /// Begins anew. The session keeps its tokens until the next prompt, which so begins with the system text that is
    /// evaluated already.
    fn clear(&mut self, desk: &mut Desk<'_>) -> Result<()> {
        self.keep_for_later(desk, Moment::Evict)?;
        self.transcript.clear();
        self.created = None;
        self.say("the conversation is forgotten, the system text stays");
        Ok(())
    }

    /// Ends the loop if a context of `n` tokens can be had.
    pub(super) fn another_context(
        &mut self,
        desk: &mut Desk<'_>,
        n: usize,
    ) -> Result<Option<Outcome>> {
        if n == desk.engine.info().ctx_tokens {
            self.say(&format!("the context has {n} tokens already"));
            return Ok(None);
        }
        if n > self.largest_ctx {
            let error = engine::Error::ContextTooLarge { asked: n, limit: self.largest_ctx };
            return Err(error.into());
        }
        let used = self.transcript.tokens().len();
        if used >= n {
            let text = format!("the conversation takes {used} tokens\nhint: /clear or /undo first");
            self.context.printer.message(Class::Warning, &text);
            return Ok(None);
        }
        Ok(Some(Outcome::Context(n)))
    }
}

/// The beginning of a text, on one line.
pub(super) fn excerpt(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    let start = width::truncate(&line, SHOWN_COLUMNS);
    if start.len() == line.len() { line } else { format!("{start} …") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_one_short_line() {
        assert_eq!(excerpt(" a\n  b "), "a b");
        let long = excerpt(&"日本 ".repeat(40));
        assert!(long.ends_with(" …") && width::columns_of(&long) <= 62, "{long}");
    }
}
