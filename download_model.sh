#!/bin/sh
# Downloads the GGUF files that q36 supports: resumable, checked, nothing to build.
# Needs a POSIX shell, curl and sha256sum. `./download_model.sh --help` tells the rest.
#
# A download grows in FILE.part, beside FILE.part.json (size, validator and hash that the hub gave
# for it), and becomes FILE only after its size and SHA-256 were right. FILE.ok remembers that
# verdict for the present size and modification time. The access token goes to the hub alone:
# redirects are followed here, not by curl, and every request reaches curl through its standard
# input, so neither the token nor a signed address is ever visible in a process list.
#
# For tests: Q36_DOWNLOAD_TICK, _BACKOFF, _RETRIES, _STALL (seconds, seconds, count, seconds).

set -eu

ROOT=$(cd "$(dirname "$0")" && pwd)
LINK=$ROOT/q36moe.gguf
HUB=${HF_ENDPOINT:-https://huggingface.co}
TICK=${Q36_DOWNLOAD_TICK:-1}
BACKOFF=${Q36_DOWNLOAD_BACKOFF:-2}
RETRIES=${Q36_DOWNLOAD_RETRIES:-8}
STALL=${Q36_DOWNLOAD_STALL:-30}
SPARE_BYTES=1073741824

WORK='' LOCK='' CURL_PID=''
MANIFEST='' TOKEN='' TOKEN_FILE='' DIR='' MODE=download FORCE=no TARGETS=''

# Fields: target, file, size, SHA-256, repository, revision. `-` is "not known"; `>N` is "not
# known, but more than N", N being the bytes of its tensors. Where the hash is not known, the one
# that the hub states for the file is used, which guards the transfer but pins nothing.
# `--hash FILE` prints the line for a file that is known to be right.
builtin_manifest() {
    cat <<'MANIFEST'
q2-imatrix Qwen3.6-35B-A3B-AntirezExperts-IQ2XXS-gateup-Q2K-down-Q8rest.gguf >11726326272 - Ninnix96/Qwen3.6-35B-A3B-gguf main
q2-q4-imatrix Qwen3.6-35B-A3B-Layers34-39Q4KExperts-OtherExpertLayersIQ2XXSGateUp-Q2KDown-Q8Rest-imatrix.gguf >13085280768 - Ninnix96/Qwen3.6-35B-A3B-gguf main
mtp Qwen3.6-35B-A3B-MTP-Q4K-Q8_0-F32.gguf >1577052160 - Ninnix96/Qwen3.6-35B-A3B-gguf main
MANIFEST
}

usage() {
    cat <<'USAGE'
usage: ./download_model.sh [options] TARGET
       ./download_model.sh --list
       ./download_model.sh --check [--verify] [TARGET...]
       ./download_model.sh --hash FILE

targets
  q2-imatrix      the main file, 11.7 GB: 2-bit experts, everything else 8-bit
  q2-q4-imatrix   13.1 GB: the last six layers' experts with 4 bits
  mtp             1.6 GB: draft head for speculative decoding, beside one of the others

options
  --dir DIR          where files go (default: $Q36_GGUF_DIR, else gguf/ in this folder)
  --token TOKEN      access token; better: --token-file FILE, or HF_TOKEN, or the hub's own
                     token file, looked for in this order
  --manifest FILE    another list of targets (format: see the top of this script)
  --list             every target and its state here
  --check            check the files that are here (all, or the named ones)
  --verify           hash again, even where an earlier verdict still holds
  --hash FILE        print the manifest line of a file
  -h, --help         this text

A download that was cut off continues where it stopped when the command is run again. HF_ENDPOINT
names another hub. The main targets update the link q36moe.gguf in this folder.
USAGE
}

# --- small things -------------------------------------------------------------------------------

say() { printf '%s\n' "$*" >&2; }

die() {
    say "download_model.sh: $1"
    shift
    for hint in "$@"; do say "hint: $hint"; done
    exit 1
}

size_of() { if [ -f "$1" ]; then stat -c %s "$1"; else echo 0; fi; }

human() { awk -v n="$1" 'BEGIN { if (n < 1e9) printf "%.1f MB\n", n / 1e6; else printf "%.2f GB\n", n / 1e9 }'; }

is_number() { case $1 in '' | *[!0-9]*) return 1 ;; esac; }

