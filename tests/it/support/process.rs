//! Runs the `q36` program like a user: own process, closed environment, a time limit.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{self, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any test needs on a slow machine, short enough that a hang is a failure.
const LIMIT: Duration = Duration::from_mins(2);

/// A command line being prepared.
pub(crate) struct Run {
    command: Command,
    stdin: Vec<u8>,
    cut: Option<Cut>,
    interrupt_at: Option<Said>,
    home: tempfile::TempDir,
}

/// Whether what was said on stderr so far is enough.
type Said = fn(&str) -> bool;

/// What happens to the program in the middle of its output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    /// Once this much was read from its stdout.
    pub(crate) after_bytes: usize,
    /// A Ctrl+C; otherwise the reader goes away.
    pub(crate) interrupt: bool,
}

/// A program that goes on while the test does. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Child {
    /// The process, with pipes for its three streams.
    pub(crate) process: process::Child,
    _home: tempfile::TempDir,
}

/// What a finished process left behind. Output that is not UTF-8 is shown with replacements;
/// `stdout_bytes` has it as it was.
#[derive(Debug)]
pub(crate) struct Output {
    /// Exit status, `None` when a signal ended the process.
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stdout_bytes: Vec<u8>,
    pub(crate) stderr: String,
    /// Time from the Ctrl+C of [`Run::interrupt_at`] to the end.
    pub(crate) to_end: Option<Duration>,
}

/// The program of this build with these arguments, nothing on its standard input, a fresh `HOME`
/// and none of the `Q36_` variables that the caller's shell may carry.
pub(crate) fn q36<I, S>(args: I) -> Run
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(env!("CARGO_BIN_EXE_q36"));
    command.args(args);
    prepare(command)
}

/// The same at a terminal, where `steps` types: see `terminal.py`. What is shown is its standard output. `None` without
/// python3; the skip is then on record.
pub(crate) fn q36_at_terminal(steps: &serde_json::Value, args: &[&str]) -> Option<Run> {
    if Command::new("python3").arg("--version").output().is_err() {
        super::skip("needs python3");
        return None;
    }
    let mut command = Command::new("python3");
    let script = super::repo("tests/it/support/terminal.py");
    command.arg("-B").arg(script).arg(steps.to_string()).arg(env!("CARGO_BIN_EXE_q36")).args(args);
    Some(prepare(command).env("TERM", "xterm-256color"))
}

fn prepare(mut command: Command) -> Run {
    let home = super::temp_dir();
    command.current_dir(super::repo("")).env("HOME", home.path());
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if name_text.starts_with("Q36_") || name_text.starts_with("XDG_") {
            command.env_remove(&name);
        }
    }
    for name in ["NO_COLOR", "CLICOLOR_FORCE", "COLUMNS"] {
        command.env_remove(name);
    }
    Run { command, stdin: Vec::new(), cut: None, interrupt_at: None, home }
}

impl Run {
    /// Bytes for standard input, which is then closed.
    pub(crate) fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Interferes in the middle of the output.
    pub(crate) fn cut(mut self, cut: Cut) -> Self {
        self.cut = Some(cut);
        self
    }

