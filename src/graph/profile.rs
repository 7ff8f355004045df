//! Where the device's time went, summed over steps.

use super::Error;
use crate::vulkan::{Cost, Recorded};
use std::collections::BTreeMap;
use std::time::Duration;

/// The dispatches of one label.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelSpent {
    /// What it is for.
    pub label: String,
    /// The program that ran.
    pub program: &'static str,
    /// Dispatches.
    pub count: usize,
    /// Nanoseconds of all of them.
    pub ns: f64,
    /// What all of them move and compute.
    pub cost: Cost,
}

/// One kind of work.
#[derive(Debug, Clone, PartialEq)]
pub struct Spent {
    /// `prefill` or `decode`.
    pub name: &'static str,
    /// Chunks or steps.
    pub runs: usize,
    /// Nanoseconds from submitting them to having their results.
    pub wall_ns: f64,
    /// Barriers between dispatches, without those of profiling.
    pub barriers: usize,
    /// What was dispatched.
    pub kernels: Vec<KernelSpent>,
}

/// Sums up one kind of work.
pub(super) struct Meter {
    name: &'static str,
    runs: usize,
    wall: Duration,
    barriers: usize,
    kernels: BTreeMap<(String, &'static str), KernelSpent>,
}

impl Meter {
    pub(super) fn new(name: &'static str) -> Self {
        let (wall, kernels) = (Duration::ZERO, BTreeMap::new());
        Self { name, runs: 0, wall, barriers: 0, kernels }
    }

    /// A run is over that took so long.
    pub(super) fn run(&mut self, wall: Duration) {
        self.runs += 1;
        self.wall += wall;
    }

    /// Adds what a profiled graph measured when it last ran.
    pub(super) fn add(&mut self, recorded: &Recorded) -> Result<(), Error> {
        self.barriers += recorded.levels();
        for timing in recorded.timings()? {
            let key = (timing.label.clone(), timing.program);
            let kernel = self.kernels.entry(key).or_insert_with(|| KernelSpent {
                label: timing.label.clone(),
                program: timing.program,
                count: 0,
                ns: 0.0,
                cost: Cost::default(),
            });
            kernel.count += 1;
            kernel.ns += timing.ns;
            kernel.cost.bytes += timing.cost.bytes;
            kernel.cost.flops += timing.cost.flops;
        }
        Ok(())
    }

    /// The sums so far; they start again.
    pub(super) fn take(&mut self) -> Spent {
        let Self { name, runs, wall, barriers, kernels } =
            std::mem::replace(self, Self::new(self.name));
        let wall_ns = wall.as_secs_f64() * 1e9;
        Spent { name, runs, wall_ns, barriers, kernels: kernels.into_values().collect() }
    }
}
