//! The `q36` program.

fn main() -> std::process::ExitCode {
    q36::commands::main(std::env::args_os())
}
