# shellcheck shell=sh
# What this machine is and what it lacks. Sourced by the scripts beside it; changes nothing until
# `install_packages` is called.
#
# For tests: Q36_OS_RELEASE (file instead of /etc/os-release), Q36_SYSTEM_ROOT (folder that stands
# for / when looking for libraries and drivers), Q36_GPU_VENDORS (PCI ids instead of asking sysfs).

SYSTEM_ROOT=${Q36_SYSTEM_ROOT:-}

say() { printf '%s\n' "$*" >&2; }

# The step that an error message names.
STEP=start
step() {
    STEP=$1
    say "== $1"
}

die() {
    say "error: $STEP: $1"
    shift
    for hint in "$@"; do say "hint: $hint"; done
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# One field of os-release, without quotes.
os_field() {
    sed -n "s/^$1=//p" "${Q36_OS_RELEASE:-/etc/os-release}" 2>/dev/null | head -n 1 | tr -d "\"'"
}

# debian, fedora, arch or unknown: the distribution's own name first, then what it says it is like.
os_family() {
    for id in $(os_field ID) $(os_field ID_LIKE); do
        case $id in
        debian | ubuntu) echo debian && return ;;
        fedora | rhel | centos) echo fedora && return ;;
        arch) echo arch && return ;;
        esac
    done
    echo unknown
}

# --- what is needed -----------------------------------------------------------------------------

has_vulkan_loader() {
    for dir in lib lib64 usr/lib usr/lib64 usr/local/lib "usr/lib/$(uname -m)-linux-gnu"; do
        [ ! -e "$SYSTEM_ROOT/$dir/libvulkan.so.1" ] || return 0
    done
    return 1
}

has_vulkan_driver() {
    for file in "$SYSTEM_ROOT"/usr/share/vulkan/icd.d/*.json "$SYSTEM_ROOT"/etc/vulkan/icd.d/*.json; do
        [ ! -e "$file" ] || return 0
    done
    return 1
}

has_cpu_vulkan_driver() { [ -n "$(cpu_vulkan_driver)" ]; }

# The manifest of Mesa's CPU driver.
cpu_vulkan_driver() {
    for file in "$SYSTEM_ROOT"/usr/share/vulkan/icd.d/lvp_icd*.json; do
        if [ -e "$file" ]; then echo "$file" && return; fi
    done
}

has_amd_vulkan_driver() { [ -n "$(amd_vulkan_driver)" ]; }

# The manifest of Mesa's driver for AMD.
amd_vulkan_driver() {
    for file in "$SYSTEM_ROOT"/usr/share/vulkan/icd.d/radeon_icd*.json; do
        if [ -e "$file" ]; then echo "$file" && return; fi
    done
}

has_validation_layer() {
    for dir in usr/share usr/local/share etc; do
        [ ! -e "$SYSTEM_ROOT/$dir/vulkan/explicit_layer.d/VkLayer_khronos_validation.json" ] || return 0
    done
    return 1
}

# Whether one of the things named below is there.
is_present() {
    case $1 in
    cc) have cc || have gcc || have clang ;;
    cxx) have c++ || have g++ || have clang++ ;;
    vulkan-loader) has_vulkan_loader ;;
    vulkan-driver) has_vulkan_driver ;;
    cpu-vulkan-driver) has_cpu_vulkan_driver ;;
    amd-vulkan-driver) has_amd_vulkan_driver ;;
    validation-layer) has_validation_layer ;;
    python3-venv) python3 -c 'import ensurepip' 2>/dev/null ;;
    # A directory that not everybody has in PATH.
    haproxy) have haproxy || [ -x "$SYSTEM_ROOT/usr/sbin/haproxy" ] ;;
    *) have "$1" ;;
    esac
}

# Those of the named things that are missing.
missing() {
    for thing in "$@"; do is_present "$thing" || printf '%s ' "$thing"; done
}

# --- packages -----------------------------------------------------------------------------------

# Vendors of the GPUs, as PCI ids: 0x1002 AMD, 0x8086 Intel, 0x10de NVIDIA.
gpu_vendors() {
    if [ -n "${Q36_GPU_VENDORS+set}" ]; then
        echo "$Q36_GPU_VENDORS"
    else
        cat /sys/class/drm/card*/device/vendor 2>/dev/null | sort -u
    fi
}

