#!/bin/sh
# sanitize.sh: runs every kernel on small shapes under compute-sanitizer (memcheck, racecheck, synccheck), which must
# report no error.
#   tests/device/sanitize.sh FOLDER            FOLDER: the folder that pack.sh made
# Eight shapes of phases.c run every kernel but the probe kernel, which `host` runs: heads of 64, 128 and 256 elements,
# v and up with their own permutations, dense matrices, norms around blocks, and parallel blocks. One shape of
# expert_gemm.c runs the kernels of experts in prompts, one of lora_gemm.c products with adapters, attend.c the kernels
# of quantized caches, tower_kernels.c those of towers. Lasts two to three minutes.
# Exit code: 0, 1, or 77 without compute-sanitizer or a GPU.
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
    barriers="" # racecheck and synccheck count every instruction that makes a barrier, so a CTA needs a higher limit
    [ "$tool" = memcheck ] || barriers="--num-cuda-barriers 1024"
    # shellcheck disable=SC2086 # two words or none
    timeout 280 compute-sanitizer --tool "$tool" $barriers --error-exitcode 9 "$folder/$program" "$@" >"$log" 2>&1
    echo "exit code $?" >>"$log"
}

# Eleven programs run at the same time; the GPU needs memory for all of them.
for tool in memcheck racecheck synccheck; do
    check $tool phases-64 phases 0 1 3 &
    check $tool phases-128 phases 3 1 3 &
    check $tool phases-256 phases 4 1 3 &
    check $tool phases-order phases 18 1 6 &
    check $tool phases-dense phases 20 1 6 &
    check $tool phases-around phases 24 1 6 &
    check $tool phases-parallel phases 26 2 6 &
    check $tool experts expert_gemm kernels_src 2 60 &
    check $tool adapters lora_gemm kernels_src 2 64 &
    check $tool codes attend kernels_src few &
    check $tool towers tower_kernels few &
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
