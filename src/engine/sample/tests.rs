//! Tests of the sampler: its limits, its promises, and a plain reference in f64.

use proptest::prelude::*;

use super::*;
use crate::util::rng::Rng;

const PLAIN: SamplerParams = SamplerParams { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0 };

fn id(row: usize) -> TokenId {
    TokenId(u32::try_from(row).unwrap())
}

/// `count` rows drawn one after the other with seed 1.
fn draw(logits: &[f32], params: SamplerParams, count: usize) -> Vec<usize> {
    let all = TokenMask::all(logits.len());
    let mut sampler = Sampler::new(params, 1);
    (0..count).map(|_| sampler.sample(logits, &all).unwrap().index()).collect()
}

/// The different rows among 64 draws.
fn drawn(logits: &[f32], params: SamplerParams) -> Vec<usize> {
    let mut rows = draw(logits, params, 64);
    rows.sort_unstable();
    rows.dedup();
    rows
}

#[test]
fn equal_logits_are_both_drawn() {
    assert_eq!(drawn(&[1.0, -20.0, 1.0, -20.0], SamplerParams::default()), [0, 2]);
    assert_eq!(drawn(&[1.0, -20.0, 1.0], SamplerParams { top_p: 0.99, ..PLAIN }), [0, 2]);
}

#[test]
fn greedy_takes_the_first_of_the_best() {
    let logits = [0.0, 3.0, f32::NAN, 3.0, 2.9];
    for temperature in [0.0, -1.0, f32::NAN] {
        assert_eq!(drawn(&logits, SamplerParams { temperature, ..PLAIN }), [1]);
    }
    assert_eq!(drawn(&logits, SamplerParams { top_k: 1, ..PLAIN }), [1]);
    assert_eq!(drawn(&logits, SamplerParams { temperature: 1e-30, top_k: 4, ..PLAIN }), [1, 3]);
}

#[test]
fn limits_restrict() {
    // Shares 0.6, 0.3, 0.1.
    let logits = [0.6f32, 0.3, 0.1].map(f32::ln);
    assert_eq!(drawn(&logits, PLAIN), [0, 1, 2]);
    assert_eq!(drawn(&logits, SamplerParams { top_p: 0.5, ..PLAIN }), [0]);
    assert_eq!(drawn(&logits, SamplerParams { top_p: 0.85, ..PLAIN }), [0, 1]);
    assert_eq!(drawn(&logits, SamplerParams { min_p: 0.95, ..PLAIN }), [0]);
    assert_eq!(drawn(&logits, SamplerParams { min_p: 0.4, ..PLAIN }), [0, 1]);
    assert_eq!(drawn(&logits, SamplerParams { top_k: 2, ..PLAIN }), [0, 1]);
    // 0 is no limit; nothing excludes the best.
    assert_eq!(drawn(&logits, SamplerParams { top_p: 0.0, ..PLAIN }), [0, 1, 2]);
    assert_eq!(drawn(&logits, SamplerParams { min_p: 7.0, top_p: 1e-9, ..PLAIN }), [0]);
}

#[test]
fn top_p_counts_the_share_of_what_top_k_left() {
    // Of the best two, 0.4 and 0.4, the first has half: more than 0.45 although less of the whole.
    let logits = [0.4f32, 0.4, 0.2].map(f32::ln);
    let params = SamplerParams { top_k: 2, top_p: 0.45, ..PLAIN };
    assert_eq!(drawn(&logits, params), [0]);
    assert_eq!(drawn(&logits, SamplerParams { top_k: 0, ..params }), [0, 1]);
}

#[test]
fn large_top_k_counts_as_1024() {
    let mut logits = vec![0.0; 3000];
    logits[2999] = 0.5;
    let rows = drawn(&logits, SamplerParams { top_k: 100_000, ..PLAIN });
    assert!(rows.iter().all(|&row| row < 1023 || row == 2999), "{rows:?}");
    // Without top-k the cut may lie beyond the first look, or nowhere.
    let rows = drawn(&logits, SamplerParams { top_p: 0.9, ..PLAIN });
    assert!(rows.iter().any(|&row| row > 1024) && rows.iter().all(|&row| row < 2701), "{rows:?}");
    let rows = drawn(&logits, SamplerParams { top_p: 0.999_999_9, ..PLAIN });
    assert!(rows.iter().any(|&row| row > 2701), "{rows:?}");
}

