//! Rules for Rust files that neither rustc nor clippy knows.

use super::mask::{closing, find_word, mask};
use super::tree::{Kind, Source, Violation, line_of};

/// The only files and folders that may hold `unsafe`.
const UNSAFE_PLACES: [&str; 4] =
    ["src/gguf/map.rs", "src/quant/simd.rs", "src/quant/simd/", "src/vulkan/"];

/// Macros for work that is not finished.
const BANNED_MACROS: [&str; 3] = ["dbg", "todo", "unimplemented"];

/// Attributes that hide lost coverage or lints, and what to do instead.
const BANNED_ATTRIBUTES: [(&str, &str); 3] = [
    ("ignore", "skip through tests/it/support, which counts"),
    ("should_panic", "return an error, or check the value"),
    ("allow", "use #[expect(lint, reason = \"…\")], which expires"),
];

pub(super) fn check(file: &Source) -> Vec<Violation> {
    if file.kind != Kind::Rust {
        return Vec::new();
    }
    let masked = mask(&file.text);
    let mut found = Vec::from_iter(check_docs(file));
    found.extend(check_unsafe(file, &masked));
    found.extend(check_macros(file, &masked));
    found.extend(check_attributes(file, &masked));
    found.extend(check_features(file, &masked));
    found
}

/// A file says what it owns before anything else. The crate root takes its text from a page.
fn check_docs(file: &Source) -> Option<Violation> {
    let first = file.text.lines().next().unwrap_or_default();
    let documented = first.starts_with("//!") || first.starts_with("#![doc = include_str!");
    (!documented).then(|| file.violation(1, "the file does not start with `//!` docs"))
}

fn check_unsafe(file: &Source, masked: &str) -> Vec<Violation> {
    let named = |place: &&str| {
        if place.ends_with('/') { file.path.starts_with(*place) } else { file.path == **place }
    };
    if UNSAFE_PLACES.iter().any(named) {
        return Vec::new();
    }
    let violation = |at| file.violation(line_of(masked, at), "`unsafe` outside its named places");
    find_word(masked, "unsafe").into_iter().map(violation).collect()
}

fn check_macros(file: &Source, masked: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    for name in BANNED_MACROS {
        for at in find_word(masked, name) {
            if masked[at + name.len()..].starts_with('!') {
                found.push(
                    file.violation(line_of(masked, at), format!("`{name}!` is unfinished work")),
                );
            }
        }
    }
    found
}

fn check_attributes(file: &Source, masked: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    for (name, instead) in BANNED_ATTRIBUTES {
        for at in find_word(masked, name) {
            if masked[..at].ends_with("#[") || masked[..at].ends_with("#![") {
                found.push(file.violation(line_of(masked, at), format!("`#[{name}]`: {instead}")));
            }
        }
    }
    found
}

/// Cargo features gate whole modules of the library where those are declared, nothing finer.
fn check_features(file: &Source, masked: &str) -> Vec<Violation> {
    if !file.path.starts_with("src/") {
        return Vec::new();
    }
    let mut found = Vec::new();
    for name in ["cfg", "cfg_attr"] {
        for at in find_word(masked, name) {
            let Some(open) = masked[at..].find('(').map(|n| at + n) else { continue };
            let Some(close) = closing(masked, open) else { continue };
            // The word itself is in the masked text, its value is not.
            let about_features = !find_word(&masked[open..close], "feature").is_empty();
            if about_features && !(name == "cfg" && gates_a_module(masked, at, close)) {
                let what = "a feature gates something smaller than a declared module";
                found.push(file.violation(line_of(masked, at), what));
            }
        }
    }
    found
}

/// Whether the attribute around `at..=close` stands before `mod name;`.
fn gates_a_module(masked: &str, at: usize, close: usize) -> bool {
    if !masked[..at].ends_with("#[") {
        return false;
    }
    let Some(mut rest) = masked[close + 1..].strip_prefix(']').map(str::trim_start) else {
        return false;
    };
    while rest.starts_with("#[") {
        let Some(end) = closing(rest, 1) else { return false };
        rest = rest[end + 1..].trim_start();
    }
    for prefix in ["pub", "(crate)", "(super)"] {
        rest = rest.strip_prefix(prefix).unwrap_or(rest).trim_start();
    }
    let declaration = rest.split(['{', ';']).next().unwrap_or_default();
    rest.starts_with("mod ") && rest[declaration.len()..].starts_with(';')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let source = Source::new(path, format!("//! Docs.\n{text}")).unwrap();
        check(&source).into_iter().map(|v| format!("{}: {}", v.line, v.what)).collect()
    }

    #[test]
    fn undocumented_files_are_found() {
        let count = |text: &str| check(&Source::new("src/a.rs", text).unwrap()).len();
        assert_eq!(count("use x;\n"), 1);
        assert_eq!(count(""), 1);
        assert_eq!(count("//! Docs.\n"), 0);
        assert_eq!(count("#![doc = include_str!(\"A.md\")]\n"), 0);
    }

    #[test]
    fn unsafe_is_found_outside_its_places() {
        let text = "fn f() { unsafe { g() } }";
        assert_eq!(found("src/chat/a.rs", text), ["2: `unsafe` outside its named places"]);
        assert_eq!(found("src/gguf/map2.rs", text).len(), 1);
        for path in ["src/gguf/map.rs", "src/vulkan/device.rs", "src/quant/simd/avx2.rs"] {
            assert!(found(path, text).is_empty(), "{path}");
        }
        assert!(found("src/chat/a.rs", "// unsafe\n#![forbid(unsafe_code)]").is_empty());
    }

    #[test]
    fn unfinished_work_is_found() {
        for name in BANNED_MACROS {
            assert_eq!(found("tests/a.rs", &format!("fn f() {{ {name}!() }}")).len(), 1, "{name}");
        }
        assert!(found("tests/a.rs", "fn todo() { todo(); \"dbg!\"; }").is_empty());
    }

    #[test]
    fn hiding_attributes_are_found() {
        for name in ["ignore", "should_panic", "allow(dead_code)"] {
            assert_eq!(found("tests/a.rs", &format!("#[{name}]\nfn f() {{}}")).len(), 1, "{name}");
        }
        assert!(
            found("tests/a.rs", "#[expect(dead_code, reason = \"x\")]\nfn ignore() {}").is_empty()
        );
    }

    #[test]
    fn features_gate_declared_modules_only() {
        let good = [
            "#[cfg(feature = \"vulkan\")]\npub mod a;",
            "#[cfg(not(feature = \"vulkan\"))]\n#[path = \"b.rs\"]\npub(crate) mod a;",
            "#[cfg(test)]\nmod tests {}",
            "#[cfg(target_feature = \"avx2\")]\nfn f() {}",
        ];
        let bad = [
            "#[cfg(feature = \"vulkan\")]\nuse a;",
            "#[cfg(feature = \"vulkan\")]\nmod a { }",
            "fn f() { if cfg!(feature = \"vulkan\") {} }",
            "#![cfg(feature = \"vulkan\")]",
            "#[cfg_attr(feature = \"vulkan\", path = \"a.rs\")]\nmod a;",
            "#[cfg(all(test, feature = \"vulkan\"))]\nfn f() {}",
        ];
        for text in good {
            assert!(found("src/lib.rs", text).is_empty(), "{text}");
        }
        for text in bad {
            assert_eq!(found("src/lib.rs", text).len(), 1, "{text}");
            assert!(found("tests/it/a.rs", text).is_empty(), "{text}");
        }
    }
}
