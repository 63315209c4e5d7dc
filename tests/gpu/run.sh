#!/bin/bash
# Everything that needs a real GPU, on a machine that has one, in at most 8 minutes. Nothing is fetched and nothing is built: it
# takes what was built before (make build where a CUDA toolkit is), on this machine or brought along (tests/gpu/bundle.sh).
#   tests/gpu/run.sh [--dry-run] [--small] [--first] [--parts LIST] [--device cuda:N] [--build DIR] [--out DIR]
#     --dry-run   checks every prerequisite and says what would be run
#     --small     small networks and short loops: shows that it runs; its figures say nothing
#     --first     the first ten minutes on a kind of GPU that is new here: as below, with one network, and without daemons
#     --parts     only these, in this order: probe,contract,broadcasts,conformance,raw,networks,memory,shares,faults,system
#     --out       where results go (default: bench/results)
# probe         what driver, GPU and libraries can do, and what Troupe will use of it (troupe-gpu-probe): OUT/probe-<GPU>-<date>.json
# contract      the device contract, which the virtual GPU passes too, with the time of each test
# broadcasts    between GPUs, where there are two, and NCCL
# conformance   ONNX's cases and networks on the GPU's kernels (rtol 1e-3)
# the others    measurements (bench/gpu.py): a table, and OUT/<GPU>-<date>.json, which is written after each part and added to
#               by a later run of the same day; bench/gpu_page.py makes docs/gpu-results.md of it
# What a part lacks leaves that part out, and those behind it run. Time counts from the start of this script.
# Exit code: 0 all passed, 1 something failed, 3 a prerequisite is missing
set -uo pipefail
cd "$(dirname "$0")/../.."
device=cuda:0 build=build/release out=bench/results dry= small= first= parts= minutes=8
while (($#)); do
  case $1 in
    --dry-run) dry=1 ;;
    --small) small=1 ;;
    --first) first=1 minutes=10 ;;
    --parts) parts=$2; shift ;;
    --device) device=$2; shift ;;
    --build) build=$2; shift ;;
    --out) out=$2; shift ;;
    *) echo "run.sh: no option '$1'; the head of this file lists them" >&2; exit 2 ;;
  esac
  shift
