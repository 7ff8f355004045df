//! What a device spent its time on, as a table.
//!
//! A row is a program with all its dispatches. Times are those of a profiled run, in which nothing
//! overlaps: they say where time goes, not how fast the model is.

use std::collections::BTreeMap;

use crate::engine::{Phase, Profile};

/// The dispatches of one program, over all runs of a phase.
#[derive(Debug, Clone, Copy, Default)]
struct Total {
    count: usize,
    ns: f64,
    bytes: f64,
    flops: f64,
}

impl Total {
    fn add(&mut self, count: usize, ns: f64, bytes: f64, flops: f64) {
        self.count += count;
        self.ns += ns;
        self.bytes += bytes;
        self.flops += flops;
    }
}

/// The tables of all phases that ran, one line each element, an empty line between two.
pub fn table(profile: &Profile) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for phase in profile.phases.iter().filter(|phase| phase.runs > 0) {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.extend(phase_table(phase));
    }
    lines
}

fn phase_table(phase: &Phase) -> Vec<String> {
    let mut programs: BTreeMap<&str, Total> = BTreeMap::new();
    let mut all = Total::default();
    for kernel in &phase.kernels {
        let (bytes, flops) = (kernel.bytes as f64, kernel.flops as f64);
        for total in [programs.entry(kernel.program).or_default(), &mut all] {
            total.add(kernel.count, kernel.ns, bytes, flops);
        }
    }
    let mut programs: Vec<_> = programs.into_iter().collect();
    programs.sort_by(|a, b| b.1.ns.total_cmp(&a.1.ns));
    let width = programs.iter().map(|(name, _)| name.len()).chain(["program".len()]).max();
    let table = Table { runs: phase.runs as f64, all_ns: all.ns, width: width.unwrap_or(0) };
    let mut lines = vec![table.summary(phase, &all), table.head()];
    lines.extend(programs.iter().map(|(name, total)| table.row(name, total)));
    lines.push(table.row("all", &all));
    lines
}

/// What the rows of a phase share.
struct Table {
    runs: f64,
    all_ns: f64,
    width: usize,
}

impl Table {
    fn summary(&self, phase: &Phase, all: &Total) -> String {
        format!(
            "profile of {}, {} runs: {:.3} ms each, {:.3} ms of it in kernels, {} dispatches, {} barriers",
            phase.name,
            phase.runs,
            self.ms(phase.wall_ns),
            self.ms(all.ns),
            self.each(all.count),
            self.each(phase.barriers),
        )
    }

    fn head(&self) -> String {
        let (program, width) = ("program", self.width);
        format!(
            "{program:<width$}  {:>8}  {:>9}  {:>6}  {:>8}  {:>8}",
            "count", "ms/step", "share", "GB/s", "TFLOP/s"
        )
    }

    fn row(&self, name: &str, total: &Total) -> String {
        let width = self.width;
        let share = if self.all_ns > 0.0 { 100.0 * total.ns / self.all_ns } else { 0.0 };
        format!(
            "{name:<width$}  {:>8}  {:>9.3}  {share:>5.1}%  {:>8}  {:>8}",
            self.each(total.count),
            self.ms(total.ns),
            per_second(total.bytes, total.ns, 1e9, 1),
            per_second(total.flops, total.ns, 1e12, 2),
        )
    }

    /// Milliseconds of a run.
    fn ms(&self, ns: f64) -> f64 {
        ns / self.runs / 1e6
    }

    /// How many in a run; with a decimal where runs differ.
    fn each(&self, count: usize) -> String {
        let each = count as f64 / self.runs;
        let decimals = usize::from(each.fract() != 0.0);
        format!("{each:.decimals$}")
    }
}

/// A rate in units of `unit`; a dash where there is none.
fn per_second(amount: f64, ns: f64, unit: f64, decimals: usize) -> String {
    if amount > 0.0 && ns > 0.0 {
        format!("{:.decimals$}", amount / (ns * 1e-9) / unit)
    } else {
        "-".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::KernelTime;

    fn kernel(label: &str, program: &'static str, ms: f64, mb: u64) -> KernelTime {
        let (bytes, flops) = (mb * 1_000_000, 2 * mb * 1_000_000);
        KernelTime { label: label.into(), program, count: 4, ns: ms * 1e6, bytes, flops }
    }

    fn profile() -> Profile {
        let decode = Phase {
            name: "decode",
            runs: 4,
            wall_ns: 48e6,
            barriers: 10,
            kernels: vec![
                kernel("0 in", "mv_q8", 8.0, 8000),
                kernel("0 core", "recurrent", 20.0, 0),
                kernel("1 in", "mv_q8", 12.0, 32_000),
            ],
        };
        let idle = Phase { name: "prefill", runs: 0, kernels: Vec::new(), ..decode.clone() };
        Profile { phases: vec![idle, decode] }
    }

    #[test]
    fn programs_are_added_up_and_sorted_by_time() {
        assert_eq!(
            table(&profile()),
            [
                "profile of decode, 4 runs: 12.000 ms each, 10.000 ms of it in kernels, 3 dispatches, 2.5 barriers",
                "program       count    ms/step   share      GB/s   TFLOP/s",
                "mv_q8             2      5.000   50.0%    2000.0      4.00",
                "recurrent         1      5.000   50.0%         -         -",
                "all               3     10.000  100.0%    1000.0      2.00",
            ]
        );
    }

    #[test]
    fn phases_stand_apart_and_nothing_is_no_table() {
        let mut two = profile();
        two.phases[0].runs = 1;
        let lines = table(&two);
        assert!(lines[0].starts_with("profile of prefill, 1 runs: 48.000 ms each, 0.000 ms"));
        assert_eq!(lines.iter().filter(|line| line.is_empty()).count(), 1);
        assert!(table(&Profile::default()).is_empty());
    }

    #[test]
    fn programs_read_the_same_numbers_as_json() {
        let json = serde_json::to_value(profile()).unwrap();
        let phase = &json["phases"][1];
        assert_eq!((&phase["name"], &phase["runs"]), (&"decode".into(), &4.into()));
        assert_eq!(phase["kernels"][2]["label"], "1 in");
        assert_eq!(phase["kernels"][2]["bytes"], 32_000_000_000_u64);
    }
}
