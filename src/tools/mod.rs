//! Offline work on model files.
