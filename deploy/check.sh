#!/usr/bin/env bash
# What `make check` runs before the compiler: format, house rules, clang-tidy on the sources that changed.
# Usage: deploy/check.sh BUILD_DIR      CHECK_BASE=REV overrides what "changed" is counted from.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1

echo "check: format"
git ls-files '*.hpp' '*.cpp' '*.cu' | xargs -r clang-format --dry-run -Werror

echo "check: house rules"
python3 tests/architecture/rules.py --self-test
python3 tests/architecture/rules.py .
python3 tests/architecture/names.py --self-test
python3 tests/architecture/names.py .
python3 tests/architecture/figures.py --self-test
python3 tests/architecture/figures.py .
# The commits before this one were made without the rule.
first=$(git log --format=%H --grep='^tests: let a rule judge names of files and subjects$' -n 1 2>/dev/null || true)
[ -z "$first" ] || git log --format=%s "$first..HEAD" | python3 tests/architecture/names.py --subjects

# On a branch all sources that it changes are checked, on main those of the last commit, without history none.
base=${CHECK_BASE:-}
if [ -z "$base" ]; then
  base=$(git merge-base HEAD main 2>/dev/null || true)
  [ -n "$base" ] && [ "$base" != "$(git rev-parse HEAD)" ] || base=$(git rev-parse -q --verify HEAD~1 || true)
fi
[ -n "$base" ] || { echo "check: no earlier commit to compare with; clang-tidy skipped"; exit 0; }
mapfile -t changed < <(git diff --name-only --diff-filter=d "$base" -- '*.cpp' | grep -vE '^(tests|bench)/' || true)
if [ "${#changed[@]}" -eq 0 ]; then
  echo "check: no changed sources for clang-tidy"
else
  echo "check: clang-tidy on ${#changed[@]} changed sources"
  python3 deploy/tidy_commands.py "$build"
  printf "%s\n" "${changed[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy -p "$build/tidy" --quiet
fi
