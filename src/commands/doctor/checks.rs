//! From facts to findings. Pure: pretend machines are tested below.

use super::machine::{Gpu, Machine};
use super::{Finding, Level};
use crate::cli::environment::Environment;
use crate::engine::lock::{self, LockState};
use crate::model::memory::Plan;
use crate::util::units::Bytes;

/// The kernel parameters that let a 16 GB board's GPU use nearly all of its memory.
const TTM_PARAMETERS: &str = "ttm.pages_limit=3959290 ttm.page_pool_size=3959290";
/// More than this set aside by the firmware is lost to everything but the GPU.
const LARGE_SPLIT: Bytes = Bytes(1 << 30);

/// The processor and what the CPU backend can use of it.
pub(super) fn processor(machine: &Machine) -> Vec<Finding> {
    let name = machine.cpu_name.as_deref().unwrap_or("unknown processor");
    let (features, is_fast) = features();
    let text = format!("{name}, {} threads, {features}", machine.cpus);
    let finding = if is_fast {
        Finding::new("cpu", Level::Good, text)
    } else {
        Finding::new("cpu", Level::Warning, text)
            .remedy("without AVX2 or NEON the CPU backend is many times slower; use a GPU")
    };
    vec![finding]
}

/// The extensions that inner loops are written for, and whether any is there.
#[cfg(target_arch = "x86_64")]
fn features() -> (String, bool) {
    let known = [
        (std::arch::is_x86_feature_detected!("avx2"), "avx2"),
        (std::arch::is_x86_feature_detected!("fma"), "fma"),
        (std::arch::is_x86_feature_detected!("f16c"), "f16c"),
        (std::arch::is_x86_feature_detected!("avx512f"), "avx512f"),
        (std::arch::is_x86_feature_detected!("avx512vnni"), "avx512vnni"),
    ];
    let found = known.iter().filter(|(is_there, _)| *is_there).map(|(_, name)| *name);
    let found = found.collect::<Vec<_>>();
    let is_fast = ["avx2", "fma", "f16c"].iter().all(|name| found.contains(name));
    (if found.is_empty() { "no vector extensions".into() } else { found.join(" ") }, is_fast)
}