is_sha256() {
    case $1 in *[!0-9a-f]*) return 1 ;; esac
    [ ${#1} -eq 64 ]
}

sha256_of() { sha256sum <"$1" | cut -d ' ' -f 1; }

# Puts a file, or the names in a folder, on the disk. Old `sync` knows no operand and syncs all.
to_disk() { sync "$1" 2>/dev/null || sync; }

clean_up() {
    if [ -n "$CURL_PID" ]; then kill "$CURL_PID" 2>/dev/null || :; fi
    if [ -n "$WORK" ]; then rm -rf "$WORK"; fi
    if [ -n "$LOCK" ]; then rm -rf "$LOCK"; fi
}

interrupted() {
    say ''
    say 'interrupted; the same command continues the download'
    exit 130
}

# --- manifest -----------------------------------------------------------------------------------

manifest() {
    if [ -n "$MANIFEST" ]; then cat "$MANIFEST"; else builtin_manifest; fi |
        sed 's/#.*//; /^[[:space:]]*$/d'
}

targets() { manifest | awk '{ print $1 }'; }

# Sets NAME, FILE, SIZE, SHA, REPO, REVISION and the paths that follow from them.
select_target() {
    line=$(manifest | awk -v t="$1" '$1 == t')
    [ -n "$line" ] || die "unknown target \`$1\`" "targets are: $(targets | tr '\n' ' ')"
    # shellcheck disable=SC2086 # split into fields on purpose
    set -- $line
    [ $# -eq 6 ] || die "manifest line of \`$1\`: expected 6 fields, found $#"
    NAME=$1 FILE=$2 SIZE=$3 SHA=$4 REPO=$5 REVISION=$6
    case $FILE in */* | .* | *[!A-Za-z0-9._-]*) die "manifest line of \`$NAME\`: bad file name \`$FILE\`" ;; esac
    case $REPO$REVISION in *[!A-Za-z0-9._/-]*) die "manifest line of \`$NAME\`: bad repository or revision" ;; esac
    [ "$SHA" = - ] || is_sha256 "$SHA" || die "manifest line of \`$NAME\`: bad SHA-256 \`$SHA\`"
    case $SIZE in - | '>'[0-9]*) ;; *) is_number "$SIZE" || die "manifest line of \`$NAME\`: bad size \`$SIZE\`" ;; esac
    FINAL=$DIR/$FILE PART=$DIR/$FILE.part STATE=$DIR/$FILE.part.json VERDICT=$DIR/$FILE.ok
}

# Whether a size can be that of the selected target.
size_fits() {
    case $SIZE in
    -) return 0 ;;
    '>'*) [ "$1" -gt "${SIZE#>}" ] ;;
    *) [ "$1" -eq "$SIZE" ] ;;
    esac
}

print_manifest_line() {
    [ -f "$1" ] || die "cannot read \`$1\`"
    base=$(basename "$1")
    known=$(manifest | awk -v f="$base" '$2 == f { print $1, $5, $6 }')
    # shellcheck disable=SC2086 # split into fields on purpose
    set -- "$1" ${known:-- - -}
    printf '%s %s %s %s %s %s\n' "$2" "$base" "$(size_of "$1")" "$(sha256_of "$1")" "$3" "$4"
}

# --- token --------------------------------------------------------------------------------------

find_token() {
    if [ -z "$TOKEN" ] && [ -n "$TOKEN_FILE" ]; then
        [ -r "$TOKEN_FILE" ] || die "cannot read the token file \`$TOKEN_FILE\`"
        TOKEN=$(head -n 1 "$TOKEN_FILE")
    fi
    cached=${HF_TOKEN_PATH:-${HF_HOME:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/huggingface}/token}
    if [ -z "$TOKEN" ]; then TOKEN=${HF_TOKEN:-}; fi
    if [ -z "$TOKEN" ] && [ -r "$cached" ]; then TOKEN=$(head -n 1 "$cached"); fi
    case $TOKEN in *[!A-Za-z0-9._~+/=-]*) die 'the access token holds characters that no token has' ;; esac
}

origin() { printf '%s\n' "$1" | sed 's|^\([A-Za-z]*://[^/?#]*\).*|\1|'; }

# Tokens travel encrypted, or not at all; tests talk to this machine.
may_carry_token() {
    [ "$(origin "$1")" = "$(origin "$HUB")" ] || return 1
    case $1 in https://* | http://127.0.0.1:* | http://localhost:*) ;; *) return 1 ;; esac
}

# What curl reads from its standard input: the address, and the token where it may go.
request() {
    printf 'url = "%s"\n' "$1"
    if [ -n "$TOKEN" ] && may_carry_token "$1"; then
        printf 'header = "Authorization: Bearer %s"\n' "$TOKEN"
    fi
}

# --- asking the hub -----------------------------------------------------------------------------

# Status and headers of the last response in a header file; proxies put theirs before it.
status() { awk '/^HTTP\// { s = $2 } END { print s }' "$WORK/headers"; }

header() {
    tr -d '\r' <"$WORK/headers" | awk -v name="$1" '
        /^HTTP\// { value = "" }
        { at = index($0, ":") }
        at && tolower(substr($0, 1, at - 1)) == name { value = substr($0, at + 1); gsub(/^[ \t]+|[ \t]+$/, "", value) }
        END { print value }'
}

unquote() { printf '%s\n' "$1" | sed 's/^W\///; s/"//g'; }

# One byte of one address. A server that ignores the range is stopped by the size limit (63).
ask() {
    : >"$WORK/headers"
    request "$1" | curl -q --config - --silent --show-error --output /dev/null \
        --dump-header "$WORK/headers" --range "$2-$2" --max-filesize 65536 \
        --connect-timeout 30 --max-time 60 2>"$WORK/error" || [ $? -eq 63 ] || {
        WHY=$(head -n 1 "$WORK/error")
        return 1
    }
}

redirected() {
    target=$(header location)
    case $target in
    https://* | http://*) ;;
    /*) target=$(origin "$1")$target ;;
    *) die "the hub redirects to \`$target\`, which is no address" ;;
    esac
    case $target in *[\"\\\ ]*) die 'the hub redirects to an address with odd characters' ;; esac
    printf '%s\n' "$target"
}

# What the hub says of the file itself while it redirects to where the bytes are.
note_hub_headers() {
    value=$(unquote "$(header x-linked-etag)")
    if is_sha256 "$value"; then HUB_SHA=$value VALIDATOR=$value; fi
    value=$(header x-linked-size)
    if is_number "$value"; then TOTAL=$value; fi
    value=$(header x-repo-commit)
    if [ -n "$value" ]; then COMMIT=$value; fi
}

# Finds where the bytes are. Sets ADDRESS, TOTAL, VALIDATOR, ETAG, RANGES, HUB_SHA, COMMIT; fails
# (with WHY) where another attempt may help, ends the script where none will.
probe() {
    ADDRESS=$HUB/$REPO/resolve/$REVISION/$FILE
    TOTAL='' VALIDATOR='' ETAG='' RANGES=yes HUB_SHA='' COMMIT=''
    for hop in 1 2 3 4 5 6; do
        ask "$ADDRESS" "$1" || return 1
        if [ "$(origin "$ADDRESS")" = "$(origin "$HUB")" ]; then note_hub_headers; fi
        case $(status) in
        301 | 302 | 303 | 307 | 308) ADDRESS=$(redirected "$ADDRESS") || exit 1 ;;
        *) break ;;
        esac
        [ "$hop" -lt 6 ] || die 'the hub redirects in circles'
    done
    judge_status "$1"
}

judge_status() {
    case $(status) in
    200) RANGES=no TOTAL=$(header content-length) ;;
    206)
        range=$(header content-range)
        case $range in "bytes $1-"*/*) ;; *) WHY="asked for byte $1, got range \`$range\`" && return 1 ;; esac
        TOTAL=${range##*/}
        ;;
    416) range=$(header content-range) && case $range in 'bytes */'*) TOTAL=${range##*/} ;; esac ;;
    401 | 403)
        may_be_denied
        WHY="status $(status)"
        return 1
        ;;
    404) die "the hub has no $REPO/$FILE at revision $REVISION" "--manifest FILE names another place" ;;
    *) WHY="status $(status)" && return 1 ;;
    esac
    ETAG=$(header etag)
    if [ -z "$VALIDATOR" ]; then VALIDATOR=$(unquote "$ETAG"); fi
    is_number "$TOTAL" || { WHY='the server does not tell the size' && return 1; }
}

