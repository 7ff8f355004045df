//! Flags of `q36 devices`.

/// Arguments of `q36 devices`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = super::heading::DEVICES)]
pub struct DevicesArgs {
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}
