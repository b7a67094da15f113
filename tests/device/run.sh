#!/bin/sh
# run.sh: runs all tests that need a GPU and prints one summary at the end. From the root of the source tree:
#   tests/device/run.sh [FOLDER]
# FOLDER: the folder that pack.sh made, with programs and compiled kernels, so that nothing is built here. Without
# FOLDER, the programs of build/tests are run (meson setup build && ninja -C build); each compiles its own kernels.
# EXL2_TEST_MODELS: folders of more models, separated by blanks. Logs go to $OUT or ./device-log.
# EXL2_TEST_ARCH=75|80|86|89|100|120: the GPU stands in for one of that kind, with EXL2_TEST_SMS SMs (other_gpu.h). FOLDER
# then needs the kernels of `pack.sh FOLDER ARCH`. The driver compiles them, so programs last longer: EXL2_TEST_SECONDS.
# Exit code: 0, 1, or 77 without a GPU.
folder=${1:-build/tests}
logs=${OUT:-device-log}
mkdir -p "$logs"
kernels="$folder/kernels${EXL2_TEST_ARCH:+-$EXL2_TEST_ARCH}"
[ -d "$kernels" ] && export EXL2_TEST_KERNELS="$kernels"
[ -d "$folder/shared" ] && export EXL2_TEST_DATA="$folder/shared"
export EXL2_GOLDEN_DIR=${EXL2_GOLDEN_DIR:-tests/golden}
summary=""
failed=0

# run NAME PROGRAM [arguments]
run() {
    name=$1
    program="$folder/$2"
    shift 2
    [ -x "$program" ] || program="$folder/device_${program##*/}"
    start=$(date +%s)
    timeout "${EXL2_TEST_SECONDS:-120}" "$program" "$@" >"$logs/$name.log" 2>&1
    code=$?
    took=$(($(date +%s) - start))
    last=$(tail -n 1 "$logs/$name.log")
    case $code in
    0) state=ok ;;
    77) state=skipped ;;
    *) state="FAILED ($code)" failed=1 && grep -v failed: "$logs/$name.log" | tail -n 12 ;;
    esac
    summary="$summary$(printf '%-14s %-12s %4s s  %s' "$name" "$state" "$took" "$last")
"
}

run host host
if grep -q '^skipped: no CUDA' "$logs/host.log"; then
    cat "$logs/host.log"
    exit 77
fi
run repack repack
run small small
run exchange exchange kernels_src
run steps steps
run sample sample
run products products
run gemm gemm
run lora_gemm lora_gemm
run exl3 exl3
run exl3_experts exl3_experts
run expert_gemm expert_gemm
run attend attend kernels_src test
run attend_codes attend kernels_src codes
run phases phases
export EXL2_TEST_LARGE=1
run phases_large phases 0 21 4
run models_large models
unset EXL2_TEST_LARGE
run convert convert
run solve solve
# shellcheck disable=SC2086 # a list
run models models
[ -n "$EXL2_TEST_MODELS" ] && run models_given models $EXL2_TEST_MODELS
run golden golden
run golden_q8 golden q8
run golden_shared golden shared
run golden_exl3 golden exl3
run mixed mixed
run experts experts
run sampling sampling
run guidance guidance
run grammars grammars
run bans bans
run replay replay
run replay_q6 replay q6
run snapshot snapshot
run forced forced
run drafts drafts
run worker worker
run cards cards # better with two GPUs
run exchange_cards exchange_cards kernels_src
run offload offload
for mlps in 1 2 99; do
    run golden_host$mlps golden host $mlps
    run vision_host$mlps vision host $mlps
done
run park park
run prefix prefix
run embed embed
run loras loras
run lora_life lora_life
run steers steers
run steer_kinds steer_kinds
run towers towers
run tower_kernels tower_kernels
run vision vision
run pictures pictures
run soak soak 20
[ -n "$EXL2_TEST_MODEL" ] && run grammar_real grammar_real # a model with a tokenizer
cat "$logs"/phases.log "$logs"/models*.log "$logs"/golden*.log | grep -v failed: | grep -e ' off by ' -e ' within '
head -n 1 "$logs/phases.log"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
printf '%s' "$summary"
exit $failed
