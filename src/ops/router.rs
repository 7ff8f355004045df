//! Choice and weights of the routed experts (model.md 3.8 steps 2 and 3).

use super::exp;

/// Not enough finite router logits to choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the router gave {finite} finite logits, {wanted} experts must be chosen")]
pub struct TooFewFinite {
    /// Finite logits found.
    pub finite: usize,
    /// Experts to choose.
    pub wanted: usize,
}

/// Chooses the `experts.len()` largest logits, best first, equal ones by lower index, and gives each the softmax
/// over the chosen logits as its weight (equal to renormalising the softmax over all, and never underflowing).
/// A logit that is not finite is never chosen.
pub fn route(logits: &[f32], experts: &mut [u32], weights: &mut [f32]) -> Result<(), TooFewFinite> {
    let wanted = experts.len();
    assert!(weights.len() == wanted, "route: {wanted} experts, {} weights", weights.len());
    let mut chosen = 0;
    for (index, &logit) in (0u32..).zip(logits) {
        if !logit.is_finite() || (chosen == wanted && logit <= weights[wanted - 1]) {
            continue;
        }
        // Insertion sort: `weights` holds logits until the end. Strictly smaller ones move down, so that of equal
        // logits the earlier index stays in front.
        let mut place = chosen.min(wanted - 1);
        while place > 0 && weights[place - 1] < logit {
            weights[place] = weights[place - 1];
            experts[place] = experts[place - 1];
            place -= 1;
        }
        weights[place] = logit;
        experts[place] = index;
        chosen = (chosen + 1).min(wanted);
    }
    if chosen < wanted {
        return Err(TooFewFinite { finite: chosen, wanted });
    }
    let max = weights[0];
    let mut sum = 0.0;
    for w in weights.iter_mut() {
        *w = exp(*w - max);
        sum += *w;
    }
    for w in weights {
        *w /= sum;
    }
    Ok(())
}

/// `sum += weight * y`: one term of the expert sum (model.md 3.8 steps 4 and 6), added in selection order to a sum
/// that starts at zero, the shared expert last.
pub fn add_weighted(sum: &mut [f32], weight: f32, y: &[f32]) {
    assert!(sum.len() == y.len(), "add_weighted: lengths differ");
    for (s, v) in sum.iter_mut().zip(y) {
        *s += weight * v;
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "exact results are meant")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(logits: &[f32], k: usize) -> Result<(Vec<u32>, Vec<f32>), TooFewFinite> {
        let (mut experts, mut weights) = (vec![u32::MAX; k], vec![f32::NAN; k]);
        route(logits, &mut experts, &mut weights).map(|()| (experts, weights))
    }

    #[test]
    fn equal_logits_go_to_the_lower_index() {
        let (experts, weights) = check(&[1.0, 3.0, 1.0, 3.0, 1.0], 3).unwrap();
        assert_eq!(experts, [1, 3, 0]);
        assert_eq!(weights[0], weights[1]);
        assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-6);
    }

    #[test]
    fn what_is_not_finite_is_never_chosen() {
        let logits = [f32::NAN, 1.0, f32::NEG_INFINITY, 2.0, f32::INFINITY];
        assert_eq!(check(&logits, 2).unwrap().0, [3, 1]);
        assert_eq!(check(&logits, 3), Err(TooFewFinite { finite: 2, wanted: 3 }));
    }

    #[test]
    fn weights_do_not_underflow() {
        let (_, weights) = check(&[1e30, -1e30, 1e30], 3).unwrap();
        assert_eq!(weights, [0.5, 0.5, 0.0]);
    }

    proptest! {
        #[test]
        fn equals_a_stable_sort(
            logits in prop::collection::vec((-20i8..20).prop_map(|v| f32::from(v) / 4.0), 8..300),
            k in 1usize..=8,
        ) {
            let mut order: Vec<usize> = (0..logits.len()).collect();
            order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
            let (experts, weights) = check(&logits, k).unwrap();
            let sum: f64 = order[..k].iter().map(|e| f64::from(logits[*e]).exp()).sum();
            for (slot, e) in order[..k].iter().enumerate() {
                prop_assert_eq!(experts[slot] as usize, *e);
                let exact = f64::from(logits[*e]).exp() / sum;
                prop_assert!((f64::from(weights[slot]) - exact).abs() < 1e-6);
            }
        }
    }
}
