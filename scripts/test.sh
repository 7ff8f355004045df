#!/bin/sh
# The whole test suite, set-up included. `scripts/test.sh --list` names its parts.
#
# A suite that passed is not run again while neither a file of the repository nor the toolchain
# nor the chosen driver and fixtures changed; --force runs it anyway. Skipped tests are counted and
# compared with tests/skips.txt: coverage must not get lost in silence.

set -eu

ROOT=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=scripts/platform.sh
. "$ROOT/scripts/platform.sh"

ALL='lint unit vulkan isa cpu clients shell download release-build'
SUITES=''
FORCE=no
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
NOTES=$TARGET/test-suites
CPU_BUILD='--release --locked --no-default-features'
VULKAN_BUILD="$CPU_BUILD --features vulkan"
BEGAN=$(date +%s)
PASSED=0 FAILED=0 SKIPPED=0 FAILED_SUITES=''

list() {
    cat <<'LIST'
lint           format, clippy and docs of both builds, warnings are errors   compiler tools
unit           every test but those of the GPU code, in the Vulkan build     compiler tools
vulkan         the GPU code and each kernel, validation layers on            any Vulkan 1.3 device
isa            machine code of the hot kernels, compiled for a BC-250         Mesa's AMD driver
cpu            every test of the build without Vulkan                        nothing
clients        OpenAI's and Anthropic's packages, and bare sockets, with q36  python3, haproxy; network once
shell          syntax and behaviour of the scripts                           python3
download       download_model.sh against a local hub                         python3, curl
release-build  both builds answer a prompt with the demo model               compiler tools
LIST
}

usage() {
    cat <<'USAGE'
usage: scripts/test.sh [--force] [SUITE...]

Without a suite: set-up, then all of them. None needs the real model or a GPU.

  --list      the suites and what they need
  --force     run suites that passed on these very files, too
  -h, --help  this text

environment
  VK_DRIVER_FILES  the Vulkan driver to test; otherwise Mesa's CPU driver is
  Q36_ISA          `write` makes the suite isa replace its committed figures
  Q36_FIXTURES     folder with more models and their reference results; tests that need
                   one are skipped, visibly, without it
USAGE
}

parse_arguments() {
    for argument in "$@"; do
        case $argument in
        --list) list && exit 0 ;;
        -h | --help) usage && exit 0 ;;
        --force) FORCE=yes ;;
        *) add_suite "$argument" ;;
        esac
    done
    SUITES=${SUITES:-$ALL}
}

add_suite() {
    case " $ALL " in
    *" $1 "*) SUITES="$SUITES $1" ;;
    *) say "unknown suite \`$1\`; there are: $ALL" && exit 2 ;;
    esac
}

# --- set-up -------------------------------------------------------------------------------------

needed_by() {
    case $1 in
    lint | unit | release-build) echo cc cxx cmake ninja python3 git ;;
    vulkan) echo cc cxx cmake ninja python3 git vulkan-loader cpu-vulkan-driver validation-layer spirv-val ;;
    isa) echo cc cxx cmake ninja python3 git vulkan-loader amd-vulkan-driver ;;
    cpu) echo cc ;;
    clients) echo cc python3 python3-venv haproxy ;;
    shell) echo python3 ;;
    download) echo python3 curl ;;
    esac
}

set_up() {
    step 'set-up'
    things=''
    for suite in "$@"; do things="$things $(needed_by "$suite")"; done
    # shellcheck disable=SC2046,SC2086 # a list of things, each once
    install_packages $(printf '%s\n' $things | sort -u)
    need_rust
    need_rust_component rustfmt cargo-fmt
    need_rust_component clippy cargo-clippy
}

need_rust_component() {
    if (cd "$ROOT" && "$2" --version >/dev/null 2>&1); then return; fi
    have rustup || die "$2 is missing" "install the $1 that belongs to your Rust"
    (cd "$ROOT" && rustup component add "$1" >&2) || die "rustup cannot add $1" 'check the network'
}

# The second name is for old loaders.
use_vulkan_driver() {
    VK_DRIVER_FILES=$1
    VK_ICD_FILENAMES=$1
    export VK_DRIVER_FILES VK_ICD_FILENAMES
}

# Mesa's CPU driver, unless the caller chose one.
choose_vulkan_driver() {
    if [ -z "${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}" ]; then use_vulkan_driver "$(cpu_vulkan_driver)"; fi
}

# Builds the shader compiler once; afterwards this only prints where it is.
find_shader_compiler() {
    [ -z "${SHADERC_LIB_DIR:-}" ] || return 0
    SHADERC_LIB_DIR=$("$ROOT/scripts/shaderc.sh") ||
        die 'the shader compiler could not be built' 'see the messages above'
    export SHADERC_LIB_DIR
}

# --- what has passed already --------------------------------------------------------------------

