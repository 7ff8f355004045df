//! The terminal on standard input between two lines: what is typed while the program writes is not shown.

use std::io;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// How the terminal was when the program began.
#[derive(Debug, Clone)]
pub struct TerminalModes(Option<Termios>);

impl TerminalModes {
    /// Takes note of it. Nothing is done later where standard input is no terminal.
    pub fn save() -> Self {
        Self(tcgetattr(io::stdin()).ok())
    }

    /// Puts the terminal back.
    pub fn restore(&self) {
        self.set(|_| {});
    }

    /// Hides what is typed until the guard is dropped. Ctrl+C still interrupts, and what was typed is read by whoever
    /// reads next.
    pub fn hide_typing(&self) -> Hidden<'_> {
        self.set(|modes| modes.local_modes.remove(LocalModes::ECHO));
        Hidden(self)
    }

    fn set(&self, change: impl FnOnce(&mut Termios)) {
        if let Some(mut modes) = self.0.clone() {
            change(&mut modes);
            // At once: output may be stopped. A terminal that has gone away needs no mode.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &modes);
        }
    }
}

/// Shows again what is typed, when dropped.
#[derive(Debug)]
pub struct Hidden<'a>(&'a TerminalModes);

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        self.0.restore();
    }
}
