//! Flags of `q36 devices`.

/// List Vulkan devices with their scores and capabilities.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = super::heading::DEVICES)]
pub struct DevicesArgs {
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}
