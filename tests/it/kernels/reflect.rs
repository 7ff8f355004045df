//! Every embedded module against what its Rust side declares, and against the SPIR-V validator.

use super::spirv::{Module, Shape};
use q36::kernels::{INTERFACES, Interface, MODULES};
use std::process::Command;

/// `CooperativeMatrixKHR`, as a SPIR-V capability.
const COOPERATIVE_MATRIX: u32 = 6022;

fn declared(interface: &Interface) -> Shape {
    let mut bindings: Vec<_> = interface.bindings.iter().map(|b| (0, b.index, b.access)).collect();
    bindings.sort_by_key(|b| b.1);
    let count = u32::try_from(interface.constants.len()).unwrap();
    let constants = (0..count).collect();
    let push_bytes = u32::try_from(interface.push_bytes).unwrap();
    Shape { bindings, push_bytes, constants, workgroup: (0, 1, 1) }
}

#[test]
fn every_module_is_what_its_rust_side_declares() {
    for module in MODULES {
        let mut found = INTERFACES.iter().filter(|i| i.variant == module.name);
        let interface = found.next().unwrap_or_else(|| panic!("{}: no interface", module.name));
        assert!(found.next().is_none(), "{}: declared twice", module.name);
        let shape = Module::parse(module.words()).shape();
        assert_eq!(shape, declared(interface), "{}", module.name);
        assert!(shape.push_bytes <= 128, "{}: more than every device has", module.name);
    }
    for interface in INTERFACES {
        assert!(MODULES.iter().any(|m| m.name == interface.variant), "{}", interface.variant);
    }
}

#[test]
fn every_module_is_valid_spirv() {
    if Command::new("spirv-val").arg("--version").output().is_err() {
        return crate::support::skip("needs spirv-val (Debian: spirv-tools)");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut unknown = 0;
    for module in MODULES {
        let path = dir.path().join(module.name);
        let bytes: Vec<u8> = module.words().iter().flat_map(|w| w.to_le_bytes()).collect();
        std::fs::write(&path, bytes).unwrap();
        let out = Command::new("spirv-val")
            .args(["--target-env", "vulkan1.3"])
            .arg(path)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        // An older validator does not know cooperative matrices; it says so before it looks at anything.
        let is_unknown =
            said.contains(&format!("Invalid capability operand: {COOPERATIVE_MATRIX}"));
        assert!(out.status.success() || is_unknown, "{}: {said}", module.name);
        unknown += usize::from(is_unknown);
    }
    if unknown > 0 {
        crate::support::skip(&format!(
            "{unknown} modules with cooperative matrices need a newer spirv-val"
        ));
    }
}
