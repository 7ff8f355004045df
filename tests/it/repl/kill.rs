//! Conversations that are killed while they are answered and saved, by themselves and by `/save`: every file is whole
//! or ignored, nothing that was saved is lost, and the next start goes on from there.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use q36::kv::Container;
use q36::util::rng::Rng;

use crate::support::{Child, q36, temp_dir};

use super::piped::{FRANCE, SUM};

/// How often the program is killed; 200 is the whole test.
const ROUNDS: &str = "Q36_TEST_KILLS";
const DEFAULT_ROUNDS: usize = 12;
/// Chooses what is being done when the kill comes, and how long after its beginning. Where in the code that is, the
/// machine decides.
const SEED: u64 = 36;
/// Longer than any step needs on a slow machine.
const LIMIT: Duration = Duration::from_mins(1);
/// What every answer to the two questions has in it, however long the conversation is.
const PARIS: &str = "The capital of France is Paris";
const RESULT: &str = "17 + 25 = 42";
/// A conversation of more tokens is not gone on with: the context has 1,024.
const LONG: u32 = 700;

/// Something that is typed, and how the line begins that says that it is done. Nothing typed is the end of the input,
/// which the end of the program answers.
struct Step {
    name: &'static str,
    typed: Option<String>,
    done: &'static str,
}

/// The two files that the user names, and the directory of saved states.
struct Places {
    talk: PathBuf,
    story: PathBuf,
    states: PathBuf,
}

/// What was promised so far.
#[derive(Default)]
struct Kept {
    /// Tokens that the conversation's file had when it was last said to be saved.
    talk_tokens: u32,
    /// Whether the story's file was ever said to be saved.
    has_story: bool,
    /// Files of the directory that were whole, and which ones they were.
    states: BTreeMap<PathBuf, u64>,
}

/// One run of the program.
struct Talk {
    child: Child,
    input: Option<ChildStdin>,
    said: Receiver<String>,
}

impl Talk {
    fn start(places: &Places) -> Self {
        let states = places.states.to_str().unwrap();
        let common = ["run", "--repl", "--cpu", "-m", "models/q36-tiny.gguf", "--temp", "0"];
        let more = ["-t", "1", "-sys", "", "-c", "1024", "--nothink", "-n", "16"];
        let disk = ["--kv-disk-dir", states, "--kv-cache-min-tokens", "16"];
        let mut child = q36([&common[..], &more, &disk].concat()).spawn();
        let input = child.process.stdin.take();
        let stderr = BufReader::new(child.process.stderr.take().unwrap());
        let (say, said) = channel();
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).try_for_each(|line| say.send(line))
        });
        let talk = Self { child, input, said };
        talk.hear("/help says", None).expect("it starts");
        talk
    }

    /// Waits for a line, at most until a moment.
    fn hear(&self, beginning: &str, until: Option<Instant>) -> Option<String> {
        let limit = Instant::now() + LIMIT;
        let mut heard = Vec::new();
        loop {
            let left = until.unwrap_or(limit).saturating_duration_since(Instant::now());
            match self.said.recv_timeout(left) {
                Ok(line) if line.starts_with(beginning) => return Some(line),
                Ok(line) if line.contains("error") || line.contains("warning") => panic!("{line}"),
                Ok(line) => heard.push(line),
                Err(_) if until.is_some() => return None,
                Err(why) => panic!("waiting for {beginning:?}: {why} behind {heard:#?}"),
            }
        }
    }

    fn begin(&mut self, step: &Step) {
        match &step.typed {
            Some(line) => {
                let input = self.input.as_mut().unwrap();
                writeln!(input, "{line}").unwrap();
            }
            None => self.input = None,
        }
    }

    /// Does a step to its end.
    fn take(&mut self, step: &Step) -> String {
        self.begin(step);
        if step.typed.is_some() {
            return self.hear(step.done, None).unwrap();
        }
        assert!(self.child.process.wait().unwrap().success());
        String::new()
    }

    /// Begins a step and kills the program a while later. What it said to be done before it died.
    fn kill(&mut self, step: &Step, after: Duration) -> Option<String> {
        let at = Instant::now() + after;
        self.begin(step);
        let done = if step.done.is_empty() { None } else { self.hear(step.done, Some(at)) };
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        self.child.process.kill().unwrap();
        self.child.process.wait().unwrap();
        // What it said in its last moment counts, too.
        let last = || self.said.try_iter().find(|line| line.starts_with(step.done));
        done.or_else(|| if step.done.is_empty() { None } else { last() })
    }

    /// Everything on stdout, once it has ended.
    fn answers(&mut self) -> String {
        let mut answers = String::new();
        self.child.process.stdout.take().unwrap().read_to_string(&mut answers).unwrap();
        answers
    }
}

/// A story that no other round tells is saved by itself and by name, then makes room for the conversation of all rounds.
fn steps(round: usize, places: &Places) -> Vec<Step> {
    let step = |name, typed: String, done| Step { name, typed: Some(typed), done };
    let story = format!("In the year {round} the fox met bear number {round} at the river.");
    let (talk, file) = (places.talk.display(), places.story.display());
    let mut steps = vec![
        step("story", story, "prefill: "),
        step("save story", format!("/save {file}"), "saved "),
        step("clear", "/clear".into(), "the conversation is forgotten"),
    ];
    if places.talk.exists() {
        steps.push(step("load", format!("/load {talk}"), "loaded "));
    }
    steps.push(step("question", FRANCE.into(), "prefill: "));
    steps.push(step("save", format!("/save {talk}"), "saved "));
    steps.push(step("last question", SUM.into(), "prefill: "));
    steps.push(Step { name: "end", typed: None, done: "" });
    steps
}

