//! Flags of `q36 inspect`.

use std::path::PathBuf;

use super::heading;
use super::values::{self, CacheType};

const EXAMPLES: &str = "\
Examples:
  q36 inspect models/q36-tiny.gguf
  q36 inspect --json model.gguf
  q36 inspect new.gguf --diff old.gguf";

/// Arguments of `q36 inspect`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = heading::INSPECT, after_help = EXAMPLES)]
pub struct InspectArgs {
    /// Model file. Default: where the other commands look.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Model file, as the other commands take it.
    #[arg(short = 'm', long, value_name = "FILE", conflicts_with = "file")]
    model: Option<PathBuf>,

    /// List every tensor.
    #[arg(long)]
    pub tensors: bool,

    /// Read all weights and look for values that are not finite.
    #[arg(long)]
    pub verify: bool,

    /// Compare with another file, tensor by tensor.
    #[arg(long, value_name = "FILE")]
    pub diff: Option<PathBuf>,

    /// Context of the memory plan in tokens. Default: 32768, or the model's own if that is less.
    #[arg(short = 'c', long, value_name = "N", value_parser = values::positive)]
    pub ctx: Option<u32>,

    /// Type of K rows in the memory plan (also -ctk). Default: f16.
    #[arg(long, value_name = "T", value_enum, hide_possible_values = true)]
    pub cache_type_k: Option<CacheType>,

    /// Type of V rows in the memory plan (also -ctv). Default: f16.
    #[arg(long, value_name = "T", value_enum, hide_possible_values = true)]
    pub cache_type_v: Option<CacheType>,

    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

impl InspectArgs {
    /// The file named, as an argument or by `-m`.
    pub fn file(&self) -> Option<&std::path::Path> {
        self.file.as_deref().or(self.model.as_deref())
    }
}
