#!/usr/bin/env bash
# Configures a project that adds Bonsai with add_subdirectory and with FetchContent, and sets no build type,
# standard, warnings or tests. Its targets must get none of Bonsai's settings; a target that links Bonsai gets
# only C++20 and the headers (B50).
# usage: tests/check_subproject.sh CMAKE GENERATOR COMPILER
set -euo pipefail
[ $# -eq 3 ] || { sed -n '5s/^# //p' "$0" >&2; exit 2; }
bonsai=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
touch alone.cpp
echo '#include "bonsai/framework/core/tensor.h"' > user.cpp

status=0
command_of() { sed -nE "s/.*\"command\": \"(.*$1\.cpp)\".*/\1/p" build/compile_commands.json; }
# expect NAME WORD...: checks the flags that compile NAME.cpp, except the standard and definitions.
expect() {
  local name=$1 found
  found=$(command_of "$name" | sed -E 's/ -o .*//; s/ (-D[^ ]*|-std=[^ ]*|-isystem [^ ]*)//g; s/^[^ ]* *//')
  [ "$found" = "${*:2}" ] || { echo "$name.cpp is compiled with '$found', not '${*:2}'"; status=1; }
}

# check_project CMAKE GENERATOR COMPILER LINES FOLDER: checks a project that adds Bonsai with LINES, which
# build it in FOLDER.
check_project() {
  rm -rf build
  cat > CMakeLists.txt <<TEXT
cmake_minimum_required(VERSION 3.25)
project(parent LANGUAGES CXX)
enable_testing()
$4
add_library(alone STATIC alone.cpp)
add_library(user STATIC user.cpp)
target_link_libraries(user PRIVATE bonsai::bonsai)
TEXT
  env -u CXXFLAGS -u CMAKE_BUILD_TYPE "$1" -G "$2" -DCMAKE_CXX_COMPILER="$3" \
    -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
    -DBONSAI_WARNINGS_AS_ERRORS=ON -S . -B build > configure.txt 2>&1 || { cat configure.txt; exit 1; }
  expect alone
  expect user "-I$folder/build/$5/include"
  eval "$(command_of user) -fsyntax-only" || { echo "a user of Bonsai does not compile"; status=1; }
  local type tests
  type=$(sed -n 's/^CMAKE_BUILD_TYPE:[A-Z]*=//p' build/CMakeCache.txt)
  [ -z "$type" ] || { echo "the parent's build type is now $type"; status=1; }
  tests=$("${1%cmake}ctest" --test-dir build -N | sed -n 's/^Total Tests: //p')
  [ "$tests" = 0 ] || { echo "$tests of Bonsai's tests are among the parent's"; status=1; }
  "$1" --install build --prefix "$folder/installed" > installed.txt 2>&1 ||
    { echo "Bonsai adds to what the parent installs:"; cat installed.txt; status=1; }
}
check_project "$@" "add_subdirectory(\"$bonsai\" bonsai)" bonsai
check_project "$@" "include(FetchContent)
FetchContent_Declare(bonsai SOURCE_DIR \"$bonsai\")
FetchContent_MakeAvailable(bonsai)" _deps/bonsai-build
[ "$status" -ne 0 ] || echo "the parent's settings are untouched"
exit "$status"
