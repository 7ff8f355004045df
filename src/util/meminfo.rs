//! What the kernel says about the machine's memory.

use super::units::Bytes;

/// The value of a line `name:   123 kB` in a table like `/proc/meminfo`.
pub fn kibibytes(table: &str, name: &str) -> Option<Bytes> {
    let value = table.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })?;
    let kib = value.strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    kib.checked_mul(1024).map(Bytes)
}

/// Memory that can be had without swapping; the page cache counts. `None` where the kernel does not say.
pub fn available() -> Option<Bytes> {
    kibibytes(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_kibibytes() {
        let table = "MemTotal:       16000 kB\nMemAvailable:    8192 kB\nHugePages:  3\n";
        assert_eq!(kibibytes(table, "MemAvailable"), Some(Bytes(8 << 20)));
        assert_eq!(kibibytes(table, "HugePages"), None);
        assert_eq!(kibibytes(table, "Mem"), None);
    }
}
