#!/bin/sh
# predict.sh: prints how fast a model can be at most on GPUs of players, computed from counts of ncu (predict.c):
#   tests/device/predict.sh FOLDER MODEL LAYERS
# FOLDER: what `pack.sh FOLDER 86 89 120` made. MODEL: a folder, for example of `exl2 synth`; it may have fewer layers
# than LAYERS. Needs a GPU of 9.0 or later, and ncu with access to the counters. ncu's tables go to $OUT or ./device-log.
# Exit code: 0, 1, or 77 without ncu.
folder=$1
model=$2
layers=$3
logs=${OUT:-device-log}
mkdir -p "$logs"
command -v ncu >/dev/null || { echo "skipped: no ncu"; exit 77; }
metrics=dram__bytes_read.sum,dram__bytes_write.sum,smsp__inst_executed.sum,gpu__time_duration.sum
metrics=$metrics,l1tex__data_pipe_lsu_wavefronts_mem_shared.sum
# Instructions of tensor cores have another name in each version of ncu.
ncu --query-metrics >"$logs/metrics.txt" 2>&1
tensor=smsp__inst_executed_pipe_tensor
for name in ${tensor}_op_hmma ${tensor}_op_hmma_v2 ${tensor}_subpipe_hmma ${tensor}_v2 $tensor; do
    grep -q "^${name}[[:space:]]" "$logs/metrics.txt" && { metrics=$metrics,$name.sum && break; }
done
failed=0
"$folder/predict" list >"$logs/gpus.txt"
while read -r number arch sms; do
    EXL2_TEST_ARCH=$arch EXL2_TEST_SMS=$sms EXL2_TEST_KERNELS="$folder/kernels-$arch" \
        ncu --csv --page raw --print-units base --profile-from-start off --clock-control none --cache-control none \
        --metrics "$metrics" --log-file "$logs/predict-$number.csv" "$folder/predict" run "$model" \
        >"$logs/predict-$number.log" 2>&1 || { failed=1 && tail -n 5 "$logs/predict-$number.log"; }
    "$folder/predict" table "$number" "$layers" <"$logs/predict-$number.csv" || failed=1
done <"$logs/gpus.txt"
exit $failed
