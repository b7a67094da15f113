#!/bin/sh
# run.sh: runs all tests that need a GPU and prints one summary at the end. From the root of the source tree:
#   tests/device/run.sh [FOLDER]
# FOLDER: the folder that pack.sh made, with programs and compiled kernels, so that nothing is built here. Without
# FOLDER, the programs of build/tests are run (meson setup build && ninja -C build); each compiles its own kernels.
# EXL2_TEST_JOBS=N: N programs run at a time, one GPU each in turn where there are several; those that need all GPUs,
# or measure time, run alone afterwards. Default: 1.
# EXL2_TEST_ONLY='NAME ...': only these tests. EXL2_TEST_SECONDS: most seconds of a program (120).
# EXL2_TEST_MODELS: folders of more models, separated by blanks. Logs go to $OUT or ./device-log.
# EXL2_TEST_ARCH=75|80|86|89|100|120: the GPU stands in for one of that kind, with EXL2_TEST_SMS SMs (other_gpu.h). FOLDER
# then needs the kernels of `pack.sh FOLDER ARCH`. The driver compiles them, so programs last longer: EXL2_TEST_SECONDS.
# Exit code: 0, 1, or 77 without a GPU.
self=$0
folder=${1:-build/tests}
export logs="${OUT:-device-log}"
export EXL2_GOLDEN_DIR="${EXL2_GOLDEN_DIR:-tests/golden}"

# one FOLDER NAME PROGRAM [arguments]: runs a test, prints what went wrong, and keeps a line for the summary
one() {
    folder=$1
    name=$2
    program="$folder/$3"
    shift 3
    [ -x "$program" ] || program="$folder/device_${program##*/}"
    case $name in *_large) export EXL2_TEST_LARGE=1 ;; esac
    [ -z "$gpus" ] || export CUDA_VISIBLE_DEVICES="$((${slot:-0} % gpus))"
    start=$(date +%s)
    timeout "${EXL2_TEST_SECONDS:-120}" "$program" "$@" >"$logs/$name.log" 2>&1
    code=$?
    took=$(($(date +%s) - start))
    case $code in
    0) state=ok ;;
    77) state=skipped ;;
    *) state="FAILED ($code)" && echo "$name: exit code $code" && grep -v failed: "$logs/$name.log" | tail -n 12 ;;
    esac
    printf '%-14s %-12s %4s s  %s\n' "$name" "$state" "$took" "$(tail -n 1 "$logs/$name.log")" >"$logs/$name.result"
}

if [ "$folder" = --one ]; then
    shift
    one "$@"
    exit 0
fi
mkdir -p "$logs"
rm -f "$logs"/*.result
kernels="$folder/kernels${EXL2_TEST_ARCH:+-$EXL2_TEST_ARCH}"
[ -d "$kernels" ] && export EXL2_TEST_KERNELS="$kernels"
[ -d "$folder/shared" ] && export EXL2_TEST_DATA="$folder/shared"

# run JOBS GPUS: runs the tests of standard input, a line each: NAME PROGRAM [arguments]
run() {
    while read -r line; do
        case " ${EXL2_TEST_ONLY:-${line%% *}} " in *" ${line%% *} "*) echo "$folder $line" ;; esac
    done | tee -a "$logs/list" | gpus=$2 xargs -r -P "$1" --process-slot-var=slot -L 1 sh "$self" --one
}

: >"$logs/list"
run 1 '' <<TESTS
host host
TESTS
if grep -q '^skipped: no CUDA' "$logs/host.log" 2>/dev/null; then
    cat "$logs/host.log"
    exit 77
fi
# Those that last longest come first. Programs that would meet on several GPUs have one each.
count=$(nvidia-smi -L 2>/dev/null | wc -l)
[ "$count" -gt 1 ] && [ "${EXL2_TEST_JOBS:-1}" -gt 1 ] || count=
run "${EXL2_TEST_JOBS:-1}" "$count" <<TESTS
models models
models_large models
golden_shared golden shared
golden_exl3 golden exl3
phases phases
phases_large phases 0 21 4
attend attend kernels_src test
attend_codes attend kernels_src codes
snapshot snapshot
soak soak 20
loras loras
vision vision
vision_host1 vision host 1
vision_host2 vision host 2
vision_host99 vision host 99
repack repack
small small
sample sample
products products
gemm gemm
lora_gemm lora_gemm
lora_gemv lora_gemv
exl3 exl3
exl3_experts exl3_experts
expert_gemm expert_gemm
convert convert
solve solve
golden golden
golden_q8 golden q8
golden_host1 golden host 1
golden_host2 golden host 2
golden_host99 golden host 99
mixed mixed
experts experts
sampling sampling
guidance guidance
grammars grammars
bans bans
replay replay
replay_q6 replay q6
forced forced
drafts drafts
worker worker
park park
prefix prefix
embed embed
lora_life lora_life
steers steers
steer_kinds steer_kinds
towers towers
pictures pictures
${EXL2_TEST_MODELS:+models_given models $EXL2_TEST_MODELS}
${EXL2_TEST_MODEL:+grammar_real grammar_real}
TESTS
run 1 '' <<TESTS
steps steps
exchange exchange kernels_src
offload offload
tower_kernels tower_kernels
cards cards
exchange_cards exchange_cards kernels_src
TESTS
cat "$logs"/phases.log "$logs"/models*.log "$logs"/golden*.log 2>/dev/null | grep -v failed: | grep -e ' off by ' -e ' within '
[ -f "$logs/phases.log" ] && head -n 1 "$logs/phases.log"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
while read -r _ name _; do
    cat "$logs/$name.result"
done <"$logs/list"
! grep -q FAILED "$logs"/*.result
