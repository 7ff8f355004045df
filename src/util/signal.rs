//! Ctrl+C as a flag that loops read between tokens and chunks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set by SIGINT or SIGTERM, or by [`Interrupt::raise`]. Clones share the flag.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    flag: Arc<AtomicBool>,
}

impl Interrupt {
    /// A flag that no signal sets; for tests and callers with their own cancellation.
    pub fn new() -> Self {
        Self::default()
    }

    /// Installs the handlers: the first signal sets the flag, a second one while it is still set
    /// ends the process with status 130.
    pub fn install() -> std::io::Result<Self> {
        let interrupt = Self::new();
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
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

    /// Whether an interrupt is pending.
    pub fn is_raised(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
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
