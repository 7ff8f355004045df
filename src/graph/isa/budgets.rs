//! Vector instructions that a kernel may spend on a weight (vulkan.md 3.1 to 3.3, 3.8), and the kernels whose arithmetic is
//! packed. The file is written by hand: where a budget is missed it says what was reached and why.

use super::measure::Measured;
use super::plan::Dispatch;

/// A line of `tests/isa/budgets.txt`.
#[derive(Debug, PartialEq)]
struct Budget {
    run: String,
    part: String,
    program: String,
    /// Lanes times vector instructions for each multiply-add.
    most: f64,
    /// What is there instead, and why; 0 and `-` where the budget holds.
    reached: f64,
    why: String,
}

fn parse(text: &str) -> Vec<Budget> {
    let lines = text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty());
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split_whitespace().collect();
            let [run, part, program, most, reached, why @ ..] = &cells[..] else {
                panic!("budgets.txt: not a line: {line}");
            };
            let number =
                |cell: &str| cell.parse().unwrap_or_else(|_| panic!("budgets.txt: {line}"));
            Budget {
                run: (*run).to_owned(),
                part: part.replace('_', " "),
                program: (*program).to_owned(),
                most: number(most),
                reached: if *reached == "-" { 0.0 } else { number(reached) },
                why: why.join(" "),
            }
        })
        .collect()
}

/// Share of a reached number by which another driver may exceed it.
const SLACK: f64 = 0.02;

/// Lanes times vector instructions for each multiply-add of a dispatch; for attention, each key and query dimension.
pub(super) fn per_mac(dispatch: &Dispatch, measured: &Measured) -> Option<f64> {
    let groups = dispatch.groups? as f64;
    let row = &measured.row;
    let macs = dispatch.cost.flops as f64 / 2.0;
    (macs > 0.0).then(|| groups * row.get("group") * measured.work.vector / macs)
}

/// Faults of a run's dispatches against the budgets of a file; `tolerance` is what the driver's table allows.
pub(super) fn check(
    text: &str,
    found: &[(&Dispatch, &Measured)],
    (run, tolerance): (&str, f64),
) -> Vec<String> {
    let mut faults = Vec::new();
    for budget in parse(text).iter().filter(|b| b.run == run) {
        let Budget { part, program, .. } = budget;
        let name = format!("{run} {part} {program}");
        let mut these = found
            .iter()
            .filter(|(d, m)| d.part == *part && m.row.program == *program)
            .filter_map(|(d, m)| per_mac(d, m))
            .peekable();
        if these.peek().is_none() {
            faults.push(format!("{name}: a budget for a kernel that does not run"));
        }
        let missed = budget.reached > 0.0;
        if missed && budget.why.is_empty() {
            faults.push(format!("{name}: a missed budget without a reason"));
        }
        let most = if missed { budget.reached * (1.0 + SLACK) } else { budget.most };
        let most = most * (1.0 + tolerance - SLACK);
        faults.extend(
            these
                .filter(|&n| n > most)
                .map(|n| format!("{name}: {n:.2} instructions for each weight, at most {most:.2}")),
        );
    }
    faults
}

/// Ends of the names of programs whose products are packed pairs of f16.
const PACKED: [&str; 4] = ["_pk", "_pk_plain", "_pk16", "_pk16_add"];

/// Faults of a program that no table excuses: spilled registers, 64-bit floats, packed arithmetic that came apart.
pub(super) fn absolute(measured: &Measured) -> Vec<String> {
    let row = &measured.row;
    let name = row.key().join(" ");
    let mut faults = Vec::new();
    for (column, what) in
        [("double", "instructions on 64-bit floats"), ("spills", "spilled registers")]
    {
        if row.get(column) > 0.0 {
            faults.push(format!("{name}: {} {what}", row.get(column)));
        }
    }
    let packed = PACKED.iter().any(|end| row.program.ends_with(end));
    if packed && row.get("packed") == 0.0 {
        faults.push(format!("{name}: no packed instruction"));
    }
    // Packed products need no conversions; scales and outputs need some.
    if packed && row.get("convert") > row.get("packed") * 0.25 {
        let (convert, packed) = (row.get("convert"), row.get("packed"));
        faults.push(format!("{name}: {convert} conversions beside {packed} packed instructions"));
    }
    faults
}
