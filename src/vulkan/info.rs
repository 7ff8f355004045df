//! A device as its driver describes it: plain data, no handles.

use super::caps::Caps;
use crate::util::bytes::{Reader, Truncated};
use crate::util::hex;
use crate::util::units::Bytes;

/// What kind of hardware is behind a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A card with its own memory.
    Discrete,
    /// A GPU that shares the machine's memory.
    Integrated,
    /// A GPU passed into a virtual machine.
    Virtual,
    /// A driver that computes on the CPU.
    Cpu,
    /// Something else.
    Other,
}

/// A device as the driver describes it.
#[derive(Debug, Clone)]
pub struct DeviceInfo {
    /// Position in the driver's list.
    pub index: usize,
    /// Name.
    pub name: String,
    /// Kind of hardware.
    pub kind: Kind,
    /// UUID as hex digits.
    pub uuid: String,
    /// PCI vendor.
    pub vendor_id: u32,
    /// PCI device.
    pub device_id: u32,
    /// Driver, with its version text.
    pub driver: String,
    /// The driver's own version number.
    pub driver_version: u32,
    /// Vulkan version, major and minor.
    pub api: (u32, u32),
    /// Size of the largest device-local heap.
    pub heap: Bytes,
    /// How much of it this process may use: the driver's budget, else 80 %.
    pub usable: Bytes,
    /// Abilities and limits.
    pub caps: Caps,
    /// Required features that are missing; the device can be used when there are none.
    pub missing: Vec<&'static str>,
    pub(super) cache_uuid: [u8; 16],
}

impl DeviceInfo {
    /// What a cached pipeline depends on, as one file-name-safe word: the device, its driver, and the
    /// shaders (`shader_hash`).
    pub fn cache_identity(&self, shader_hash: &str) -> String {
        let uuid = hex::encode(&self.cache_uuid);
        let text = format!(
            "{:08x} {:08x} {:08x} {uuid} {shader_hash}",
            self.vendor_id, self.device_id, self.driver_version
        );
        hex::sha256(text.as_bytes())[..32].to_owned()
    }

    /// Whether a pipeline-cache blob says that it comes from this device and driver. Drivers check
    /// too, but not all of them survive a damaged header.
    pub(super) fn accepts_cache(&self, blob: &[u8]) -> bool {
        let header = || -> Result<bool, Truncated> {
            let mut r = Reader::new(blob);
            let fields = [r.u32()?, r.u32()?, r.u32()?, r.u32()?];
            Ok(fields == [32, 1, self.vendor_id, self.device_id] && r.take(16)? == self.cache_uuid)
        };
        header().unwrap_or(false)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::vulkan::caps::tests::lavapipe;

    /// A pretend device.
    pub(crate) fn device(index: usize, name: &str, kind: Kind) -> DeviceInfo {
        DeviceInfo {
            index,
            name: name.to_owned(),
            kind,
            uuid: format!("{index:032x}"),
            vendor_id: 0x1002,
            device_id: 0x13fe,
            driver: "pretend 1".to_owned(),
            driver_version: 7,
            api: (1, 3),
            heap: Bytes(16 << 30),
            usable: Bytes(12 << 30),
            caps: lavapipe(),
            missing: Vec::new(),
            cache_uuid: [9; 16],
        }
    }

    #[test]
    fn a_cache_of_another_driver_or_cut_short_is_refused() {
        let info = device(0, "a", Kind::Integrated);
        let mut blob = Vec::new();
        for word in [32, 1, info.vendor_id, info.device_id] {
            blob.extend(word.to_le_bytes());
        }
        blob.extend([9; 16]);
        assert!(info.accepts_cache(&blob));
        assert!(!info.accepts_cache(&blob[..31]));
        blob[20] ^= 1;
        assert!(!info.accepts_cache(&blob));
        let newer = DeviceInfo { driver_version: 8, ..info.clone() };
        assert_ne!(info.cache_identity("a"), newer.cache_identity("a"));
        assert_ne!(info.cache_identity("a"), info.cache_identity("b"));
    }
}
