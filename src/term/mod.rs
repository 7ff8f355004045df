//! The terminal: colours, width, status line, the one place that prints.
