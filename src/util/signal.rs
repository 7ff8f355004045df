//! Ctrl+C as a flag that loops read between tokens and chunks.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// How soon a second Ctrl+C must follow to end a program that goes on after the first.
const TWICE: Duration = Duration::from_secs(1);
/// How often a program that was asked to end is woken.
const BETWEEN_CALLS: Duration = Duration::from_millis(100);

/// Set by SIGINT or SIGTERM, or by [`Interrupt::raise`]. Clones share the flag.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    flag: Arc<AtomicBool>,
    ending: Arc<AtomicBool>,
}

impl Interrupt {
    /// A flag that no signal sets; for tests and callers with their own cancellation.
    pub fn new() -> Self {
        Self::default()
    }

    /// Installs the handlers: the first signal sets the flag, a second one while it is still set
    /// ends the process with status 130.
    pub fn install() -> io::Result<Self> {
        let interrupt = Self::new();
        for signal in [SIGINT, SIGTERM] {
            // Order matters: the conditional exit must see the flag as the first signal left it.
            signal_hook::flag::register_conditional_shutdown(
                signal,
                130,
                Arc::clone(&interrupt.flag),
            )?;
            signal_hook::flag::register(signal, Arc::clone(&interrupt.flag))?;
        }
        Ok(interrupt)
    }

    /// Installs the handlers of a program that goes on after Ctrl+C. SIGINT sets the flag; another within a second, the
    /// flag still set, calls `leave` and ends the process with status 130. SIGTERM and SIGHUP ask the program to end,
    /// see [`Interrupt::is_ending`]; asked again it ends like that, too.
    pub fn install_for_dialogue(leave: impl Fn() + Send + 'static) -> io::Result<Self> {
        let interrupt = Self::new();
        let Self { flag, ending } = interrupt.clone();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let listen = move || {
            let started = Instant::now();
            let mut presses = Presses::default();
            for signal in signals.forever() {
                let was_set = flag.swap(true, Ordering::Relaxed);
                if signal != SIGINT {
                    ending.store(true, Ordering::Relaxed);
                    break;
                }
                if presses.press(was_set, started.elapsed()) {
                    break;
                }
            }
            if ending.load(Ordering::Relaxed) {
                wake_until_asked_again(&mut signals);
            }
            leave();
            signal_hook::low_level::exit(130);
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(listen)?;
        Ok(interrupt)
    }

    /// Whether an interrupt is pending.
    pub fn is_raised(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// Whether the program was asked to end, rather than to stop what it does.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Sets the flag.
    pub fn raise(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// Clears the flag, so that the next signal is a first one again.
    pub fn clear(&self) {
        self.flag.store(false, Ordering::Relaxed);
    }
}

/// Wakes whoever waits for a line: the line editor has put a handler of its own on SIGINT, and hears it only while it
/// waits, so it is told again and again. Returns when the program is asked to end once more.
fn wake_until_asked_again(signals: &mut Signals) {
    let this = rustix::process::getpid();
    loop {
        let _ = rustix::process::kill_process(this, rustix::process::Signal::INT);
        std::thread::sleep(BETWEEN_CALLS);
        if signals.pending().any(|signal| signal != SIGINT) {
            return;
        }
    }
}

/// When Ctrl+C was pressed last.
#[derive(Debug, Default)]
struct Presses {
    last: Option<Duration>,
}

impl Presses {
    /// Whether this one, at `now`, ends the program: the one before is still pending and not long ago.
    fn press(&mut self, is_pending: bool, now: Duration) -> bool {
        let last = self.last.replace(now);
        is_pending && last.is_some_and(|last| now.saturating_sub(last) <= TWICE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_presses_end_a_program_that_does_not_react() {
        let mut presses = Presses::default();
        let mut press = |is_pending, ms| presses.press(is_pending, Duration::from_millis(ms));
        assert!(!press(false, 100), "the first one");
        assert!(!press(false, 300), "the first one was seen to");
        assert!(press(true, 1300));
        assert!(!press(true, 2500), "too long ago");
        assert!(press(true, 2900));
    }
}
