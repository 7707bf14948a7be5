#!/usr/bin/env bash
# Counts the files that change if a part of each kind or an op is added to Bonsai itself, and compares the
# counts with the table in CONTRIBUTING.md. Each part is added to a copy of the tree, in which CMake must find
# it and it must compile; the files that differ are counted. For an optimizer with a CUDA kernel and for a
# structured op, the files that mention lion and cumsum are counted.
# usage: tests/touched.sh CMAKE BONSAI GENERATOR COMPILER [--write]
set -euo pipefail
[ $# -ge 4 ] || { sed -n '6s/^# //p' "$0" >&2; exit 2; }
cmake=$1 bonsai=$2 generator=$3 compiler=$4 write=${5-}
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tree=$folder/tree
mkdir "$tree" "$folder/parts"
(cd "$root" && find . \( -name '.?*' -o -name 'build*' -o -name runs \) -prune -o -type f -print0 |
  tar --null -cf - -T -) | tar -xf - -C "$tree"
cp -r "$tree" "$folder/before"

rows=() objects=()
# add_row LABEL FILES...
add_row() {
  local label=$1 files
  shift
  files=$(printf '\x60%s\x60, ' "$@")  # in backquotes
  rows+=("| $label | $# | ${files%, } |")
}
# row LABEL: adds the row of the files that changed since the last row.
row() {
  local files
  mapfile -t files < <(cd "$tree" && diff -rq "$folder/before" . |
    sed -E 's|^Only in \./([^:]*): (.*)|\1/\2|; s|^Files .* and \./(.*) differ$|\1|' | sort)
  [ "${#files[@]}" -gt 0 ] || { echo "nothing was touched for $1"; exit 1; }
  add_row "$1" "${files[@]}"
  (cd "$tree" && cp --parents "${files[@]}" "$folder/before")
}

# KIND, its folder in the tree and its CMake target. The file that `bonsai new` writes is put there.
while read -r kind place target; do
  (cd "$folder/parts" && "$bonsai" new "$kind" "your_$kind" > /dev/null)
  mv "$folder/parts/your_$kind.cpp" "$tree/$place"
  row "$kind"
  objects+=("${place%%/*}/CMakeFiles/$target.dir/${place#*/}/your_$kind.cpp.o")
done <<'TEXT'
attention layers/attention bonsai_layers
layer layers/feed_forward bonsai_layers
model layers/model bonsai_layers
norm layers/norm bonsai_layers
position layers/position bonsai_layers
optimizer trainers/optimizer bonsai_trainers
schedule trainers/schedule bonsai_trainers
task trainers/task bonsai_trainers
tokenizer data/tokenizer bonsai_data
TEXT

# An elementwise op: softsign, x / (1 + |x|). Its gradient is dy (1 - |y|)^2.
sed -i '/^struct Neg {/i\
struct Softsign {\
  template <class T> static constexpr T forward(T x) { return x / (1 + (x > 0 ? x : -x)); }\
  template <class T> static constexpr T backward(T, T y, T dy) {\
    return dy * (1 - (y > 0 ? y : -y)) * (1 - (y > 0 ? y : -y));\
  }\
};\
' "$tree/framework/backend/elementwise.h"
sed -i 's/^  OP(neg, .*/&\n  OP(softsign, Softsign, y, real) \\/' "$tree/framework/backend/elementwise_list.h"
row "elementwise op"
objects+=(framework/ops/CMakeFiles/bonsai_ops.dir/elementwise.cpp.o
  framework/checks/CMakeFiles/bonsai_checks.dir/op_cases.cpp.o)

# row_of_names LABEL PATTERN: adds the row of the files that contain PATTERN.
row_of_names() {
  local files
  mapfile -t files < <(cd "$tree" && grep -rlE "\b($2)\b" framework trainers --include='*.h' \
    --include='*.def' --include='*.cpp' --include='*.cu' | sort)
  add_row "$1" "${files[@]}"
}
row_of_names "optimizer with a CUDA kernel" 'lion|Lion'
row_of_names "structured op" 'cumsum|cumulative_sum'

env -u CXXFLAGS "$cmake" -G "$generator" -DCMAKE_CXX_COMPILER="$compiler" -DBONSAI_LEVELS=v2 \
  -DBONSAI_BUILD_TESTS=OFF -S "$tree" -B "$folder/build" > "$folder/log" 2>&1 ||
  { cat "$folder/log"; exit 1; }
"$cmake" --build "$folder/build" --target "${objects[@]}" > "$folder/log" 2>&1 ||
  { cat "$folder/log"; exit 1; }
for kind in attention layer model norm position optimizer schedule task tokenizer; do
  grep -rqs "register_your_$kind()" "$folder"/build/{layers,trainers,data}/register_*_parts.cpp ||
    { echo "CMake does not register a part of the kind $kind"; exit 1; }
done

table=$(printf '%s\n' '| to add | files | which |' '|---|---|---|' "${rows[@]}")
begin='<!-- tests/touched.sh --write: -->' end='<!-- end of tests/touched.sh -->'
document=$root/CONTRIBUTING.md
now=$(awk -v begin="$begin" -v end="$end" -v table="$table" '
  $0 == end { inside = 0 }
  !inside { print }
  $0 == begin { print table; inside = 1 }' "$document")
if [ "$write" = --write ]; then
  printf '%s\n' "$now" > "$document"
elif ! diff "$document" <(printf '%s\n' "$now"); then
  echo "CONTRIBUTING.md: the table is out of date; run tests/touched.sh with --write"
  exit 1
fi
echo "${#rows[@]} ways to add something are counted; what was added compiles"
