//! Flags of `q36 doctor`.

use std::path::PathBuf;

use super::values;

const EXAMPLES: &str = "\
Examples:
  q36 doctor
  q36 doctor -m models/q36-tiny.gguf --json";

/// Arguments of `q36 doctor`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = super::heading::DOCTOR, after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Model file. Default: where the other commands look.
    #[arg(short = 'm', long, value_name = "FILE")]
    pub model: Option<PathBuf>,

    /// Context to plan memory for, in tokens. Default: 32768, or the model's own if that is less.
    #[arg(short = 'c', long, value_name = "N", value_parser = values::positive)]
    pub ctx: Option<u32>,

    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}
