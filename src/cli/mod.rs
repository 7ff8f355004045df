//! Command-line types: flags, defaults, help. No behaviour, no I/O.
