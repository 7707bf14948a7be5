#!/usr/bin/env bash
# Checks that the command, options and configs of every command line `build/bonsai ...` in a block of a README
# exist. Prints those that do not, and the number of lines.
# usage: tests/readme_commands.sh PROGRAM README...
set -euo pipefail
export LC_ALL=C
[ $# -ge 2 ] || { sed -n '4s/^# //p' "$0" >&2; exit 2; }
program=$(realpath "$1")
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."
lines=0 wrong=0
complain() { echo "$file: $line: $1"; wrong=1; }
for file in "$@"; do
  while IFS= read -r line; do
    lines=$((lines + 1))
    eval "words=($line)"
    command=${words[1]}
    [ "$command" != config ] || command="config ${words[2]}"
    # shellcheck disable=SC2086  # two words for config
    help=$("$program" $command --help) || { complain "there is no command $command"; continue; }
    for word in "${words[@]}"; do
      case $word in
        --*) grep -qE -- "(^|[ ,])$word( |,|\$)" <<< "$help" || complain "$command has no option $word" ;;
        configs/*.yaml) "$program" config check "$word" > /dev/null || complain "$word is wrong" ;;
      esac
    done
  done < <(awk '
    /^```/ { on = !on; next }
    on && /^(\$ )?build\/bonsai / { sub(/^\$ /, ""); sub(/ +#.*/, ""); print }' "$file")
done
[ "$lines" -gt 0 ] || { echo "no line of these READMEs begins with build/bonsai"; exit 1; }
echo "$lines command lines"
exit $wrong
