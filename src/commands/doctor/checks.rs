//! From facts to findings. Pure: pretend machines are tested below.

use super::{Finding, Level};
use crate::cli::environment::Environment;
use crate::commands::devices::{Device, Survey};
use crate::commands::machine::{Gpu, Machine};
use crate::engine::lock::{self, LockState};
use crate::model::memory::Plan;
use crate::quant::Isa;
use crate::util::units::Bytes;

/// The kernel parameters that let a 16 GB board's GPU use nearly all of its memory.
const TTM_PARAMETERS: &str = "ttm.pages_limit=3959290 ttm.page_pool_size=3959290";
/// Mesa from which on RADV is known to do well on a BC-250.
const RECOMMENDED_MESA: (u32, u32, u32) = (25, 3, 6);
/// More than this set aside by the firmware is lost to everything but the GPU.
const LARGE_SPLIT: Bytes = Bytes(1 << 30);

/// The processor and what the CPU backend uses of it.
pub(super) fn processor(machine: &Machine, isa: Isa) -> Vec<Finding> {
    let name = machine.cpu_name.as_deref().unwrap_or("unknown processor");
    let text = format!("{name}, {} threads, {isa} instructions", machine.cpus);
    let finding = if isa == Isa::Scalar {
        Finding::new("cpu", Level::Warning, text)
            .remedy("without AVX2 or NEON the CPU backend is many times slower; use a GPU")
    } else {
        Finding::new("cpu", Level::Good, text)
    };
    vec![finding]
}

/// Vulkan devices and their drivers. The CPU backend runs without any, so nothing here is a problem.
pub(super) fn vulkan(survey: &Survey) -> Vec<Finding> {
    if let Some(error) = &survey.error {
        let (said, hint) = error.split_once("\nhint: ").unwrap_or((error, ""));
        let finding = Finding::new("vulkan", Level::Warning, said);
        return vec![if hint.is_empty() { finding } else { finding.remedy(hint) }];
    }
    if survey.devices.is_empty() {
        let text = if survey.vulkan { "no device" } else { "this build knows no Vulkan" };
        return vec![Finding::new("vulkan", Level::Note, text)];
    }
    survey.devices.iter().map(device).collect()
}

fn device(device: &Device) -> Finding {
    let usable = Bytes(device.usable_bytes);
    let text = format!("{}: {}, {}, {usable} usable", device.index, device.name, device.driver);
    if let Some(refusal) = &device.refusal {
        return Finding::new("vulkan", Level::Warning, format!("{text}: {refusal}"))
            .remedy("a newer driver may help");
    }
    if device.kind == "cpu" {
        return Finding::new("vulkan", Level::Note, format!("{text}; computes on the processor"));
    }
    match mesa_version(&device.driver) {
        Some(version) if device.driver.contains("radv") && version < RECOMMENDED_MESA => {
            Finding::new("vulkan", Level::Warning, text)
                .remedy("a BC-250 needs Mesa 25.1 and does best with 25.3.6 or newer")
        }
        _ => Finding::new("vulkan", Level::Good, text),
    }
}

/// `(25, 3, 6)` from a driver text with `Mesa 25.3.6` in it.
fn mesa_version(driver: &str) -> Option<(u32, u32, u32)> {
    let text = driver.split_once("Mesa ")?.1;
    let end = text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len());
    let mut numbers = text[..end].split('.').map(|n| n.parse::<u32>().ok());
    let (major, minor) = (numbers.next()??, numbers.next()??);
    Some((major, minor, numbers.next().flatten().unwrap_or(0)))
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
            vocabulary: 0,
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
    fn mesa_versions_are_read_from_driver_texts() {
        assert_eq!(mesa_version("radv Mesa 25.3.6-1~deb12"), Some((25, 3, 6)));
        assert_eq!(mesa_version("Mesa 26.0"), Some((26, 0, 0)));
        assert_eq!(mesa_version("NVIDIA 580.159"), None);
        assert_eq!(mesa_version("Mesa git"), None);
    }

    #[test]
    fn vulkan_is_never_a_problem_for_the_cpu_backend() {
        let level = |survey: &Survey| vulkan(survey)[0].level;
        let mut survey = Survey::default();
        assert_eq!(level(&survey), Level::Note);
        survey.error = Some("cannot load\nhint: install it".into());
        assert_eq!(level(&survey), Level::Warning);
        assert_eq!(vulkan(&survey)[0].remedy.as_deref(), Some("install it"));
        let with = |kind, driver: &str, refusal: Option<&str>| {
            let device = Device {
                index: 0,
                name: "GPU".into(),
                kind,
                uuid: String::new(),
                vendor_id: 0x1002,
                driver: driver.into(),
                vulkan: "1.3".into(),
                heap_bytes: 0,
                usable_bytes: 0,
                compute_units: None,
                subgroups: [64; 3],
                abilities: Vec::new(),
                kernels: Vec::new(),
                score: 0.0,
                refusal: refusal.map(str::to_owned),
            };
            level(&Survey { vulkan: true, error: None, devices: vec![device] })
        };
        assert_eq!(with("integrated", "radv Mesa 25.3.6", None), Level::Good);
        assert_eq!(with("integrated", "radv Mesa 24.2.8", None), Level::Warning);
        assert_eq!(with("cpu", "llvmpipe Mesa 22.3.6", None), Level::Note);
        assert_eq!(with("discrete", "radv Mesa 25.3.6", Some("lacks x")), Level::Warning);
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
