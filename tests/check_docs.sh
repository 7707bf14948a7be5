#!/usr/bin/env bash
# tools/docs reports names that nothing documents and no others, and the text of a config's visit() is in what
# it writes. Runs on a copy of the headers with two such names planted. Skipped without Doxygen.
# usage: tests/check_docs.sh
set -euo pipefail
for program in doxygen python3; do
  command -v $program > /dev/null || { echo "not run: there is no $program"; exit 77; }
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/copy"
cp -r framework layers data trainers "$folder/copy"
cp -r --parents tools/bonsai.h tools/docs tools/packages tools/doxygen "$folder/copy"
cat >> "$folder/copy/framework/core/shape.h" << 'TEXT'

int planted_function(int x);

class Planted {
 public:
  void planted_member(int x);
  int planted_field = 0;
};
TEXT
if "$folder/copy/tools/docs" "$folder/out" > "$folder/log" 2>&1; then
  echo "a name without documentation is not reported"
  exit 1
fi
for name in planted_function planted_member; do
  grep -q "error: Member $name(int x) (function) .* is not documented" "$folder/log" ||
    { echo "$name is not reported"; exit 1; }
done
if grep -v planted_ "$folder/log"; then
  echo "these names have no documentation; write a comment above them: see tools/doxygen/README.md"
  exit 1
fi
cd "$folder/out/html"
grep -q 'optimizer steps' structbonsai_1_1TrainerConfig.html
grep -q 'bonsai::gelu_tanh' ops_8h.html
echo "ran 1 test: every public name is documented"
