//! The tests of the gate.

use super::measure::{Measured, Row, measure};
use super::plan::{Dispatch, Run, plan};
use super::table::{Target, compare, find, folder, text};
use super::{bc250, budgets};
use crate::vulkan::{Instance, PhysicalDevice, Validation};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

/// What is compiled: the board with all its units, for one sequence, for several, for a prompt.
const RUNS: [Run; 3] = [Run::Decode(1), Run::Decode(8), Run::Prefill(2048)];

/// The device that the driver pretends to have, or `None` with a visible line.
fn pretended() -> Option<PhysicalDevice> {
    let why = if std::env::var_os("RADV_FORCE_FAMILY").is_none() {
        "needs RADV_FORCE_FAMILY and Mesa's driver for AMD; scripts/test.sh isa sets both"
            .to_owned()
    } else {
        match Instance::new(Validation::Off).and_then(|instance| instance.devices()) {
            Ok(devices) => {
                let radv = |d: &PhysicalDevice| Target::of(&d.info.name, &d.info.driver).is_some();
                match devices.into_iter().find(radv) {
                    Some(device) => return Some(device),
                    None => "no device of Mesa's driver for AMD".to_owned(),
                }
            }
            Err(e) => e.to_string(),
        }
    };
    let line = format!("skipped: isa: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    if let Some(log) = std::env::var_os("Q36_SKIP_LOG") {
        let mut log = OpenOptions::new().create(true).append(true).open(log).unwrap();
        log.write_all(line.as_bytes()).unwrap();
    }
    None
}

fn writes() -> bool {
    std::env::var_os("Q36_ISA").is_some_and(|v| v == "write")
}

/// Replaces a committed file, and shows which lines changed.
fn write(path: &Path, new: &str) {
    let old = std::fs::read_to_string(path).unwrap_or_default();
    println!("writes {}", path.display());
    for line in old.lines().filter(|l| !new.lines().any(|n| n == *l)) {
        println!("- {line}");
    }
    for line in new.lines().filter(|l| !old.lines().any(|o| o == *l)) {
        println!("+ {line}");
    }
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, new).unwrap();
}

#[test]
fn hot_kernels_keep_their_machine_code() {
    let Some(physical) = pretended() else { return };
    let target = Target::of(&physical.info.name, &physical.info.driver).unwrap();
    let table = find(&target);
    let tolerance = table.as_ref().map_or(0.02, |t| t.tolerance);
    let device = bc250::device(&physical, 40).unwrap();
    let (mut rows, mut faults): (Vec<Row>, Vec<String>) = (Vec::new(), Vec::new());
    let limits = std::fs::read_to_string(folder().join("budgets.txt")).unwrap();
    for run in RUNS {
        let plan = plan(&device, run).unwrap();
        let (measured, places) = measure(run, &plan).unwrap();
        faults.extend(measured.iter().flat_map(budgets::absolute));
        // One dispatch of each program is as good as all of them.
        let first = |place: usize| places.iter().position(|&p| p == place).unwrap();
        let found: Vec<(&Dispatch, &Measured)> = measured
            .iter()
            .enumerate()
            .map(|(place, m)| (&plan.dispatches[first(place)], m))
            .collect();
        faults.extend(budgets::check(&limits, &found, (&run.name(), tolerance)));
        rows.extend(measured.into_iter().map(|m| m.row));
    }
    if writes() {
        write(&folder().join(target.file()), &text(&physical.info.driver, &rows));
    } else {
        let table = table.unwrap_or_else(|| panic!("no table in {}", folder().display()));
        println!(
            "{} on {}: compared with {}, {:.0} % more are allowed",
            physical.info.driver,
            target.chip,
            table.file,
            table.tolerance * 100.0
        );
        let (worse, notes) = compare(&rows, &table);
        faults.extend(worse);
        for note in notes {
            println!("better than the table, which is due for a refresh: {note}");
        }
    }
    let hint = "what changed is compared by `Q36_ISA=write scripts/test.sh --force isa`";
    assert!(faults.is_empty(), "{}\nhint: {hint}", faults.join("\n"));
}

#[test]
fn the_page_for_the_board_is_what_the_counts_imply() {
    let Some(physical) = pretended() else { return };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("speed-bench/bc250.md");
    let page = bc250::page(&physical).unwrap();
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    if writes() {
        write(&path, &page);
    } else if old.contains(&physical.info.driver) {
        assert!(old == page, "{} is out of date", path.display());
    } else {
        println!("{} was written with another driver", path.display());
    }
}
