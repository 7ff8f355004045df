//! Which files are meant.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::cli::UsageError;
use crate::cli::environment::Environment;
use crate::kv::Directory;

/// The directory that is looked at, and its files that were named.
pub(super) struct Found {
    pub(super) directory: Option<Directory>,
    /// Every file of the directory, or those that were named.
    pub(super) files: Vec<PathBuf>,
    /// Whether files were named.
    pub(super) is_selection: bool,
}

/// Arguments are directories where there is one of that name, files where there is one, and else beginnings of
/// names in the directory.
pub(super) fn find(what: &[PathBuf], environment: &Environment) -> Result<Found> {
    let (directories, rest): (Vec<_>, Vec<_>) = what.iter().partition(|path| path.is_dir());
    if let [_, second, ..] = &directories[..] {
        let text = format!("one directory at a time, not also {}", second.display());
        return Err(UsageError::new("kv", &text).hint("see q36 kv --help").into());
    }
    let (files, prefixes): (Vec<_>, Vec<_>) = rest.into_iter().partition(|path| path.is_file());
    let files: Vec<PathBuf> = files.into_iter().cloned().collect();
    if !files.is_empty() && prefixes.is_empty() && directories.is_empty() {
        return Ok(Found { directory: None, files, is_selection: true });
    }
    let path = match directories.first() {
        Some(path) => (*path).clone(),
        None => default(environment, prefixes.first().copied())?,
    };
    let opened = Directory::open(&path).with_context(|| format!("cannot read {}", path.display()));
    let all = match opened {
        // Nothing was ever saved.
        Err(why) if directories.is_empty() && is_missing(&why) => Vec::new(),
        Err(why) => return Err(why),
        Ok(ref directory) => {
            let files = directory.files();
            files.with_context(|| format!("cannot read {}", path.display()))?
        }
    };
    let directory = Directory::open(&path).ok();
    if files.is_empty() && prefixes.is_empty() {
        return Ok(Found { directory, files: all, is_selection: false });
    }
    let mut selected = files;
    for prefix in prefixes {
        selected.push(unique(prefix, &all, &path)?);
    }
    Ok(Found { directory, files: selected, is_selection: true })
}

fn is_missing(why: &anyhow::Error) -> bool {
    let missing = |e: &std::io::Error| e.kind() == std::io::ErrorKind::NotFound;
    why.downcast_ref().is_some_and(missing)
        || why.chain().any(|cause| cause.downcast_ref().is_some_and(missing))
}

fn default(environment: &Environment, named: Option<&PathBuf>) -> Result<PathBuf> {
    // A path that is nothing was meant as one.
    if let Some(path) = named.filter(|path| path.components().count() > 1) {
        let text = format!("there is no {}", path.display());
        return Err(anyhow::anyhow!(text));
    }
    let home = environment.home.as_ref();
    home.map(|home| home.join("kvcache"))
        .context("there is no home directory\nhint: name the directory, as in q36 kv list DIR")
}

/// The one file whose name begins so.
fn unique(prefix: &Path, all: &[PathBuf], directory: &Path) -> Result<PathBuf> {
    let prefix = prefix.to_string_lossy().to_ascii_lowercase();
    let begins = |path: &&PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        name.starts_with(&prefix)
    };
    let mut matches = all.iter().filter(begins);
    let place = directory.display();
    match (matches.next(), matches.count()) {
        (Some(only), 0) => Ok(only.clone()),
        (None, _) => Err(anyhow::anyhow!(
            "no file in {place} has a name that begins with `{prefix}`\nhint: q36 kv list shows what is there"
        )),
        (Some(_), more) => Err(anyhow::anyhow!(
            "{} files in {place} have names that begin with `{prefix}`\nhint: give more digits",
            more + 1
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_must_name_one_file() {
        let all: Vec<PathBuf> =
            ["/d/ab12.kv", "/d/ab34.kv", "/d/sysprompt.kv"].map(Into::into).into();
        let find = |prefix: &str| {
            unique(Path::new(prefix), &all, Path::new("/d")).map_err(|e| e.to_string())
        };
        assert_eq!(find("AB1"), Ok(all[0].clone()));
        assert_eq!(find("sys"), Ok(all[2].clone()));
        let many = "2 files in /d have names that begin with `ab`\nhint: give more digits";
        assert_eq!(find("ab"), Err(many.to_owned()));
        assert!(find("c").unwrap_err().starts_with("no file in /d has a name"));
    }
}
