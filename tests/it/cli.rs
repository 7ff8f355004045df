//! The command line as a user meets it: exit codes, messages, help, completions, manual pages.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::process::{Command, Stdio};

use crate::support::{q36, repo, temp_dir, tiny_model};

/// Every command, with what makes it end at once and well.
const COMMANDS: [&str; 11] = [
    "run",
    "serve",
    "bench",
    "plot",
    "inspect",
    "kv",
    "devices",
    "doctor",
    "completions",
    "man",
    "help",
];

#[track_caller]
fn stdout(args: &[&str]) -> String {
    let out = q36(args).env("COLUMNS", "80").run().expect_status(0);
    assert_eq!(out.stderr, "", "{args:?}");
    out.stdout
}

/// Checks a refused line: status 2, this message, this hint, nothing on stdout.
#[track_caller]
fn refused(args: &[&str], message: &str, hint: &str) {
    let out = q36(args).run().expect_status(2);
    assert_eq!(out.stderr, format!("{message}\nhint: {hint}\n"), "{args:?}");
    assert_eq!(out.stdout, "", "{args:?}");
}

/// Compares with a committed file. `Q36_UPDATE_SNAPSHOTS=1` writes it instead.
#[track_caller]
fn snapshot(name: &str, text: &str) {
    let path = repo("tests/it/snapshots").join(name);
    if std::env::var_os("Q36_UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, text).expect("snapshots can be written");
    }
    let expected = fs::read_to_string(&path).expect("the snapshot is committed");
    assert!(text == expected, "{} differs; it is now:\n{text}", path.display());
}

#[test]
fn help_pages_are_as_reviewed() {
    snapshot("help.txt", &stdout(&["--help"]));
    snapshot("help-run.txt", &stdout(&["run", "--help"]));
    snapshot("help-run-sampling.txt", &stdout(&["run", "--help", "sampling"]));
    snapshot("help-serve.txt", &stdout(&["serve", "--help"]));
    snapshot("help-run-commands.txt", &stdout(&["run", "--help", "commands"]));
    snapshot("help-bench.txt", &stdout(&["bench", "--help"]));
    snapshot("help-env.txt", &stdout(&["--help", "env"]));
    snapshot("help-doctor.txt", &stdout(&["help", "doctor"]));
}

#[test]
fn an_unknown_topic_is_said_before_the_usual_page() {
    let page = stdout(&["run", "--help", "nonsense"]);
    assert!(page.starts_with("unknown help topic: nonsense\n\n"), "{page}");
    assert!(page.contains("Usage: q36 run"));
}

#[test]
fn wrong_lines_end_with_2_and_one_hint() {
    let see = "see q36 run --help";
    refused(
        &["run", "--tmep", "1"],
        "q36 run: unknown option: --tmep",
        "did you mean --temp? see q36 run --help",
    );
    refused(&["run", "--temp"], "q36 run: missing value for --temp", see);
    refused(
        &["run", "--seed=0"],
        "q36 run: invalid value for --seed: 0",
        "expected a whole number from 1 to 18446744073709551615",
    );
    refused(
        &["run", "--backend", "cuda"],
        "q36 run: invalid value for --backend: cuda",
        "cuda is not supported here, use --vulkan or --cpu",
    );
    refused(&["rnu"], "q36: unknown command: rnu", "did you mean run? see q36 --help");
    refused(&["run", "--", "hi"], "q36 run: unexpected argument: hi", {
        "give a prompt with -p TEXT; see q36 run --help"
    });
    refused(&[], "q36: no command given", "see q36 --help");
    let bad = q36(["doctor"]).env("Q36_DEBUG", "no-such").run().expect_status(2);
    assert_eq!(
        bad.stderr,
        "q36: invalid value for Q36_DEBUG: no-such\n\
         hint: known switches: isa=scalar|neon|avx2|avx-vnni|avx512-vnni|avx512-vbmi, off=float16|denorm16|int-dot|subgroup-size|memory-model|matrix|matrix-thin|matrix2|host-import|memory-budget|memory-priority|device-fault|timestamps|statistics, load=in-place|direct|cached, lacks=timelineSemaphore|synchronization2|maintenance4, lose=N, memory=MIB\n"
    );
}

#[test]
fn what_has_moved_is_told() {
    let out = q36(["--server"]).run().expect_status(2);
    assert_eq!(out.stderr, "q36 run: --server: the server is a command of its own: q36 serve\n");
}

#[test]
fn flags_that_need_what_is_not_there_are_refused() {
    for flags in [
        &["--ssd-streaming"][..],
        &["--ssd-streaming-full-layers", "3"],
        &["--mtp", "draft.gguf"],
        &["--simulate-used-memory", "1"],
    ] {
        let out = q36([&["run", "-p", "x"], flags].concat()).run().expect_status(1);
        assert!(out.stderr.contains("does not work in this version"), "{flags:?}: {}", out.stderr);
        assert_eq!(out.stdout, "");
    }
}

