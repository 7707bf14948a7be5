#!/usr/bin/env bash
# Checks that the command, options and configs of every command line `build/bonsai ...` in a block of a README
# exist. Prints those that do not, and the number of lines. With --run: runs every line `$ ...` in the blocks
# of a page, in its order, and compares the output with the lines below it; `...` there stands for any text. A
# block of the kind diff changes the file that its first line names. All of it runs in a new folder, which is
# HOME, too, and has a link `build` to BUILD.
# usage: tests/readme_commands.sh PROGRAM README... | tests/readme_commands.sh --run PAGE BUILD
set -euo pipefail
export LC_ALL=C
[ $# -ge 2 ] || { sed -n '7s/^# //p' "$0" >&2; exit 2; }

# Replaces the lines of a diff block that begin with - by those that begin with +.
change() {
  local line file="" old="" new="" text
  while IFS= read -r line; do
    case $line in
      "--- "*) file=${line#--- } ;;
      -*) old+=${line#-}$'\n' ;;
      +*) new+=${line#+}$'\n' ;;
    esac
  done
  text=$(cat "$file" && echo .)
  [[ $text == *"$old"* ]] || { printf '%s does not have these lines:\n%s' "$file" "$old"; return 1; }
  text=${text/"$old"/"$new"}
  printf '%s' "${text%.}" > "$file"
}

# Runs a command in this shell, so that it may change the folder and variables. Succeeds if it does, and if
# what it prints is as expected.
run_command() {
  local command=$1 expected=$2 out pattern
  out=$(mktemp)
  eval "$command" > "$out" 2>&1 < /dev/null || { echo "$command failed:"; cat "$out"; return 1; }
  pattern=$(sed 's/[][\\*?]/\\&/g; s/\.\.\./*/g' <<< "$expected")
  # shellcheck disable=SC2053  # a pattern
  if [[ $(cat "$out") != $pattern ]]; then
    printf '%s should print:\n%s\nIt prints:\n' "$command" "$expected"
    cat "$out"
    return 1
  fi
  rm "$out"
}

run_page() {
  local line command="" expected="" kind="" on="" block="" commands=0
  finish() {
    [ -z "$command" ] || { run_command "$command" "${expected%$'\n'}"; commands=$((commands + 1)); }
    command="" expected=""
  }
  while IFS= read -r line <&3; do
    if [[ $line == '```'* ]]; then
      finish
      [ -z "$on" ] || [ "$kind" != diff ] || change <<< "$block"
      if [ -n "$on" ]; then on=""; else on=1; fi
      kind=${line#\`\`\`} block=""
    elif [[ -n $on && $line == '$ '* ]]; then
      finish
      command=${line#\$ }
    elif [ -n "$on" ]; then
      expected+=$line$'\n' block+=$line$'\n'
    fi
  done 3< "$1"
  echo "ran $commands commands of ${1##*/}"
  [ "$commands" -gt 0 ]
}

if [ "$1" = --run ]; then
  page=$(realpath "$2") build=$(realpath "$3")
  HOME=$(mktemp -d)
  trap 'rm -rf "$HOME"' EXIT
  cd "$HOME"
  ln -s "$build" build
  run_page "$page"
  exit
fi
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