# The library that fits the kernel driver in use.
arch_nvidia_driver() {
    if [ -e "$SYSTEM_ROOT/proc/driver/nvidia" ]; then echo nvidia-utils; else echo vulkan-nouveau; fi
}

# Arch has a package for each driver; the CPU driver does where no GPU of theirs is found.
arch_driver() {
    packages=''
    for vendor in $(gpu_vendors); do
        case $vendor in
        0x1002) packages="$packages vulkan-radeon" ;;
        0x8086) packages="$packages vulkan-intel" ;;
        0x10de) packages="$packages $(arch_nvidia_driver)" ;;
        esac
    done
    echo "${packages:- vulkan-swrast}"
}

# The packages that bring a thing: family, thing.
package_of() {
    case $1:$2 in
    debian:cc) echo gcc libc6-dev ;;
    debian:cxx) echo g++ ;;
    debian:ninja) echo ninja-build ;;
    debian:vulkan-loader) echo libvulkan1 ;;
    debian:vulkan-driver | debian:cpu-vulkan-driver | debian:amd-vulkan-driver) echo mesa-vulkan-drivers ;;
    debian:validation-layer) echo vulkan-validationlayers ;;
    debian:curl | fedora:curl | arch:curl) echo curl ca-certificates ;;
    debian:spirv-val | fedora:spirv-val | arch:spirv-val) echo spirv-tools ;;
    debian:python3-venv) echo python3-venv ;;
    fedora:python3-venv) echo python3 ;;
    arch:python3-venv) echo python ;;
    fedora:cc) echo gcc ;;
    fedora:cxx) echo gcc-c++ ;;
    fedora:ninja) echo ninja-build ;;
    fedora:vulkan-loader) echo vulkan-loader ;;
    fedora:vulkan-driver | fedora:cpu-vulkan-driver | fedora:amd-vulkan-driver) echo mesa-vulkan-drivers ;;
    fedora:validation-layer) echo vulkan-validation-layers ;;
    arch:cc | arch:cxx) echo gcc ;;
    arch:python3) echo python ;;
    arch:vulkan-loader) echo vulkan-icd-loader ;;
    arch:vulkan-driver) arch_driver ;;
    arch:cpu-vulkan-driver) echo vulkan-swrast ;;
    arch:amd-vulkan-driver) echo vulkan-radeon ;;
    arch:validation-layer) echo vulkan-validation-layers ;;
    *) echo "$2" ;;
    esac
}

# The packages for several things, each once.
packages_of() {
    family=$1
    shift
    for thing in "$@"; do package_of "$family" "$thing"; done |
        tr -s ' ' '\n' | sed '/^$/d' | sort -u | tr '\n' ' ' | sed 's/ $//'
}

# The command that installs packages, without the right to do so.
install_command() {
    case $1 in
    debian) echo "apt-get install -y --no-install-recommends $2" ;;
    fedora) echo "dnf install -y $2" ;;
    arch) echo "pacman -S --needed --noconfirm $2" ;;
    esac
}

# `sudo` in front, nothing for root. Fails where neither is possible.
privilege() {
    if [ "$(id -u)" -eq 0 ]; then
        echo
    elif have sudo; then
        echo sudo
    else
        return 1
    fi
}

