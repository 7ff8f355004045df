#!/bin/sh
# From a fresh machine to an answer: installs what is missing, builds q36, asks the demo model.
# Run it again at any time; where nothing changed it takes seconds.

set -eu

ROOT=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=scripts/platform.sh
. "$ROOT/scripts/platform.sh"

BACKEND=vulkan
PLAN_ONLY=no
PROMPT='What is the capital of France?'

usage() {
    cat <<'USAGE'
usage: scripts/quickstart.sh [--cpu] [--print-plan]

  --cpu          build without Vulkan: needs no shader compiler and no GPU
  --print-plan   say what would be installed and built, and change nothing
  -h, --help     this text

Packages are installed as root or with sudo, on the Debian/Ubuntu, Fedora and Arch families; on
others, and where you may not install, the script names what is missing.
USAGE
}

parse_arguments() {
    for argument in "$@"; do
        case $argument in
        --cpu) BACKEND=cpu ;;
        --print-plan | --dry-run) PLAN_ONLY=yes ;;
        -h | --help) usage && exit 0 ;;
        *) usage >&2 && exit 2 ;;
        esac
    done
}

# What the build and the first run need. The shader compiler is C++, built once with cmake.
needed() {
    if [ "$BACKEND" = cpu ]; then
        echo cc
    else
        echo cc cxx cmake ninja python3 git vulkan-loader vulkan-driver
    fi
}

build_command() {
    if [ "$BACKEND" = cpu ]; then
        echo 'cargo build --release --locked --no-default-features'
    else
        echo 'cargo build --release --locked --no-default-features --features vulkan'
    fi
}

print_plan() {
    family=$(os_family)
    # shellcheck disable=SC2046 # lists of things
    lacking=$(missing $(needed))
    # shellcheck disable=SC2086 # a list of things
    packages=$(packages_of "$family" $lacking)
    echo "family:   $family"
    echo "missing:  ${lacking:-nothing}"
    if [ -n "$lacking" ]; then echo "installs: $(install_command "$family" "$packages")"; fi
    echo "rust:     $(rust_found | grep . || echo none), needs $(rust_wanted)"
    echo "builds:   $(build_command)"
}

build() {
    step 'build'
    if [ "$BACKEND" = vulkan ]; then
        SHADERC_LIB_DIR=$("$ROOT/scripts/shaderc.sh") ||
            die 'the shader compiler could not be built' 'see the messages above, or build without it: scripts/quickstart.sh --cpu'
        export SHADERC_LIB_DIR
    fi
    command=$(build_command)
    # shellcheck disable=SC2086 # a command line
    (cd "$ROOT" && $command) || die 'cargo failed' 'see the messages above; network trouble is the usual cause on the first run'
}

# Every device can answer with 17 MB of weights, so the default backend decides.
answer() {
    step 'answer'
    program=${CARGO_TARGET_DIR:-$ROOT/target}/release/q36
    say "$ q36 run -m models/q36-tiny.gguf -p \"$PROMPT\" --nothink --temp 0"
    "$program" run -m "$ROOT/models/q36-tiny.gguf" -p "$PROMPT" --nothink --temp 0 ||
        die 'the demo model gave no answer' "run \`$program doctor\`: it tells what this machine lacks"
}

next_step() {
    cat >&2 <<'TEXT'

That was the demo model, 17 MB, made for tests. The real one:
  ./download_model.sh q2-imatrix         (11.7 GB, resumable)
  target/release/q36 run -p "Hello"
TEXT
}

main() {
    parse_arguments "$@"
    if [ "$PLAN_ONLY" = yes ]; then print_plan && exit 0; fi
    step 'packages'
    # shellcheck disable=SC2046 # a list of things
    install_packages $(needed)
    step 'Rust'
    need_rust
    build
    answer
    next_step
}

main "$@"