#[cfg(not(feature = "vulkan"))]
#[test]
fn a_build_without_vulkan_says_so() {
    let model = tiny_model();
    let model = model.to_str().expect("the repository's path is UTF-8");
    for flags in [&["--vulkan"][..], &["--backend=vulkan"], &["--device", "0"]] {
        let args = [&["run", "-p", "x", "-m", model], flags].concat();
        let out = q36(args).run().expect_status(1);
        assert_eq!(
            out.stderr,
            "q36: this build has no Vulkan engine\n\
             hint: build with the feature `vulkan`, or use --cpu\n",
            "{flags:?}"
        );
    }
}

#[test]
fn flags_of_a_gpu_have_no_effect_on_the_cpu_and_say_so() {
    let model = tiny_model();
    let model = model.to_str().expect("the repository's path is UTF-8");
    let args = ["run", "-p", "x", "-m", model, "--cpu", "-n", "1", "--device", "0", "--profile"];
    let out = q36([&args[..], &["-q"]].concat()).run().expect_status(0);
    assert_eq!(
        out.stderr,
        "warning: --device has no effect with --cpu\n\
         warning: --profile has no effect with --cpu\n"
    );
}

#[test]
fn arguments_of_any_bytes_do_not_panic() {
    let odd = || OsString::from_vec(vec![0xff, 0xfe, b'=']);
    for args in [
        vec![odd()],
        vec!["run".into(), odd()],
        vec!["run".into(), "-p".into(), odd()],
        vec!["run".into(), "--temp".into(), odd()],
        vec!["man".into(), odd()],
    ] {
        let out = q36(&args).run().expect_status(2);
        assert!(!out.stderr.contains("panicked"), "{args:?}: {}", out.stderr);
    }
}

#[test]
fn version_has_five_facts() {
    let text = stdout(&["--version"]);
    let keys = text.lines().map(|line| line.split_once(": ").unwrap().0).collect::<Vec<_>>();
    assert_eq!(keys, ["version", "commit", "build date", "spirv", "payload abi"]);
    assert_eq!(stdout(&["-V"]), text);
    let json: serde_json::Value = serde_json::from_str(&stdout(&["--version", "--json"])).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    for key in ["commit", "build_date", "spirv", "payload_abi"] {
        assert!(json.get(key).is_some(), "{key}");
    }
}

#[test]
fn colours_obey_the_flag_then_the_environment() {
    let has_escape = |args: &[&str], env: &[(&str, &str)]| {
        let run = env.iter().fold(q36(args), |run, (name, value)| run.env(name, value));
        let out = run.run();
        out.stdout.contains('\x1b') || out.stderr.contains('\x1b')
    };
    let help = ["run", "--help", "all"];
    let wrong = ["run", "--bogus"];
    assert!(!has_escape(&help, &[]), "a pipe gets no colours");
    assert!(has_escape(&help, &[("CLICOLOR_FORCE", "1")]));
    assert!(has_escape(&wrong, &[("CLICOLOR_FORCE", "1")]));
    for args in [&help[..], &wrong, &["doctor"]] {
        assert!(!has_escape(args, &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]), "{args:?}");
    }
    assert!(has_escape(&["doctor", "--color", "always"], &[("NO_COLOR", "1")]));
}

#[test]
fn completions_know_every_flag() {
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(&["completions", shell]);
        for command in COMMANDS {
            for flag in long_flags(command) {
                // Fish spells a long option without its dashes.
                let spelled = if shell == "fish" { format!("-l {}", &flag[2..]) } else { flag };
                assert!(script.contains(&spelled), "{shell}: {command}: {spelled}");
            }
        }
    }
}

/// The long flags that `--help all` of a command lists, one at the start of each entry.
fn long_flags(command: &str) -> Vec<String> {
    let page = stdout(&[command, "--help", "all"]);
    let entries = page.lines().filter(|line| line.starts_with("  -"));
    let flags =
        entries.filter_map(|line| line.split([' ', ',', '[']).find(|w| w.starts_with("--")));
    flags.map(str::to_owned).collect()
}

