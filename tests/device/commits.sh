#!/bin/sh
# commits.sh: the speed of one sequence at several commits on one card, to find the commit at which it fell.
#   tests/device/commits.sh pack FOLDER COMMIT ...   without a GPU: builds the program exl2 of each commit
#   cd FOLDER && sh commits.sh run ROUNDS            with a GPU: all commits compile their kernels, then take turns; about
#                                                    10 s a commit, and 15 s a commit and round
# FOLDER has one program for each commit, named in the order of the command line. run prints a line for each commit and
# round: tokens/s of llama3-8b after 128, 6,144 and 32,768 tokens, and of tinyllama-1.1b after 128. Logs go to
# ./commits-log. Exit code: 0; 1 if a bench failed; 77 without a GPU.

pack() {
    folder=$1
    shift
    mkdir -p "$folder"
    : >"$folder/commits"
    number=10
    for commit in "$@"; do
        tree=$(mktemp -d) || exit 1
        git archive "$commit" | tar x -C "$tree" || exit 1
        if ! meson setup "$tree/build" "$tree" -Doptimization=2 >"$folder/log" 2>&1 ||
            ! ninja -C "$tree/build" demo/exl2 >>"$folder/log" 2>&1; then
            tail -n 5 "$folder/log" >&2
            exit 1
        fi
        cp "$tree/build/demo/exl2" "$folder/exl2_$number" || exit 1
        rm -rf "$tree"
        echo "$number $(git log -1 --format='%h %s' "$commit" | cut -c 1-90)" >>"$folder/commits"
        number=$((number + 1))
    done
    rm -f "$folder/log"
    cp tests/device/commits.sh "$folder/"
}

# bench NUMBER ROUND MODEL CONTEXTS: prints tokens/s at each context. The cache folder keeps the kernels of each commit.
bench() {
    log="$logs/$1-$2-$3"
    XDG_CACHE_HOME="$logs/cache-$1" timeout 120 "./exl2_$1" bench "$models/$3" --backend cuda --prefill 0 --decode 128 \
        --batch 1 --context "$4" >"$log" 2>&1 || failed=1
    awk '$1 == "decode" { for (i = 2; i <= NF; i++) if ($i ~ /\./) { printf " %8s", $i; break } }' "$log"
}

run() {
    failed=0
    logs=$PWD/commits-log
    models=${TMPDIR:-/dev/shm}
    mkdir -p "$logs"
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || exit 77
    last=$(tail -n 1 commits | cut -d ' ' -f 1)
    for model in tinyllama-1.1b llama3-8b; do
        "./exl2_$last" synth "$models/$model" --shape $model --bpw 4 >/dev/null || exit 1
    done
    while read -r number _; do # compiles kernels; several at a time, as nothing is measured yet
        (bench "$number" first tinyllama-1.1b 128 && bench "$number" first llama3-8b 128) >/dev/null &
        [ $((number % 4)) != 1 ] || wait
    done <commits
    wait
    for round in $(seq "$1"); do
        echo "round $round: 8B after 128; 6,144; 32,768; tinyllama after 128"
        while read -r number commit; do
            big=$(bench "$number" "$round" llama3-8b 128,6144,32768)
            small=$(bench "$number" "$round" tinyllama-1.1b 128)
            echo "$big$small  $commit"
        done <commits
    done
    rm -rf "$logs"/cache-*
    exit $failed
}

case $1 in
pack) [ $# -gt 2 ] && shift && pack "$@" && exit 0 ;;
run) [ $# = 2 ] && run "$2" ;;
esac
echo "usage: commits.sh pack FOLDER COMMIT ..., or commits.sh run ROUNDS" >&2
exit 1
