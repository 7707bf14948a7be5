#!/usr/bin/env bash
# Checks that the key list in configs/README.md equals what the program prints. If not, prints the difference
# and exits 1; with --write, rewrites the list.
# usage: tests/check_keys.sh PROGRAM [--write]
# shellcheck disable=SC2016  # backquotes are Markdown here
set -euo pipefail
export LC_ALL=C
[ $# -ge 1 ] || { sed -n '4s/^# //p' "$0" >&2; exit 2; }
program=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
file=configs/README.md
begin='<!-- the list of keys: tests/check_keys.sh build/bonsai --write -->'
end='<!-- end of the list of keys -->'

# The data section of a task's key list, without its heading.
data_section() { "$program" config keys "$1" | awk '/^\*\*/ { on = /^\*\*data\*\*/; next } on'; }

# Keys that exist only for some values of data.source: those that the task's table does not have.
more_keys() {
  local yaml=$folder/$1.yaml
  printf 'task: language_model\ndata: {source: %s%s}\n' "$1" "${2-}" > "$yaml"
  "$program" config explain "$yaml" | sed -n 's/^..\(data\.[a-z_]*\) .*  \([^ ].*\)/`\1` \2/p' |
    while read -r key meaning; do
      grep -qF "| $key |" "$folder/language_model" || echo "- With \`data.source: $1\` also $key: $meaning."
    done
}

list() {
  "$program" config keys language_model > "$folder/language_model"
  awk '/^\*\*/ && on { on = 0 } /^\*\*data\*\*/ { on = 1; print "@data"; next } !on' \
    "$folder/language_model" |
    while IFS= read -r line; do
      if [ "$line" != @data ]; then printf '%s\n' "$line"; continue; fi
      printf '**data** of the task `language_model`\n'
      data_section language_model
      more_keys file ', path: text.txt'
      more_keys random
      for task in $(sed -n 's/^| `task` .* one of \(.*\) | .*/\1/p' "$folder/language_model" | tr -d ,); do
        [ "$task" = language_model ] ||
          { printf '\n**data** of the task `%s`\n' "$task"; data_section "$task"; }
      done
    done
}

folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
for marker in "$begin" "$end"; do
  grep -qxF "$marker" "$file" || { echo "$file:1: has no line $marker" >&2; exit 1; }
done
list > "$folder/list"
awk -v begin="$begin" -v end="$end" -v list="$folder/list" '
  $0 == end { on = 0 }
  !on
  $0 == begin {
    on = 1; print ""
    while ((getline line < list) > 0) if (line != "" || last != "") print last = line
    if (last != "") print ""
  }
' "$file" > "$folder/wanted"
if cmp -s "$file" "$folder/wanted"; then
  echo "$file: every key is up to date"
elif [ "${2-}" = --write ]; then
  cp "$folder/wanted" "$file"
  echo "$file: written"
else
  diff -u --label "$file" --label "what the program says" "$file" "$folder/wanted" || true
  echo "$file: the list of keys is out of date; run tests/check_keys.sh build/bonsai --write" >&2
  exit 1
fi