#[test]
fn help_all_of_run_is_complete() {
    let flags = long_flags("run");
    for flag in [
        "--model",
        "--vulkan",
        "--cpu",
        "--backend",
        "--threads",
        "--device",
        "--prefill-chunk",
        "--quality",
        "--warm-weights",
        "--profile",
        "--power",
        "--no-lock",
        "--ctx",
        "--ctx-force",
        "--cache-type-k",
        "--cache-type-v",
        "--ssd-streaming",
        "--ssd-streaming-cache-experts",
        "--ssd-streaming-full-layers",
        "--ssd-streaming-preload-experts",
        "--ssd-streaming-cold",
        "--simulate-used-memory",
        "--mtp",
        "--mtp-draft",
        "--mtp-margin",
        "--dir-steering-file",
        "--dir-steering-ffn",
        "--dir-steering-attn",
        "--tokens",
        "--temp",
        "--top-k",
        "--top-p",
        "--min-p",
        "--seed",
        "--system",
        "--think",
        "--think-max",
        "--nothink",
        "--think-budget",
        "--prompt",
        "--prompt-file",
        "--raw",
        "--rendered",
        "--show-thinking",
        "--json",
        "--stream-json",
        "--output",
        "--dry-run",
        "--inspect",
        "--dump-tokens",
        "--dump-logits",
        "--dump-logprobs",
        "--logprobs-top-k",
        "--decode-consistency",
        "--perplexity-file",
        "--verbose",
        "--quiet",
        "--color",
        "--help",
    ] {
        assert!(flags.iter().any(|known| known == flag), "{flag} is missing: {flags:?}");
    }
}

#[test]
fn manual_pages_know_every_flag() {
    for command in COMMANDS {
        let page = stdout(&["man", command]).replace("\\-", "-");
        for flag in long_flags(command) {
            assert!(page.contains(&flag), "{command}: {flag}");
        }
    }
    assert!(stdout(&["man"]).contains(".SH ENVIRONMENT"));
}

#[test]
fn a_reader_that_has_gone_is_success_and_a_full_disk_is_not() {
    let program = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_q36"));
        command.args(["run", "--help", "all"]).stdin(Stdio::null()).stderr(Stdio::piped());
        command
    };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let out = program().stdout(writer).output().unwrap();
    assert_eq!((out.status.code(), out.stderr.as_slice()), (Some(0), &b""[..]));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let out = program().stdout(full).output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(said.starts_with("q36: cannot write to stdout: "), "{said}");
}

#[test]
fn doctor_finds_the_demo_model_sound() {
    let dir = temp_dir();
    let lock = dir.path().join("lock");
    let doctor = |args: &[&str]| {
        let model = tiny_model();
        let fixed = ["doctor".into(), "-m".into(), model.into_os_string()];
        let args = fixed.into_iter().chain(args.iter().map(OsString::from));
        q36(args).env("Q36_LOCK_FILE", &lock).run().expect_status(0)
    };
    let out = doctor(&[]);
    assert!(out.stdout.contains("ok       model"), "{}", out.stdout);
    assert_eq!(out.stderr, "");
    let json: serde_json::Value = serde_json::from_str(&doctor(&["--json"]).stdout).unwrap();
    assert_eq!(json["ok"], true);
    let areas = json["findings"].as_array().unwrap();
    for area in ["cpu", "memory", "model", "lock"] {
        assert!(areas.iter().any(|finding| finding["area"] == area), "{area}");
    }
}

#[test]
fn doctor_says_what_to_do_about_a_missing_and_a_damaged_model() {
    let dir = temp_dir();
    let out = q36(["doctor"]).dir(dir.path()).run().expect_status(1);
    assert!(out.stdout.contains("problem  model"), "{}", out.stdout);
    assert!(out.stdout.contains("./download_model.sh q2-imatrix"), "{}", out.stdout);
    let file = dir.path().join("m.gguf");
    fs::write(&file, "not a model").unwrap();
    let out = q36(["doctor"]).env("Q36_MODEL", &file).run().expect_status(1);
    assert!(out.stdout.contains("problem  model"), "{}", out.stdout);
    assert!(out.stdout.contains("m.gguf"), "{}", out.stdout);
}

#[test]
fn inspect_takes_the_file_in_either_way() {
    let model = tiny_model();
    let path = model.to_str().expect("the repository's path is UTF-8");
    let by_name = stdout(&["inspect", path, "--json"]);
    assert_eq!(stdout(&["inspect", "-m", path, "--json"]), by_name);
    let json: serde_json::Value = serde_json::from_str(&by_name).unwrap();
    assert!(json.is_object());
    assert!(stdout(&["inspect", path, "-ctk", "q8_0", "-c", "4096"]).contains("q8_0"));
    let same = ["inspect", path, "--diff", path, "--verify"];
    assert!(!stdout(&same).is_empty());
}

#[test]
fn devices_answers_with_and_without_a_gpu() {
    stdout(&["devices"]);
    let json: serde_json::Value = serde_json::from_str(&stdout(&["devices", "--json"])).unwrap();
    assert!(json["devices"].is_array());
}