    /// Sends a Ctrl+C once stderr has said enough.
    pub(crate) fn interrupt_at(mut self, said: Said) -> Self {
        self.interrupt_at = Some(said);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Where `HOME` is; a fresh folder when not given.
    pub(crate) fn home(mut self, home: &Path) -> Self {
        self.command.env("HOME", home);
        self
    }

    /// The folder to run in; the root of the repository when not given.
    pub(crate) fn dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Starts it, and leaves its streams to the test.
    pub(crate) fn spawn(mut self) -> Child {
        Child { process: self.start(), _home: self.home }
    }

    fn start(&mut self) -> process::Child {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command.spawn().expect("the program of this build can be started")
    }

    /// Runs to the end. Panics when the process hangs.
    pub(crate) fn run(mut self) -> Output {
        let mut child = self.start();
        feed(&mut child, self.stdin);
        let mut stdout = child.stdout.take().expect("stdout is a pipe");
        let stdout = match self.cut {
            None => collect(stdout),
            Some(cut) => {
                let mut first = vec![0; cut.after_bytes];
                stdout.read_exact(&mut first).expect("the program writes that much");
                if cut.interrupt {
                    let pid = rustix::process::Pid::from_child(&child);
                    rustix::process::kill_process(pid, rustix::process::Signal::INT)
                        .expect("the child is running");
                    collect(io::Cursor::new(first).chain(stdout))
                } else {
                    drop(stdout);
                    collect(io::Cursor::new(first))
                }
            }
        };
        let stderr = child.stderr.take().expect("stderr is a pipe");
        let (sent, signal) = mpsc::channel();
        let stderr = match self.interrupt_at {
            None => collect(stderr),
            Some(said) => {
                let pid = rustix::process::Pid::from_child(&child);
                let interrupt = move || {
                    let signal = rustix::process::Signal::INT;
                    rustix::process::kill_process(pid, signal).expect("the child is running");
                    let _ = sent.send(Instant::now());
                };
                watch(stderr, said, interrupt)
            }
        };
        let deadline = Instant::now() + LIMIT;
        let stdout_bytes = await_end(&mut child, &stdout, deadline);
        let stderr = await_end(&mut child, &stderr, deadline);
        let status = child.wait().expect("the child was started by this process").code();
        drop(self.home);
        let to_end = signal.try_recv().ok().map(|at| at.elapsed());
        Output {
            to_end,
            status,
            stdout: String::from_utf8_lossy(&stdout_bytes).into_owned(),
            stdout_bytes,
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Nothing to be done where it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Output {
    /// Checks the exit status; shows both streams when it is another.
    #[track_caller]
    pub(crate) fn expect_status(self, wanted: i32) -> Self {
        assert_eq!(
            self.status,
            Some(wanted),
            "wrong exit status\n--- stdout\n{}\n--- stderr\n{}",
            self.stdout,
            self.stderr
        );
        self
    }
}

/// Writes the input from a thread of its own: a child that answers before it has read everything
/// must not block the test. A child that never reads closes the pipe, which is no error here.
fn feed(child: &mut process::Child, bytes: Vec<u8>) {
    let mut pipe = child.stdin.take().expect("stdin is a pipe");
    thread::spawn(move || {
        let _ = pipe.write_all(&bytes);
    });
}

/// Reads a pipe to its end in a thread; the bytes arrive on the channel.
fn collect(mut pipe: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        let _ = send.send(bytes);
    });
    receive
}

/// Reads a pipe as [`collect`] does, and calls `act` when it has said enough.
fn watch(
    mut pipe: impl Read + Send + 'static,
    said: Said,
    act: impl FnOnce() + Send + 'static,
) -> mpsc::Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let (mut bytes, mut piece, mut act) = (Vec::new(), [0; 256], Some(act));
        while let Ok(n @ 1..) = pipe.read(&mut piece) {
            bytes.extend_from_slice(&piece[..n]);
            if said(&String::from_utf8_lossy(&bytes))
                && let Some(act) = act.take()
            {
                act();
            }
        }
        let _ = send.send(bytes);
    });
    receive
}

fn await_end(
    child: &mut process::Child,
    bytes: &mpsc::Receiver<Vec<u8>>,
    deadline: Instant,
) -> Vec<u8> {
    let left = deadline.saturating_duration_since(Instant::now());
    bytes.recv_timeout(left).unwrap_or_else(|_| {
        let _ = child.kill();
        panic!("the program did not end within {LIMIT:?}");
    })
}

#[test]
fn the_program_can_be_run() {
    let dir = super::temp_dir();
    let run = q36(["--help"]).env("COLUMNS", "80").dir(dir.path()).stdin("not read").run();
    let output = run.expect_status(0);
    assert_eq!(output.stdout.as_bytes(), output.stdout_bytes);
    assert!(output.stderr.is_empty(), "{}", output.stderr);
}
