//! What the counts predict for a BC-250 (vulkan.md 3.14): microseconds of every kernel of a decode step and of a
//! prompt chunk, as a page for people. The method is described on the page itself.

use super::measure::{Measured, measure};
use super::plan::{CTX, Dispatch, Plan, Run, plan};
use crate::graph::Error;
use crate::kernels::attention;
use crate::vulkan::{Caps, Device, PhysicalDevice};
use std::collections::HashMap;
use std::fmt::Write as _;

/// GHz of a CU; the board's stock lock.
const CLOCK: f64 = 1.5;
/// Share of the vector unit's cycles that a measured stream of multiply-adds reached.
const ISSUE: f64 = 0.85;
/// Bytes of shared memory that a CU moves in a cycle.
const SHARED_WIDTH: f64 = 128.0;
/// Bandwidths in GB/s: a kernel that only loads; `Q8_0` products; the head, which is long.
const LOADS: f64 = 373.0;
const PRODUCTS: f64 = 360.0;
const HEAD: f64 = 385.0;
/// Microseconds in which a barrier drains and fills the device.
const BARRIER: f64 = 1.75;

/// Random 16- or 8-byte reads of shared memory go to some bank several times while others wait.
const CONFLICTS: f64 = 2.6;

/// Kernels of a part together.
#[derive(Default)]
struct Sum {
    program: String,
    dispatches: f64,
    bytes: f64,
    macs: f64,
    instructions: f64,
    /// Microseconds: memory, vector unit, shared memory, the longest of the three.
    memory: f64,
    vector: f64,
    shared: f64,
    total: f64,
}

/// The parts of a step in the order of the graph, and its number of levels.
struct Predicted {
    parts: Vec<(String, Sum)>,
    levels: usize,
    /// The program whose work grows with the context, or the first where there is none.
    split: Measured,
}

fn bandwidth(program: &str) -> f64 {
    match program {
        "mv_q8_head" => HEAD,
        _ if program.starts_with("mv_q8") => PRODUCTS,
        _ => LOADS,
    }
}

fn conflicts(program: &str) -> f64 {
    // The packed kernel keeps a copy of its table for each group of banks.
    if program.starts_with("moe_gu_iq2_xxs") && !program.ends_with("_pk") { CONFLICTS } else { 1.0 }
}

/// Rounds of the loop whose length only data decides.
fn rounds(run: Run, part: &str, caps: &Caps) -> f64 {
    let keys = u32::try_from(CTX).expect("a small context");
    match (run, part) {
        (Run::Decode(_), "split") => {
            f64::from(attention::span(keys, attention::splits(2, caps)) / 64)
        }
        // Eight tokens at a time; 32 keys at a time, half of them on average hidden from a query.
        (Run::Prefill(tokens), "delta") => f64::from(tokens) / 8.0,
        (Run::Prefill(tokens), "flash") => f64::from(tokens) / 64.0,
        _ => 1.0,
    }
}

/// Workgroups, also where the device decides: expert products of a chunk whose tokens spread evenly. An expert then has
/// so many slots that half of them have one tile more than the mean needs.
fn groups(run: Run, dispatch: &Dispatch) -> f64 {
    if let Some(groups) = dispatch.groups {
        return groups as f64;
    }
    let Run::Prefill(tokens) = run else { return 0.0 };
    let tiles = 256.0 * (f64::from(tokens) * 8.0 / 256.0 / 64.0 + 0.5);
    tiles * if dispatch.part == "gate up" { 8.0 } else { 16.0 }
}

fn predict(run: Run, plan: &Plan, units: u32, caps: &Caps) -> Result<Predicted, Error> {
    let (mut rows, places) = measure(run, plan)?;
    let mut parts: Vec<(String, Sum)> = Vec::new();
    let mut index = HashMap::new();
    for (dispatch, place) in plan.dispatches.iter().zip(places) {
        let measured = &rows[place];
        let key = (dispatch.part.clone(), measured.row.program.clone());
        let at = *index.entry(key).or_insert_with(|| {
            parts.push((dispatch.part.clone(), Sum::default()));
            parts.len() - 1
        });
        let rounds = rounds(run, &dispatch.part, caps);
        add(&mut parts[at].1, dispatch, measured, (groups(run, dispatch), rounds, units));
    }
    let split = rows.iter().position(|m| m.row.part == "split").unwrap_or(0);
    Ok(Predicted { parts, levels: plan.levels, split: rows.swap_remove(split) })
}

