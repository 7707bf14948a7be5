#!/usr/bin/env bash
# Checks the structure of the tree: what is at the top level, who includes whom, files of at most 500 lines,
# lines of at most 110 columns, a README in every folder, no unprinted random seed in a test. Prints each
# violation as file:line: sentence; exits 1 if there is one.
# usage: tests/check_includes.sh [folder of the repository]
set -euo pipefail
export LC_ALL=C

# folder: the folders (or single files) that it may include, subfolders included. A file is subject to the
# line with the longest folder that contains it. Layers call ops, never kernels; only tests may include tests.
table='
framework/core:         framework/core
framework/backend:      framework/core framework/backend
framework/backend/cpu:  framework/core framework/backend
framework/backend/cuda: framework/core framework/backend
framework/autograd:     framework/core framework/backend framework/autograd
framework/ops:          framework/core framework/backend framework/autograd framework/ops
framework/checks:       framework/core framework/backend framework/autograd framework/ops framework/checks
framework/config:       framework/core framework/config
framework/io:           framework/core framework/io
framework/comm:         framework/core framework/comm
layers:                 framework/core framework/autograd framework/ops framework/checks framework/config
layers:                 framework/io framework/comm layers
data:                   framework data
trainers:               framework layers data trainers
tools:                  framework layers data trainers tools
tests:                  framework layers data trainers tools tests
'
# Only framework/backend and tests may include files of these folders.
private='framework/backend/cpu framework/backend/cuda'
max_lines=500
max_columns=110

cd "${1-"$(dirname "${BASH_SOURCE[0]}")/.."}"
tops=()
for top in framework layers trainers data configs tests tools; do
  if [ -d "$top" ]; then tops+=("$top"); fi
