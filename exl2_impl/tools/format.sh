#!/bin/sh
# Formats files with .clang-format and clang-format 14; other versions format otherwise, so they are rejected.
#   exl2_impl/tools/format.sh FILE ...
# Look at the result: tables, chains of `?` and lists of designated initializers read better laid out by hand. Inside a
# file, clang-format leaves alone what stands between the comments "clang-format off" and "clang-format on".
set -eu
tool=${CLANG_FORMAT:-$(command -v clang-format-14 || command -v clang-format || true)}
"${tool:-false}" --version 2>/dev/null | grep -q 'version 14\.' || { echo "format.sh: needs clang-format 14" >&2; exit 1; }
[ $# -gt 0 ] || { echo "usage: format.sh FILE ..." >&2; exit 2; }
# The second run joins what only the first one has made breakable; a third changes nothing.
"$tool" -i --style=file "$@"
"$tool" -i --style=file "$@"
