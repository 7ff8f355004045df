//! The one table of compiled shaders, read by `build.rs` (what to compile) and by `src/kernels` (what
//! must be there). `shaders/README.md` says how to declare one.

/// One SPIR-V module: a source file and the macros it is compiled with. The entry point of GLSL is
/// always `main`.
pub struct Variant {
    /// Name of the module in the binary; unique.
    pub name: &'static str,
    /// Source below `shaders/`.
    pub file: &'static str,
    /// Macros, with their values.
    pub defines: &'static [(&'static str, &'static str)],
    /// The probe that must compile for this variant to be embedded.
    pub needs: Option<&'static str>,
}

/// A compiler ability: a test shader below `shaders/` that uses one GLSL extension. The bundled
/// compiler must pass every probe; with another one, variants that need a failed probe are left out and
/// the program does without them.
pub struct Probe {
    /// What variants call it in `needs`.
    pub name: &'static str,
    /// The test shader.
    pub file: &'static str,
    /// Whether a failure stops the build. `false` only where the bundled compiler is itself too old.
    pub required: bool,
}

/// Every probe.
pub const PROBES: &[Probe] = &[
    Probe { name: "coopmat", file: "probe/coopmat.comp", required: true },
    Probe { name: "coopmat2", file: "probe/coopmat2.comp", required: true },
    Probe { name: "int_dot", file: "probe/int_dot.comp", required: true },
];

/// Every module.
pub const VARIANTS: &[Variant] = &[
    Variant { name: "rms_norm", file: "small/rms_norm.comp", defines: &[], needs: None },
    Variant { name: "mv_q8", file: "matmul/mv_q8.comp", defines: &[], needs: None },
    Variant {
        name: "mv_q8_norm",
        file: "matmul/mv_q8.comp",
        defines: &[("NORM", "1")],
        needs: None,
    },
];
