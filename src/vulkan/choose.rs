//! Which device to take: scores, names, and who is refused (vulkan.md 4.1; design decision 15). Pure
//! functions over descriptions.

use super::caps::Ability;
use super::entry::{Instance, Validation};
use super::error::Error;
use super::info::{DeviceInfo, Kind};
use std::fmt::Write as _;

/// What a device is judged by besides its own description.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rank {
    /// Memory that the model, its caches and scratch need; 0 when nothing is loaded.
    pub needed_bytes: u64,
    /// Measured copy bandwidth of the device in GB/s, where one is remembered.
    pub copy_gbps: Option<f32>,
}

/// How the device was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// The best real GPU; never a CPU driver.
    Gpu,
    /// The best real GPU, or a CPU driver when nothing else is there.
    Any,
    /// This one: an index, a UUID, or part of a name.
    Named(&'a str),
}

/// A device in the list of `q36 devices`.
#[derive(Debug, Clone)]
pub struct Listed {
    /// What it is and can do.
    pub info: DeviceInfo,
    /// Its score; the highest is taken.
    pub score: f64,
    /// Why it cannot be used.
    pub refusal: Option<String>,
}

/// Every device with its score, in the loader's order.
///
/// # Errors
/// Those of [`Instance::new`] and of enumerating.
pub fn list(rank: &Rank) -> Result<Vec<Listed>, Error> {
    let devices = Instance::new(Validation::Off)?.devices()?;
    Ok(devices.into_iter().map(|d| judge(d.info, rank)).collect())
}

fn judge(info: DeviceInfo, rank: &Rank) -> Listed {
    let refusal = (!info.missing.is_empty()).then(|| format!("lacks {}", info.missing.join(", ")));
    Listed { score: score(&info, rank), refusal, info }
}

/// Higher is better: kind, memory that fits, arithmetic, measured bandwidth.
fn score(info: &DeviceInfo, rank: &Rank) -> f64 {
    let kind = match info.kind {
        Kind::Discrete => 1000.0,
        Kind::Integrated => 600.0,
        Kind::Cpu => 10.0,
        Kind::Virtual | Kind::Other => 0.0,
    };
    let fit = if rank.needed_bytes == 0 {
        1.0
    } else {
        (info.usable.0 as f64 / rank.needed_bytes as f64).min(1.0)
    };
    let matrix = if info.caps.has(Ability::Matrix) { 100.0 } else { 0.0 };
    let float16 = if info.caps.has(Ability::Float16) { 50.0 } else { 0.0 };
    let bandwidth = rank.copy_gbps.map_or(0.0, |g| f64::from(g.max(1.0)).log2() * 20.0);
    kind + fit * 500.0 + matrix + float16 + bandwidth
}

/// Index into `devices` of the one to take.
///
/// # Errors
/// [`Error::NoDevice`] when none may be taken, [`Error::NoMatch`] when a name fits none or several,
/// [`Error::Unsuitable`] when the named one lacks something.
pub fn choose(devices: &[DeviceInfo], request: Request<'_>, rank: &Rank) -> Result<usize, Error> {
    if let Request::Named(name) = request {
        let index = find(devices, name)?;
        let info = &devices[index];
        if info.missing.is_empty() {
            return Ok(index);
        }
        let missing = info.missing.join(", ");
        return Err(Error::Unsuitable { device: info.name.clone(), missing });
    }
    let best = |cpu: bool| {
        let usable = devices.iter().enumerate().filter(|(_, d)| d.missing.is_empty());
        usable
            .filter(|(_, d)| (d.kind == Kind::Cpu) == cpu)
            // Of equals the first: `max_by` would take the last.
            .rev()
            .max_by(|a, b| score(a.1, rank).total_cmp(&score(b.1, rank)))
            .map(|(i, _)| i)
    };
    let found = best(false).or_else(|| if request == Request::Any { best(true) } else { None });
    found.ok_or_else(|| Error::NoDevice(turned_down(devices)))
}

/// The device that an index, a UUID or a part of a name means.
fn find(devices: &[DeviceInfo], name: &str) -> Result<usize, Error> {
    if let Ok(index) = name.parse::<usize>()
        && index < devices.len()
    {
        return Ok(index);
    }
    let lower = name.to_lowercase();
    let uuid = lower.replace('-', "");
    if let Some(i) = devices.iter().position(|d| d.uuid == uuid) {
        return Ok(i);
    }
    let matches: Vec<usize> = (0..devices.len())
        .filter(|&i| !lower.is_empty() && devices[i].name.to_lowercase().contains(&lower))
        .collect();
    match matches[..] {
        [one] => Ok(one),
        [] => Err(Error::NoMatch(format!("no Vulkan device matches `{name}`{}", names(devices)))),
        _ => Err(Error::NoMatch(format!(
            "`{name}` matches more than one Vulkan device{}",
            names(devices)
        ))),
    }
}

