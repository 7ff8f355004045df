#!/bin/sh
# Prints the folder of a static library of the shader compiler, which it builds when it is missing:
#
#   export SHADERC_LIB_DIR=$(scripts/shaderc.sh)
#   cargo build --release --locked --no-default-features --features vulkan
#
# The library is the one that a plain `cargo build` makes from the sources in its crate, about twelve
# minutes of one processor. Kept outside the target folder it is built once for all checkouts. The name
# of its folder holds what it depends on: crate, target, C++ compiler.

set -eu

ROOT=$(cd "$(dirname "$0")/.." && pwd)
ARCHIVE=libshaderc_combined.a
# Source files that the C++ build compiles, for the progress line.
FILES=428

say() { printf '%s\n' "$*" >&2; }

die() {
    say "error: $1"
    shift
    for hint in "$@"; do say "hint: $hint"; done
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

usage() {
    cat <<'USAGE'
usage: scripts/shaderc.sh [--path]

Prints the folder for SHADERC_LIB_DIR; builds the library first when it is not there.

  --path      print the folder and build nothing
  -h, --help  this text

environment
  XDG_CACHE_HOME    where caches are; otherwise ~/.cache
  CXX               C++ compiler; otherwise c++
  CARGO_BUILD_JOBS  processors to use; otherwise all
USAGE
}

# The version that Cargo.lock fixes.
crate_version() {
    awk '$0 == "name = \"shaderc-sys\"" { getline; gsub(/[^0-9.]/, ""); print; exit }' "$ROOT/Cargo.lock"
}

# Kind and version of the C++ compiler; archives of different ones do not always link together.
compiler_id() {
    kind=gcc
    case $("$CXX" --version 2>/dev/null) in *clang*) kind=clang ;; esac
    echo "$kind$("$CXX" -dumpversion)"
}

# Build scripts run on, and link for, the host.
host() { (cd "$ROOT" && rustc -vV) | sed -n 's/^host: //p'; }

check_tools() {
    lacking=''
    for tool in cargo cmake git python3; do have "$tool" || lacking="$lacking $tool"; done
    [ -z "$lacking" ] || die "building the shader compiler needs:$lacking" \
        'Debian, Ubuntu: apt-get install cmake git python3 (and ninja-build, which is faster)' \
        'or build without the GPU engine: cargo build --release --no-default-features'
}

# A line a minute: nobody should wonder whether twelve silent minutes are a hang. The short naps are
# because a caller that reads our output waits for the last of them.
report_progress() {
    naps=0
    while sleep 5 && kill -0 $$ 2>/dev/null; do
        naps=$((naps + 1))
        [ $((naps % 12)) -eq 0 ] || continue
        files=$(cat "$BUILD"/release/build/shaderc-sys-*/out/build/.ninja_log 2>/dev/null | wc -l)
        if [ "$files" -gt 0 ]; then
            say "shader compiler: $((naps / 12)) min, $files of about $FILES files"
        else
            say "shader compiler: $((naps / 12)) min"
        fi
    done
}

# A package that depends on the compiler and nothing else, at the versions of our Cargo.lock: cargo
# builds no dependency of a build script by itself.
write_package() {
    mkdir -p "$BUILD/package/src"
    : >"$BUILD/package/src/lib.rs"
    cp "$ROOT/Cargo.lock" "$BUILD/package/"
    cat >"$BUILD/package/Cargo.toml" <<TOML
[package]
name = "shader-compiler"
edition = "2024"

[dependencies]
shaderc-sys = { version = "=$1", features = ["build-from-source"] }

[workspace]
TOML
}

# Run from our folder, so that rust-toolchain.toml and cargo's configuration apply.
compile() {
    (cd "$ROOT" && unset SHADERC_LIB_DIR &&
        cargo build --release --manifest-path "$BUILD/package/Cargo.toml" --target-dir "$BUILD" >&2)
}

# An interrupted build goes on where it was. The library appears under its name when it is complete.
build() {
    check_tools
    say "building the shader compiler, once: about 12 minutes of one processor, into $DIR"
    began=$(date +%s)
    write_package "$(crate_version)"
    report_progress >&2 9>&- &
    progress=$!
    trap 'kill "$progress" 2>/dev/null || :' EXIT
    compile || die 'the shader compiler does not build' 'see the messages above; the next run goes on from here'
    set -- "$BUILD"/release/build/shaderc-sys-*/out/lib/"$ARCHIVE"
    [ -f "$1" ] || die "cargo built no $ARCHIVE below $BUILD"
    rm -rf "$DIR.new"
    mkdir "$DIR.new"
    cp "$1" "$DIR.new/"
    rm -rf "$DIR"
    mv "$DIR.new" "$DIR"
    rm -rf "$BUILD"
    say "shader compiler built in $(($(date +%s) - began)) s"
}

main() {
    case ${1:-} in
    '' | --path) ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
    esac
    CXX=${CXX:-c++}
    have "$CXX" || die "no C++ compiler: $CXX" 'Debian, Ubuntu: apt-get install g++'
    have rustc || die 'no Rust compiler' 'https://rustup.rs'
    CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/q36
    DIR=$CACHE/shaderc-$(crate_version)-$(host)-$(compiler_id)
    BUILD=$DIR.build
    if [ "${1:-}" != --path ] && [ ! -f "$DIR/$ARCHIVE" ]; then
        mkdir -p "$CACHE"
        # Held by this shell and the compilers it starts; gone with the last of them.
        exec 9>"$DIR.lock"
        if have flock && ! flock -n 9; then
            say 'another build of the shader compiler is running; waiting for it'
            flock 9
        fi
        [ -f "$DIR/$ARCHIVE" ] || build
    fi
    echo "$DIR"
}

main "$@"
