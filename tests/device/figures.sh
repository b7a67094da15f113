#!/bin/sh
# figures.sh: measures the GPU figures of the README with `exl2 bench`, on models that `exl2 synth` makes with random
# weights, and on the given ones.
#   tests/device/figures.sh EXL2 OUT.json [FOLDER ...]   EXL2: the program exl2; FOLDER: more models to measure
# It prints what the benches print, and writes all figures to OUT.json with the card, its driver and the commit
# ($COMMIT, else that of the source tree). figures.py compares two such files, and prints the tables of README.
# The models are made in $TMPDIR or /dev/shm and need 6 GB. LARGE=1 adds llama2-70b, which needs 29 GB. FAMILIES=1 adds
# the other families and formats, one after the other, and deletes each when it was measured: 25 GB at a time. SMALL=1
# measures only the small models. Compiled kernels are kept in $EXL2_TEST_KERNELS, else in the user's cache folder.
# Exit code: 0, 1, or 77 without a GPU.
if [ $# -lt 2 ]; then
    echo "usage: figures.sh EXL2 OUT.json [FOLDER ...]" >&2
    exit 1
fi
exl2=$1
out=$2
shift 2
here=$(dirname "$0")
models=${TMPDIR:-/dev/shm}
kernels=${EXL2_TEST_KERNELS:+--kernels $EXL2_TEST_KERNELS}
parts=$(mktemp -d) || exit 1
trap 'rm -rf "$parts"' EXIT
failed=0
count=0
"$exl2" bench --probe --backend cuda || exit 77
card=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)
commit=${COMMIT:-$(git -C "$here" rev-parse --short=12 HEAD)}
if [ -z "$card" ] || [ -z "$driver" ] || [ -z "$commit" ]; then
    echo "figures.sh: the card, its driver or the commit (COMMIT=...) is not known" >&2
    exit 1
fi

# measure FOLDER flags
measure() {
    model=$1
    shift
    count=$((count + 1))
    # shellcheck disable=SC2086 # two words or none
    if "$exl2" bench "$model" --backend cuda $kernels --json "$@" >"$parts/$count.json"; then
        set -- "$parts/$count.json=${model##*/}"
        python3 "$here/figures.py" collect "$parts/one" "$card" "$driver" "$commit" "$1" &&
            python3 "$here/figures.py" table "$parts/one" && echo "$1" >>"$parts/list" || failed=1
    else
        echo "figures.sh: no figures of $model" >&2
        failed=1
    fi
}

# make SHAPE BPW [FORMAT]
make() {
    [ -d "$models/$1$3" ] || "$exl2" synth "$models/$1$3" --shape "$1" --bpw "$2" --format "${3:-exl2}" >/dev/null ||
        failed=1
}

make smollm2-135m 4
make tinyllama-1.1b 4
measure "$models/smollm2-135m" --prefill 512 --decode 256 --context 128 --batch 1,8,16,24,32,64
measure "$models/tinyllama-1.1b" --prefill 2048 --decode 256 --context 128 --batch 1,8,16,24,32,64
if [ -z "$SMALL" ]; then
    make llama3-8b 4
    measure "$models/llama3-8b" --prefill 64,128,256,512,1024,2048,8192 --decode 256 --context 128 \
        --batch 1,2,4,8,12,16,24,32,64
    measure "$models/llama3-8b" --prefill 0 --decode 256 --context 6144,32768 --cache fp16,q8,q6,q4
fi
if [ -n "$LARGE" ]; then
    make llama2-70b 2.5
    measure "$models/llama2-70b" --prefill 0 --decode 256 --context 128 --batch 1,8,16
fi
if [ -n "$FAMILIES" ]; then
    for model in llama3-8b:4:gptq llama3-8b:8:gptq llama3-8b:4:awq mistral-7b:4 qwen3-8b:4 command-r7b:4 gemma2-9b:4 \
        gemma3-1b:4 starcoder2-3b:4 llama3.2-3b:4 qwen3-30b-a3b:4 gpt-oss-20b:4 mixtral-8x7b:4 olmoe-1b-7b:4; do
        shape=${model%%:*}
        rest=${model#*:}
        format=${rest#*:}
        [ "$format" != "$rest" ] || format=
        make "$shape" "${rest%%:*}" "$format"
        measure "$models/$shape$format" --prefill 2048 --decode 256 --context 128 --batch 1,8,32
        rm -rf "${models:?}/$shape$format"
    done
fi
for model in "$@"; do
    measure "$model" --prefill 512,2048 --decode 256 --context 128 --batch 1,8,32
done
if [ ! -s "$parts/list" ]; then
    echo "figures.sh: nothing was measured" >&2
    exit 1
fi
tr '\n' '\0' <"$parts/list" |
    xargs -0 python3 "$here/figures.py" collect "$out" "$card" "$driver" "$commit" || failed=1
exit $failed
