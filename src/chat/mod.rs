//! The text protocol of Qwen3.6: rendering prompts, reading replies.
