#!/usr/bin/env bash
# Prints a C++ program that runs the cpp blocks of READMEs in the order given. A block with `namespace bonsai`
# becomes a file, one that declares a struct or a function a namespace, any other the body of a function.
# usage: tests/readme_blocks.sh README...
set -euo pipefail
export LC_ALL=C
[ $# -ge 1 ] || { sed -n '4s/^# //p' "$0" >&2; exit 2; }
awk '
  /^```cpp$/ { on = 1; ++n; kind = "body"; code = ""; line = FNR + 1; next }
  on && /^```$/ {
    on = 0
    head = kind == "body" ? "void block_" n "() {\n" : kind == "namespace" ? "namespace block_" n " {\n" : ""
    blocks = blocks "\n" head "#line " line " \"" FILENAME "\"\n" code (head == "" ? "" : "}\n")
    if (kind == "body")
      calls = calls "  std::fputs(\"" FILENAME ":" line "\\n\", stderr);\n  block_" n "();\n"
    next
  }
  on && kind == "body" && (/^struct / || /^[A-Z][A-Za-z]* [a-z_]+\([^;]*\) \{$/) { kind = "namespace" }
  on && /^namespace bonsai/ { kind = "file" }
  on && /^#include / { if (!seen[$0]++) includes = includes $0 "\n"; $0 = "" }
  on && $0 != "using namespace bonsai;" { code = code $0 "\n" }
  END {
    print "#include <cstdio>\n" includes "\nusing namespace bonsai;\n" blocks "\nint main() {\n" calls "}"
  }' "$@"
