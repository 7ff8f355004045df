//! `--power`: work for a share of the time. Output does not depend on it.

use std::time::Duration;

/// Rest owed after `busy` time at a duty cycle of `percent` (1 to 100).
pub(super) fn rest_after(busy: Duration, percent: u8) -> Duration {
    let percent = u32::from(percent.clamp(1, 100));
    busy * (100 - percent) / percent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_is_its_share() {
        let busy = Duration::from_millis(100);
        assert_eq!(rest_after(busy, 100), Duration::ZERO);
        assert_eq!(rest_after(busy, 50), busy);
        assert_eq!(rest_after(busy, 25), 3 * busy);
        assert_eq!(rest_after(busy, 0), rest_after(busy, 1));
    }
}