# A storage host answers 403 to an address that has just expired: worth another attempt.
may_be_denied() {
    [ "$(origin "$ADDRESS")" = "$(origin "$HUB")" ] || return 0
    die "the hub denies access to $REPO (status $(status))" \
        'accept the terms on its page if it has any, and pass a token: --token-file FILE or HF_TOKEN'
}

# --- the state of a partial download ------------------------------------------------------------

write_state() {
    cat >"$STATE.new" <<JSON
{
  "source": "$HUB/$REPO/resolve/$REVISION/$FILE",
  "commit": "$COMMIT",
  "size": $TOTAL,
  "validator": "$VALIDATOR",
  "sha256": "$EXPECTED"
}
JSON
    mv -f "$STATE.new" "$STATE"
}

state() {
    [ -f "$STATE" ] || return 0
    sed -n "s/^ *\"$1\": *\"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$STATE"
}

# Refuses early what could only be found wrong after hours: the hub's file is not the pinned one.
check_offer() {
    size_fits "$TOTAL" || die "the hub's file has $TOTAL bytes, the manifest says $SIZE"
    EXPECTED=$SHA
    if [ "$EXPECTED" = - ]; then EXPECTED=${HUB_SHA:--}; fi
    if [ "$SHA" != - ] && [ -n "$HUB_SHA" ] && [ "$SHA" != "$HUB_SHA" ]; then
        die "the hub's file has SHA-256 $HUB_SHA, the manifest says $SHA"
    fi
}

