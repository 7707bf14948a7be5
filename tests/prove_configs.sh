#!/usr/bin/env bash
# Audits every config of configs/ and checks its gradients. Prints one or two lines per config, and the full
# output of failures. Given CONFIGs, only checks their gradients.
# usage: tests/prove_configs.sh PROGRAM [CONFIG...]
set -euo pipefail
[ $# -ge 1 ] || { sed -n '4s/^# //p' "$0" >&2; exit 2; }
program=$(realpath "$1")
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for file; do [ -e "$file" ] || { echo "$file does not exist" >&2; exit 2; }; done
count=0
failed=0
declare -A checked  # the key is the model section of the config: equal models are checked once
mapfile -t files < <(find configs -name '*.yaml' | sort)
for file in "${files[@]}"; do
  for command in audit gradcheck; do
    if [ "$command" = gradcheck ] && [ $# -gt 0 ] && [[ " $* " != *" $file "* ]]; then continue; fi
    model=$command$("$program" config check "$file" 2> /dev/null | sed -n '/^model:/,/^[^ m]/p')
    if [ -n "${checked[$model]-}" ]; then
      echo "$command $file: same model as ${checked[$model]}"
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
