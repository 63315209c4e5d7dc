#!/bin/bash
# Runs benchmarks: prints tables, writes build/bench/AREA.json. deploy/bootstrap.sh installs what they measure against.
#   bench/run.sh AREA     AREA: all, invoke, engine
set -euo pipefail
cd "$(dirname "$0")/.."
areas=(invoke engine)
area=${1:-all}
if [[ $area != all && ! " ${areas[*]} " == *" $area "* ]]; then
  echo "bench/run.sh: no area '$area'; there are: all ${areas[*]}" >&2
  exit 2
fi
for name in "${areas[@]}"; do
  if [[ $area == all || $area == "$name" ]]; then
    echo "== $name"
    /usr/bin/python3 "bench/$name.py"
  fi
done
