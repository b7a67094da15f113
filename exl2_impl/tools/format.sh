#!/bin/sh
# Formats the tree with .clang-format and clang-format 14; other versions format otherwise, so they are rejected.
#   exl2_impl/tools/format.sh            all files of git, but the tables below
#   exl2_impl/tools/format.sh FILE ...   these files
# Inside a file, clang-format leaves alone what stands between the comments "clang-format off" and "clang-format on".
set -eu
cd "$(dirname "$0")/../.."
tool=${CLANG_FORMAT:-$(command -v clang-format-14 || command -v clang-format || true)}
"${tool:-false}" --version 2>/dev/null | grep -q 'version 14\.' || { echo "format.sh: needs clang-format 14" >&2; exit 1; }
# Laid out by hand: the public header, and files that are nothing but a table.
tables='^exl2\.h$|unicode/[a-z]*_table\.h$|kernels\.def\.h$'
[ $# -gt 0 ] || set -- $(git ls-files '*.h' '*.c' '*.cu' '*.cuh' | grep -Ev "$tables")
# The second run joins what only the first one has made breakable; a third changes nothing.
"$tool" -i --style=file "$@"
"$tool" -i --style=file "$@"
