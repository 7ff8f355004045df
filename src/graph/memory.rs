//! Whether what is planned fits the device, before anything is allocated; and what would, when it does not.

use super::{Error, Gpu};
use crate::model::Shape;
use crate::model::memory::{Plan, Request};
use crate::quant::TensorType;
use crate::util::meminfo;
use crate::util::units::Bytes;

/// Contexts are proposed in multiples of this.
const ROUND: usize = 256;

impl Gpu {
    /// What the device can give now: its budget, and no more than the machine has where it is the machine's memory.
    pub fn usable(&self) -> Bytes {
        let budget = self.device.info().usable;
        match meminfo::available() {
            Some(available) if self.is_unified() => budget.min(available),
            _ => budget,
        }
    }

    /// Refuses what cannot fit.
    ///
    /// # Errors
    /// [`Error::TooLarge`] with all numbers, and with what would fit.
    pub fn check_room(
        &self,
        shape: &Shape,
        weight_bytes: u64,
        request: &Request,
    ) -> Result<(), Error> {
        let usable = self.usable();
        let plan = Plan::new(shape, weight_bytes, request);
        if plan.on_device() <= usable.0 {
            return Ok(());
        }
        let parts = format!(
            "weights {}, K/V rows {}, states {}, scratch {}",
            Bytes(plan.weights),
            Bytes(plan.kv()),
            Bytes(plan.state()),
            Bytes(plan.scratch)
        );
        Err(Error::TooLarge {
            device: self.device.info().name.clone(),
            needed: Bytes(plan.on_device()),
            usable,
            parts,
            advice: advice(shape, weight_bytes, request, usable.0),
        })
    }
}

/// What to lower so that it fits.
fn advice(shape: &Shape, weight_bytes: u64, request: &Request, usable: u64) -> String {
    let longest = |kv_k, kv_v| {
        let none = Request { ctx: 0, kv_k, kv_v, ..*request };
        let rest = usable.checked_sub(Plan::new(shape, weight_bytes, &none).on_device())?;
        let token = (shape.kv_token_bytes(kv_k, kv_v) * request.sessions) as u64;
        let tokens = usize::try_from(rest / token).unwrap_or(usize::MAX) / ROUND * ROUND;
        (tokens > 0).then(|| tokens.min(request.ctx))
    };
    let small = TensorType::Q4_0;
    match (longest(request.kv_k, request.kv_v), longest(small, small)) {
        (Some(tokens), _) if tokens >= 4096 => format!("--ctx {tokens} fits"),
        (_, Some(tokens)) => {
            format!("--ctx {tokens} fits with --cache-type-k q4_0 --cache-type-v q4_0")
        }
        (..) => "no context fits beside the weights; a smaller --prefill-chunk needs less scratch, --cpu uses the machine's memory".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_fit_is_named() {
        let shape = Shape::published(40);
        let weights = 11_726_326_272;
        let (q8, q4) = (TensorType::Q8_0, TensorType::Q4_0);
        let request = Request { scratch_bytes: 200 << 20, ..Request::single(q8, q4, 262_144) };
        let told = |mib: u64| advice(&shape, weights, &request, mib << 20);
        let tokens = |text: &str| -> usize { text.split(' ').nth(1).unwrap().parse().unwrap() };
        let text = told(12 << 10);
        assert!(text.ends_with(" fits"), "{text}");
        let fitting = Request { ctx: tokens(&text), ..request };
        let plan = Plan::new(&shape, weights, &fitting);
        assert!(plan.on_device() <= 12 << 30, "{text}");
        let plan = Plan::new(&shape, weights, &Request { ctx: fitting.ctx + ROUND, ..request });
        assert!(plan.on_device() > 12 << 30, "{text}");
        let text = told(11_530);
        assert!(text.contains("q4_0 --cache-type-v q4_0"), "{text}");
        assert!(told(10 << 10).starts_with("no context fits"));
        assert_eq!(told(100 << 10), "--ctx 262144 fits");
    }
}