# Debian images come without an index, and so do fresh Arch images; where Arch has one it is kept,
# since a newer index without a full upgrade breaks the system.
refresh_index() {
    case $1 in
    debian) $2 apt-get update ;;
    arch) ls /var/lib/pacman/sync/*.db >/dev/null 2>&1 || $2 pacman -Sy ;;
    esac
}

# Installs what of the named things is missing, after saying so.
install_packages() {
    lacking=$(missing "$@")
    [ -n "$lacking" ] || return 0
    family=$(os_family)
    # shellcheck disable=SC2086 # a list of things
    packages=$(packages_of "$family" $lacking)
    [ "$family" != unknown ] || die "cannot install on this distribution ($(os_field ID))" "install by hand: $lacking"
    command=$(install_command "$family" "$packages")
    say "missing:  $lacking"
    say "installs: $packages"
    sudo=$(privilege) || die 'neither root nor sudo' "ask an administrator to run: $command"
    say "runs:     $sudo $command"
    export DEBIAN_FRONTEND=noninteractive
    refresh_index "$family" "$sudo" >&2 || die 'the package index cannot be refreshed' 'check the network'
    # shellcheck disable=SC2086 # a command line
    $sudo $command >&2 || die "the package manager failed" "run it by hand: $sudo $command"
    lacking=$(missing "$@")
    [ -z "$lacking" ] || die "still missing after the installation: $lacking" 'install it by hand'
}

# --- Rust ---------------------------------------------------------------------------------------

# The version that Cargo.toml asks for.
rust_wanted() { sed -n 's/^rust-version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml"; }

# The version of the cargo that this folder gets without a download; empty where there is none.
rust_found() { (cd "$ROOT" && RUSTUP_AUTO_INSTALL=0 cargo --version 2>/dev/null | sed 's/^cargo \([0-9.]*\).*/\1/') || :; }

# Whether version $1 is at least version $2.
at_least() {
    [ -n "$1" ] && [ "$(printf '%s\n%s\n' "$1" "$2" | sort -t . -k 1,1n -k 2,2n -k 3,3n | head -n 1)" = "$2" ]
}

# rustup may have been installed by a shell that is gone.
use_rustup_path() {
    if ! have cargo && [ -x "${CARGO_HOME:-${HOME:-}/.cargo}/bin/cargo" ]; then
        PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
        export PATH
    fi
}

RUSTUP_URL=https://sh.rustup.rs

# Asks where someone can answer; says yes where nobody can.
agreed() {
    [ -t 0 ] && [ -t 2 ] && [ -z "${CI:-}" ] || return 0
    printf '%s [Y/n] ' "$1" >&2
    read -r answer
    case $answer in '' | [Yy]*) ;; *) return 1 ;; esac
}

install_rust() {
    say "Rust $(rust_wanted) or later is needed; found: $(rust_found | grep . || echo none)"
    say "runs:     rustup's installer from $RUSTUP_URL, for this user only (~/.cargo, ~/.rustup)"
    agreed 'continue?' || die 'Rust is missing' "install it (https://rustup.rs) and run this script again"
    install_packages curl
    installer=$(mktemp)
    curl --proto '=https' --tlsv1.2 -sSf -o "$installer" "$RUSTUP_URL" || die 'the installer cannot be downloaded' "get Rust from https://rustup.rs and run this script again"
    sh "$installer" -y --no-modify-path --profile minimal --default-toolchain none >&2 || die "rustup's installer failed" 'see its messages above'
    rm -f "$installer"
    use_rustup_path
    say "note: for your own shells, put ${CARGO_HOME:-$HOME/.cargo}/bin into PATH"
}

# A cargo that is new enough. With rustup, rust-toolchain.toml makes it fetch the right one itself.
need_rust() {
    use_rustup_path
    at_least "$(rust_found)" "$(rust_wanted)" || {
        if have rustup; then
            say 'runs:     rustup toolchain install (the version in rust-toolchain.toml)'
            (cd "$ROOT" && rustup toolchain install >&2) || die 'rustup cannot install the toolchain' 'check the network'
        else
            install_rust
        fi
    }
    at_least "$(rust_found)" "$(rust_wanted)" || die "Rust $(rust_wanted) or later is needed, found $(rust_found | grep . || echo none)" 'install it with rustup: https://rustup.rs'
}