/// Microseconds of a dispatch: memory, vector unit, shared memory.
struct Spent {
    memory: f64,
    vector: f64,
    shared: f64,
    /// Lanes times vector instructions.
    instructions: f64,
}

impl Spent {
    fn of(measured: &Measured, bytes: f64, (groups, rounds, units): (f64, f64, u32)) -> Self {
        let row = &measured.row;
        let mut work = measured.work;
        if let Some(round) = measured.round {
            work += round.times(rounds - 1.0);
        }
        let lanes = row.get("lanes");
        let waves = row.get("group") / lanes;
        // The CU with the most workgroups decides; its two SIMDs share their waves.
        let most = (groups / f64::from(units)).ceil() * waves;
        let cycles = work.vector_cycles * (lanes / 32.0) / 2.0 / ISSUE;
        let moved = work.shared_bytes * lanes / SHARED_WIDTH * conflicts(&row.program);
        Self {
            memory: bytes / bandwidth(&row.program) / 1e3,
            vector: most * cycles / (CLOCK * 1e3),
            shared: most * moved / (CLOCK * 1e3),
            instructions: groups * waves * work.vector * lanes,
        }
    }

    fn longest(&self) -> f64 {
        self.memory.max(self.vector).max(self.shared)
    }
}

fn add(sum: &mut Sum, dispatch: &Dispatch, measured: &Measured, shape: (f64, f64, u32)) {
    let bytes = dispatch.cost.bytes as f64;
    let spent = Spent::of(measured, bytes, shape);
    sum.program.clone_from(&measured.row.program);
    sum.dispatches += 1.0;
    sum.bytes += bytes;
    sum.macs += dispatch.cost.flops as f64 / 2.0;
    sum.instructions += spent.instructions;
    sum.memory += spent.memory;
    sum.vector += spent.vector;
    sum.shared += spent.shared;
    sum.total += spent.longest();
}

/// Milliseconds of a step at other lengths: only `attn_split` depends on them.
fn lengths(decode: &[Predicted; 2], splits: [u32; 2]) -> String {
    let mut text = String::from(
        "| keys | attention ms, 40 CU | tokens per second | attention ms, 24 CU | tokens per second |\n|---:|---:|---:|---:|---:|\n",
    );
    for keys in [2048, 8192, 32_768, 131_072] {
        let _ = write!(text, "| {keys} |");
        for ((predicted, splits), units) in decode.iter().zip(splits).zip(UNITS) {
            let (measured, sum) = (&predicted.split, predicted.sum_of("split"));
            let span = attention::span(keys, splits);
            let (groups, rounds) = (f64::from(2 * keys.div_ceil(span)), f64::from(span / 64));
            let bytes = sum.bytes / sum.dispatches * f64::from(keys) / CTX as f64;
            let spent = Spent::of(measured, bytes, (groups, rounds, units));
            let attention = spent.longest() * sum.dispatches;
            let step = predicted.micros() - sum.total + attention + predicted.barriers() * 1e3;
            let _ = write!(text, " {:.2} | {:.0} |", attention / 1e3, 1e6 / step);
        }
        text.push('\n');
    }
    text
}

