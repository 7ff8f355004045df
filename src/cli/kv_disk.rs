//! Flags of a directory of saved sessions.

use std::path::PathBuf;

use super::{heading, values};

/// Where states of prompts are kept, and how many.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = heading::KV)]
pub struct KvDiskArgs {
    /// Keep the states of long prompts in DIR, and begin with the longest saved one that a prompt begins with.
    #[arg(long, value_name = "DIR")]
    pub kv_disk_dir: Option<PathBuf>,

    /// Most MiB of all files together; those worth least are deleted first.
    #[arg(long, value_name = "MB", default_value_t = 4096, value_parser = values::positive)]
    pub kv_disk_space_mb: u32,

    /// Shorter prompts are neither saved nor looked for.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = values::positive)]
    pub kv_cache_min_tokens: u32,
}
