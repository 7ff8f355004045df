//! Tests of the gate's own parts, on listings and tables made by hand.

use super::asm::{Unit, parse};
use super::budgets;
use super::flow::{Work, longest, loops};
use super::measure::{COLUMNS, Measured, Row};
use super::table::{Table, Target, compare, text};

/// A loop of four trips around one of unknown length; then a fork whose first side is the longer.
const LISTING: &str = "
BB0:
    s_mov_b32 s9, 0                                             ; be890380
    s_movk_i32 s4, 0x100                                        ; b0040100
    v_mbcnt_lo_u32_b32 v3, -1, 0                                ; d7650003 000100c1
BB1:
    s_cmp_ge_u32 s9, 4                                          ; bf098409
    s_cbranch_scc1 BB6                                          ; bf850380
BB2:
    v_mov_b32_e32 v5, v3                                        ; 7e0a0303
BB3:
    v_cmpx_le_u32_e32 s5, v5                                    ; 7da60a04
    s_cbranch_scc0 BB5                                          ; bf84000e
BB4:
    v_pk_fma_f16 v6, v7, v8, v6                                 ; cc0e4006 1c1a1107
    (then repeated 2 times)
    v_add_nc_u32_e32 v5, 64, v5                                 ; 4a0a0ac0
    s_branch BB3                                                ; bf82ffeb
BB5:
    s_add_u32 s9, s9, 1                                         ; 80098109
    s_branch BB1                                                ; bf82fc7e
BB6:
    s_cbranch_execz BB8                                         ; bf880008
BB7:
    v_rcp_f32_e32 v9, v9                                        ; 7e125509
    ds_read2_b64 v[0:3], v4 offset1:1                           ; d9dc0100 00000004
    s_waitcnt lgkmcnt(0)                                        ; bf8cc07f
    s_branch BB9                                                ; bf820001
BB8:
    v_mul_f32_e32 v9, v9, v9                                    ; 10121309
BB9:
    v_fma_f64 v[0:1], v[0:1], v[0:1], v[0:1]                    ; d54c0000 04020100
    s_endpgm                                                    ; bf810000
";

#[test]
fn listings_are_taken_apart() {
    let blocks = parse(LISTING);
    assert_eq!(blocks.len(), 10);
    let units: Vec<Unit> = blocks[4].code.iter().map(|i| i.unit).collect();
    assert_eq!(units, [Unit::Packed, Unit::Packed, Unit::Packed, Unit::Vector, Unit::Scalar]);
    let code: Vec<_> = blocks.iter().flat_map(|b| &b.code).collect();
    for unit in [Unit::Special, Unit::Double, Unit::Shared, Unit::Control] {
        assert!(code.iter().any(|i| i.unit == unit), "{unit:?}");
    }
    assert_eq!(blocks[1].code[1].target(), Some("BB6"));
}

fn way(trips: &[f64]) -> Work {
    let blocks = parse(LISTING);
    longest(&blocks, &loops(&blocks), trips)
}

#[test]
fn loops_are_counted_and_the_longer_side_of_a_fork() {
    let found = loops(&parse(LISTING));
    let trips: Vec<_> = found.iter().map(|l| (l.blocks, l.trips)).collect();
    assert_eq!(trips, [((1, 5), Some(4.0)), ((3, 4), None)]);
    let once = way(&[4.0, 1.0]);
    // 1 before; 4 times 1 + (1 + 4); the reciprocal and not the product; the one on doubles.
    assert_eq!((once.vector, once.packed), (1.0 + 4.0 * 6.0 + 2.0, 12.0));
    assert_eq!((once.shared, once.shared_bytes), (1.0, 16.0));
    let thrice = way(&[4.0, 3.0]);
    assert_eq!((thrice.vector - once.vector, thrice.shared), (4.0 * 2.0 * 5.0, 1.0));
    let none = way(&[0.0, 1.0]);
    assert_eq!((none.vector_cycles, none.vector), (1.0 + 4.0 + 16.0, 3.0));
}

#[test]
fn bounds_may_be_in_registers() {
    let listing = LISTING.replace("s_cmp_ge_u32 s9, 4 ", "s_cmp_lt_u32 s4, s9 ");
    assert_eq!(loops(&parse(&listing))[0].trips, Some(257.0));
    let listing = LISTING.replace("s_movk_i32 s4, 0x100", "s_load_dword s4, s[2:3], 0x0");
    let listing = listing.replace("s_cmp_ge_u32 s9, 4 ", "s_cmp_lt_u32 s4, s9 ");
    assert_eq!(loops(&parse(&listing))[0].trips, None);
    let listing = LISTING.replace("v_cmpx_le_u32_e32 s5, v5", "v_cmpx_le_u32_e32 0x200, v5");
    assert_eq!(loops(&parse(&listing))[1].trips, Some(8.0));
}