impl Predicted {
    fn table(&self) -> String {
        let mut text = String::from(
            "| part | kernel | dispatches | MB | MMAC | instructions/MAC | memory µs | vector µs | shared µs | µs |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        );
        for (part, s) in &self.parts {
            let per_mac = if s.macs > 0.0 {
                format!("{:.2}", s.instructions / s.macs)
            } else {
                "–".to_owned()
            };
            let _ = writeln!(
                text,
                "| {part} | `{}` | {} | {:.1} | {:.0} | {per_mac} | {:.1} | {:.1} | {:.1} | {:.1} |",
                s.program,
                s.dispatches,
                s.bytes / 1e6,
                s.macs / 1e6,
                s.memory,
                s.vector,
                s.shared,
                s.total
            );
        }
        text
    }

    fn sum_of(&self, part: &str) -> &Sum {
        let found = self.parts.iter().find(|p| p.0 == part);
        &found.unwrap_or_else(|| panic!("no part {part}")).1
    }

    fn micros(&self) -> f64 {
        self.parts.iter().map(|p| p.1.total).sum()
    }

    /// Milliseconds of the parts that a predicate takes.
    fn of(&self, takes: impl Fn(&str, &str) -> bool) -> f64 {
        let mine = self.parts.iter().filter(|(part, sum)| takes(part, &sum.program));
        mine.map(|p| p.1.total).sum::<f64>() / 1e3
    }

    fn barriers(&self) -> f64 {
        self.levels as f64 * BARRIER / 1e3
    }
}

/// The lines of vulkan.md 3.14 beside what is predicted.
fn targets(decode: &[Predicted; 2]) -> String {
    type Takes = fn(&str, &str) -> bool;
    // The shared expert's input runs with the router, its output with the routed experts.
    let lines: [(&str, &str, Takes); 7] = [
        ("Q8_0 projections of the mixers", "3.7-3.9", |part, _| matches!(part, "in" | "out")),
        ("LM head", "1.35-1.45", |part, _| part == "head"),
        ("experts, with the shared one's output", "0.95-1.1", |part, _| {
            matches!(part, "gate up" | "down")
        }),
        ("router, with the shared one's input", "0.5", |part, _| part == "router"),
        ("recurrent core", "0.35-0.45", |part, _| part == "core"),
        ("attention core", "0.10", |part, _| matches!(part, "split" | "reduce")),
        ("embedding, sampling", "–", |part, _| {
            part == "embed" || part == "pick" || part.starts_with("filter")
        }),
    ];
    let mut text =
        String::from("| part | target ms, 40 CU | 40 CU | 24 CU |\n|---|---:|---:|---:|\n");
    for (name, target, takes) in lines {
        let [a, b] = decode.each_ref().map(|d| d.of(takes));
        let _ = writeln!(text, "| {name} | {target} | {a:.2} | {b:.2} |");
    }
    let [a, b] = decode.each_ref().map(Predicted::barriers);
    let _ = writeln!(text, "| barriers | 0.4-0.5 | {a:.2} | {b:.2} |");
    let [a, b] = decode.each_ref().map(|d| d.micros() / 1e3 + d.barriers());
    let _ = writeln!(text, "| **sum** | **7.4-8.1** | **{a:.2}** | **{b:.2}** |");
    let _ = writeln!(text, "| tokens per second | 124-135 | {:.0} | {:.0} |", 1e3 / a, 1e3 / b);
    text
}

/// Compute units of the board, all unlocked and as sold.
const UNITS: [u32; 2] = [40, 24];
/// Tokens of the chunk.
const CHUNK: u32 = 2048;

/// The page.
pub(super) fn page(physical: &PhysicalDevice) -> Result<String, Error> {
    let (mut decode, mut prefill, mut splits) = (Vec::new(), Vec::new(), [0; 2]);
    for (units, splits) in UNITS.into_iter().zip(&mut splits) {
        let device = device(physical, units)?;
        *splits = attention::splits(2, device.caps());
        for (run, list) in [(Run::Decode(1), &mut decode), (Run::Prefill(CHUNK), &mut prefill)] {
            list.push(predict(run, &plan(&device, run)?, units, device.caps())?);
        }
    }
    let decode: [Predicted; 2] = decode.try_into().ok().expect("two numbers of units");
    let mut text = include_str!("page.md").replace("{driver}", &physical.info.driver);
    let chip = physical.info.name.rsplit("RADV ").next().unwrap_or_default().trim_end_matches(')');
    text = text.replace("{chip}", &chip.to_lowercase()).replace("{targets}", &targets(&decode));
    text = text.replace("{lengths}", &lengths(&decode, splits));
    for (i, units) in UNITS.iter().enumerate() {
        text = text.replace(&format!("{{decode {units}}}"), &decode[i].table());
    }
    let tokens = f64::from(CHUNK);
    let chunk = prefill[0].table();
    let [a, b] =
        [0, 1].map(|i| (prefill[i].micros() + prefill[i].levels as f64 * BARRIER) / tokens);
    let sum = format!(
        "Sum, with {} levels: {a:.0} µs a token on 40 CU, {:.0} tokens per second; {b:.0} µs and {:.0} on 24.",
        prefill[0].levels,
        1e6 / a,
        1e6 / b
    );
    Ok(text.replace("{prefill}", &(chunk + "\n" + &sum)))
}

/// The board as kernels see it: the driver's answers with so many compute units.
pub(super) fn device(
    physical: &PhysicalDevice,
    units: u32,
) -> Result<std::sync::Arc<Device>, Error> {
    let mut caps = physical.info.caps.clone();
    caps.compute_units = Some(units);
    Ok(Device::inspect(physical, caps)?)
}
