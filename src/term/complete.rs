//! What the beginning of a word can be completed to.

use std::path::{Path, PathBuf};

/// Most candidates of one beginning; of more nobody reads the list.
const MAX_CANDIDATES: usize = 500;

/// Finds the completions of what stands before the cursor.
pub type Complete = Box<dyn Fn(&str) -> Completions>;

/// One of several ways to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// As it is listed.
    pub shown: String,
    /// What takes the place of the beginning.
    pub text: String,
}

impl Candidate {
    /// One that is listed as it will be written.
    pub fn plain(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { shown: text.clone(), text }
    }
}

/// All ways to go on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Completions {
    /// Byte offset of the beginning that is replaced.
    pub start: usize,
    /// In the order they are listed.
    pub candidates: Vec<Candidate>,
}

/// A path as a person types it: `~/` is `home`.
pub fn expand(typed: &str, home: Option<&Path>) -> PathBuf {
    match (typed.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(typed),
    }
}

/// Files that `typed` may become: names of the folder it leads to, folders with a slash, hidden ones only when asked
/// for. A folder that cannot be read has none, and names that are not UTF-8 cannot be typed.
pub fn files(typed: &str, home: Option<&Path>) -> Vec<Candidate> {
    let at = typed.rfind('/').map_or(0, |slash| slash + 1);
    let (folder, beginning) = typed.split_at(at);
    let place = if folder.is_empty() { PathBuf::from(".") } else { expand(folder, home) };
    let Ok(entries) = std::fs::read_dir(place) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let is_wanted = name.starts_with(beginning)
                && (beginning.starts_with('.') || !name.starts_with('.'));
            // A link to a folder leads on, too.
            let is_folder = is_wanted && entry.path().is_dir();
            is_wanted.then(|| if is_folder { format!("{name}/") } else { name })
        })
        .collect();
    names.sort_unstable();
    names.truncate(MAX_CANDIDATES);
    let candidate = |name: String| Candidate { text: format!("{folder}{name}"), shown: name };
    names.into_iter().map(candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_those_of_the_folder_that_was_typed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b one.txt", "a.txt", ".hidden", "é"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        let home = Some(dir.path());
        let texts =
            |typed: &str| files(typed, home).into_iter().map(|c| c.text).collect::<Vec<_>>();
        assert_eq!(texts("~/"), ["~/a.txt", "~/b one.txt", "~/bin/", "~/é"]);
        assert_eq!(texts("~/b"), ["~/b one.txt", "~/bin/"]);
        assert_eq!(texts("~/b o"), ["~/b one.txt"]);
        assert_eq!(texts("~/."), ["~/.hidden"]);
        assert_eq!(texts("~/nowhere/"), [""; 0]);
        let shown: Vec<_> = files("~/b", home).into_iter().map(|c| c.shown).collect();
        assert_eq!(shown, ["b one.txt", "bin/"]);
        let absolute = format!("{}/a", dir.path().display());
        assert_eq!(texts(&absolute), [format!("{absolute}.txt")]);
        // Without a home it is a folder of that name.
        assert_eq!(files("~/", None), []);
    }

    #[test]
    fn a_list_has_an_end() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..MAX_CANDIDATES + 5 {
            std::fs::write(dir.path().join(n.to_string()), "").unwrap();
        }
        assert_eq!(files("~/", Some(dir.path())).len(), MAX_CANDIDATES);
    }
}