files() {
    if [ -e "$ROOT/.git" ] && have git; then
        git -C "$ROOT" ls-files -z --cached --others --exclude-standard
    else
        (cd "$ROOT" && find . -path ./target -prune -o -path ./gguf -prune -o -type f -print0)
    fi
}

# A hash over all that a result depends on. Files that git lists but that are deleted have none.
fingerprint() {
    {
        files | sort -z | (cd "$ROOT" && xargs -0 sha256sum 2>/dev/null) || :
        (cd "$ROOT" && rustc -V)
        echo "${VK_DRIVER_FILES:-} ${VK_ICD_FILENAMES:-} ${Q36_FIXTURES:-}"
    } | sha256sum | cut -d ' ' -f 1
}

# --- running ------------------------------------------------------------------------------------

# Runs a command, shows its output and adds up what it tested. The command's status gets past
# `tee` in a file, which is where POSIX pipes can carry one.
counted() {
    log=$NOTES/log
    echo 1 >"$NOTES/status"
    { cd "$ROOT" && "$@" && echo 0 >"$NOTES/status"; } 2>&1 | tee "$log"
    count "$log"
    [ "$(cat "$NOTES/status")" -eq 0 ]
}

# Sums the closing lines of cargo's tests and Python's.
count() {
    # shellcheck disable=SC2046 # three numbers
    set -- $(awk '
        /^test result:/ { passed += $4; failed += $6 }
        /^Ran [0-9]+ tests? in/ { ran = $2; passed += ran }
        /^FAILED \(/ { n = 0; for (i = 1; i <= NF; i++) if (match($i, /=[0-9]+/)) n += substr($i, RSTART + 1); passed -= n; failed += n }
        END { print passed + 0, failed + 0 }' "$1")
    PASSED=$((PASSED + $1)) FAILED=$((FAILED + $2))
}

# A command that is one test itself.
single() {
    say "$ $*"
    if (cd "$ROOT" && "$@" >&2); then PASSED=$((PASSED + 1)); else
        FAILED=$((FAILED + 1))
        return 1
    fi
}

# Cargo tests of one build; skips are counted. Suite, build, arguments.
cargo_tests() {
    suite=$1 build=$2
    shift 2
    Q36_SKIP_LOG=$NOTES/$suite.skips
    export Q36_SKIP_LOG
    : >"$Q36_SKIP_LOG"
    result=0
    # shellcheck disable=SC2086 # cargo's arguments
    counted cargo test $build --no-fail-fast "$@" || result=1
    check_skips "$suite" || result=1
    return "$result"
}

# Compares the skips of a suite with tests/skips.txt: suite, without fixtures, with fixtures.
check_skips() {
    column=2
    if [ -n "${Q36_FIXTURES:-}" ]; then column=3; fi
    expected=$(expected_skips "$1" "$column")
    if [ "$1" = vulkan ] && has_old_spirv_val; then
        expected=$((${expected:-0} + $(expected_skips old-spirv-val "$column")))
    fi
    found=$(wc -l <"$NOTES/$1.skips" | tr -d ' ')
    SKIPPED=$((SKIPPED + found))
    if [ "$found" -gt 0 ]; then sort "$NOTES/$1.skips" >&2; fi
    [ "$found" -eq "${expected:-0}" ] && return 0
    say "suite $1: $found skips, tests/skips.txt expects ${expected:-0}"
    FAILED=$((FAILED + 1))
    return 1
}

expected_skips() {
    awk -v suite="$1" -v column="$2" '$1 == suite { print $column }' "$ROOT/tests/skips.txt"
}

# Before 2023.3 it does not know cooperative matrices.
has_old_spirv_val() {
    version=$(spirv-val --version 2>/dev/null | sed -n 's/^SPIRV-Tools v\([0-9]*\)\.\([0-9]\).*/\1\2/p')
    [ -n "$version" ] && [ "$version" -lt 20233 ]
}

# --- suites -------------------------------------------------------------------------------------

suite_lint() {
    find_shader_compiler
    result=0
    single cargo fmt --check || result=1
    for build in "$CPU_BUILD" "$VULKAN_BUILD"; do
        # shellcheck disable=SC2086 # cargo's arguments
        single cargo clippy $build --all-targets -- -D warnings || result=1
    done
    # shellcheck disable=SC2086 # cargo's arguments
    single env RUSTDOCFLAGS='-D warnings' cargo doc $VULKAN_BUILD --no-deps --document-private-items || result=1
    return "$result"
}

suite_unit() {
    find_shader_compiler
    cargo_tests unit "$VULKAN_BUILD" -- --skip kernels:: --skip vulkan:: --skip device:: --skip graph::
}

suite_vulkan() {
    find_shader_compiler
    cargo_tests vulkan "$VULKAN_BUILD" --lib --test it -- kernels:: vulkan:: device:: graph:: --skip graph::isa::
}

# The board's own chip where the driver can pretend to have it, or the nearest that every version knows.
amd_family() {
    for family in GFX1013 NAVI10; do
        # shellcheck disable=SC2086 # cargo's arguments
        if (cd "$ROOT" && RADV_FORCE_FAMILY=$family cargo run --quiet $VULKAN_BUILD -- devices 2>/dev/null) | grep -q RADV; then
            echo "$family" && return
        fi
    done
}

# Without hardware: the driver compiles for a chip that it is told to have.
suite_isa() {
    find_shader_compiler
    driver=${VK_DRIVER_FILES:-$VK_ICD_FILENAMES}
    use_vulkan_driver "$(amd_vulkan_driver)"
    RADV_FORCE_FAMILY=$(amd_family)
    export RADV_FORCE_FAMILY
    result=0
    cargo_tests isa "$VULKAN_BUILD" --lib -- --nocapture graph::isa:: || result=1
    unset RADV_FORCE_FAMILY
    use_vulkan_driver "$driver"
    return "$result"
}

suite_cpu() { cargo_tests cpu "$CPU_BUILD"; }

# An environment of Python for the packages of the clients, made anew when they change. Prints its Python; fails where
# it cannot be made, usually for want of a network.
client_python() {
    venv=${XDG_CACHE_HOME:-$HOME/.cache}/q36/clients
    wanted=$ROOT/tests/clients/requirements.txt
    if ! cmp -s "$wanted" "$venv/installed.txt"; then
        rm -rf "$venv"
        python3 -m venv "$venv" >&2 || return 1
        "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$wanted" >&2 || return 1
        cp "$wanted" "$venv/installed.txt"
    fi
    echo "$venv/bin/python"
}

# Without the packages the tests with bare sockets remain.
suite_clients() {
    # shellcheck disable=SC2086 # cargo's arguments
    single cargo build $CPU_BUILD || return 1
    if ! python=$(client_python); then
        say 'skipped: clients: the packages of OpenAI and Anthropic cannot be installed; bare sockets only'
        SKIPPED=$((SKIPPED + 1))
        python=python3
    fi
    Q36_BIN=$TARGET/release/q36
    export Q36_BIN
    counted "$python" -B -m unittest discover -s tests/clients
}

scripts() {
    files | tr '\0' '\n' | grep -E '\.sh$|^(\./)?\.ci/run$'
}

suite_shell() {
    result=0
    for script in $(scripts); do
        single sh -n "$script" || result=1
        if have shellcheck; then single shellcheck --external-sources "$script" || result=1; fi
    done
    counted python3 -B -m unittest discover -s tests/scripts || result=1
    return "$result"
}

suite_download() { counted python3 -B -m unittest discover -s tests/download; }

# The answer of the demo model is known: it is trained, small and asked greedily.
gives_the_answer() {
    "$TARGET/release/q36" run -m models/q36-tiny.gguf -p 'What is the capital of France?' --nothink --temp 0 |
        grep -F 'The capital of France is Paris.'
}

suite_release_build() {
    find_shader_compiler
    result=0
    for build in "$CPU_BUILD" "$VULKAN_BUILD"; do
        # shellcheck disable=SC2086 # cargo's arguments
        single cargo build $build && single gives_the_answer || result=1
    done
    return "$result"
}

# --- one suite, all suites ----------------------------------------------------------------------

run_suite() {
    step "suite $1"
    stamp=$NOTES/$1.passed
    key="$FINGERPRINT $1"
    if [ "$FORCE" = no ] && [ -f "$stamp" ] && [ "$(head -n 1 "$stamp")" = "$key" ]; then
        say "passed already on these files: $(tail -n 1 "$stamp") tests"
        PASSED=$((PASSED + $(tail -n 1 "$stamp")))
        return
    fi
    before=$PASSED
    if "suite_$(echo "$1" | tr - _)"; then
        printf '%s\n%s\n' "$key" "$((PASSED - before))" >"$stamp"
    else
        FAILED_SUITES="$FAILED_SUITES $1"
        rm -f "$stamp"
    fi
}

# The closing line has the form of cargo's, which is what readers of logs look for.
summary() {
    verdict=ok
    if [ -n "$FAILED_SUITES" ]; then
        verdict=FAILED
        if [ "$FAILED" -eq 0 ]; then FAILED=1; fi
        echo "failed suites:$FAILED_SUITES"
    fi
    printf '\ntest result: %s. %d passed; %d failed; %d ignored; 0 measured; 0 filtered out; finished in %d.00s\n' \
        "$verdict" "$PASSED" "$FAILED" "$SKIPPED" $(($(date +%s) - BEGAN))
    [ "$verdict" = ok ]
}

main() {
    parse_arguments "$@"
    mkdir -p "$NOTES"
    # shellcheck disable=SC2086 # a list of suites
    set_up $SUITES
    choose_vulkan_driver
    FINGERPRINT=$(fingerprint)
    for suite_name in $SUITES; do run_suite "$suite_name"; done
    summary
}

main "$@"
