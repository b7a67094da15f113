#!/bin/sh
# description.sh: demo/bindings/exl2.json is what exl2_impl/tools/describe.c makes of exl2.h, it has every member of every
# public struct, and every function.
# takes: description.sh DESCRIBE SOURCE_ROOT.
set -eu
made=$("$1" "$2/exl2.h" "$2/tests/golden/layouts.txt")
if ! printf '%s\n' "$made" | diff "$2/demo/bindings/exl2.json" - >/dev/null; then
    echo "demo/bindings/exl2.json is not what exl2.h says now. Make it again:"
    echo "    build/describe exl2.h tests/golden/layouts.txt >demo/bindings/exl2.json"
    exit 1
fi
test "$(printf '%s\n' "$made" | grep -c '"offset": ')" = "$(grep '^exl2_' "$2/tests/golden/layouts.txt" | \
    grep -cv '^exl2_\(model\|session\|job\|grammar\|lora\|steer\|image\)\.id ')"
test "$(printf '%s\n' "$made" | grep -c '"threads": ')" = "$(grep -c '^EXL2_API' "$2/exl2.h")"
# a declaration that the tool does not know is an error, not a gap
odd=$(mktemp)
printf '#ifndef EXL2_H\nint x;\n#endif\n' >"$odd"
said=$("$1" "$odd" "$odd" 2>&1 >/dev/null) && exit 1
rm "$odd"
case $said in *"'int' where 'a declaration' is expected"*) ;; *) echo "$said"; exit 1 ;; esac
