//! Skipped tests are seen and counted: silent skips hide lost coverage.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// Records that the calling test cannot run here, and why.
///
/// The line goes to the real standard error, which the test harness does not capture, and to the
/// file named by `Q36_SKIP_LOG`, whose lines `scripts/test.sh` compares with `tests/skips.txt`.
pub(crate) fn skip(reason: &str) {
    let line = line(reason);
    // A closed standard error must not turn a skip into a failure.
    let _ = io::stderr().write_all(line.as_bytes());
    if let Some(log) = std::env::var_os("Q36_SKIP_LOG") {
        append(Path::new(&log), &line).expect("the file named by Q36_SKIP_LOG is writable");
    }
}

/// The harness names each test's thread after the test.
fn line(reason: &str) -> String {
    let thread = std::thread::current();
    format!("skipped: {}: {reason}\n", thread.name().unwrap_or("unnamed test"))
}

/// One write of one whole line, so that lines of parallel tests do not mix.
fn append(log: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(log)?.write_all(line.as_bytes())
}

#[test]
fn skips_are_logged_one_line_each_with_the_name_of_the_test() {
    let dir = super::temp_dir();
    let log = dir.path().join("skips");
    append(&log, &line("needs a GPU")).unwrap();
    append(&log, &line("needs a model")).unwrap();
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].ends_with("needs a GPU"), "{text}");
    assert!(lines[1].contains("skips_are_logged"), "{text}");
}
