//! Whole command lines: what they become, and what is said about wrong ones.

use std::ffi::OsString;

use proptest::prelude::*;

use super::run::{PromptSource, RunArgs};
use super::values::{Backend, CacheType, ColorChoice, ThinkMode};
use super::{Cli, Command, HelpRequest, Stop, command, parse};

fn words(line: &str) -> impl Iterator<Item = OsString> + '_ {
    std::iter::once("q36").chain(line.split_whitespace()).map(OsString::from)
}

#[track_caller]
fn run(line: &str) -> RunArgs {
    match parse(words(line)) {
        Ok(Cli { command: Some(Command::Run(args)), .. }) => *args,
        other => panic!("{line}: {other:?}"),
    }
}

/// The message and the hint about a wrong line.
#[track_caller]
fn wrong(line: &str) -> (String, String) {
    match parse(words(line)) {
        Err(Stop::Usage(err)) => (err.to_string(), err.next_step().unwrap_or_default().to_owned()),
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn the_definitions_are_consistent() {
    command().debug_assert();
}

#[test]
fn the_last_of_several_wins() {
    let args = run("run --temp 1 --temp 0.5 --think --nothink -c 4 -c 8");
    assert_eq!((args.sampling.temperature, args.engine.context.ctx), (0.5, Some(8)));
    assert_eq!(args.sampling.think_mode(), ThinkMode::Off);
    assert_eq!(run("run --nothink --think-max").sampling.think_mode(), ThinkMode::Max);
    assert_eq!(run("run --think-max --think").sampling.think_mode(), ThinkMode::On);
    assert_eq!(run("run").engine.backend(), Backend::Auto);
    assert_eq!(run("run --vulkan --cpu").engine.backend(), Backend::Cpu);
    assert_eq!(run("run --cpu --backend vulkan").engine.backend(), Backend::Vulkan);
    assert_eq!(run("run --backend cpu --vulkan").engine.backend(), Backend::Vulkan);
    assert!(!run("run --raw --rendered").prompt.raw);
}

#[test]
fn old_spellings_parse() {
    let args = run("-sys X -ctk f16 -ctv=q4_o -c 4096 -p hi");
    assert_eq!(args.prompt.system(), "X");
    assert_eq!(args.prompt.source(), Ok(Some(PromptSource::Text("hi"))));
    let context = args.engine.context;
    assert_eq!(context.cache_type_k, Some(CacheType::F16));
    assert_eq!(context.cache_type_v, Some(CacheType::Q4_0));
    assert_eq!(context.ctx, Some(4096));
}

#[test]
fn values_may_begin_with_a_dash() {
    assert_eq!(run("run -p --temp").prompt.source(), Ok(Some(PromptSource::Text("--temp"))));
    assert_eq!(run("run -p -").prompt.source(), Ok(Some(PromptSource::Stdin)));
    assert_eq!(run("run --prompt-file -").prompt.source(), Ok(Some(PromptSource::Stdin)));
    assert_eq!(run("run --dir-steering-ffn -1.5").steering.dir_steering_ffn, Some(-1.5));
    assert_eq!(wrong("run --temp -1").0, "q36 run: invalid value for --temp: -1");
}

#[test]
fn two_prompts_are_one_too_many() {
    for line in ["run -p a -p b", "run -p a --prompt-file f", "run --prompt-file f -p -"] {
        let err = run(line).prompt.source().unwrap_err();
        assert_eq!(err.to_string(), "q36 run: specify only one prompt source", "{line}");
    }
}

#[test]
fn an_optional_value_needs_an_equals_sign() {
    assert_eq!(run("run").engine.profile, None);
    assert_eq!(run("run --profile -p x").engine.profile, Some(None));
    assert_eq!(run("run --profile=f.json").engine.profile, Some(Some("f.json".into())));
}

#[test]
fn general_flags_go_anywhere() {
    for line in ["--color never run -q", "run --color never -q", "-q run --color=never"] {
        let global = parse(words(line)).unwrap().global;
        assert_eq!((global.color, global.quiet), (ColorChoice::Never, true), "{line}");
    }
    assert_eq!(parse(words("run -vv")).unwrap().global.verbose, 2);
}

#[test]
fn wrong_lines_get_one_message_and_one_hint() {
    for (line, message, hint) in [
        (
            "run --tmep 3",
            "q36 run: unknown option: --tmep",
            "did you mean --temp? see q36 run --help",
        ),
        ("run --zzz", "q36 run: unknown option: --zzz", "see q36 run --help"),
        ("run -Z", "q36 run: unknown option: -Z", "see q36 run --help"),
        ("run --temp", "q36 run: missing value for --temp", "see q36 run --help"),
        ("run -c", "q36 run: missing value for --ctx", "see q36 run --help"),
        ("run -p", "q36 run: missing value for --prompt", "see q36 run --help"),
        (
            "run --temp=hot",
            "q36 run: invalid value for --temp: hot",
            "expected a number from 0 to 100",
        ),
        (
            "run -c 0",
            "q36 run: invalid value for --ctx: 0",
            "expected a whole number from 1 to 2147483647",
        ),
        (
            "run -ctk q5",
            "q36 run: invalid value for --cache-type-k: q5",
            "expected f16, q8_0, q4_0",
        ),
        (
            "run --backend x",
            "q36 run: invalid value for --backend: x",
            "expected auto, vulkan, cpu",
        ),
        (
            "run --backend metal",
            "q36 run: invalid value for --backend: metal",
            "metal is not supported here, use --vulkan or --cpu",
        ),
        (
            "run hello",
            "q36 run: unexpected argument: hello",
            "give a prompt with -p TEXT; see q36 run --help",
        ),
        ("rum", "q36: unknown command: rum", "did you mean run? see q36 --help"),
        ("xyzzy", "q36: unknown command: xyzzy", "see q36 --help"),
        ("inspect a b", "q36 inspect: unexpected argument: b", "see q36 inspect --help"),
        ("inspect a -m b", "q36 inspect: FILE cannot go with --model", "see q36 inspect --help"),
        ("completions", "q36 completions: missing argument: SHELL", "see q36 completions --help"),
        (
            "completions csh",
            "q36 completions: invalid value for SHELL: csh",
            "expected bash, zsh, fish",
        ),
    ] {
        assert_eq!(wrong(line), (message.to_owned(), hint.to_owned()), "{line}");
    }
}

#[test]
fn help_is_met_in_order() {
    let help = |line| match parse(words(line)) {
        Err(Stop::Help(request)) => Some((request.command, request.topic)),
        _ => None,
    };
    assert_eq!(help("--help"), Some((None, None)));
    assert_eq!(help("-h env"), Some((None, Some("env".into()))));
    assert_eq!(help("run --help --bogus"), Some((Some("run".into()), None)));
    assert_eq!(help("run -h all -p x"), Some((Some("run".into()), Some("all".into()))));
    assert_eq!(help("help run steering"), Some((Some("run".into()), Some("steering".into()))));
    assert_eq!(wrong("run --bogus --help").0, "q36 run: unknown option: --bogus");
    assert_eq!(wrong("run --temp x --help").0, "q36 run: invalid value for --temp: x");
}

#[test]
fn help_all_has_every_flag_and_topics_their_own() {
    let mut root = command();
    root.build();
    let text = |command: Option<&str>, topic: Option<&str>| {
        let request =
            HelpRequest { command: command.map(str::to_owned), topic: topic.map(str::to_owned) };
        let lines = super::help::page(&request, 80).unwrap();
        assert!(lines.iter().all(|line| line.text().chars().count() <= 80), "{lines:#?}");
        lines.iter().flat_map(|line| [line.text(), "\n"]).collect::<String>()
    };
    for sub in root.get_subcommands() {
        let all = text(Some(sub.get_name()), Some("all"));
        for long in sub.get_arguments().filter_map(clap::Arg::get_long) {
            assert!(all.contains(&format!("--{long}")), "{}: --{long}", sub.get_name());
        }
    }
    assert!(text(None, Some("sampling")).contains("--min-p"));
    assert!(!text(Some("run"), None).contains("--min-p"));
    assert!(text(Some("run"), Some("nope")).starts_with("unknown help topic: nope\n"));
    assert!(text(None, Some("run")).contains("Usage: q36 run"));
    assert!(text(Some("env"), None).contains("Q36_DEBUG"));
    let request = HelpRequest { command: Some("rum".into()), topic: None };
    assert_eq!(
        super::help::page(&request, 80).unwrap_err().to_string(),
        "q36: unknown command: rum"
    );
}

#[cfg(unix)]
#[test]
fn arguments_that_are_not_utf8() {
    use std::os::unix::ffi::OsStringExt as _;
    let odd = || OsString::from_vec(vec![b'-', 0xff]);
    let line = |args: Vec<OsString>| parse(std::iter::once("q36".into()).chain(args));
    assert!(matches!(line(vec![odd()]), Err(Stop::Usage(_))));
    assert!(matches!(line(vec!["run".into(), "-p".into(), odd()]), Err(Stop::Usage(_))));
    assert!(matches!(line(vec!["help".into(), odd()]), Err(Stop::Usage(_))));
    let Ok(Cli { command: Some(Command::Run(args)), .. }) =
        line(vec!["run".into(), "-m".into(), odd()])
    else {
        panic!("a path may be any bytes");
    };
    assert_eq!(args.engine.model.unwrap().into_os_string(), odd());
}

proptest! {
    #[test]
    fn no_line_panics(words in proptest::collection::vec(
        prop_oneof![
            "-{0,2}[a-z-]{0,6}(=[a-z0-9]{0,3})?",
            proptest::sample::select(vec![
                "run", "inspect", "help", "-p", "-sys", "-ctk", "--help", "--", "-", "--version",
                "--json", "--color", "--profile", "--temp", "-v", "all", "1", "f16",
            ]).prop_map(str::to_owned),
            "\\PC{0,4}",
        ],
        0..6,
    )) {
        let _ = parse(std::iter::once("q36".to_owned()).chain(words).map(OsString::from));
    }
}