/// Advanced SIMD is part of every 64-bit Arm processor.
#[cfg(target_arch = "aarch64")]
fn features() -> (String, bool) {
    ("neon".into(), true)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn features() -> (String, bool) {
    ("no vector extensions that are used".into(), false)
}

/// Whether the plan fits into memory.
pub(super) fn memory(machine: &Machine, plan: Option<&Plan>) -> Vec<Finding> {
    let Some(usable) = machine.memory_usable() else {
        return vec![Finding::new("memory", Level::Note, "size unknown")];
    };
    let available = machine.memory_available.map(|n| format!(", {n} available"));
    let text = format!("{usable}{}", available.unwrap_or_default());
    let Some(plan) = plan else {
        return vec![Finding::new("memory", Level::Note, text)];
    };
    // Weights are mapped from the file and may come and go; the rest has to be there.
    let (weights, rest) = (Bytes(plan.weights), Bytes(plan.beyond_weights()));
    let needed = format!("needed: {weights} of weights, {rest} for the context");
    let finding = if rest > usable {
        Finding::new("memory", Level::Problem, format!("{text}; {needed}"))
            .remedy("a smaller --ctx, or KV types q8_0 and q4_0, need less")
    } else if plan.total() > usable.0 {
        Finding::new("memory", Level::Warning, format!("{text}; {needed}"))
            .remedy("weights that do not fit are read from disk for every token: slow")
    } else {
        Finding::new("memory", Level::Good, format!("{text}; {needed}"))
    };
    vec![finding]
}

/// Kernel parameters and the firmware's split, for AMD GPUs; others have nothing to set.
pub(super) fn graphics(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    for gpu in &machine.gpus {
        let text = format!("{}: {} of its own, {} of system memory", gpu.card, gpu.vram, gpu.gtt);
        findings.push(Finding::new("gpu", Level::Note, text));
        if gpu.is_integrated() {
            findings.extend(integrated(gpu, machine));
        }
    }
    findings
}

fn integrated(gpu: &Gpu, machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some(total) = machine.memory_total else { return findings };
    if gpu.vram > LARGE_SPLIT {
        let text = format!("the firmware sets {} aside for the GPU", gpu.vram);
        findings.push(Finding::new("firmware", Level::Note, text).remedy(
            "UMA_SPECIFIED with 512 MB leaves more: the GPU takes system memory as it needs it",
        ));
    }
    // The kernel's default is half of the memory, too little for the model on a 16 GB board.
    if let Some(limit) = machine.ttm_limit {
        let text = format!("GPUs may take {limit} of {total} (ttm.pages_limit)");
        let is_low = limit.0 < total.0 / 4 * 3;
        findings.push(if is_low {
            Finding::new("kernel", Level::Warning, text)
                .remedy(format!("add {TTM_PARAMETERS} to the kernel command line (16 GB)"))
        } else {
            Finding::new("kernel", Level::Good, text)
        });
    }
    if machine.has_iommu {
        findings.push(
            Finding::new("kernel", Level::Note, "an IOMMU is in use")
                .remedy("on a BC-250 it must be off: amd_iommu=off"),
        );
    }
    findings
}

/// Whether another process has a model loaded.
pub(super) fn lock(
    machine: &Machine,
    environment: &Environment,
    plan: Option<&Plan>,
) -> Vec<Finding> {
    let path = lock::path(environment.lock_file.as_deref(), environment.runtime_dir.as_deref());
    let shown = path.display();
    let is_small = plan.is_some_and(|plan| plan.total() < lock::SMALLEST_LOCKED_BYTES);
    let finding = match lock::look(&path, &machine.locks) {
        Ok(LockState::Free) => Finding::new("lock", Level::Good, format!("{shown} is free")),
        Ok(LockState::Held { pid }) => {
            let owner = pid.map_or_else(|| "a process".into(), |pid| format!("process {pid}"));
            let level = if is_small { Level::Note } else { Level::Problem };
            Finding::new("lock", level, format!("{shown} is held by {owner}"))
                .remedy("stop that process, or use --no-lock if memory is enough for both")
        }
        Err(err) => Finding::new("lock", Level::Problem, format!("cannot look at {shown}: {err}"))
            .remedy("name another file with Q36_LOCK_FILE"),
    };
    vec![finding]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(findings: &[Finding]) -> Vec<(&str, Level)> {
        findings.iter().map(|f| (f.area, f.level)).collect()
    }

    fn plan(weights_gib: u64, scratch_gib: u64) -> Plan {
        Plan {
            weights: weights_gib << 30,
            kv_per_session: 0,
            slot: 0,
            logits_per_session: 0,
            ids_per_session: 0,
            scratch: scratch_gib << 30,
            sessions: 1,
            slots: 2,
        }
    }

    fn board(ttm: u64, vram: u64) -> Machine {
        Machine {
            memory_total: Some(Bytes(15 << 30)),
            ttm_limit: Some(Bytes(ttm << 30)),
            gpus: vec![Gpu {
                card: "card0".into(),
                vram: Bytes(vram << 20),
                gtt: Bytes(ttm << 30),
            }],
            ..Machine::default()
        }
    }

    #[test]
    fn a_board_with_kernel_defaults_is_told_what_to_set() {
        let findings = graphics(&board(7, 512));
        assert_eq!(levels(&findings), [("gpu", Level::Note), ("kernel", Level::Warning)]);
        assert!(findings[1].remedy.as_deref().unwrap().contains("ttm.pages_limit=3959290"));
        let findings = graphics(&board(14, 512));
        assert_eq!(levels(&findings), [("gpu", Level::Note), ("kernel", Level::Good)]);
    }

    #[test]
    fn a_large_firmware_split_is_pointed_out() {
        let findings = graphics(&board(14, 4096));
        assert!(levels(&findings).contains(&("firmware", Level::Note)));
    }

    #[test]
    fn a_discrete_gpu_has_nothing_to_set() {
        assert_eq!(levels(&graphics(&board(7, 24_576))), [("gpu", Level::Note)]);
    }

    #[test]
    fn memory_is_compared_with_the_plan() {
        let level = |weights: u64, working: u64| {
            memory(&board(14, 512), Some(&plan(weights, working)))[0].level
        };
        assert_eq!(level(11, 1), Level::Good);
        assert_eq!(level(34, 1), Level::Warning);
        assert_eq!(level(1, 16), Level::Problem);
        assert_eq!(memory(&Machine::default(), None)[0].level, Level::Note);
    }

    #[test]
    fn a_held_lock_stops_a_large_model_only() {
        use std::os::unix::fs::MetadataExt as _;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lock");
        std::fs::write(&file, "").unwrap();
        let inode = std::fs::metadata(&file).unwrap().ino();
        let environment = Environment { lock_file: Some(file), ..Environment::default() };
        let held = Machine {
            locks: format!("1: FLOCK  ADVISORY  WRITE 77 00:1c:{inode} 0 EOF"),
            ..Machine::default()
        };
        let level =
            |machine: &Machine, gib: u64| lock(machine, &environment, Some(&plan(gib, 0)))[0].level;
        assert_eq!(level(&held, 11), Level::Problem);
        assert_eq!(level(&held, 0), Level::Note);
        assert_eq!(level(&Machine::default(), 11), Level::Good);
        assert!(lock(&held, &environment, None)[0].text.ends_with("is held by process 77"));
    }
}