# Bytes of another version of the file are of no use.
drop_stale_part() {
    [ -f "$PART" ] || return 0
    have=$(size_of "$PART")
    reason=''
    if [ "$(state validator)" != "$VALIDATOR" ] || [ -z "$VALIDATOR" ]; then
        reason='the file on the hub has changed'
    elif [ "$have" -gt "$TOTAL" ]; then
        reason='it is longer than the file'
    elif [ "$RANGES" = no ] && [ "$have" -lt "$TOTAL" ]; then
        reason='the server cannot continue a download'
    fi
    if [ -n "$reason" ]; then
        say "starting over: $reason"
        rm -f "$PART" "$STATE"
    fi
}

check_space() {
    need=$(($1 + SPARE_BYTES))
    free=$(df -Pk "$DIR" | awk 'NR == 2 { print $4 }')
    is_number "$free" || return 0
    [ $((free * 1024)) -ge "$need" ] && return 0
    die "not enough space in $DIR: $(human "$1") to download and $(human "$SPARE_BYTES") to spare, $(human $((free * 1024))) free" \
        'free some, or choose another place with --dir'
}

# --- transfer -----------------------------------------------------------------------------------

# One line: share, bytes, rate and time left since the start of this attempt.
progress() {
    awk -v now="$1" -v total="$TOTAL" -v start="$2" -v seconds="$3" 'BEGIN {
        rate = seconds > 0 ? (now - start) / seconds : 0
        left = rate > 0 ? int((total - now) / rate) : -1
        eta = left < 0 ? "--:--" : left >= 3600 ? sprintf("%d:%02d:%02d", left / 3600, left % 3600 / 60, left % 60) : sprintf("%02d:%02d", left / 60, left % 60)
        printf "%5.1f %%  %.2f of %.2f GB  %.1f MB/s  %s left", total ? 100 * now / total : 100, now / 1e9, total / 1e9, rate / 1e6, eta
    }'
}

