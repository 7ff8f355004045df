//! What Vulkan says about this machine, put into words.

use super::devices::{Device, Kernel, Survey};
use crate::kernels;
use crate::vulkan::{self, Ability, Kind, Listed, Rank};

/// Asks every driver. That there is none is an answer, not a failure.
pub(super) fn survey() -> Survey {
    match vulkan::list(&Rank::default()) {
        Ok(listed) => {
            let devices = listed.iter().map(describe).collect();
            Survey { vulkan: true, error: None, devices }
        }
        Err(err) => Survey { vulkan: true, error: Some(err.to_string()), devices: Vec::new() },
    }
}

/// Names the compiled kernels: two builds with the same one compute alike.
pub(super) const KERNEL_HASH: Option<&str> = Some(kernels::BUNDLE_HASH);

fn describe(listed: &Listed) -> Device {
    let info = &listed.info;
    let subgroups = &info.caps.subgroups;
    let kernels = kernels::chosen(&info.caps).into_iter().map(|(name, variant)| {
        let missing = variant.as_ref().err().cloned();
        Kernel { name, variant: variant.ok(), missing }
    });
    Device {
        index: info.index,
        name: info.name.clone(),
        kind: kind(info.kind),
        uuid: info.uuid.clone(),
        vendor_id: info.vendor_id,
        driver: info.driver.clone(),
        vulkan: format!("{}.{}", info.api.0, info.api.1),
        heap_bytes: info.heap.0,
        usable_bytes: info.usable.0,
        compute_units: info.caps.compute_units,
        subgroups: [subgroups.default, subgroups.min, subgroups.max],
        abilities: Ability::all().filter(|a| info.caps.has(*a)).map(Ability::name).collect(),
        kernels: kernels.collect(),
        score: listed.score,
        refusal: listed.refusal.clone(),
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Discrete => "discrete",
        Kind::Integrated => "integrated",
        Kind::Virtual => "virtual",
        Kind::Cpu => "cpu",
        Kind::Other => "other",
    }
}
