//! Random numbers that nobody can guess, for ids that are handed out and for seeds that nobody chose.

/// `N` bytes of the operating system's generator.
///
/// # Panics
/// Where the system has none: no id of this program could be trusted then.
pub fn unguessable<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system has random numbers");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_alike() {
        let drawn: std::collections::BTreeSet<[u8; 16]> =
            (0..1000).map(|_| unguessable()).collect();
        assert_eq!(drawn.len(), 1000);
    }
}
