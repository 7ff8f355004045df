//! The gate on machine code: what Mesa's driver for AMD makes of every hot kernel, compared with committed figures
//! (vulkan.md 6.1). No hardware is needed: the driver pretends to have the chip that `RADV_FORCE_FAMILY` names, and
//! kernels are chosen and compiled for it as they would be for a BC-250.
//!
//! ```text
//! plan       the engine's graphs over buffers without memory -> dispatches, pipelines, grids
//! asm, flow  the driver's listing -> blocks, loops, work of a wave
//! measure    one row of figures for each program
//! table      the committed rows (tests/isa), what may differ
//! budgets    instructions for each weight, packed arithmetic
//! bc250      microseconds that the figures imply (speed-bench/bc250.md)
//! ```
//!
//! `Q36_ISA=write` writes the table of the driver at hand and the page, and prints what changed.

mod asm;
mod bc250;
mod budgets;
mod flow;
mod gate;
mod measure;
mod plan;
mod table;
mod tests;
