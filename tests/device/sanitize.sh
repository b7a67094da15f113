#!/bin/sh
# sanitize.sh: compute-sanitizer's memcheck, racecheck and synccheck over every kernel on small shapes: 0 findings.
#   tests/device/sanitize.sh FOLDER            FOLDER: of pack.sh
# Shapes of phases.c with heads of 64, 128 and 256 elements, one with orders of its own for v and up and a dense one run
# every kernel but the probe, which `host` runs. Two to three minutes. Exit code: 0, 1, or 77 where compute-sanitizer
# or a GPU is not there.
folder=${1:-.}
logs=${OUT:-device-log}
mkdir -p "$logs"
export EXL2_TEST_KERNELS="$folder/kernels"
command -v compute-sanitizer >/dev/null || { echo "skipped: no compute-sanitizer"; exit 77; }

# check TOOL NAME PROGRAM [arguments]
check() {
    tool=$1
    log="$logs/sanitize-$1-$2.log"
    shift 2
    program=$1
    shift
    barriers="" # of a CTA: the tool counts instructions that make one, and these make many
    [ "$tool" = memcheck ] || barriers="--num-cuda-barriers 1024"
    # shellcheck disable=SC2086 # two words or none
    timeout 280 compute-sanitizer --tool "$tool" $barriers --error-exitcode 9 "$folder/$program" "$@" >"$log" 2>&1
    echo "exit code $?" >>"$log"
}

# As many at a time as a GPU of many gigabytes holds.
for tool in memcheck racecheck synccheck; do
    check $tool phases-64 phases 0 1 3 &
    check $tool phases-128 phases 3 1 3 &
    check $tool phases-256 phases 4 1 3 &
    check $tool phases-order phases 18 1 6 &
    check $tool phases-dense phases 20 1 6 &
    wait
done
check memcheck host host plain
failed=0
for log in "$logs"/sanitize-*.log; do
    if ! grep -q '^exit code 0$' "$log" \
        || ! grep -Eq 'ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards' "$log"; then
        grep -v 'failed:' "$log" | tail -n 12
        failed=1
    fi
    echo "${log##*/}: $(tail -n 1 "$log"): $(grep SUMMARY "$log")"
done
exit $failed
