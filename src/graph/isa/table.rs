//! The committed figures: one file for each driver and chip, and what may differ from it.

use super::measure::{COLUMNS, Row};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Which code generator figures belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// The chip that the driver pretends to have: `navi10`.
    pub(super) chip: String,
    /// The driver's major version.
    pub(super) mesa: u32,
}

impl Target {
    /// Of a device's name and driver: `Null hardware (RADV NAVI10)`, `radv Mesa 22.3.6`.
    pub(super) fn of(name: &str, driver: &str) -> Option<Self> {
        let chip = name.split("RADV ").nth(1)?.trim_end_matches(')').to_lowercase();
        let version = driver.strip_prefix("radv Mesa ")?;
        Some(Self { chip, mesa: version.split('.').next()?.parse().ok()? })
    }

    pub(super) fn file(&self) -> String {
        format!("{}-mesa-{}.txt", self.chip, self.mesa)
    }

    /// The target of a file's name.
    fn parse(file: &str) -> Option<Self> {
        let (chip, mesa) = file.strip_suffix(".txt")?.split_once("-mesa-")?;
        Some(Self { chip: chip.to_owned(), mesa: mesa.parse().ok()? })
    }
}

/// The folder of the tables.
pub(super) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/isa")
}

/// A table with how much may differ from it: little where it is this very target's, more where code generators differ.
pub(super) struct Table {
    pub(super) file: String,
    pub(super) rows: Vec<Row>,
    pub(super) tolerance: f64,
}

/// Share by which counts may exceed those of the same driver and chip.
const SAME: f64 = 0.02;
/// Of another version of the driver.
const OTHER_VERSION: f64 = 0.15;
/// Of another chip.
const OTHER_CHIP: f64 = 0.25;

/// The table of a target, or the nearest: the same chip with the nearest version before another chip.
pub(super) fn find(target: &Target) -> Option<Table> {
    let names = std::fs::read_dir(folder()).ok()?;
    let names = names.filter_map(|f| Some(f.ok()?.file_name().to_string_lossy().into_owned()));
    let found = names.filter_map(|name| Some((Target::parse(&name)?, name)));
    let nearest = found.min_by_key(|(t, name)| {
        (t.chip != target.chip, t.mesa.abs_diff(target.mesa), name.clone())
    });
    let (of, file) = nearest?;
    let tolerance = match (of.chip == target.chip, of.mesa == target.mesa) {
        (true, true) => SAME,
        (true, false) => OTHER_VERSION,
        (false, _) => OTHER_CHIP,
    };
    let text = std::fs::read_to_string(folder().join(&file)).ok()?;
    Some(Table { rows: parse(&text, &file), file, tolerance })
}

fn parse(text: &str, file: &str) -> Vec<Row> {
    let lines = text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty());
    lines.map(|l| Row::parse(l).unwrap_or_else(|| panic!("{file}: not a row: {l}"))).collect()
}

/// The text of a table.
pub(super) fn text(driver: &str, rows: &[Row]) -> String {
    let mut text = format!(
        "# What {driver} makes of the hot kernels. tests/isa/README.md explains the columns.\n#\n"
    );
    let _ = write!(text, "# {:<11} {:<15} {:<24}", "run", "part", "program");
    for name in COLUMNS {
        let _ = write!(text, " {name:>width$}", width = name.len().max(5));
    }
    text.push_str("  loops\n");
    for row in rows {
        let _ = writeln!(text, "{}", row.line());
    }
    text
}

/// How `found` differs from a table: faults, and notes that the table is due for a refresh.
pub(super) fn compare(found: &[Row], table: &Table) -> (Vec<String>, Vec<String>) {
    let (mut faults, mut notes) = (Vec::new(), Vec::new());
    for row in found {
        let Some(old) = table.rows.iter().find(|old| old.key() == row.key()) else {
            faults.push(format!("{}: not in {}", row.key().join(" "), table.file));
            continue;
        };
        compare_row(row, old, table.tolerance, (&mut faults, &mut notes));
    }
    for old in &table.rows {
        if !found.iter().any(|row| row.key() == old.key()) {
            faults.push(format!("{}: only in {}", old.key().join(" "), table.file));
        }
    }
    (faults, notes)
}

fn compare_row(
    row: &Row,
    old: &Row,
    tolerance: f64,
    (faults, notes): (&mut Vec<String>, &mut Vec<String>),
) {
    let name = row.key().join(" ");
    for column in ["code", "way", "vector", "convert", "vmem", "lds", "lds_b", "shared"] {
        let (new, was) = (row.get(column), old.get(column));
        // A few instructions are noise in a short program.
        let most = (was * (1.0 + tolerance)).max(was + 2.0);
        if new > most {
            faults.push(format!("{name}: {column} {new}, at most {most:.0} ({was} in the table)"));
        } else if new < was * (1.0 - tolerance) {
            notes.push(format!("{name}: {column} {new}, {was} in the table"));
        }
    }
    let (packed, was) = (row.get("packed"), old.get("packed"));
    if packed < was * (1.0 - tolerance) {
        faults.push(format!("{name}: {packed} packed instructions, {was} in the table"));
    }
    let (waves, was) = (row.get("waves"), old.get("waves"));
    if waves < was * (1.0 - (tolerance - SAME)) {
        faults.push(format!("{name}: {waves} waves on a SIMD, {was} in the table"));
    } else if waves > was {
        notes.push(format!("{name}: {waves} waves on a SIMD, {was} in the table"));
    }
}
