#!/bin/sh
# Builds exl2.h and runs its tests twice: in the default build, and in a build with the address and undefined-behaviour
# sanitizers. Works on a fresh Debian or Ubuntu from any folder. The last line is "N passed, N failed, N skipped".
#   tests/run.sh         the tests of each commit
#   tests/run.sh --all   every test; before an issue is resolved, and before a release
#   tests/run.sh --ahead no test: compiles the engine of the sanitizers' build, which is one file, so it keeps one core
#                        busy. .ci/run does this beside the demos, which leave a core idle for as long
# tests/golden/tests.txt says which tests are which.
#   EXL2_TEST_DATA   folder of the shared fixtures; default: ../shared, beside the repository
#   EXL2_TEST_MODEL  folder of the real model; default: it is unpacked once from EXL2_TEST_DATA/models
set -u
all=
ahead=
case "$#,${1:-}" in
0,) ;;
1,--all) all=1 EXL2_TEST_ALL=1 && export EXL2_TEST_ALL ;;
1,--ahead) ahead=1 ;;
*) echo "usage: tests/run.sh [--all|--ahead]" >&2; exit 2 ;;
esac
root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
cd "$root" || exit 1
build=$root/build
sanitize=$root/build-sanitize
passed=0
failed=0
skipped=0

finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
    exit
}

stop() {
    echo "tests/run.sh: $1" >&2
    failed=$((failed + 1))
    finish
}

# ---- tools ----

missing=
want() { # command, Debian package
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}

has_header() {
    echo "#include <$1>" | cc -E - >/dev/null 2>&1
}

has_jsonschema() { # an interpreter
    "$1" -c 'import jsonschema' >/dev/null 2>&1
}

has_h11() {
    python3 -c 'import h11' >/dev/null 2>&1
}

look_for_tools() {
    missing=
    want cc gcc
    has_header stdio.h || missing="$missing libc6-dev"
    want meson meson
    want ninja ninja-build
    want python3 python3
}

look_for_more() {
    want gcc gcc
    want g++ g++
    want clang clang
    want nm binutils
    want xz xz-utils
    want git git
    want mcs mono-mcs
    want mono 'mono-runtime libmono-system-core4.0-cil'
    want pkg-config pkg-config
    want setarch util-linux
    want x86_64-w64-mingw32-gcc gcc-mingw-w64-x86-64
    want wine 'wine wine64'
    want aarch64-linux-gnu-gcc 'gcc-aarch64-linux-gnu libc6-dev-arm64-cross'
    want qemu-aarch64 qemu-user
    want Xvfb 'xvfb libx11-6'
    has_header stb/stb_image_write.h || missing="$missing libstb-dev"
    has_jsonschema python3 || has_jsonschema /usr/bin/python3 || missing="$missing python3-jsonschema"
    has_h11 || missing="$missing python3-h11"
}

set_up() { # folder, options
    folder=$1
    shift
    if [ -f "$folder/build.ninja" ]; then # at once, as tiers.py asks what these options build
        meson setup --reconfigure "$folder" "$@"
    else
        meson setup "$folder" "$@"
    fi >"$folder.log" 2>&1 || { cat "$folder.log"; rm -f "$folder.log"; return 1; }
    rm -f "$folder.log"
}

# Lines for stack traces, but no variables, and no code after a failed check: that compiles in two thirds of the time.
set_up_sanitized() {
    set_up "$sanitize" -Ddemo=disabled -Dtests=enabled -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=g \
        '-Dc_args=-g1 -fno-sanitize-recover=undefined'
}

if [ -n "$ahead" ]; then # what is missing, tests/run.sh installs; Meson remembers whether it found the header
    look_for_tools
    has_header stb/stb_image_write.h || missing="$missing libstb-dev"
    [ -n "$missing" ] || { set_up_sanitized && ninja -C "$sanitize" tests/libengine_tests.a >"$sanitize/ahead.log" 2>&1; }
    exit # an error comes again when the tests are built
fi

look_for_tools
look_for_more
if [ -n "$missing" ] && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing:$missing"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086 # a list of words
    { apt-get -qq update && apt-get -qq install -y --no-install-recommends $missing; } </dev/null >"${TMPDIR:-/tmp}/exl2-apt.log" 2>&1 ||
        tail -n 20 "${TMPDIR:-/tmp}/exl2-apt.log"