/// The first number of a line.
fn number(line: &str) -> u32 {
    line.split(' ').find_map(|word| word.parse().ok()).expect("a number")
}

impl Kept {
    /// What the end of a step promises.
    fn promise(&mut self, step: &Step, said: &str) {
        match step.name {
            "save" => self.talk_tokens = number(said),
            "save story" => self.has_story = true,
            _ => {}
        }
    }

    /// Every file is whole, and none of those that were is missing.
    fn check(&mut self, places: &Places) {
        for (path, is_due) in
            [(&places.talk, self.talk_tokens > 0), (&places.story, self.has_story)]
        {
            assert!(!is_due || path.exists(), "{} has gone", path.display());
            let tokens = if path.exists() { whole(path) } else { 0 };
            assert!(*path != places.talk || tokens >= self.talk_tokens, "an older conversation");
        }
        let found = states(&places.states);
        for path in self.states.keys() {
            assert!(found.contains_key(path), "{} has gone", path.display());
        }
        for (path, inode) in found {
            if self.states.insert(path.clone(), inode) != Some(inode) {
                whole(&path);
            }
        }
    }
}

/// Tokens of a file all of whose sums are right.
fn whole(path: &Path) -> u32 {
    let file = std::fs::File::open(path).unwrap();
    let mut file = Container::open(file).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let dropped = file.verify(None).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(dropped.is_empty(), "{}: {dropped:?}", path.display());
    file.header().tokens
}

/// Files of a directory that have the names of saved states, and their inodes.
fn states(dir: &Path) -> BTreeMap<PathBuf, u64> {
    let Ok(entries) = std::fs::read_dir(dir) else { return BTreeMap::new() };
    let entries = entries.map(|entry| entry.unwrap());
    let file = |entry: std::fs::DirEntry| (entry.path(), entry.metadata().unwrap().ino());
    entries.map(file).filter(|(path, _)| path.extension().is_some_and(|e| e == "kv")).collect()
}

/// Files that were being written when their writer died.
fn unfinished(dir: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries.filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().contains(".tmp.")).count()
}

/// Those of other processes than this one.
fn left_by_others(places: &Places, talk: &Talk) -> usize {
    let own = format!(".tmp.{}.", talk.child.process.id());
    let entries = std::fs::read_dir(&places.states).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains(".tmp.") && !name.contains(&own)).count()
}

/// A start that is not killed: how long each step takes.
fn rehearse(places: &Places, kept: &mut Kept, round: usize) -> BTreeMap<&'static str, Duration> {
    let mut talk = Talk::start(places);
    let mut times = BTreeMap::new();
    for step in steps(round, places) {
        let began = Instant::now();
        let said = talk.take(&step);
        times.insert(step.name, began.elapsed());
        kept.promise(&step, &said);
    }
    let answers = talk.answers();
    assert!(answers.contains(PARIS) && answers.contains(RESULT), "{answers}");
    kept.check(places);
    times
}

#[test]
fn a_kill_at_any_moment_of_a_conversation_costs_nothing_that_was_saved() {
    let rounds = std::env::var(ROUNDS).ok().and_then(|n| n.parse().ok()).unwrap_or(DEFAULT_ROUNDS);
    let dir = temp_dir();
    let at = |name: &str| dir.path().join(name);
    let places = Places { talk: at("talk.kv"), story: at("story.kv"), states: at("states") };
    let mut kept = Kept::default();
    let mut times = rehearse(&places, &mut kept, 0);
    // A second one loads what the first one saved.
    times.extend(rehearse(&places, &mut kept, 1));
    let mut rng = Rng::new(SEED);
    let (mut kills, mut cut) = (BTreeMap::<&str, usize>::new(), 0);
    for round in 2..rounds + 2 {
        if kept.talk_tokens > LONG {
            std::fs::remove_file(&places.talk).unwrap();
            kept.talk_tokens = 0;
        }
        let steps = steps(round, &places);
        let last = usize::try_from(rng.next_u64() % steps.len() as u64).unwrap();
        let before = if places.talk.exists() { whole(&places.talk) } else { 0 };
        let mut talk = Talk::start(&places);
        let mut expected = Vec::new();
        for step in &steps[..last] {
            let said = talk.take(step);
            match step.name {
                "story" => assert_eq!(left_by_others(&places, &talk), 0, "round {round}"),
                "load" => assert_eq!(number(&said), before, "round {round}: {said}"),
                "question" => expected.push(PARIS),
                "last question" => expected.push(RESULT),
                "save" => assert!(number(&said) > before, "round {round}: {said}"),
                _ => {}
            }
            kept.promise(step, &said);
        }
        let after = times[steps[last].name].mul_f32(1.25 * rng.unit_f32());
        if let Some(said) = talk.kill(&steps[last], after) {
            kept.promise(&steps[last], &said);
        }
        let answers = talk.answers();
        let mut rest = answers.as_str();
        for text in expected {
            rest = rest.split_once(text).unwrap_or_else(|| panic!("round {round}: {answers}")).1;
        }
        *kills.entry(steps[last].name).or_default() += 1;
        cut += usize::from(unfinished(&places.states) + unfinished(dir.path()) > 0);
        kept.check(&places);
    }
    rehearse(&places, &mut kept, rounds + 2);
    assert_eq!(unfinished(dir.path()), 0, "what died beside a file goes when it is saved again");
    let all: Vec<PathBuf> = states(&places.states).into_keys().collect();
    assert!(all.iter().all(|path| whole(path) > 0));
    println!(
        "seed {SEED}: {rounds} kills, {kills:?}, {cut} in the middle of a file, {} states",
        all.len()
    );
}
