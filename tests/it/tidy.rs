//! The house rules as tests: sizes, layers, wording, links, licences.
//!
//! Each check is a function from files to violations, and is itself tested on small bad samples,
//! so that a check which can no longer fail is noticed. The tests here apply the checks to the
//! repository and list every violation with its place.

mod docs;
mod functions;
mod layers;
mod licences;
mod mask;
mod readme;
mod rust;
mod sizes;
mod tree;
mod wording;

use tree::{Kind, Source, Violation, read_tree};

/// Runs one check over every file of the repository and fails with the whole list.
fn check_all(check: impl Fn(&Source) -> Vec<Violation>) {
    report(read_tree().iter().flat_map(check));
}

fn report(violations: impl IntoIterator<Item = Violation>) {
    let lines: Vec<String> = violations.into_iter().map(|v| v.to_string()).collect();
    assert!(lines.is_empty(), "{} violation(s)\n{}\n", lines.len(), lines.join("\n"));
}

#[test]
fn files_are_short_and_well_named() {
    check_all(sizes::check);
}

#[test]
fn functions_are_short() {
    check_all(functions::check);
}

#[test]
fn dependencies_between_modules_point_down() {
    let files = read_tree();
    let text_of = |path: &str| &files.iter().find(|f| f.path == path).expect("file exists").text;
    let layers = layers::Layers::parse(text_of("src/ARCHITECTURE.md")).expect("the table parses");
    let mut violations = layers.check_module_list(text_of("src/lib.rs"));
    violations.extend(files.iter().flat_map(|f| layers.check(f)));
    report(violations);
}

#[test]
fn rust_files_keep_the_rules_that_no_lint_knows() {
    check_all(rust::check);
}

#[test]
fn wording_and_white_space_are_clean() {
    check_all(wording::check);
}

#[test]
fn relative_links_resolve() {
    let files = read_tree();
    report(files.iter().flat_map(|f| docs::check_links(f, &files)));
}

#[test]
fn licences_of_dependencies_are_allowed() {
    report(licences::check(&licences::packages()));
}

/// The pages whose readers type what is shown.
const USER_PAGES: [&str; 4] =
    ["README.md", "models/README.md", "CONTRIBUTING.md", "QA_BEFORE_RELEASES.md"];

#[test]
fn command_lines_for_users_parse() {
    let files = read_tree();
    let pages = files.iter().filter(|f| USER_PAGES.contains(&&*f.path));
    report(pages.flat_map(readme::check_commands));
}

#[test]
fn flags_for_users_exist() {
    // Flags of cargo and of git that the pages show.
    const TOOLS: &str =
        "--release --no-default-features --features --all-targets --lib --bench --locked --short";
    let files = read_tree();
    let is_script = |f: &&Source| f.kind == Kind::Shell || f.path.starts_with("speed-bench/");
    let scripts = files.iter().filter(is_script).map(|f| &*f.text);
    let known: Vec<&str> = scripts.chain([TOOLS]).collect();
    let pages = files.iter().filter(|f| USER_PAGES.contains(&&*f.path));
    report(pages.flat_map(|page| readme::check_flags(page, &known)));
}
