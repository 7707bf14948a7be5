#!/usr/bin/env bash
# Audits every config of configs/ and checks its gradients; prints a line or two for each, and all that fails.
# usage: tests/prove_configs.sh PROGRAM
set -euo pipefail
[ $# -eq 1 ] || { sed -n '3s/^# //p' "$0" >&2; exit 2; }
program=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
count=0
failed=0
mapfile -t files < <(find configs -name '*.yaml' | sort)
for file in "${files[@]}"; do
  for command in audit gradcheck; do
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
