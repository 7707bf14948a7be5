#!/usr/bin/env bash
# Installs a build into an empty folder, runs the program there (B67), and builds other projects against the
# installed headers and libraries: with find_package, which must add no compiler flags except the standard,
# and with pkg-config.
# usage: tests/check_install.sh CMAKE BUILD GENERATOR COMPILER
set -euo pipefail
[ $# -eq 4 ] || { sed -n '5s/^# //p' "$0" >&2; exit 2; }
cmake=$1 build=$2 generator=$3 compiler=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$cmake" --install "$build" --prefix "$folder/installed" > install.txt
mv installed moved  # the installed files must be relocatable
prefix=$folder/moved
"$prefix/bin/bonsai" doctor | tee doctor.txt
if [ -e "$build/libbonsai_cuda.so" ] && grep 'this build has no libbonsai_cuda.so' doctor.txt; then
  echo "the installed program does not find the installed CUDA library"
  exit 1
fi

# One program includes every header; a header that includes one that is not installed does not compile.
(cd "$prefix/include" && find bonsai -name '*.h' | sort | sed 's/.*/#include "&"/') > headers.cpp
private=$(grep -E '/(cpu|cuda)/' headers.cpp || true)
[ -z "$private" ] || { echo "private headers are installed: $private"; exit 1; }
# Headers of layers include neither the kernel table nor the functors of the kernels.
grep bonsai/layers/ headers.cpp > layers.cpp
if "$compiler" -std=c++20 -I"$prefix/include" -M layers.cpp |
  grep -oE 'framework/backend/(kernels|elementwise|math)\.h'; then
  echo "these are included by a header of layers"
  exit 1
fi
cat > main.cpp <<'TEXT'
#include <cstdio>
#include "bonsai/framework/autograd/tape.h"
#include "bonsai/layers/linear.h"
int main() {
  using namespace bonsai;
  Module root;
  Linear layer{&root, "layer", {.in = 2, .out = 1}};
  Context context;
  Tape tape;
  tape.backward(sum(layer(tensor({2, 2}, {1, 2, 3, 4}), context)));
  const auto gradient = layer.weight->grad.span<float>();
  std::printf("the gradient is %g %g\n", gradient[0], gradient[1]);
}
TEXT
cat > CMakeLists.txt <<'TEXT'
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
find_package(bonsai 0.1 CONFIG REQUIRED)
add_executable(user main.cpp headers.cpp)
target_link_libraries(user PRIVATE bonsai::bonsai)
bonsai_add_program(own own_part.cpp)
TEXT
cat > own_part.cpp <<'TEXT'
#include "bonsai/framework/core/error.h"
namespace bonsai {
void register_own_part() { fail("own part", "it is registered"); }
}
TEXT
env -u CXXFLAGS "$cmake" -G "$generator" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
  -DCMAKE_PREFIX_PATH="$prefix" -S . -B build > configure.txt 2>&1 || { cat configure.txt; exit 1; }
"$cmake" --build build > build.txt 2>&1 || { cat build.txt; exit 1; }
if grep -oE -- ' -(W|O|I|march|Werror)[^ ]*' build/compile_commands.json; then
  echo "Bonsai's own compiler flags reach the user's project"
  exit 1
fi
[ "$(build/user)" = "the gradient is 4 6" ] || { echo "the user's program prints: $(build/user)"; exit 1; }
status=0
build/own doctor 2> own.txt || status=$?
[ "$status $(cat own.txt)" = "1 [own part] it is registered" ] ||
  { echo "a part of a program: $status"; cat own.txt; exit 1; }

grep -qF -- '\-\-resume' "$prefix/share/man/man1/bonsai.1" ||
  { echo "the manual page has no --resume"; exit 1; }
# completed WORD...: prints bash's completions of the last word.
completed() { (source "$prefix/share/bash-completion/completions/bonsai"
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _bonsai; echo "${COMPREPLY[*]}"); }
[ "$(completed bonsai tra), $(completed bonsai config ex), $(completed bonsai train a.yaml --res)" = \
  "train, explain, --resume" ] || { echo "completions are wrong: $(completed bonsai config ex)"; exit 1; }
pc=$(dirname "$(find "$prefix" -name bonsai.pc)")
command -v pkg-config > /dev/null || { echo "there is no pkg-config"; exit 1; }
export PKG_CONFIG_PATH="$pc"
# shellcheck disable=SC2046  # words
"$compiler" -std=c++20 main.cpp $(pkg-config --cflags --libs bonsai) -o by_pkg_config
[ "$(./by_pkg_config)" = "the gradient is 4 6" ] ||
  { echo "the program built with pkg-config prints: $(./by_pkg_config)"; exit 1; }
echo "the installed program runs, and the installed library is found by find_package and pkg-config"
