//! The GGUF container: reading with strict limits, and writing. Knows no model.
