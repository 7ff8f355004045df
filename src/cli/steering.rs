//! Flags of directional steering.

use std::path::PathBuf;

use super::heading;
use super::values;

/// A direction file and how strongly it is applied.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = heading::STEERING)]
pub struct SteeringArgs {
    /// Directions, one f32 vector for each layer.
    #[arg(long, value_name = "FILE")]
    pub dir_steering_file: Option<PathBuf>,

    /// Scale after the feed-forward block, -100 to 100. Default: 1 with a file and no scale, else 0.
    #[arg(long, value_name = "F", value_parser = values::float_in(-100.0, 100.0))]
    pub dir_steering_ffn: Option<f32>,

    /// Scale after the attention block, -100 to 100. Default: 0.
    #[arg(long, value_name = "F", value_parser = values::float_in(-100.0, 100.0))]
    pub dir_steering_attn: Option<f32>,
}

impl SteeringArgs {
    /// Scales after the attention and the feed-forward block, with defaults filled in.
    pub fn scales(&self) -> (f32, f32) {
        let alone = self.dir_steering_file.is_some() && self.dir_steering_attn.is_none();
        let ffn = self.dir_steering_ffn.unwrap_or(if alone { 1.0 } else { 0.0 });
        (self.dir_steering_attn.unwrap_or(0.0), ffn)
    }

    /// Whether a scale other than 0 was given without a file to scale.
    pub fn lacks_file(&self) -> bool {
        let (attn, ffn) = self.scales();
        self.dir_steering_file.is_none() && (attn != 0.0 || ffn != 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_alone_steers_the_feed_forward_block() {
        let check = |file: bool, ffn, attn, scales| {
            let args = SteeringArgs {
                dir_steering_file: file.then(|| "d.f32".into()),
                dir_steering_ffn: ffn,
                dir_steering_attn: attn,
            };
            assert_eq!(args.scales(), scales);
            args.lacks_file()
        };
        assert!(!check(true, None, None, (0.0, 1.0)));
        assert!(!check(true, None, Some(0.5), (0.5, 0.0)));
        assert!(!check(true, Some(0.0), None, (0.0, 0.0)));
        assert!(!check(false, None, None, (0.0, 0.0)));
        assert!(!check(false, Some(0.0), None, (0.0, 0.0)));
        assert!(check(false, Some(2.0), None, (0.0, 2.0)));
    }
}