fn names(devices: &[DeviceInfo]) -> String {
    devices.iter().fold(String::new(), |mut text, d| {
        let _ = write!(text, "\n  {}: {} ({})", d.index, d.name, d.uuid);
        text
    })
}

fn turned_down(devices: &[DeviceInfo]) -> String {
    devices.iter().fold(String::new(), |mut text, d| {
        let why = if d.missing.is_empty() {
            "computes on the CPU; name it with --device to use it".to_owned()
        } else {
            format!("lacks {}", d.missing.join(", "))
        };
        let _ = write!(text, "\n  {}: {}: {why}", d.index, d.name);
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::units::Bytes;
    use crate::vulkan::info::tests::device;

    const RANK: Rank = Rank { needed_bytes: 0, copy_gbps: None };

    fn pick(devices: &[DeviceInfo], request: Request<'_>) -> Result<usize, String> {
        choose(devices, request, &RANK).map_err(|e| e.to_string())
    }

    #[test]
    fn real_gpus_win_and_cpu_drivers_wait_to_be_asked() {
        let cpu = device(0, "llvmpipe", Kind::Cpu);
        let igpu = device(1, "AMD BC-250", Kind::Integrated);
        let card = device(2, "NVIDIA H200", Kind::Discrete);
        let all = [cpu.clone(), igpu.clone(), card.clone()];
        assert_eq!(pick(&all, Request::Gpu), Ok(2));
        assert_eq!(pick(&all[..2], Request::Gpu), Ok(1));
        assert!(
            pick(&all[..1], Request::Gpu).unwrap_err().contains("llvmpipe: computes on the CPU")
        );
        assert_eq!(pick(&all[..1], Request::Any), Ok(0));
        assert_eq!(pick(&all, Request::Any), Ok(2));
        assert!(pick(&[], Request::Any).is_err());
        let twins = [igpu.clone(), igpu];
        assert_eq!(pick(&twins, Request::Gpu), Ok(0), "of equals the first");
    }

    #[test]
    fn an_unusable_device_is_never_taken_and_says_why() {
        let mut old = device(0, "Old", Kind::Discrete);
        old.missing = vec!["shaderInt8", "maintenance4"];
        let all = [old, device(1, "llvmpipe", Kind::Cpu)];
        assert_eq!(pick(&all, Request::Any), Ok(1));
        assert!(
            pick(&all, Request::Gpu).unwrap_err().contains("Old: lacks shaderInt8, maintenance4")
        );
        assert!(pick(&all, Request::Named("old")).unwrap_err().contains("lacks shaderInt8"));
    }

    #[test]
    fn names_indices_and_uuids() {
        let all = [
            device(0, "NVIDIA H200", Kind::Discrete),
            device(1, "NVIDIA A2", Kind::Discrete),
            device(2, "llvmpipe", Kind::Cpu),
        ];
        assert_eq!(pick(&all, Request::Named("1")), Ok(1));
        assert_eq!(pick(&all, Request::Named("h200")), Ok(0));
        assert_eq!(pick(&all, Request::Named("LLVM")), Ok(2));
        assert_eq!(pick(&all, Request::Named("00000000-0000-0000-0000-000000000001")), Ok(1));
        assert!(pick(&all, Request::Named("nvidia")).unwrap_err().contains("more than one"));
        assert!(pick(&all, Request::Named("7")).unwrap_err().contains("1: NVIDIA A2"));
        assert!(pick(&all, Request::Named("")).is_err());
    }

    #[test]
    fn memory_that_fits_outweighs_small_advantages() {
        let mut small = device(0, "small", Kind::Integrated);
        small.usable = Bytes(4 << 30);
        small.caps = small.caps.with(Ability::Float16).with(Ability::Matrix);
        let large = device(1, "large", Kind::Integrated);
        let rank = Rank { needed_bytes: 12 << 30, copy_gbps: None };
        assert_eq!(choose(&[small, large], Request::Gpu, &rank).unwrap(), 1);
    }

    #[test]
    fn measured_bandwidth_counts_logarithmically() {
        let info = device(0, "a", Kind::Integrated);
        let fast = Rank { needed_bytes: 0, copy_gbps: Some(256.0) };
        assert!((score(&info, &fast) - score(&info, &RANK) - 160.0).abs() < 1e-9);
    }
}
