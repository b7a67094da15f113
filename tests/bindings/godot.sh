#!/bin/sh
# godot.sh LIBRARY EXL2 GOLDEN WORK HOST: compiles demo/bindings/godot with HOST, a stand-in for Godot, and runs it.
# Needs Godot's header gdextension_interface.h (4.2 or newer), which GODOT_INTERFACE names.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
library=$1 program=$2 golden=$3 work=$4 host=$5
header=${GODOT_INTERFACE:-none}
[ -f "$header" ] || { echo "skipped: no gdextension_interface.h of Godot (GODOT_INTERFACE names none)"; exit 77; }
rm -rf "$work" && mkdir -p "$work" || exit 1
"$program" synth "$work/model" --shape smollm2-135m --layers 1 --bpw 2.5 >/dev/null || exit 1
cp "$golden"/smollm2/* "$work/model" || exit 1
${CC:-cc} -std=c11 -O1 -g -Wall -Wextra -Werror -Wno-cast-function-type "-I$root" "-isystem$(dirname "$header")" \
    "$root/demo/bindings/godot/exl2_godot.c" "$host" "$library" -o "$work/host" || exit 1
LD_LIBRARY_PATH=$(dirname "$library") exec "$work/host" "$work/model"
