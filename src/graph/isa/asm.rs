//! Machine code of RDNA as the driver prints it: blocks of instructions, what unit each of them occupies.
//!
//! ```text
//! BB1:
//!     s_cmp_ge_u32 s9, 4                                ; bf098409
//!     s_cbranch_scc1 BB86                               ; bf850380
//!     v_mac_f32_e32 v42, v47, v7                        ; 3e540f2f
//!     (then repeated 2 times)
//! ```

/// The unit that an instruction goes to. Waves of a SIMD share the vector unit, those of a CU the other two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Vector arithmetic, 32 lanes a cycle.
    Vector,
    /// Packed 16-bit vector arithmetic: as [`Unit::Vector`], two results for each lane.
    Packed,
    /// Reciprocals, roots, exponents: a quarter of the rate.
    Special,
    /// 64-bit floats: a sixteenth.
    Double,
    /// Scalar arithmetic and branches.
    Scalar,
    /// Loads through the scalar cache.
    ScalarMemory,
    /// Vector loads and stores of buffers.
    Memory,
    /// Spilled registers.
    Scratch,
    /// Shared memory, lane exchanges included that go through it.
    Shared,
    /// Waits, hints, barriers: no unit.
    Control,
}

/// One instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) op: String,
    pub(super) operands: Vec<String>,
    pub(super) unit: Unit,
}

/// Instructions that run one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) name: String,
    pub(super) code: Vec<Instruction>,
}

impl Instruction {
    fn parse(line: &str) -> Option<Self> {
        let text = line.split(';').next().unwrap_or_default().trim();
        let (op, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let known = ["v_", "s_", "ds_", "buffer_", "global_", "flat_", "scratch_", "image_"];
        if !known.iter().any(|start| op.starts_with(start)) {
            return None;
        }
        let operands = rest.split(',').map(|o| o.trim().to_owned()).filter(|o| !o.is_empty());
        Some(Self { op: op.to_owned(), operands: operands.collect(), unit: unit(op) })
    }

    /// The block that a branch goes to.
    pub(super) fn target(&self) -> Option<&str> {
        let branch = self.op.starts_with("s_cbranch") || self.op == "s_branch";
        self.operands.first().filter(|_| branch).map(String::as_str)
    }
}

fn unit(op: &str) -> Unit {
    const CONTROL: [&str; 9] = [
        "s_waitcnt",
        "s_nop",
        "s_clause",
        "s_barrier",
        "s_inst_prefetch",
        "s_sleep",
        "s_endpgm",
        "s_sendmsg",
        "s_delay_alu",
    ];
    const SPECIAL: [&str; 7] = ["v_rcp", "v_rsq", "v_sqrt", "v_exp", "v_log", "v_sin", "v_cos"];
    let starts = |all: &[&str]| all.iter().any(|start| op.starts_with(start));
    if starts(&CONTROL) {
        Unit::Control
    } else if starts(&["s_load", "s_buffer_load", "s_dcache", "s_memtime"]) {
        Unit::ScalarMemory
    } else if op.starts_with("s_") {
        Unit::Scalar
    } else if op.starts_with("ds_") {
        Unit::Shared
    } else if op.starts_with("scratch_") {
        Unit::Scratch
    } else if !op.starts_with("v_") {
        Unit::Memory
    } else if op.contains("f64") {
        Unit::Double
    } else if op.starts_with("v_pk_") {
        Unit::Packed
    } else if starts(&SPECIAL) {
        Unit::Special
    } else {
        Unit::Vector
    }
}

/// The blocks of a listing, in the order of addresses.
pub(super) fn parse(listing: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for line in listing.lines() {
        let text = line.trim();
        if let Some(name) = text.strip_suffix(':') {
            blocks.push(Block { name: name.to_owned(), code: Vec::new() });
        } else if let Some(repeats) = text.strip_prefix("(then repeated ") {
            let count = repeats.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
            if let Some(block) = blocks.last_mut()
                && let Some(last) = block.code.last().cloned()
            {
                block.code.extend(std::iter::repeat_n(last, count));
            }
        } else if let (Some(instruction), Some(block)) =
            (Instruction::parse(text), blocks.last_mut())
        {
            block.code.push(instruction);
        }
    }
    blocks
}