watch_transfer() {
    began=$(date +%s)
    shown=$began
    while kill -0 "$CURL_PID" 2>/dev/null; do
        sleep "$TICK"
        clock=$(date +%s)
        if [ -t 2 ]; then
            printf '\r%s\033[K' "$(progress "$(size_of "$PART")" "$1" $((clock - began)))" >&2
        elif [ $((clock - shown)) -ge 10 ]; then
            say "$(progress "$(size_of "$PART")" "$1" $((clock - began)))"
            shown=$clock
        fi
    done
    if [ -t 2 ]; then printf '\n' >&2; fi
}

# Appends what is missing to the part. If-Range: a file that changed since the probe is refused by
# curl (33) instead of being mixed in. Errors end up in WHY.
transfer() {
    have=$(size_of "$PART")
    set -- --fail --silent --show-error --output "$PART" --connect-timeout 30 \
        --speed-limit 1 --speed-time "$STALL"
    if [ "$have" -gt 0 ]; then set -- "$@" --continue-at "$have"; fi
    if [ "$have" -gt 0 ] && [ "${ETAG#\"}" != "$ETAG" ]; then set -- "$@" --header "If-Range: $ETAG"; fi
    request "$ADDRESS" | curl -q --config - "$@" 2>"$WORK/error" &
    CURL_PID=$!
    watch_transfer "$have"
    code=0
    wait "$CURL_PID" || code=$?
    CURL_PID=''
    [ "$code" -ne 0 ] || return 0
    WHY=$(head -n 1 "$WORK/error")
    [ "$code" -ne 23 ] || die "cannot write \`$PART\`: $WHY" 'is the disk full? free some space and run the command again'
    return 1
}

# One attempt: 0 when the part is complete.
attempt() {
    probe "$(size_of "$PART")" || return 1
    check_offer
    drop_stale_part
    have=$(size_of "$PART")
    [ "$have" -lt "$TOTAL" ] || return 0
    check_space $((TOTAL - have))
    write_state
    if [ "$have" -gt 0 ]; then say "continuing at $(human "$have") of $(human "$TOTAL")"; fi
    transfer || return 1
    [ "$(size_of "$PART")" -eq "$TOTAL" ] || { WHY='the transfer ended early' && return 1; }
}

download_part() {
    failures=0 pause=$BACKOFF WHY=''
    until
        before=$(size_of "$PART")
        attempt
    do
        if [ "$(size_of "$PART")" -gt "$before" ]; then failures=0 pause=$BACKOFF; fi
        failures=$((failures + 1))
        [ "$failures" -le "$RETRIES" ] ||
            die "download failed $failures times in a row, last: $WHY" 'the same command continues where it stopped'
        say "$WHY; trying again in $pause s"
        sleep "$pause"
        pause=$((pause * 2))
        if [ "$pause" -gt 60 ]; then pause=60; fi
    done
}

# --- verification -------------------------------------------------------------------------------

write_verdict() {
    printf '%s %s\n' "$(stat -c '%s %Y' "$1")" "$2" >"$VERDICT.new"
    mv -f "$VERDICT.new" "$VERDICT"
}

reject() {
    mv -f "$1" "$FINAL.bad"
    rm -f "$STATE" "$VERDICT"
    die "$2; kept as $FINAL.bad" 'run the command again to download it anew'
}

# Turns a complete part into the file, or into FILE.bad.
accept_part() {
    got=$(size_of "$PART")
    [ "$got" -eq "$TOTAL" ] || reject "$PART" "$FILE has $got bytes, expected $TOTAL"
    size_fits "$got" || reject "$PART" "$FILE has $got bytes, the manifest says $SIZE"
    if [ "$EXPECTED" = - ]; then
        say "$FILE: neither the manifest nor the hub knows its SHA-256; only the size was checked"
    else
        say "checking $FILE"
        got=$(sha256_of "$PART")
        [ "$got" = "$EXPECTED" ] || reject "$PART" "$FILE has SHA-256 $got, expected $EXPECTED"
        write_verdict "$PART" "$EXPECTED"
    fi
    to_disk "$PART"
    mv -f "$PART" "$FINAL"
    to_disk "$DIR"
    rm -f "$STATE"
}

