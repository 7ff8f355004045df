//! Failures on demand, so that recovery from them can be tried on a device that has none: the device lost at a
//! submission, memory that ends early, a feature that is not there.

use super::error::Error;
use crate::util::units::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What is to fail. One drill serves all devices opened one after the other: it counts on.
#[derive(Debug, Default)]
pub struct Drill {
    lose: Mutex<Vec<u64>>,
    memory_bytes: Option<u64>,
    lacks: Vec<&'static str>,
    submissions: AtomicU64,
    allocated: AtomicU64,
}

impl Drill {
    /// Submissions with these numbers, counted from 1, find the device lost; allocations beyond `memory_bytes` in all
    /// fail; every device is taken to lack `lacks`.
    pub fn new(lose: Vec<u64>, memory_bytes: Option<u64>, lacks: Vec<&'static str>) -> Self {
        Self { lose: Mutex::new(lose), memory_bytes, lacks, ..Self::default() }
    }

    /// Required features that no device is to have.
    pub fn lacks(&self) -> &[&'static str] {
        &self.lacks
    }

    /// Bytes of memory that are allocated.
    pub fn allocated(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed)
    }

    /// Counts a submission; whether it is one that finds the device lost.
    pub(super) fn submit(&self) -> bool {
        let number = self.submissions.fetch_add(1, Ordering::Relaxed) + 1;
        self.lose.lock().unwrap_or_else(PoisonError::into_inner).contains(&number)
    }

    /// Adds losses: the first after so many more submissions, the others after so many after that.
    pub(super) fn lose_after(&self, submissions: &[u64]) {
        let mut number = self.submissions.load(Ordering::Relaxed);
        let mut lose = self.lose.lock().unwrap_or_else(PoisonError::into_inner);
        for more in submissions {
            number += more + 1;
            lose.push(number);
        }
    }

    /// Counts an allocation.
    pub(super) fn allocate(&self, what: &str, bytes: u64) -> Result<(), Error> {
        let before = self.allocated.fetch_add(bytes, Ordering::Relaxed);
        match self.memory_bytes {
            Some(limit) if before.saturating_add(bytes) > limit => {
                self.free(bytes);
                let code = "beyond the limit of a drill".to_owned();
                Err(Error::Memory { what: what.to_owned(), bytes: Bytes(bytes), code })
            }
            _ => Ok(()),
        }
    }

    /// Takes an allocation back.
    pub(super) fn free(&self, bytes: u64) {
        self.allocated.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_fail_fails_and_nothing_else() {
        let drill = Drill::new(vec![2, 3], Some(100), Vec::new());
        let lost: Vec<bool> = (0..5).map(|_| drill.submit()).collect();
        assert_eq!(lost, [false, true, true, false, false]);
        drill.lose_after(&[1, 0]);
        let lost: Vec<bool> = (0..4).map(|_| drill.submit()).collect();
        assert_eq!(lost, [false, true, true, false]);
        drill.allocate("a", 60).unwrap();
        assert!(matches!(drill.allocate("b", 41), Err(Error::Memory { .. })));
        drill.allocate("c", 40).unwrap();
        drill.free(60);
        drill.allocate("d", 60).unwrap();
        Drill::default().allocate("e", u64::MAX).unwrap();
    }
}
