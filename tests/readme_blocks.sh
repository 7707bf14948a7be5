#!/usr/bin/env bash
# Prints the cpp blocks of READMEs as one C++ file, so that what they show compiles: a block that declares a struct as
# a namespace, any other as the body of a function.
# usage: tests/readme_blocks.sh README...
set -euo pipefail
export LC_ALL=C
[ $# -ge 1 ] || { sed -n '4s/^# //p' "$0" >&2; exit 2; }
awk '
  /^```cpp$/ { on = 1; ++n; kind = "void block_" n "()"; body = "#line " FNR + 1 " \"" FILENAME "\"\n"; next }
  on && /^```$/ { on = 0; blocks = blocks "\n" kind " {\n" body "}\n"; next }
  on && /^struct / { kind = "namespace block_" n }
  on && /^#include / { if (!seen[$0]++) includes = includes $0 "\n"; $0 = "" }
  on && $0 != "using namespace bonsai;" { body = body $0 "\n" }
  END { print includes "\nusing namespace bonsai;\n" blocks }' "$@"
