#!/usr/bin/env bash
# Audits every config of configs/ and checks its gradients; prints a line or two for each, and all that fails.
# usage: tests/prove_configs.sh PROGRAM
set -euo pipefail
[ $# -eq 1 ] || { sed -n '3s/^# //p' "$0" >&2; exit 2; }
program=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
count=0
failed=0
declare -A checked  # by what the program says of the model: the gradients of equal models are checked once
mapfile -t files < <(find configs -name '*.yaml' | sort)
for file in "${files[@]}"; do
  for command in audit gradcheck; do
    model=$command$("$program" config check "$file" 2> /dev/null | sed -n '/^model:/,/^[^ m]/p')
    if [ -n "${checked[$model]-}" ]; then
      echo "$command $file: the model of ${checked[$model]}"
      continue
    fi
    checked[$model]=$file
    count=$((count + 1))
    if ! output=$("$program" "$command" "$file" 2>&1); then
      failed=$((failed + 1))
      printf '%s\n' "$output"
    else
      printf '%s\n' "$output" | sed -n '1p; $p' | uniq
    fi
  done
done
echo "$count checks of ${#files[@]} configs, $failed failed"
[ "$count" -gt 0 ] && [ "$failed" -eq 0 ]
