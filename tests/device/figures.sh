#!/bin/sh
# figures.sh: the GPU figures of the README: models of random weights by `exl2 synth`, all models by `exl2 bench`.
#   tests/device/figures.sh EXL2 [FOLDER ...]   EXL2: the program; FOLDER: further models
# Models are made in $TMPDIR or /dev/shm, which takes 6 GB; with LARGE=1 also llama2-70b, 29 GB. Kernels lie in
# $EXL2_TEST_KERNELS, else in the user's cache folder. Exit code: 0, 1, or 77 without a GPU.
exl2=$1
shift
models=${TMPDIR:-/dev/shm}
kernels=${EXL2_TEST_KERNELS:+--kernels $EXL2_TEST_KERNELS}
failed=0
"$exl2" bench --probe --backend cuda || exit 77

# measure FOLDER flags
measure() {
    model=$1
    shift
    # shellcheck disable=SC2086 # two words or none
    echo "== ${model##*/} $*" && "$exl2" bench "$model" --backend cuda $kernels "$@" || failed=1
}

# make NAME BPW
make() {
    [ -d "$models/$1" ] || "$exl2" synth "$models/$1" --shape "$1" --bpw "$2" >/dev/null || failed=1
}

make tinyllama-1.1b 4
make llama3-8b 4
measure "$models/tinyllama-1.1b" --prefill 2048 --decode 256 --context 128 --batch 1,8
measure "$models/llama3-8b" --prefill 2048 --decode 256 --context 128 --batch 1,8
measure "$models/llama3-8b" --prefill 0 --decode 256 --context 6144
if [ -n "$LARGE" ]; then
    make llama2-70b 2.5
    measure "$models/llama2-70b" --prefill 0 --decode 256 --context 128
fi
for model in "$@"; do
    measure "$model" --prefill 512 --decode 256 --context 128 --batch 1,8
done
exit $failed
