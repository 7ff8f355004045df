//! Help text, laid out from the flag definitions.

/// What help was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HelpRequest {
    /// The command, or `None` for the program.
    pub command: Option<String>,
    /// The topic, or `None` for the usual page.
    pub topic: Option<String>,
}

/// The known word closest to `word`, if it is close enough to be meant.
pub(super) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(1);
    let scored = known.map(|k| (distance(word, k), k));
    scored.filter(|(d, _)| *d <= limit).min().map(|(_, k)| k)
}

/// Levenshtein distance in characters.
fn distance(a: &str, b: &str) -> usize {
    let b = b.chars().collect::<Vec<_>>();
    let mut row = (0..=b.len()).collect::<Vec<_>>();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
