//! Figures of one compiled program, and the row of the table that they are kept in.

use super::asm::{self, Block, Unit};
use super::flow::{self, Work};
use super::plan::{Dispatch, Plan, Run};
use crate::vulkan::Error;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// What is known of a program on a driver. Counts "on the way" are of the most expensive way through it (module `flow`).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// Which run it belongs to: `decode-1`, `prefill-2048`.
    pub(super) run: String,
    /// What the graph calls it.
    pub(super) part: String,
    /// The shader.
    pub(super) program: String,
    /// Figures, in the order of [`COLUMNS`].
    pub(super) figures: [f64; COLUMNS.len()],
    /// Trips of its loops by address, `?` where only data decides and one is counted.
    pub(super) loops: String,
}

/// Names of the figures, as at the head of a table.
pub(super) const COLUMNS: [&str; 18] = [
    "group", "lanes", "code", "way", "vector", "packed", "convert", "double", "scalar", "smem",
    "vmem", "lds", "lds_b", "vgprs", "sgprs", "shared", "spills", "waves",
];

impl Row {
    /// The figure of this name.
    ///
    /// # Panics
    /// When there is none.
    pub(super) fn get(&self, name: &str) -> f64 {
        let at = COLUMNS.iter().position(|&c| c == name);
        self.figures[at.unwrap_or_else(|| panic!("no column {name}"))]
    }

    /// What rows of two tables are matched by.
    pub(super) fn key(&self) -> [&str; 3] {
        [&self.run, &self.part, &self.program]
    }

    /// A line of a table; cells are padded to be read, and contain no spaces.
    pub(super) fn line(&self) -> String {
        let part = self.part.replace(' ', "_");
        let mut line = format!("{:<13} {:<15} {:<24}", self.run, part, self.program);
        for (name, figure) in COLUMNS.iter().zip(self.figures) {
            let _ = write!(line, " {figure:>width$}", width = name.len().max(5));
        }
        format!("{line}  {}", self.loops)
    }

    /// The row of a line.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut cells = line.split_whitespace();
        let mut text = || cells.next().map(str::to_owned);
        let (run, part, program) = (text()?, text()?.replace('_', " "), text()?);
        let mut figures = [0.0; COLUMNS.len()];
        for figure in &mut figures {
            *figure = text()?.parse().ok()?;
        }
        Some(Self { run, part, program, figures, loops: text()? })
    }
}

/// A measured dispatch.
pub(super) struct Measured {
    pub(super) row: Row,
    /// What a wave does on the way.
    pub(super) work: Work,
    /// What another round adds of the loop of unknown length that does most.
    pub(super) round: Option<Work>,
}

/// Measures every program of a plan once; the result of dispatch `i` is at the `i`-th index.
pub(super) fn measure(run: Run, plan: &Plan) -> Result<(Vec<Measured>, Vec<usize>), Error> {
    let mut seen = HashMap::new();
    let (mut rows, mut places) = (Vec::new(), Vec::new());
    for dispatch in &plan.dispatches {
        let key = (Arc::as_ptr(&dispatch.pipeline), dispatch.part.clone());
        if let Some(&place) = seen.get(&key) {
            places.push(place);
            continue;
        }
        seen.insert(key, rows.len());
        places.push(rows.len());
        rows.push(one(run, dispatch)?);
    }
    Ok((rows, places))
}

fn one(run: Run, dispatch: &Dispatch) -> Result<Measured, Error> {
    let pipeline = &dispatch.pipeline;
    let made = pipeline.executable()?;
    let name = pipeline.program().name;
    let missing =
        |what: &str| Error::Pipeline { name, why: format!("the driver tells no `{what}`") };
    let figure = |what: &str| made.figure(what).ok_or_else(|| missing(what));
    let listing = made.text("Assembly").ok_or_else(|| missing("Assembly"))?;
    let blocks = asm::parse(listing);
    let loops = flow::loops(&blocks);
    let trips: Vec<f64> = loops.iter().map(|l| l.trips.unwrap_or(1.0)).collect();
    let work = flow::longest(&blocks, &loops, &trips);
    let unknown = (0..loops.len()).filter(|&at| loops[at].trips.is_none());
    let rounds = unknown.map(|at| {
        let mut more = trips.clone();
        more[at] += 1.0;
        flow::longest(&blocks, &loops, &more) - work
    });
    let round = rounds.max_by(|a, b| a.vector_cycles.total_cmp(&b.vector_cycles));
    let texts: Vec<String> =
        loops.iter().map(|l| l.trips.map_or("?".to_owned(), |n| n.to_string())).collect();
    let figures = [
        f64::from(pipeline.workgroup()),
        f64::from(pipeline.subgroup()),
        figure("Instructions")?,
        work.all,
        work.vector,
        work.packed,
        work.conversions,
        doubles(&blocks),
        work.scalar,
        work.scalar_memory,
        work.memory,
        work.shared,
        work.shared_bytes,
        figure("VGPRs")?,
        figure("SGPRs")?,
        figure("LDS size")?,
        figure("Spilled SGPRs")? + figure("Spilled VGPRs")? + figure("Scratch size")?,
        figure("Subgroups per SIMD")?,
    ];
    let loops = if texts.is_empty() { "-".to_owned() } else { texts.join(",") };
    let row = Row {
        run: run.name(),
        part: dispatch.part.clone(),
        program: name.to_owned(),
        figures,
        loops,
    };
    Ok(Measured { row, work, round })
}

/// Instructions on 64-bit floats anywhere in the program.
fn doubles(blocks: &[Block]) -> f64 {
    let all = blocks.iter().flat_map(|b| &b.code);
    all.filter(|i| i.unit == Unit::Double).count() as f64
}
