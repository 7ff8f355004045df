//! What every layer may use and what knows nothing of models: bytes, files, hex, the clock, numbers with units.

pub mod bytes;
pub mod clock;
pub mod fs;
pub mod hex;
pub mod meminfo;
pub mod notice;
pub mod random;
pub mod rng;
pub mod signal;
pub mod units;