#[test]
fn loops_may_end_at_their_end() {
    let listing = "
BB0:
    s_mov_b32 s1, 0
BB1:
    s_cmp_lt_u32 s9, 8
    s_cbranch_scc0 BB3
BB2:
    v_add_f32_e32 v1, v1, v2
BB3:
    s_add_u32 s1, s1, 1
    s_cmp_ge_u32 s1, 3
    s_cbranch_scc0 BB1
BB4:
    s_endpgm
";
    let blocks = parse(listing);
    let found = loops(&blocks);
    assert_eq!((found.len(), found[0].trips), (1, Some(3.0)));
    assert_eq!((longest(&blocks, &found, &[3.0]).vector, found[0].blocks), (3.0, (1, 3)));
}

fn row(program: &str) -> Row {
    let mut figures = [100.0; COLUMNS.len()];
    for (name, figure) in COLUMNS.iter().zip(&mut figures) {
        if matches!(*name, "double" | "spills") {
            *figure = 0.0;
        }
    }
    let (run, part, program) = ("decode-1".to_owned(), "gate up".to_owned(), program.to_owned());
    Row { run, part, program, figures, loops: "4,?".to_owned() }
}

fn with(mut row: Row, column: &str, figure: f64) -> Row {
    row.figures[COLUMNS.iter().position(|c| *c == column).unwrap()] = figure;
    row
}

#[test]
fn rows_survive_a_table() {
    let rows = [row("moe_gu"), with(row("moe_down"), "code", 12_345.0)];
    let text = text("radv Mesa 1.2.3", &rows);
    let lines = text.lines().filter(|l| !l.starts_with('#'));
    assert_eq!(lines.map(|l| Row::parse(l).unwrap()).collect::<Vec<_>>(), rows);
    assert_eq!(Row::parse("decode-1 in mv 1 2 3"), None);
}

#[test]
fn targets_have_files() {
    let target = Target::of("Null hardware (RADV NAVI10)", "radv Mesa 22.3.6").unwrap();
    assert_eq!(target.file(), "navi10-mesa-22.txt");
    assert_eq!(Target::of("llvmpipe (LLVM 15.0.6, 256 bits)", "llvmpipe Mesa 22.3.6"), None);
}

#[test]
fn worse_is_a_fault_and_better_a_note() {
    let table = Table { file: "t".to_owned(), rows: vec![row("a")], tolerance: 0.02 };
    let judge = |found: Row| {
        let (faults, notes) = compare(&[found], &table);
        (faults.len(), notes.len())
    };
    assert_eq!(judge(row("a")), (0, 0));
    assert_eq!(judge(with(row("a"), "code", 102.0)), (0, 0));
    assert_eq!(judge(with(row("a"), "code", 103.0)), (1, 0));
    assert_eq!(judge(with(row("a"), "vector", 90.0)), (0, 1));
    assert_eq!(judge(with(row("a"), "packed", 90.0)), (1, 0));
    assert_eq!(judge(with(row("a"), "waves", 99.0)), (1, 0));
    assert_eq!(judge(with(row("a"), "waves", 101.0)), (0, 1));
    // Neither in the table nor any more a kernel.
    assert_eq!(judge(row("b")), (2, 0));
    let other = Table { tolerance: 0.25, ..table };
    assert_eq!(compare(&[with(row("a"), "code", 120.0)], &other).0.len(), 0);
}

#[test]
fn no_table_excuses_spills_doubles_or_torn_pairs() {
    let faults =
        |row: Row| budgets::absolute(&Measured { row, work: Work::default(), round: None }).len();
    assert_eq!(faults(row("mv_q8")), 0);
    assert_eq!(faults(with(row("mv_q8"), "double", 1.0)), 1);
    assert_eq!(faults(with(row("mv_q8"), "spills", 4.0)), 1);
    assert_eq!(faults(with(row("gemm_pk16"), "convert", 5.0)), 0);
    assert_eq!(faults(row("gemm_pk16")), 1, "as many conversions as packed instructions");
    let none = with(row("gemm_pk16"), "convert", 0.0);
    assert_eq!(faults(with(none, "packed", 0.0)), 1);
}
