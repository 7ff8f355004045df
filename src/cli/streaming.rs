//! Flags of running with experts on disk.

use crate::util::units::Bytes;

use super::heading;
use super::values::{self, CacheSize};

/// Experts read from SSD through a cache.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = heading::STREAMING)]
pub struct StreamingArgs {
    /// Read routed experts from disk through a cache; Vulkan only.
    #[arg(long)]
    pub ssd_streaming: bool,

    /// Size of the expert cache, in slots or GiB. Default: 80 % of what is left beside the other
    /// weights.
    #[arg(long, value_name = "N|NGB", value_parser = values::cache_size)]
    pub ssd_streaming_cache_experts: Option<CacheSize>,

    /// Keep the experts of the last N layers resident; implies --ssd-streaming. 0 turns it off.
    #[arg(long, value_name = "N", value_parser = values::non_negative)]
    pub ssd_streaming_full_layers: Option<u32>,

    /// How many slots to fill at start. Default: the hot list, if there is one.
    #[arg(long, value_name = "N", value_parser = values::positive)]
    pub ssd_streaming_preload_experts: Option<u32>,

    /// Start with an empty expert cache.
    #[arg(long)]
    pub ssd_streaming_cold: bool,

    /// Lock this much memory before loading, to try a smaller machine.
    #[arg(long, value_name = "NGB", value_parser = values::gib)]
    pub simulate_used_memory: Option<Bytes>,
}

impl StreamingArgs {
    /// Whether streaming was asked for, directly or by a flag that implies it.
    pub fn is_on(&self) -> bool {
        self.ssd_streaming || self.ssd_streaming_full_layers.is_some_and(|n| n > 0)
    }

    /// The flags given that do nothing unless streaming is on.
    pub fn without_effect(&self) -> Vec<&'static str> {
        if self.is_on() {
            return Vec::new();
        }
        let given = [
            (self.ssd_streaming_cache_experts.is_some(), "--ssd-streaming-cache-experts"),
            (self.ssd_streaming_preload_experts.is_some(), "--ssd-streaming-preload-experts"),
            (self.ssd_streaming_cold, "--ssd-streaming-cold"),
            (self.ssd_streaming_full_layers.is_some(), "--ssd-streaming-full-layers 0"),
        ];
        given.iter().filter(|(is_given, _)| *is_given).map(|(_, flag)| *flag).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_layers_imply_streaming_and_zero_does_not() {
        let with = |n| StreamingArgs { ssd_streaming_full_layers: n, ..Default::default() };
        assert!(with(Some(1)).is_on());
        assert!(!with(Some(0)).is_on());
        assert!(!with(None).is_on());
    }

    #[test]
    fn flags_without_streaming_are_named() {
        let mut args = StreamingArgs { ssd_streaming_cold: true, ..Default::default() };
        assert_eq!(args.without_effect(), ["--ssd-streaming-cold"]);
        args.ssd_streaming = true;
        assert!(args.without_effect().is_empty());
    }
}
