#!/bin/sh
# pace.sh: one call on a machine with a GPU that judges a change of speed: programs of this tree and of another one, the
# tree before the change, take turns on the same card, after the tests of whole models.
#   tests/device/pace.sh pack FOLDER BEFORE   without a GPU: fills FOLDER; BEFORE: the other source tree, of which git
#                                             or COMMIT_BEFORE knows the commit. It needs Meson
#   cd FOLDER && sh pace.sh run               with a GPU: within 7 minutes; builds nothing
# pack calls pack.sh (EXL2_NVRTC) for the tests. run prints tokens/s and CPU microseconds of a step at 1 to 64 sequences
# (figures.py), what fell, and the most device memory that each bench used. Logs go to ./pace-log, one file of figures
# also to $OUT.
# Exit code: 0; 1 if a test or a bench failed; 77 without a GPU.

# build TREE WHICH: exl2_WHICH and frame_WHICH in $folder
build() {
    meson setup "$1/build-pace" "$1" -Doptimization=2 >/dev/null &&
        ninja -C "$1/build-pace" demo/exl2 demo/frame >/dev/null &&
        cp "$1/build-pace/demo/exl2" "$folder/exl2_$2" && cp "$1/build-pace/demo/frame" "$folder/frame_$2"
}

pack() {
    folder=$1
    before=$2
    tests/device/pack.sh "$folder" 90 || exit 1
    build "$before" before && build "$PWD" after || exit 1
    echo "${COMMIT_BEFORE:-$(git -C "$before" rev-parse --short=12 HEAD)}" >"$folder/commit_before"
    git rev-parse --short=12 HEAD >"$folder/commit_after"
    cp tests/device/pace.sh tests/device/figures.py "$folder/"
}

say() {
    echo "[$(($(date +%s) - begin)) s] $*"
}

# try NAME SECONDS PROGRAM [arguments]: a test, whose result is one line of $logs/tests
try() {
    name=$1
    seconds=$2
    shift 2
    timeout "$seconds" "$@" >"$logs/$name.log" 2>&1
    code=$?
    echo "$name: exit code $code: $(tail -n 1 "$logs/$name.log")" >>"$logs/tests"
    [ $code = 0 ] || tail -n 15 "$logs/$name.log" >>"$logs/tests"
}

# bench WHICH ROUND MODEL flags: runs exl2_WHICH and keeps its figures and the most device memory in use
bench() {
    which=$1
    round=$2
    model=$3
    shift 3
    part="$logs/$which-$round-$model.json"
    if [ "$round" = 1 ]; then # asking for the memory disturbs times a little
        nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -lms 500 >"$logs/memory" &
        watcher=$!
    fi
    timeout 120 "./exl2_$which" bench "$models/$model" --backend cuda --kernels kernels --prefill 0 --decode 128 \
        --context 128 --json "$@" >"$part" || failed=1
    if [ "$round" = 1 ]; then
        kill "$watcher"
        echo "$which $model: $(sort -n "$logs/memory" | tail -n 1) MiB of device memory in use" >>"$logs/memory_most"
    fi
    echo "$part=$model" >>"$logs/$which-$round.list"
}

run() {
    begin=$(date +%s)
    failed=0
    logs=$PWD/pace-log
    models=${TMPDIR:-/dev/shm}
    mkdir -p "$logs"
    card=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
    driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)
    [ -n "$card" ] || exit 77
    echo "$card, driver $driver, $(nproc) CPU cores"
    for model in smollm2-135m tinyllama-1.1b llama3-8b; do
        ./exl2_after synth "$models/$model" --shape $model --bpw 4 >"$logs/synth-$model.log" 2>&1 &
    done
    wait
    say "models"
    export EXL2_TEST_KERNELS="$PWD/kernels" EXL2_TEST_DATA="$PWD/shared" EXL2_GOLDEN_DIR=tests/golden
    try steps 60 ./steps # alone, as it measures CPU time
    try models 170 ./models &
    (export EXL2_TEST_LARGE=1 && try models_large 170 ./models) &
    try phases 170 ./phases 0 50 6 &
    try replay 170 ./replay &
    try drafts 170 ./drafts &
    (try golden 100 ./golden && try sampling 60 ./sampling && try experts 60 ./experts) &
    (try guidance 60 ./guidance && try prefix 60 ./prefix && try forced 60 ./forced) &
    try soak 60 ./soak 20 &
    wait
    cat "$logs/steps.log" "$logs/tests"
    if grep -v 'exit code 0:' "$logs/tests" | grep -q 'exit code'; then
        failed=1
    fi
    say "tests"
    for round in 1 2; do
        for which in before after; do
            bench "$which" "$round" smollm2-135m --batch 1,8,16,24,32,64
            bench "$which" "$round" tinyllama-1.1b --batch 1,8,16,24,32,64
            bench "$which" "$round" llama3-8b --batch 1,8,16,24,32,64
            # shellcheck disable=SC2046 # one argument for each line
            python3 figures.py collect "$logs/$which-$round.json" "$card" "$driver" "$(cat "commit_$which")" \
                $(cat "$logs/$which-$round.list") || failed=1
            rm -f "$logs/$which-$round.list"
            say "bench $which $round"
        done
    done
    for round in 1 2; do
        for which in before after; do
            python3 figures.py table "$logs/$which-$round.json"
        done
        python3 figures.py compare "$logs/before-$round.json" "$logs/after-$round.json"
    done
    cat "$logs/memory_most"
    for model in smollm2-135m llama3-8b; do
        echo "frame of $model with 32 speakers:"
        timeout 60 ./frame_after "$models/$model" --backend cuda --kernels kernels --seconds 9 --speakers 32 --say 300 \
            --cpu-us 1000 --gpu-us 4000 | head -n 4
    done
    tar czf "$logs/figures.tar.gz" -C "$logs" before-1.json before-2.json after-1.json after-2.json tests steps.log \
        models.log phases.log
    [ -z "$OUT" ] || cp "$logs/figures.tar.gz" "$OUT/"
    say "done"
    exit $failed
}

case $1 in
pack) [ $# = 3 ] && pack "$2" "$3" && exit 0 ;;
run) run ;;
esac
echo "usage: pace.sh pack FOLDER BEFORE, or pace.sh run" >&2
exit 1
