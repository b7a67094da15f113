#!/bin/sh
# figures.sh: measures the GPU figures of the README with `exl2 bench`, on models that `exl2 synth` makes with random
# weights, and on the given ones.
#   tests/device/figures.sh EXL2 [FOLDER ...]   EXL2: the program exl2; FOLDER: more models to measure
# The models are made in $TMPDIR or /dev/shm and need 6 GB; LARGE=1 adds llama2-70b, which needs 29 GB. Compiled kernels
# are kept in $EXL2_TEST_KERNELS, else in the user's cache folder. Exit code: 0, 1, or 77 without a GPU.
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
