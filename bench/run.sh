#!/bin/bash
# Runs benchmarks: prints tables, writes build/bench/AREA.json. deploy/bootstrap.sh installs what they measure against.
#   bench/run.sh AREA [OPTIONS]     AREA: all, invoke, engine, swap, functions, or caf-settings (which `all` leaves out)
#                                   autoscale, workflow, batching, isolation, sharing, scheduler, store, recovery, forecast, tls, house, operators, fused, networks, shared-memory, trees, models, transport, large-model, deploy, or memory (a part of swap); the options are the area's own (bench/AREA.py --help)
set -euo pipefail
cd "$(dirname "$0")/.."
areas=(invoke engine swap functions)
choices=(caf-settings autoscale workflow batching memory isolation sharing scheduler store recovery forecast tls house operators fused networks shared-memory trees models transport large-model deploy)
area=${1:-all}
shift || true
if [[ $area != all && ! " ${areas[*]} ${choices[*]} " == *" $area "* ]]; then
  echo "bench/run.sh: no area '$area'; there are: all ${areas[*]} ${choices[*]}" >&2
  exit 2
fi
for name in "${areas[@]}" "${choices[@]}"; do
  if [[ $area == "$name" || ($area == all && " ${areas[*]} " == *" $name "*) ]]; then
    echo "== $name"
    /usr/bin/python3 "bench/${name//-/_}.py" "$@"
  fi
done
