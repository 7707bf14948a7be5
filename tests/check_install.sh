#!/usr/bin/env bash
# Installs a build into an empty folder and runs the program from there, away from the build (B67).
# usage: tests/check_install.sh CMAKE BUILD
set -euo pipefail
[ $# -eq 2 ] || { sed -n '3s/^# //p' "$0" >&2; exit 2; }
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
"$1" --install "$2" --prefix "$prefix"
cd /
"$prefix/bin/bonsai" doctor | tee "$prefix/doctor.txt"
if [ -e "$2/libbonsai_cuda.so" ] && grep 'this build has no libbonsai_cuda.so' "$prefix/doctor.txt"; then
  echo "the installed program does not find the installed CUDA library"
  exit 1
fi