# Sets RESULT to verified, unknown (no hash to compare with), or what is wrong with the file.
judge_file() {
    RESULT=verified
    present=$(stat -c '%s %Y' "$FINAL")
    size_fits "${present% *}" || { RESULT="has ${present% *} bytes, expected $SIZE" && return 0; }
    noted=''
    if [ -f "$VERDICT" ]; then noted=$(cat "$VERDICT"); fi
    want=$SHA
    if [ "$want" = - ]; then want=${noted##* }; fi
    [ -n "$want" ] || { RESULT=unknown && return 0; }
    if [ "$FORCE" = no ] && [ "$noted" = "$present $want" ]; then return 0; fi
    say "checking $FILE"
    got=$(sha256_of "$FINAL")
    [ "$got" = "$want" ] || { RESULT="has SHA-256 $got, expected $want" && return 0; }
    write_verdict "$FINAL" "$want"
}

# --- lock and link ------------------------------------------------------------------------------

# A folder is made by one process only. The pid inside tells a dead owner from a living one.
take_lock() {
    want=$FINAL.lock
    if ! mkdir "$want" 2>/dev/null; then
        owner=$(cat "$want/pid" 2>/dev/null || :)
        if [ -z "$owner" ] || kill -0 "$owner" 2>/dev/null; then
            die "another download of $FILE is running (pid ${owner:-unknown})" "if that is not so: rm -r $want"
        fi
        # Renaming first lets only one of several heirs remove the old lock.
        mv "$want" "$want.$$" 2>/dev/null && rm -rf "$want.$$"
        mkdir "$want" 2>/dev/null || die "another download of $FILE has just started"
    fi
    LOCK=$want
    echo $$ >"$LOCK/pid"
}

check_link() {
    [ "$NAME" != mtp ] || return 0
    if { [ -e "$LINK" ] && [ ! -L "$LINK" ]; } || [ -d "$LINK" ]; then
        die "$LINK is in the way: it is not the link that this script makes" 'move it elsewhere and run the command again'
    fi
}

update_link() {
    check_link
    case $DIR in "$ROOT"/*) goal=${FINAL#"$ROOT"/} ;; *) goal=$FINAL ;; esac
    [ "$(readlink "$LINK" 2>/dev/null || :)" != "$goal" ] || return 0
    ln -s "$goal" "$LINK.$$"
    mv -f "$LINK.$$" "$LINK"
    say "q36moe.gguf -> $goal"
}

# --- commands -----------------------------------------------------------------------------------

check_aria2() {
    for sidecar in "$FINAL.aria2" "$PART.aria2"; do
        [ ! -e "$sidecar" ] || die "$sidecar: aria2 has not finished this file" \
            'let aria2 finish, or remove both files'
    done
}

check_existing() {
    judge_file
    case $RESULT in
    verified) say "already downloaded: $FINAL" ;;
    unknown) say "already downloaded: $FINAL (not verified: no SHA-256 is known)" ;;
    *) reject "$FINAL" "$FILE $RESULT" ;;
    esac
}

# A complete part needs no network: an earlier run may have been stopped while it was checking.
part_is_complete() {
    TOTAL=$(state size) EXPECTED=$(state sha256)
    is_number "$TOTAL" && [ -f "$PART" ] && [ "$(size_of "$PART")" -eq "$TOTAL" ] || return 1
    if [ "$SHA" != - ]; then EXPECTED=$SHA; fi
    [ -n "$EXPECTED" ]
}

download_target() {
    select_target "$1"
    mkdir -p "$DIR" || die "cannot create \`$DIR\`"
    check_link
    check_aria2
    take_lock
    if [ -s "$FINAL" ]; then
        check_existing
    else
        say "$FILE -> $DIR"
        part_is_complete || download_part
        accept_part
        say "done: $FINAL"
    fi
    if [ "$NAME" = mtp ]; then say "enable it with: --mtp $FINAL"; else update_link; fi
}

state_of_target() {
    if [ -s "$FINAL" ]; then
        noted=''
        if [ -f "$VERDICT" ]; then noted=$(cat "$VERDICT"); fi
        if [ -n "$noted" ] && [ "${noted% *}" = "$(stat -c '%s %Y' "$FINAL")" ]; then echo verified; else echo 'not verified'; fi
    elif [ -s "$PART" ]; then
        total=$(state size)
        if is_number "$total"; then awk -v n="$(size_of "$PART")" -v t="$total" 'BEGIN { printf "%d %% there\n", 100 * n / t }'; else echo partial; fi
    else
        echo absent
    fi
}

list_targets() {
    for target in $(targets); do
        select_target "$target"
        case $SIZE in -) shown=unknown ;; '>'*) shown="> $(human "${SIZE#>}")" ;; *) shown=$(human "$SIZE") ;; esac
        printf '%-14s %-13s %-11s %s\n' "$NAME" "$(state_of_target)" "$shown" "$FILE"
    done
    printf 'folder: %s\nlink:   %s\n' "$DIR" "$(readlink "$LINK" 2>/dev/null || echo none)"
}

check_targets() {
    bad=0
    for target in ${TARGETS:-$(targets)}; do
        select_target "$target"
        if [ ! -s "$FINAL" ]; then
            printf '%s: absent\n' "$NAME"
            if [ -n "$TARGETS" ]; then bad=1; fi
            continue
        fi
        judge_file
        case $RESULT in verified) ;; unknown) RESULT='not verified: no SHA-256 is known' ;; *) bad=1 ;; esac
        printf '%s: %s\n' "$NAME" "$RESULT"
    done
    return "$bad"
}

# --- arguments ----------------------------------------------------------------------------------

parse_arguments() {
    while [ $# -gt 0 ]; do
        case $1 in
        -h | --help) usage && exit 0 ;;
        --list) MODE=list ;;
        --check) MODE=check ;;
        --verify) FORCE=yes ;;
        --token | --token-file | --dir | --manifest | --hash)
            [ $# -ge 2 ] || die "missing value for $1"
            set_option "$1" "$2"
            shift
            ;;
        -*) die "unknown option \`$1\`" 'see ./download_model.sh --help' ;;
        *) TARGETS="$TARGETS $1" ;;
        esac
        shift
    done
}

set_option() {
    case $1 in
    --token) TOKEN=$2 ;;
    --token-file) TOKEN_FILE=$2 ;;
    --dir) DIR=$2 ;;
    --manifest) MANIFEST=$2 ;;
    --hash) MODE=hash HASH_FILE=$2 ;;
    esac
}

# $Q36_GGUF_DIR and the default are relative to the project, --dir to where the user stands.
settle_folders() {
    if [ -z "$DIR" ]; then
        DIR=${Q36_GGUF_DIR:-gguf}
        case $DIR in /*) ;; *) DIR=$ROOT/$DIR ;; esac
    fi
    case $DIR in /*) ;; *) DIR=$PWD/$DIR ;; esac
    [ -z "$MANIFEST" ] || [ -r "$MANIFEST" ] || die "cannot read the manifest \`$MANIFEST\`"
}

download() {
    # shellcheck disable=SC2086 # split into targets on purpose
    set -- $TARGETS
    [ $# -gt 0 ] || { usage >&2 && exit 1; }
    [ $# -eq 1 ] || die 'one target at a time'
    find_token
    WORK=$(mktemp -d)
    download_target "$1"
}

main() {
    parse_arguments "$@"
    settle_folders
    for tool in curl sha256sum awk; do
        command -v "$tool" >/dev/null || die "\`$tool\` is missing" "install it with the package manager"
    done
    trap clean_up EXIT
    trap interrupted INT TERM HUP
    case $MODE in
    list) list_targets ;;
    check) check_targets ;;
    hash) print_manifest_line "$HASH_FILE" ;;
    download) download ;;
    esac
}

main "$@"
