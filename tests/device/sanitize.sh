#!/bin/sh
# sanitize.sh: compute-sanitizer's memcheck, racecheck and synccheck over every kernel on small shapes: 0 findings.
#   tests/device/sanitize.sh FOLDER            FOLDER: of pack.sh
# The shapes of phases.c with heads of 64, 128 and 256 elements and a dense one run every kernel but the probes, which
# `host` runs. Exit code: 0, 1, or 77 where compute-sanitizer or a GPU is not there.
folder=${1:-.}
logs=${OUT:-device-log}
mkdir -p "$logs"
export EXL2_TEST_KERNELS="$folder/kernels"
command -v compute-sanitizer >/dev/null || { echo "skipped: no compute-sanitizer"; exit 77; }
failed=0

# check TOOL PROGRAM [arguments]
check() {
    tool=$1
    name="sanitize-$1-$2-$3"
    shift
    timeout 200 compute-sanitizer --tool "$tool" --error-exitcode 9 "$folder/$@" >"$logs/$name.log" 2>&1
    code=$?
    [ $code -eq 77 ] && exit 77
    if [ $code -ne 0 ] || ! grep -Eq 'ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards' "$logs/$name.log"; then
        failed=1
        tail -n 20 "$logs/$name.log"
    fi
    echo "$name: exit code $code: $(grep SUMMARY "$logs/$name.log")"
}

for tool in memcheck racecheck synccheck; do
    for shape in 0 3 4 18; do
        check $tool phases $shape 1
    done
    check $tool host plain
done
exit $failed
