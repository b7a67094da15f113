#!/bin/sh
# csharp.sh LIBRARY EXL2 GOLDEN WORK: compiles demo/bindings/csharp with its test by mono, and runs the test.
set -u
here=$(cd "$(dirname "$0")" && pwd)
library=$1 program=$2 golden=$3 work=$4
for tool in mcs mono; do
    command -v $tool >/dev/null 2>&1 || { echo "skipped: no $tool"; exit 77; }
done
rm -rf "$work" && mkdir -p "$work" || exit 1
"$program" synth "$work/model" --shape smollm2-135m --layers 1 --bpw 2.5 >/dev/null || exit 1
cp "$golden"/smollm2/* "$work/model" || exit 1
# 649, 169: members of structs that only C writes
mcs -langversion:7.2 -warn:4 -warnaserror -nowarn:649,169 -out:"$work/test.exe" "$here"/../../demo/bindings/csharp/*.cs \
    "$here/csharp_test.cs" || exit 1
LD_LIBRARY_PATH=$(dirname "$library") exec mono "$work/test.exe" "$program" "$work/model" "$work/saved"
