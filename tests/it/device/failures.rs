//! Machines without Vulkan, without a driver, with a device that lacks something, has too little memory or is lost:
//! one sentence, the next step, the exit status of a failure; the CPU works all the same.

use crate::support::{Output, q36, temp_dir};

const COMMON: [&str; 13] = [
    "run",
    "-m",
    "models/q36-tiny.gguf",
    "--temp",
    "0",
    "-sys",
    "",
    "-c",
    "1024",
    "--nothink",
    "-q",
    "-p",
    "What is the capital of France?",
];

const ANSWER: &str = "The capital of France is Paris.\n";

fn run(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut run = q36([&COMMON, args].concat());
    for (name, value) in env {
        run = run.env(name, value);
    }
    run.run()
}

/// `--vulkan` fails with this text and a hint; without it, and with `--cpu`, there is an answer.
#[track_caller]
fn check_absent(env: &[(&str, &str)], text: &str, hint: &str) {
    let out = run(&["--vulkan"], env).expect_status(1);
    assert_eq!(out.stdout, "");
    let lines: Vec<&str> = out.stderr.lines().collect();
    assert!(lines[0].starts_with("q36: ") && lines[0].contains(text), "{}", out.stderr);
    assert!(lines[1].starts_with("hint: ") && lines[1].contains(hint), "{}", out.stderr);
    assert_eq!(lines.len(), 2, "{}", out.stderr);
    assert_eq!(run(&["--cpu"], env).expect_status(0).stdout, ANSWER);
    assert_eq!(run(&[], env).expect_status(0).stdout, ANSWER);
}

#[test]
fn without_a_driver() {
    let none = [("VK_DRIVER_FILES", "/nonexistent"), ("VK_ICD_FILENAMES", "/nonexistent")];
    check_absent(&none, "no Vulkan driver works on this machine", "mesa-vulkan-drivers");
    let listed = q36(["devices"]).env(none[0].0, none[0].1).env(none[1].0, none[1].1).run();
    assert!(listed.expect_status(0).stdout.contains("the CPU backend is always there"));
}

#[test]
fn without_a_loader() {
    let dir = temp_dir();
    for name in ["libvulkan.so.1", "libvulkan.so"] {
        std::fs::write(dir.path().join(name), "not a library").unwrap();
    }
    let path = dir.path().to_str().unwrap();
    check_absent(&[("LD_LIBRARY_PATH", path)], "cannot load the Vulkan loader", "libvulkan1");
}

#[test]
fn with_a_device_that_lacks_something() {
    let lacks = [("Q36_DEBUG", "lacks=maintenance4")];
    let out = run(&["--vulkan"], &lacks).expect_status(1);
    if out.stderr.contains("no Vulkan driver") || out.stderr.contains("cannot load") {
        return crate::support::skip("needs a Vulkan device");
    }
    check_absent(&lacks, "lacks maintenance4", "q36 devices");
    let out = run(&["--device", "0"], &lacks).expect_status(1);
    assert!(out.stderr.contains("cannot be used: it lacks maintenance4"), "{}", out.stderr);
}

/// Skips, aloud, where no device answers.
pub(super) fn has_device() -> bool {
    let out = run(&["--vulkan"], &[]);
    if out.status == Some(0) {
        assert_eq!(out.stdout, ANSWER);
        return true;
    }
    crate::support::skip(&format!("needs a Vulkan device: {}", out.stderr));
    false
}

#[test]
fn with_too_little_memory() {
    if !has_device() {
        return;
    }
    // In the weights, and behind them.
    for mib in ["1", "12", "20"] {
        let out = run(&["--vulkan"], &[("Q36_DEBUG", &format!("memory={mib}"))]).expect_status(1);
        assert!(out.stderr.contains("out of memory on the device: no "), "{}", out.stderr);
        assert!(out.stderr.contains("\nhint: close what else uses the device"), "{}", out.stderr);
        assert!(!out.stderr.contains("panicked"), "{}", out.stderr);
    }
}

#[test]
fn with_a_context_that_does_not_fit() {
    if !has_device() {
        return;
    }
    let args = ["--vulkan", "--ctx-force", "-c", "2000000000"];
    let out = run(&args, &[]).expect_status(1);
    for part in
        ["the model needs ", " to give (weights 16.0 MiB, K/V rows ", ", states ", ", scratch "]
    {
        assert!(out.stderr.contains(part), "{}", out.stderr);
    }
    assert!(
        out.stderr.contains("\nhint: --ctx ") && out.stderr.contains(" fits"),
        "{}",
        out.stderr
    );
    let plan = run(&[&args[..], &["--dry-run"]].concat(), &[]).expect_status(1);
    assert!(plan.stdout.contains("\nfits                no"), "{}", plan.stdout);
    let plan = run(&["--vulkan", "--dry-run"], &[]).expect_status(0);
    assert!(plan.stdout.contains("\non the device       "), "{}", plan.stdout);
}

#[test]
fn with_a_device_that_is_lost() {
    if !has_device() {
        return;
    }
    let caches = temp_dir();
    let lose = |n: u32| {
        let kept = ("XDG_CACHE_HOME", caches.path().to_str().unwrap());
        let out = run(&["--vulkan"], &[("Q36_DEBUG", &format!("lose={n}")), kept]);
        assert!(!out.stderr.contains("panicked"), "{}", out.stderr);
        out
    };
    // Loading is what comes first: the first submission behind it is sought.
    let (mut loading, mut behind) = (1, 513);
    while behind - loading > 1 {
        let n = u32::midpoint(loading, behind);
        let out = lose(n);
        if out.status == Some(0) {
            behind = n;
            continue;
        }
        assert_eq!(out.status, Some(1), "{}", out.stderr);
        assert!(out.stderr.contains("the device was lost during `"), "{}", out.stderr);
        assert!(out.stderr.contains("\nhint: the kernel's log"), "{}", out.stderr);
        loading = n;
    }
    // A layer of the prompt.
    let out = lose(behind + 4).expect_status(0);
    assert_eq!(out.stdout, ANSWER);
    assert!(out.stderr.contains("warning: the device was lost during `"), "{}", out.stderr);
    assert_eq!(lose(1).status, Some(1));
}
