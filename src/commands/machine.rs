//! What the kernel says about the machine. Everything is optional: a file that is missing or odd
//! leaves its fact out.

use std::fs;
use std::path::{Path, PathBuf};

use crate::engine::default_threads;
use crate::util::meminfo::kibibytes;
use crate::util::units::Bytes;

/// PCI vendor of AMD GPUs.
const AMD: u32 = 0x1002;

/// Facts about the machine.
#[derive(Debug, Clone, Default)]
pub(in crate::commands) struct Machine {
    /// Online processors that this process may use.
    pub(in crate::commands) cpus: usize,
    /// The processor's name.
    pub(in crate::commands) cpu_name: Option<String>,
    /// Installed memory.
    pub(in crate::commands) memory_total: Option<Bytes>,
    /// Memory that can be had without swapping; the page cache counts.
    pub(in crate::commands) memory_available: Option<Bytes>,
    /// Limit of the control group.
    pub(in crate::commands) memory_limit: Option<Bytes>,
    /// `ttm.pages_limit` in bytes: most memory that GPUs together may take from the system.
    pub(in crate::commands) ttm_limit: Option<Bytes>,
    /// AMD GPUs, by card.
    pub(in crate::commands) gpus: Vec<Gpu>,
    /// Whether an IOMMU is in use.
    pub(in crate::commands) has_iommu: bool,
    /// The text of `/proc/locks`.
    pub(in crate::commands) locks: String,
}

/// What the amdgpu driver says about a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::commands) struct Gpu {
    /// `card0`.
    pub(in crate::commands) card: String,
    /// Memory of its own: on an integrated GPU, what the firmware set aside.
    pub(in crate::commands) vram: Bytes,
    /// System memory that it may use.
    pub(in crate::commands) gtt: Bytes,
}

impl Gpu {
    /// Whether it mostly lives in system memory.
    pub(in crate::commands) fn is_integrated(&self) -> bool {
        self.vram < self.gtt
    }
}

impl Machine {
    /// Reads everything below `root`, which is `/` outside tests.
    pub(in crate::commands) fn read(root: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).ok();
        let number = |path: &str| text(path)?.trim().parse::<u64>().ok();
        let meminfo = text("proc/meminfo").unwrap_or_default();
        let cpuinfo = text("proc/cpuinfo").unwrap_or_default();
        let smaps = text("proc/self/smaps").unwrap_or_default();
        let page = kibibytes(&smaps, "KernelPageSize").unwrap_or(Bytes(4096));
        Self {
            cpus: default_threads(),
            cpu_name: field(&cpuinfo, "model name").map(str::to_owned),
            memory_total: kibibytes(&meminfo, "MemTotal"),
            memory_available: kibibytes(&meminfo, "MemAvailable"),
            memory_limit: number("sys/fs/cgroup/memory.max").map(Bytes),
            ttm_limit: number("sys/module/ttm/parameters/pages_limit")
                .map(|pages| Bytes(pages.saturating_mul(page.0))),
            gpus: gpus(&root.join("sys/class/drm")),
            has_iommu: fs::read_dir(root.join("sys/class/iommu"))
                .is_ok_and(|mut entries| entries.next().is_some()),
            locks: text("proc/locks").unwrap_or_default(),
        }
    }

    /// The memory this process can hope for: the machine's, or its control group's.
    pub(in crate::commands) fn memory_usable(&self) -> Option<Bytes> {
        match (self.memory_total, self.memory_limit) {
            (Some(total), Some(limit)) => Some(total.min(limit)),
            (total, limit) => total.or(limit),
        }
    }
}

/// The value behind `name :` in a table of lines.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let is_named = |line: &&str| line.split(':').next().is_some_and(|key| key.trim() == name);
    text.lines().find(is_named)?.split_once(':').map(|(_, value)| value.trim())
}

/// Cards of the amdgpu driver, in the order of their names.
fn gpus(folder: &Path) -> Vec<Gpu> {
    let mut cards = fs::read_dir(folder)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect::<Vec<PathBuf>>())
        .unwrap_or_default();
    cards.sort();
    cards.iter().filter_map(|card| gpu(card)).collect()
}

fn gpu(card: &Path) -> Option<Gpu> {
    let name = card.file_name()?.to_str()?;
    // `card0` is a card, `card0-DP-1` a connector.
    let is_card = name.strip_prefix("card")?.bytes().all(|b| b.is_ascii_digit());
    let read = |file: &str| fs::read_to_string(card.join("device").join(file)).ok();
    let vendor = u32::from_str_radix(read("vendor")?.trim().strip_prefix("0x")?, 16).ok()?;
    let size = |file: &str| read(file)?.trim().parse().ok().map(Bytes);
    (is_card && vendor == AMD).then_some(())?;
    Some(Gpu {
        card: name.to_owned(),
        vram: size("mem_info_vram_total")?,
        gtt: size("mem_info_gtt_total")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn a_board_is_read_from_its_files() {
        let dir = tree(&[
            ("proc/meminfo", "MemTotal:       15728640 kB\nMemAvailable:    8388608 kB\n"),
            ("proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD BC-250\n"),
            ("proc/self/smaps", "7f00-7f01 r--p 00000000\nKernelPageSize:       16 kB\n"),
            ("sys/fs/cgroup/memory.max", "max\n"),
            ("sys/module/ttm/parameters/pages_limit", "1000\n"),
            ("sys/class/drm/card1/device/vendor", "0x1002\n"),
            ("sys/class/drm/card1/device/mem_info_vram_total", "536870912\n"),
            ("sys/class/drm/card1/device/mem_info_gtt_total", "8053063680\n"),
            ("sys/class/drm/card0/device/vendor", "0x10de\n"),
            ("sys/class/drm/card1-DP-1/device/vendor", "0x1002\n"),
            ("sys/class/iommu/ivhd0", ""),
        ]);
        let machine = Machine::read(dir.path());
        assert_eq!(machine.memory_total, Some(Bytes(15 << 30)));
        assert_eq!(machine.memory_usable(), Some(Bytes(15 << 30)));
        assert_eq!(machine.memory_available, Some(Bytes(8 << 30)));
        assert_eq!(machine.cpu_name.as_deref(), Some("AMD BC-250"));
        assert_eq!(machine.memory_limit, None);
        assert_eq!(machine.ttm_limit, Some(Bytes(1000 * 16_384)));
        let card = Gpu { card: "card1".into(), vram: Bytes(512 << 20), gtt: Bytes(8_053_063_680) };
        assert!(card.is_integrated());
        assert_eq!(machine.gpus, [card]);
        assert!(machine.has_iommu);
    }

    #[test]
    fn missing_and_odd_files_leave_facts_out() {
        let dir = tree(&[
            ("proc/meminfo", "MemTotal: lots\nMemAvailable\n"),
            ("sys/fs/cgroup/memory.max", "1024"),
            ("sys/class/drm/card0/device/vendor", "amd"),
        ]);
        let machine = Machine::read(dir.path());
        assert_eq!(machine.memory_total, None);
        assert_eq!(machine.memory_usable(), Some(Bytes(1024)));
        assert_eq!((machine.ttm_limit, machine.has_iommu), (None, false));
        assert!(machine.gpus.is_empty());
    }
}
