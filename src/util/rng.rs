//! The seedable generator behind sampling. Its numbers are a promise: the same seed draws the same
//! tokens for ever, so the algorithm never changes (xorshift64*, model.md appendix).

/// xorshift64*: `x ^= x >> 12; x ^= x << 25; x ^= x >> 27; output x * 0x2545F4914F6CDD1D`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Starts from `seed`; 0, which the recurrence cannot leave, is replaced by a constant.
    pub fn new(seed: u64) -> Self {
        Self { state: if seed == 0 { 0x9E37_79B9_7F4A_7C15 } else { seed } }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let mut x = self.state;
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.state = x;
        x.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// The next value in [0, 1), a multiple of 2^-24.
    pub fn unit_f32(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 / 16_777_216.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_numbers_are_fixed_for_ever() {
        let draw = |seed, n| {
            let mut rng = Rng::new(seed);
            (0..n).map(|_| format!("{:.12}", rng.unit_f32())).collect::<Vec<_>>()
        };
        assert_eq!(
            draw(1, 4),
            ["0.280835032463", "0.671137213707", "0.725846111774", "0.303529262543"]
        );
        assert_eq!(draw(0, 2), ["0.052790820599", "0.331120252609"]);
    }
}