fi
look_for_tools
[ -z "$missing" ] || stop "cannot build without these Debian packages:$missing (as root: apt-get install$missing)"
look_for_more
[ -z "$missing" ] || echo "some tests will be skipped without these Debian packages:$missing"

# ---- data ----

data=${EXL2_TEST_DATA:-$root/../shared}
if [ -d "$data" ]; then
    EXL2_TEST_DATA=$(cd "$data" && pwd)
    export EXL2_TEST_DATA
    echo "test data: $EXL2_TEST_DATA"
else
    EXL2_TEST_DATA=
    unset EXL2_TEST_DATA
    echo "no test data at $data: tests that need it are skipped"
fi

models=$build/models

unpack_models() {
    for part in "$EXL2_TEST_DATA"/models/*.tar.xz.00; do
        name=$(basename "$part" .tar.xz.00)
        if [ -f "$part" ] && [ ! -d "$models/$name" ]; then
            echo "unpacking $name"
            rm -rf "$models/unpacking"
            mkdir -p "$models/unpacking"
            cat "$EXL2_TEST_DATA/models/$name".tar.xz.* | xz -dc | tar -xf - -C "$models/unpacking" || return 1
            mv "$models/unpacking/$name" "$models/$name" || return 1
            rm -rf "$models/unpacking"
        fi
    done
}

unpacking=
if [ -n "${EXL2_TEST_DATA:-}" ] && [ -z "${EXL2_TEST_MODEL:-}" ]; then
    for part in "$EXL2_TEST_DATA"/models/*.tar.xz.00; do
        [ -f "$part" ] && EXL2_TEST_MODEL=$models/$(basename "$part" .tar.xz.00) && export EXL2_TEST_MODEL
    done
    unpack_models & # beside the build
    unpacking=$!
fi

# ---- build and run ----

# Ninja's default target is what every test needs. What is built beside tests gets what they leave of the cores.
compile() { # folder, kind of tests/golden/tests.txt
    targets=all
    [ -n "$all" ] || targets=$(python3 tests/tiers.py "$1" "$root" "$2" --targets) || return 1
    # shellcheck disable=SC2086 # a list of words
    nice ninja -C "$1" $targets >"$1/compile.log" 2>&1 || { tail -n 60 "$1/compile.log"; return 1; }
    grep -hn 'warning:' "$1/compile.log" "$1/ahead.log" 2>/dev/null
    rm -f "$1/ahead.log"
    return 0
}

count() { # log, result: how many tests have that result
    grep -c "\"result\": \"$2\"" "$1"
}

run_tests() { # folder, arguments of meson test
    folder=$1
    log=$folder/meson-logs/testlog.json
    shift
    rm -f "$log"
    [ -n "$all" ] || set -- --no-suite all "$@"
    meson test -C "$folder" --no-rebuild --print-errorlogs --timeout-multiplier 4 "$@" </dev/null
    [ -s "$log" ] || { failed=$((failed + 1)); return; }
    total=$(grep -c '"result": "' "$log")
    good=$(($(count "$log" OK) + $(count "$log" EXPECTEDFAIL)))
    skips=$(count "$log" SKIP)
    passed=$((passed + good))
    skipped=$((skipped + skips))
    failed=$((failed + total - good - skips))
    grep '"result": "SKIP"' "$log" | sed 's/^{"name": "\([^"]*\)".*\(skipped: [^\\"]*\).*/\2 [\1]/'
    if [ -n "${EXL2_TEST_DATA:-}" ]; then
        wrong=$(grep '"result": "SKIP"' "$log" | grep -c 'skipped: no shared test data\|skipped: no real model')
        skipped=$((skipped - wrong))
        failed=$((failed + wrong))
        [ "$wrong" -eq 0 ] || echo "$wrong tests did not find data that is there: counted as failed"
    fi
}

set_up "$build" -Ddemo=enabled -Dtests=enabled -Dlibrary=enabled || stop "meson cannot set up $build"
compile "$build" plain || stop "the build failed"
[ -z "$unpacking" ] || wait "$unpacking" || stop "cannot unpack the model in $EXL2_TEST_DATA/models"
{ set_up_sanitized && compile "$sanitize" sanitized; } & # beside tests, which now and then wait
building=$!
run_tests "$build"
wait "$building" || stop "the sanitizer build failed"
run_tests "$sanitize" --no-suite tree --no-suite hosts --no-suite model

finish
