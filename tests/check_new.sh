#!/usr/bin/env bash
# Installs a build and lets the installed program write a project with one part of every kind in an empty
# folder. The project must build against the installed library, pass its tests, train, and resume from its
# checkpoint. A wrong gradient of the op must be reported.
# usage: tests/check_new.sh CMAKE BUILD GENERATOR COMPILER
set -euo pipefail
[ $# -eq 4 ] || { sed -n '5s/^# //p' "$0" >&2; exit 2; }
cmake=$1 build=$2 generator=$3 compiler=$4
templates=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../tools/new")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$cmake" --install "$build" --prefix "$folder/installed" > install.txt
new() { "$folder/installed/bin/bonsai" new "$@"; }

mapfile -t kinds < <(cd "$templates" && basename -s .cpp -- *.cpp)
for kind in "${kinds[@]}"; do new "$kind" "own_$kind" --dir parts > new.txt; done
cat new.txt
before=$(cat parts/*)
if new "${kinds[0]}" "own_${kinds[0]}" --dir parts 2> error.txt; then
  echo "a file is written twice"
  exit 1
fi
[ "$before" = "$(cat parts/*)" ] || { echo "a file that existed was changed"; exit 1; }
if new "${kinds[0]}" 2bad 2> error.txt; then echo "a name that is no identifier is taken"; exit 1; fi
new "${kinds[0]}" alone
[ -e alone.cpp ] && [ ! -e alone.yaml ] ||
  { echo "without --dir, more than the part or nothing is written"; exit 1; }

env -u CXXFLAGS "$cmake" -G "$generator" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" -DCMAKE_PREFIX_PATH="$folder/installed" -S parts -B build \
  > configure.txt 2>&1 || { cat configure.txt; exit 1; }
"$cmake" --build build > build.txt 2>&1 || { cat build.txt; exit 1; }
"${cmake%cmake}ctest" --test-dir build --output-on-failure > tests.txt 2>&1 || { cat tests.txt; exit 1; }
grep '100% tests passed' tests.txt
grep -E ' ops \.+ +Passed' tests.txt
passed=$(grep -cE '_(gradcheck|audit|train) \.+ +Passed' tests.txt)
[ "$passed" -eq $((3 * ${#kinds[@]})) ] ||
  { echo "$passed tests passed, not three per kind"; cat tests.txt; exit 1; }

# Four steps, and two steps that are resumed for two more, give bit-identical checkpoints.
for kind in "${kinds[@]}"; do
  for run in once twice; do
    steps=4
    [ $run = once ] || steps=2
    mkdir -p $run
    build/bonsai train "parts/own_$kind.yaml" --out "$run/$kind" --set trainer.max_steps=$steps --quiet \
      --set schedule.warmup_steps=1 --set schedule.min_learning_rate=1e-3 \
      --set schedule.learning_rate=1e-3 > train.txt
  done
  build/bonsai train --resume "twice/$kind" --set trainer.max_steps=4 --quiet > train.txt
  cmp {once,twice}/"$kind"/checkpoints/last/*.safetensors
done
# The gradient of x^3 is 3 x^2 dy, not 2 x^2 dy.
build/bonsai gradcheck > ops.txt
grep -x 'own_op: passed' ops.txt
sed -i 's/saved\[0\], saved\[0\]), 3))/saved[0], saved[0]), 2))/' parts/own_op.cpp
"$cmake" --build build > build.txt 2>&1 || { cat build.txt; exit 1; }
for arguments in "" "--op own_op"; do
  # shellcheck disable=SC2086  # no word or two
  if build/bonsai gradcheck $arguments > ops.txt; then echo "a wrong gradient passes"; exit 1; fi
  grep -x 'own_op: FAILED' ops.txt
  grep 'gradient: .*' ops.txt
  grep -E 'is wrong: backward gives' ops.txt
  grep -E '^[0-9]+ rows of the op table, 1 failed$' ops.txt
done
echo "parts of every kind are built, tested, trained and resumed: ${kinds[*]}"