#[test]
fn forbidden_rows_are_never_drawn() {
    let logits = vec![1.0; 200];
    let mut allowed = TokenMask::all(200);
    for row in 0..130 {
        allowed.remove(id(row));
    }
    for params in [PLAIN, SamplerParams { top_p: 0.9, ..PLAIN }, SamplerParams::default()] {
        let mut sampler = Sampler::new(params, 5);
        for _ in 0..200 {
            assert!(sampler.sample(&logits, &allowed).unwrap().index() >= 130);
        }
    }
    // A mask shorter than the row allows nothing beyond its end.
    let mut sampler = Sampler::new(PLAIN, 5);
    assert!(sampler.sample(&logits, &TokenMask::all(1)).unwrap() == id(0));
}

#[test]
fn nothing_to_draw_is_an_error() {
    let bad = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    for temperature in [0.0, 1.0] {
        let mut sampler = Sampler::new(SamplerParams { temperature, ..PLAIN }, 1);
        let all = TokenMask::all(3);
        assert_eq!(sampler.sample(&bad, &all), Err(NonFinite { rows: 3 }));
        assert_eq!(sampler.sample(&[], &TokenMask::all(0)), Err(NonFinite { rows: 0 }));
        assert_eq!(sampler.sample(&[1.0; 3], &TokenMask::none(3)), Err(NonFinite { rows: 3 }));
        let one = [f32::INFINITY, 0.5, f32::NAN];
        assert_eq!(sampler.sample(&one, &all), Ok(id(1)));
    }
    assert_eq!(argmax(&bad), None);
    assert!(log_sum_exp(&bad).is_infinite());
    assert_eq!(top_n(&bad, 3), []);
    let extreme = [f32::MAX, f32::MIN];
    assert_eq!(drawn(&extreme, PLAIN), [0]);
}

#[test]
fn absurd_parameters_still_draw() {
    let absurd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 1e-45, 0.0, -0.0];
    let rows = [[0.0, 0.0, -1.0], [f32::MAX, f32::MIN, 0.0], [1e-45, 0.0, -1e-45]];
    for logits in rows {
        for (temperature, top_p, min_p) in
            absurd.iter().flat_map(|t| absurd.iter().flat_map(move |p| absurd.map(|m| (*t, *p, m))))
        {
            for top_k in [0, 1, usize::MAX] {
                draw(&logits, SamplerParams { temperature, top_k, top_p, min_p }, 3);
            }
        }
    }
}

#[test]
fn draws_are_fixed_for_ever() {
    let logits: Vec<f32> = (0..101u8).map(|i| f32::from(i) * 37.0 % 101.0 / 10.0).collect();
    let check = |params, expected: [usize; 16]| assert_eq!(draw(&logits, params, 16), expected);
    check(
        SamplerParams::default(),
        [30, 65, 73, 30, 8, 79, 79, 65, 30, 76, 49, 19, 19, 76, 90, 60],
    );
    check(
        SamplerParams { top_k: 20, top_p: 0.95, ..PLAIN },
        [90, 68, 98, 90, 30, 27, 57, 68, 19, 98, 79, 60, 60, 98, 16, 38],
    );
    check(
        SamplerParams { temperature: 2.5, top_p: 0.9, ..PLAIN },
        [38, 84, 73, 38, 60, 92, 51, 84, 68, 32, 46, 49, 19, 2, 29, 24],
    );
    check(
        SamplerParams { temperature: 1.5, ..PLAIN },
        [30, 67, 73, 30, 8, 79, 81, 68, 32, 76, 49, 19, 19, 76, 90, 60],
    );
}

#[test]
fn greedy_consumes_no_randomness() {
    let mut sampler = Sampler::new(SamplerParams { temperature: 0.0, ..PLAIN }, 1);
    let logits = vec![0.0; 50];
    let all = TokenMask::all(50);
    sampler.sample(&logits, &all).unwrap();
    sampler.set_params(PLAIN);
    let first = sampler.sample(&logits, &all).unwrap();
    assert_eq!(first.index(), draw(&logits, PLAIN, 1)[0]);
}

#[test]
fn scores_are_log_probabilities() {
    let logits = [0.5f32, 0.25, f32::NAN, 0.25].map(f32::ln);
    let best = top_n(&logits, 3);
    let rows: Vec<usize> = best.iter().map(|s| s.token.index()).collect();
    assert_eq!(rows, [0, 1, 3]);
    for (scored, share) in best.iter().zip([0.5f32, 0.25, 0.25]) {
        assert!((scored.logprob - share.ln()).abs() < 1e-6);
        assert!((logprob(&logits, scored.token) - scored.logprob).abs() < 1e-6);
    }
    assert!(log_sum_exp(&logits).abs() < 1e-6);
    assert!((log_sum_exp(&[1000.0; 4]) - (1000.0 + 4f64.ln())).abs() < 1e-9);
    assert!(logprob(&logits, id(2)).is_infinite() && logprob(&logits, id(9)).is_infinite());
    assert_eq!(top_n(&logits, 0), []);
}

