//! Offline work on model files.

pub mod inspect;
