//! Numbers with units, and how they are printed.

use std::fmt;

/// A size in bytes. Prints as MiB or GiB with one decimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const KIB: f64 = 1024.0;
        let n = self.0 as f64;
        if n < KIB {
            write!(f, "{} B", self.0)
        } else if n < KIB * KIB {
            write!(f, "{:.1} KiB", n / KIB)
        } else if n < KIB * KIB * KIB {
            write!(f, "{:.1} MiB", n / (KIB * KIB))
        } else {
            write!(f, "{:.2} GiB", n / (KIB * KIB * KIB))
        }
    }
}

/// `n` with a comma between groups of three digits.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_sizes_and_groups() {
        assert_eq!(Bytes(1023).to_string(), "1023 B");
        assert_eq!(Bytes(1536).to_string(), "1.5 KiB");
        assert_eq!(Bytes(11_726_326_272).to_string(), "10.92 GiB");
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(11_726_326_272), "11,726,326,272");
    }
}
