#!/bin/bash
# A whole cluster on this machine: real models, a workflow, bursty load, a killed GPU worker. See deploy/demo/.
#   deploy/demo.sh [--keep] [--bin DIRECTORY]
set -euo pipefail
cd "$(dirname "$0")/.."
# Debian's Python, which has numpy; another one in PATH may not. -u: progress lines appear when they are written.
exec /usr/bin/python3 -u deploy/demo/demo.py "$@"
