//! Licences of everything that is linked or run to build and test: permissive ones only.

use std::process::Command;

use serde_json::Value;

use super::tree::Violation;
use crate::support::repo;

/// What a dependency may be under; one of the alternatives it offers is enough.
const ALLOWED: [&str; 12] = [
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unlicense",
    "0BSD",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    // The exception only grants more.
    "Apache-2.0 WITH LLVM-exception",
];

/// A package of the dependency graph.
#[derive(Debug)]
pub(super) struct Package {
    name: String,
    licence: Option<String>,
}

/// The packages of the features that this test was built with, on this platform: exactly those
/// that are on this machine already, so that nothing is downloaded.
pub(super) fn packages() -> Vec<Package> {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(repo("")).args([
        "metadata",
        "--offline",
        "--locked",
        "--format-version",
        "1",
    ]);
    command.args(["--filter-platform", &host()]);
    if !cfg!(feature = "vulkan") {
        command.arg("--no-default-features");
    }
    let output = command.output().expect("cargo can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let graph: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let list = graph["packages"].as_array().expect("the graph has packages");
    let text = |v: &Value| v.as_str().map(str::to_string);
    list.iter()
        .map(|p| Package { name: text(&p["name"]).expect("a name"), licence: text(&p["license"]) })
        .collect()
}

fn host() -> String {
    let output = Command::new("rustc").arg("-vV").output().expect("rustc can be started");
    let text = String::from_utf8(output.stdout).expect("rustc writes UTF-8");
    let line = text.lines().find_map(|l| l.strip_prefix("host: "));
    line.expect("rustc names its host").to_string()
}

pub(super) fn check(packages: &[Package]) -> Vec<Violation> {
    let refused = packages.iter().filter(|p| !p.licence.as_deref().is_some_and(is_allowed));
    refused
        .map(|p| {
            let licence = p.licence.as_deref().unwrap_or("none");
            let what = format!("dependency `{}` has the licence {licence}", p.name);
            Violation { path: "Cargo.toml".to_string(), line: 0, what }
        })
        .collect()
}

/// Evaluates an SPDX expression: `OR` is weaker than `AND`; old crates write `/` for `OR`.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let (allowed, rest) = alternatives(&tokens);
    allowed && rest.is_empty()
}

fn alternatives<'a, 'b>(tokens: &'a [&'b str]) -> (bool, &'a [&'b str]) {
    let (mut allowed, mut rest) = requirements(tokens);
    while let ["OR", after @ ..] = rest {
        let (other, left) = requirements(after);
        (allowed, rest) = (allowed | other, left);
    }
    (allowed, rest)
}

fn requirements<'a, 'b>(tokens: &'a [&'b str]) -> (bool, &'a [&'b str]) {
    let (mut allowed, mut rest) = single(tokens);
    while let ["AND", after @ ..] = rest {
        let (other, left) = single(after);
        (allowed, rest) = (allowed & other, left);
    }
    (allowed, rest)
}

fn single<'a, 'b>(tokens: &'a [&'b str]) -> (bool, &'a [&'b str]) {
    match tokens {
        ["(", inside @ ..] => {
            let (allowed, rest) = alternatives(inside);
            if let [")", rest @ ..] = rest { (allowed, rest) } else { (false, rest) }
        }
        [name, "WITH", exception, rest @ ..] => {
            (ALLOWED.contains(&&*format!("{name} WITH {exception}")), rest)
        }
        [name, rest @ ..] => (ALLOWED.contains(name), rest),
        [] => (false, tokens),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_evaluated() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR GPL-2.0) AND Unicode-3.0",
            "Unlicense OR MIT",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ] {
            assert!(is_allowed(good), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "LGPL-2.1 OR MPL-2.0", "", "(MIT"] {
            assert!(!is_allowed(bad), "{bad}");
        }
    }

    #[test]
    fn packages_without_a_good_licence_are_found() {
        let package = |licence: Option<&str>| Package {
            name: "x".to_string(),
            licence: licence.map(str::to_string),
        };
        let list = [package(Some("MIT")), package(Some("AGPL-3.0")), package(None)];
        let found = check(&list);
        assert_eq!(found.len(), 2);
        assert!(found[1].what.contains("licence none"), "{}", found[1]);
    }
}