#[test]
fn ranks_count_what_is_better() {
    let logits = [1.0, 3.0, f32::NAN, 3.0, f32::INFINITY, 2.0];
    let ranks: Vec<Option<usize>> = (0..7).map(|row| rank_of(&logits, id(row))).collect();
    assert_eq!(ranks, [Some(3), Some(0), None, Some(1), None, Some(2), None]);
}

/// The rows that stay and their weights, in the order of the draw, and the least distance of any decision from
/// turning out otherwise.
fn reference(logits: &[f32], allowed: &TokenMask, p: SamplerParams) -> (Vec<(usize, f64)>, f64) {
    let all = logits.iter().enumerate();
    let mut rows: Vec<(usize, f64)> = all
        .filter(|&(row, l)| l.is_finite() && allowed.contains(id(row)))
        .map(|(row, &l)| (row, f64::from(l)))
        .collect();
    let max = rows.iter().map(|r| r.1).fold(f64::NEG_INFINITY, f64::max);
    for row in &mut rows {
        row.1 = ((row.1 - max) / f64::from(p.temperature)).exp();
    }
    let mut margin = f64::INFINITY;
    let (min_p, top_p) = (f64::from(p.min_p), f64::from(p.top_p));
    for row in rows.iter().filter(|row| row.1 < 1.0) {
        margin = margin.min((row.1 - min_p).abs());
    }
    if p.top_k == 0 && top_p >= 1.0 {
        rows.retain(|row| row.1 >= min_p);
        return (rows, margin);
    }
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    if p.top_k > 0 {
        rows.truncate(p.top_k.min(TOP_K_MAX));
    }
    let total: f64 = rows.iter().map(|r| r.1).sum();
    let mut share = 0.0;
    let mut kept = 0;
    for row in &rows {
        if kept > 0 && row.1 < min_p {
            break;
        }
        share += row.1 / total;
        kept += 1;
        margin = margin.min((share - top_p).abs());
        if top_p < 1.0 && share >= top_p {
            break;
        }
    }
    rows.truncate(kept);
    (rows, margin)
}

fn logits() -> impl Strategy<Value = Vec<f32>> {
    let logit = prop_oneof![
        8 => (-20i8..20).prop_map(|n| f32::from(n) / 4.0),
        4 => -10.0f32..10.0,
        1 => prop::sample::select(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0][..]),
    ];
    prop::collection::vec(logit, 1..200)
}

fn params() -> impl Strategy<Value = SamplerParams> {
    let top_k = prop_oneof![Just(0usize), 1..60usize];
    let top_p = prop_oneof![Just(1.0f32), 0.01..1.0f32];
    let min_p = prop_oneof![Just(0.0f32), 0.0..1.0f32];
    (0.1..3.0f32, top_k, top_p, min_p).prop_map(|(temperature, top_k, top_p, min_p)| {
        SamplerParams { temperature, top_k, top_p, min_p }
    })
}

proptest! {
    #[test]
    fn draws_as_the_reference(logits in logits(), p in params(), seed: u64, holes: Vec<u8>) {
        let mut allowed = TokenMask::all(logits.len());
        for hole in holes {
            allowed.remove(TokenId(hole.into()));
        }
        let found = Sampler::new(p, seed).sample(&logits, &allowed);
        let (rows, margin) = reference(&logits, &allowed, p);
        if rows.is_empty() {
            prop_assert!(found.is_err());
            return Ok(());
        }
        prop_assume!(margin > 1e-5);
        let total: f64 = rows.iter().map(|r| r.1).sum();
        let place = f64::from(Rng::new(seed).unit_f32()) * total;
        let found = found.unwrap().index();
        let at = rows.iter().position(|r| r.0 == found).expect("only rows that stay are drawn");
        let start: f64 = rows[..at].iter().map(|r| r.1).sum();
        let end = start + rows[at].1;
        let rounding = 1e-5 * total;
        prop_assert!((start - rounding..=end + rounding).contains(&place), "{place} of {start}-{end}");
    }

    #[test]
    fn best_are_sorted(logits in logits(), n in 0..50usize) {
        let found: Vec<usize> = top_n(&logits, n).iter().map(|s| s.token.index()).collect();
        let mut rows: Vec<usize> = (0..logits.len()).filter(|&r| logits[r].is_finite()).collect();
        rows.sort_by(|&a, &b| logits[b].partial_cmp(&logits[a]).unwrap());
        for (rank, &row) in rows.iter().enumerate() {
            prop_assert_eq!(rank_of(&logits, id(row)), Some(rank));
        }
        prop_assert_eq!(argmax(&logits), rows.first().map(|&row| id(row)));
        rows.truncate(n);
        prop_assert_eq!(found, rows);
    }
}
