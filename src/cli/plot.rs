//! Flags of `q36 plot`.

use std::path::PathBuf;

use super::heading;

const EXAMPLES: &str = "\
Examples:
  q36 plot new.csv
  q36 plot new.csv old.csv --out both.svg --title \"BC-250, before and after\"";

/// Arguments of `q36 plot`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = heading::PLOT, after_help = EXAMPLES)]
pub struct PlotArgs {
    /// Tables of q36 bench. The first is drawn in front; the change against each of the others is printed.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// Where the chart goes. Default: beside the first table, with _ts.svg in place of .csv.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Title of the chart. Default: the name of the first table.
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
}
