#!/usr/bin/env bash
# Looks for functions that the linker would merge across instruction-set levels. It keeps one of all
# weak symbols of a name; if that one came from another level's object, the program runs that level's
# code for all, or dies of an illegal instruction. So every weak symbol that a kernel object defines
# must have its level's namespace in its name.
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
    # W and V: weak functions and data, u: one for the whole program. Two of the compilers' own do no
    # harm: DW.ref.* is a pointer to the unwinder, __clang_call_terminate two calls and nothing else.
    while read -r line; do
      echo "$object: the weak symbol \"$line\" is not in the namespace $level;" \
        "put what it names inside namespace BONSAI_LEVEL or keep it out of kernels."
      failed=1
    done < <(awk -v inside="::$level::" '
      $2 ~ /^[WVu]$/ && $3 !~ /^(DW\.ref\..*|__clang_call_terminate)$/ && index($0, inside) == 0 { sub(/^[^ ]* [WVu] /, ""); print }' <<<"$names")
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
if [ "$failed" -eq 0 ]; then echo "$objects objects: the linker can merge nothing across levels."; fi
exit "$failed"
