#!/bin/sh
# Formatting, static analysis, typing and house rules; prints every finding, fails at the end.
# usage: lint.sh BIN_FOLDER BUILD_FOLDER JOBS
set -u
bin=$1 build=$2 jobs=$3 status=0
check() {
  printf '== %s\n' "$1"
  shift
  "$@" || status=1
}
sources() {
  git ls-files -co --exclude-standard "$@" | while read -r f; do [ -f "$f" ] && echo "$f"; done
}
format() { sources '*.c' '*.h' '*.cpp' | xargs "$bin/clang-format" --dry-run -Werror; }
analyse() {
  [ -x "$bin/clang-tidy" ] || { echo "clang-tidy is not installed: skipped"; return 0; }
  sources 'core/*.c' 'tools/*.c' | xargs -P "$jobs" -n 4 "$bin/clang-tidy" -p "$build" --quiet
}
check "house rules" "$bin/python" scripts/tidy.py
check "rooms" "$bin/python" scripts/rooms.py
check "clang-format" format
check "ruff format" "$bin/ruff" format --check .
check "ruff" "$bin/ruff" check .
check "mypy" "$bin/mypy"
check "clang-tidy" analyse
exit $status