done
build=$(realpath -m "$build")
# A bundle (tests/gpu/bundle.sh) brings these.
[[ -d $build/lib ]] && export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
[[ -d onnx-cases ]] && export TROUPE_ONNX_TESTDATA=$PWD/onnx-cases
[[ -d opset-cases ]] && export TROUPE_OPSET_CASES=$PWD/opset-cases
[[ -d shared/models ]] && export TROUPE_SHARED_DIR=$PWD/shared
all=probe,contract,broadcasts,conformance,raw,networks,memory,shares,faults,system
[[ -n $first && -z $parts ]] && parts=probe,contract,conformance,raw,networks,memory,shares,faults
parts=${parts:-$all}
for part in ${parts//,/ }; do
  [[ ,$all, == *,"$part",* ]] || { echo "run.sh: --parts knows no '$part'; there are $all" >&2; exit 2; }
done
missing=0
broadcasts=      # the reason when there are none
declare -A left  # the reason for which a part is left out

report() { printf '%-10s %s\n' "$1" "$2"; }
lack() { report missing "$1"; missing=$((missing + 1)); }
# Only these parts need it.
lack_for() {
  report missing "$2"
  for part in $1; do left[$part]=${left[$part]:-$2}; done
}

# The folder of a library: what the system knows, CUDA_HOME, /usr/local/cuda, an installed PyTorch, beside the build.
folder_of() {
  local known
  known=$(ldconfig -p 2>/dev/null | awk -v name="$1" '$1 == name {print $NF; exit}')
  if [[ -n $known ]]; then dirname "$known"; return 0; fi
  local folder
  for folder in ${LD_LIBRARY_PATH:+${LD_LIBRARY_PATH//:/ }} ${CUDA_HOME:+"$CUDA_HOME/lib64" "$CUDA_HOME/lib"} /usr/local/cuda/lib64 /usr/local/nvidia/lib64 \
      "$build/lib" $(python3 -c 'import site, sys; print(*site.getsitepackages(), site.getusersitepackages())' 2>/dev/null |
        tr ' ' '\n' | xargs -I{} sh -c 'ls -d {}/nvidia/*/lib {}/torch/lib 2>/dev/null'); do
    if [[ -e $folder/$1 ]]; then echo "$folder"; return 0; fi
  done
  return 1
}

# Programs that are run from here on find the library there.
found_in() {
  report found "$2"
  case :${LD_LIBRARY_PATH:-}: in *:"$1":*) ;; *) export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$1 ;; esac
}

check_machine() {
  [[ $(uname -s) == Linux ]] && report found "Linux $(uname -r)" || lack "Linux"
  if folder=$(folder_of libcuda.so.1); then found_in "$folder" "the driver: $folder/libcuda.so.1"; else lack "the driver: libcuda.so.1 (install NVIDIA's driver)"; fi
  if command -v nvidia-smi > /dev/null && gpu=$(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader -i "${device#cuda:}" 2>/dev/null); then
    report found "$device: $gpu"
  else
    lack "$device (nvidia-smi does not show it)"
  fi
  for library in libcublas.so.13 libcudnn.so.9; do
    if folder=$(folder_of $library); then
      found_in "$folder" "$folder/$library"
    else
      lack_for "contract broadcasts conformance raw networks memory shares faults system" "$library (looked in the system, CUDA_HOME, /usr/local/cuda, PyTorch, $build/lib)"
    fi
  done
  gpus=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU ')
  if ((gpus < 2)); then
    broadcasts="two GPUs are needed, there are $gpus"
  elif folder=$(folder_of libnccl.so.2); then
    found_in "$folder" "$folder/libnccl.so.2"
  else
    broadcasts="there is no libnccl.so.2"
  fi
}

check_build() {
  for file in bin/libtroupe_gpu_cuda.so bin/troupe-gpu-probe bin/troupe-gpu-worker bin/trouped bin/troupe-import bin/cuda_bench bin/device_bench \
      bin/http_load tests/gpu_cuda_test tests/gpu_cuda_broadcast_test tests/gpu_cuda_conformance_test; do
    if [[ -x $build/$file ]]; then report found "$build/$file"; else lack "$build/$file (make build, where a CUDA toolkit is)"; fi
  done
  if [[ -d ${TROUPE_ONNX_TESTDATA:-/usr/share/libonnx-testdata/data} ]]; then
    report found "ONNX's cases"
  else
    lack_for conformance "ONNX's cases (libonnx-testdata, or TROUPE_ONNX_TESTDATA)"
  fi
  python=
  for candidate in python3 /usr/bin/python3; do
    if "$candidate" -c 'import numpy, onnx' 2>/dev/null; then python=$candidate; break; fi
  done
  if [[ -n $python ]]; then report found "$python with numpy and onnx"; else
    lack_for "networks memory shares faults system" "a python3 with numpy and onnx, which makes the networks"
  fi
}

# Runs a part that is asked for: its name, and the command with at most this many seconds and what is left of all.
failed=() skipped=0
step() {
  local part=$1 name=$2 limit=$3 begun=$SECONDS
  shift 3
  [[ ,$parts, == *,"$part",* ]] || return 0
  if [[ -n ${left[$part]:-} ]]; then
    report skipped "$name: ${left[$part]}"
    [[ $part == broadcasts ]] || skipped=$((skipped + 1))  # one GPU is enough for all else
    return 0
  fi
  if [[ -n $dry ]]; then report "would run" "$name (at most $limit s): $*"; return; fi
  ((limit > minutes * 60 - SECONDS)) && limit=$((minutes * 60 - SECONDS))
  if ((limit < 1)); then failed+=("$name: out of time"); return; fi
  echo "== $name"
  timeout --kill-after=5 "$limit" "$@" || failed+=("$name")
  echo "== $name: $((SECONDS - begun)) s"
}
figures() {  # part, name, seconds, further words
  local part=$1 name=$2 limit=$3
  shift 3
  step "$part" "$name" "$limit" "${python:-python3}" bench/gpu.py --device "$device" --build "$build" --out "$out" \
    --models "$networks" --limit $((limit - 5)) --only "$part" "${measured[@]}" "$@"
}

check_machine
check_build
# For names of files: as bench/gpu.py makes it.
kind=$(nvidia-smi --query-gpu=name --format=csv,noheader -i "${device#cuda:}" 2>/dev/null | tr -cs 'A-Za-z0-9\n' - | sed 's/^-*//; s/-*$//')
kind=${kind:-${device/:/-}}
if ((missing > 0)); then
  echo "$missing prerequisites are missing"
  [[ -n $dry ]] || exit 3
fi
export TROUPE_BUILD_DIR=$build TROUPE_CUDA_DRIVER=libcuda.so.1
[[ -n $dry ]] || mkdir -p "$out"
networks=$(mktemp -d)
trap 'rm -rf "$networks"' EXIT
conformance=() measured=()
[[ -n $small ]] && conformance=(--gtest_filter='*EachDeclaredCase*') measured=(--small)
[[ -n $first && -z $small ]] && measured+=(--networks resnet50)
[[ -n $broadcasts ]] && left[broadcasts]=$broadcasts

step probe "probe" 30 "$build/bin/troupe-gpu-probe" --device "$device" --json "$out/probe-$kind-$(date +%F).json"
step contract "device contract" 50 "$build/tests/gpu_cuda_test" --gtest_print_time=1
step broadcasts "broadcasts between GPUs" 20 "$build/tests/gpu_cuda_broadcast_test"
step conformance "conformance and networks" 90 "$build/tests/gpu_cuda_conformance_test" "${conformance[@]}"
figures raw "memory and link" 30
figures networks "swaps and variants of networks" 130
figures memory "memory of functions" 30
figures shares "shares of the SMs" 40
figures faults "faults" 20
figures system "daemons" 40
if [[ -n $dry ]]; then
  ((missing + skipped == 0)) && exit 0 || exit 3
fi
if ((${#failed[@]} > 0)); then printf 'failed: %s\n' "${failed[@]}"; exit 1; fi
if ((skipped > 0)); then echo "all that ran passed; $skipped parts were left out"; exit 3; fi
echo "all passed; figures are in $out: bench/gpu_page.py puts them into docs/gpu-results.md"