done
# The files of the project that satisfy a find expression, without leftovers of Python or an editor.
files() {
  find "${tops[@]}" \( -name __pycache__ -o -name '.?*' \) -prune -o -type f "$@" -print | sort
}
mapfile -t sources < <(
  files \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.def' \))

check_includes() {
  files | awk -v table="$table" -v private="$private" '
    function inside(path, folder) { return path == folder || index(path, folder "/") == 1 }
    function folder_of(path) { return path ~ /\// ? substr(path, 1, match(path, /\/[^\/]*$/) - 1) : "." }
    # The line of the table that a file is subject to.
    function owner(path,   folder) {
      for (folder = path; folder ~ /\//;) {
        folder = folder_of(folder)
        if (folder in allowed) return folder
      }
      return ""
    }
    function plain(path,   n, i, part, kept, out) {  # without . and ..
      n = split(path, part, "/"); kept = 0
      for (i = 1; i <= n; ++i) {
        if (part[i] == "." || part[i] == "") continue
        if (part[i] == ".." && kept > 0) --kept; else part[++kept] = part[i]
      }
      out = part[1]
      for (i = 2; i <= kept; ++i) out = out "/" part[i]
      return out
    }
    function say(sentence) { print FILENAME ":" FNR ": " sentence; failed = 1 }
    function check(target, from,   n, i, part) {
      n = split(private, part, " ")
      for (i = 1; i <= n && from != "framework/backend" && from != "tests"; ++i)
        if (inside(target, part[i]) && from != part[i])
          return say("only framework/backend may include " part[i] ", not " from ": " target)
      n = split(allowed[from], part, " ")
      for (i = 1; i <= n; ++i) if (inside(target, part[i])) return
      say(from " may not include " target "; it may include " allowed[from])
    }
    BEGIN {
      n = split(table, line, "\n")
      for (i = 1; i <= n; ++i) {
        colon = index(line[i], ":")
        if (!colon) continue
        rest = substr(line[i], colon + 1)
        sub(/^ +/, "", rest)
        folder = substr(line[i], 1, colon - 1)
        allowed[folder] = (folder in allowed ? allowed[folder] " " : "") rest
      }
    }
    FILENAME == "-" || FILENAME == "" { exists[$0] = 1; next }
    FNR == 1 {
      from = owner(FILENAME)
      if (from == "") say(folder_of(FILENAME) " has no line in the table of tests/check_includes.sh")
    }
    from != "" && /^[ \t]*#[ \t]*include[ \t]*["<]/ {
      name = $0
      sub(/^[^"<]*/, "", name)
      quoted = name ~ /^"/
      name = substr(name, 2)
      sub(/[">].*/, "", name)
      beside = plain(folder_of(FILENAME) "/" name)
      if (quoted && beside in exists) check(beside, from)
      else if (plain(name) in exists) say("write bonsai/" name)
      else if (sub(/^bonsai\//, "", name) && plain(name) in exists) check(plain(name), from)
      else if (quoted && from != "tests")
        say("no file " name " in the project; write <" name "> if it is not part of it")
    }
    END { exit failed }' - "${sources[@]}"
}

check_lengths() {
  local file lines status=0
  while read -r file; do
    lines=$(awk 'END { print NR }' "$file")
    if [ "$lines" -gt "$max_lines" ]; then
      echo "$file:$lines: the file has $lines lines, more than $max_lines; split it"
      status=1
    fi
  done < <(files ! -path 'tests/fixtures/*' \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \
    -o -name '*.def' -o -name '*.py' -o -name '*.sh' -o -name '*.cmake' -o -name '*.md' \
    -o -name CMakeLists.txt -o ! -name '*.*' \))
  return "$status"
}

# Lines of at most 110 characters in sources and prose. Tables, lines with a URL, blocks between <!-- ... -->
# comments (generated), and blocks of a README without a language (output) may have longer ones.
check_columns() {
  { files ! -path 'tests/fixtures/*' ! -path 'tests/fuzz/corpus/*' ! -path tests/mutants
    ls -- *.md CMakeLists.txt docs/*.md; } |
    xargs -d '\n' awk -v max="$max_columns" '
    FNR == 1 { markdown = FILENAME ~ /\.md$/; block = output = generated = 0 }
    markdown && /^ *```/ { block = !block; output = block && /^ *```$/ }
    markdown && /^<!-- / { generated = !/^<!-- end / }
    {
      line = $0
      gsub(/[\200-\277]/, "", line)  # the second and later bytes of a character
      if (length(line) <= max || line ~ /https?:\/\//) next
      if (markdown && (line ~ /^\|/ || output || generated)) next
      print FILENAME ":" FNR ": the line has " length(line) " characters, more than " max "; wrap it"
      failed = 1
    }
    END { exit failed }'
}

check_readmes() {
  local folder status=0
  while read -r folder; do
    if [ ! -e "$folder/README.md" ]; then
      echo "$folder/README.md:1: there is no README; say what is here, what it may include, how to add more"
      status=1
    fi
  done < <(files ! -path 'tests/fixtures/*/*' ! -path 'tests/fuzz/corpus/*' | sed 's|/[^/]*$||' | sort -u)
  return "$status"
}

# A randomised test must print its seed, so that a failure can be reproduced.
check_seeds() {
  files -path 'tests/*' \( -name '*.h' -o -name '*.cpp' \) ! -path tests/random_seed.h | xargs -d '\n' awk '
    /random_device|getrandom|srand\(|time\(nullptr\)/ {
      print FILENAME ":" FNR ": an unprinted random seed; use tests/random_seed.h"
      failed = 1
    }
    END { exit failed }'
}

check_top_level() {
  local name status=0
  for name in *; do
    case $name in
      CMakeLists.txt | framework | layers | trainers | configs | data | tests | tools | README.md) ;;
      LICENSE | CONTRIBUTING.md | CHANGELOG.md | CMakePresets.json | docs | build* | runs) ;;
      *)
        echo "$name:1: does not belong at the top level; move it into a folder or remove it"
        status=1
        ;;
    esac
  done
  return "$status"
}

status=0
check_top_level || status=1
check_includes || status=1
check_lengths || status=1
check_columns || status=1
check_readmes || status=1
check_seeds || status=1
if [ "$status" -eq 0 ]; then
  echo "${#sources[@]} source files: every include is allowed, no file or line is too long," \
    "every folder has a README, every seed is printed"
fi
exit "$status"
