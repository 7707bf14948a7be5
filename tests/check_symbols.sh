#!/usr/bin/env bash
# Looks for functions that the linker would merge across instruction-set levels. The linker keeps one of all
# weak symbols of a name. If that one is from another level's object file, the program runs that level's code
# everywhere, or crashes with an illegal instruction. Therefore every weak symbol that a kernel object file
# defines must have its level's namespace in its name.
# usage: tests/check_symbols.sh LEVEL OBJECT... [-- LEVEL OBJECT...]...    (NM: the nm to use)
set -euo pipefail

objects=0
failed=0

# check LEVEL OBJECT...
check() {
  local level=$1 object names line
  shift
  if [ $# -eq 0 ]; then
    echo "check_symbols.sh: no object was given for the level $level" >&2
    exit 2
  fi
  for object in "$@"; do
    names=$("${NM:-nm}" -C --defined-only "$object")
    if [ -z "$names" ]; then
      echo "$object: defines no symbol; is it an object file of the kernels?"
      failed=1
    fi
    objects=$((objects + 1))
    # W and V are weak functions and data; u is unique in the program. Two symbols of the compilers are
    # harmless: DW.ref.* is a pointer to the unwinder, __clang_call_terminate consists of two calls.
    while read -r line; do
      echo "$object: the weak symbol \"$line\" is not in the namespace $level;" \
        "put what it names inside namespace BONSAI_LEVEL or keep it out of kernels."
      failed=1
    done < <(awk -v inside="::$level::" '
      $2 ~ /^[WVu]$/ && $3 !~ /^(DW\.ref\..*|__clang_call_terminate)$/ && index($0, inside) == 0 {
        sub(/^[^ ]* [WVu] /, ""); print
      }' <<<"$names")
  done
}

group=()
for argument in "$@"; do
  if [ "$argument" = -- ]; then
    check "${group[@]}"
    group=()
  else
    group+=("$argument")
  fi
done
if [ ${#group[@]} -eq 0 ]; then
  echo "usage: tests/check_symbols.sh LEVEL OBJECT... [-- LEVEL OBJECT...]..." >&2
  exit 2
fi
check "${group[@]}"
if [ "$failed" -eq 0 ]; then echo "$objects objects: the linker cannot merge anything across levels."; fi
exit "$failed"
