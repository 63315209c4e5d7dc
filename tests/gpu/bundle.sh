#!/bin/bash
# Packs what tests/gpu/run.sh needs on a machine that has a GPU and nothing of ours: programs and tests (stripped), the libraries
# that they are linked with (not the C and C++ libraries, nor CUDA's), scripts, ONNX's cases, the reference networks.
#   tests/gpu/bundle.sh [--build DIR] [--shared DIR] OUT.tar.gz      then there: tar -xzf OUT.tar.gz && troupe-gpu/tests/gpu/run.sh
# A bundle that is larger than 64 MiB is an error (exit code 1).
set -euo pipefail
cd "$(dirname "$0")/../.."
build=build/release shared=${TROUPE_SHARED_DIR:-../shared} out=
while (($#)); do
  case $1 in
    --build) build=$2; shift ;;
    --shared) shared=$2; shift ;;
    -*) echo "bundle.sh: no option '$1'; the head of this file lists them" >&2; exit 2 ;;
    *) out=$1 ;;
  esac
  shift
done
[[ -n $out ]] || { echo "bundle.sh: say where it shall go, for instance build/troupe-gpu.tar.gz" >&2; exit 2; }
cases=${TROUPE_ONNX_TESTDATA:-/usr/share/libonnx-testdata/data}
programs=(bin/{libtroupe_gpu_cuda.so,troupe-gpu-probe,troupe-gpu-worker,trouped,troupe-import,cuda_bench,device_bench,http_load}
  tests/{gpu_cuda_test,gpu_cuda_broadcast_test,gpu_cuda_conformance_test})
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/troupe-gpu
mkdir -p "$root"/build/release/{bin,tests,lib} "$root"/{bench,examples,tests/gpu,tests/e2e}
for file in "${programs[@]}"; do
  [[ -e $build/$file ]] || { echo "bundle.sh: $build/$file is not there (make build, where a CUDA toolkit is)" >&2; exit 1; }
  strip --strip-unneeded -o "$root/build/release/$file" "$build/$file"
done
# Libraries that belong to the machine with the GPU, so that the bundle must not bring them.
system='^(linux-vdso|ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|libcuda|libnvidia|libcudnn|libcublas)[.-]'
for file in "${programs[@]}"; do ldd "$build/$file"; done | awk '$3 ~ /^\// {print $1, $3}' | sort -u |
  while read -r name path; do
    [[ $name =~ $system ]] || install -m 644 "$(realpath "$path")" "$root/build/release/lib/$name"
  done
cp tests/gpu/run.sh "$root/tests/gpu/"
cp -r tests/e2e/harness "$root/tests/e2e/"
cp bench/{gpu,gpu_meter,gpu_system,report}.py "$root/bench/"
cp examples/make_models.py "$root/examples/"
if [[ -d $cases ]]; then cp -rL "$cases" "$root/onnx-cases"; else echo "bundle.sh: no ONNX cases in $cases: left out" >&2; fi
if [[ -d $build/tests/conformance/opset_cases ]]; then cp -r "$build/tests/conformance/opset_cases" "$root/opset-cases"; fi
if compgen -G "$shared/models/light_*.onnx" > /dev/null; then
  mkdir -p "$root/shared/models"
  cp "$shared"/models/light_*.onnx "$root/shared/models/"
else
  echo "bundle.sh: no reference networks in $shared/models: left out" >&2
fi
find "$root" -name __pycache__ -prune -exec rm -rf {} +
git rev-parse --short HEAD > "$root/COMMIT" 2>/dev/null || echo unknown > "$root/COMMIT"
mkdir -p "$(dirname "$out")"
tar -C "$work" --sort=name -I 'gzip -2' -cf "$out" troupe-gpu
size=$(stat -c %s "$out")
echo "$out: $((size >> 20)) MiB"
((size <= 64 << 20)) || { echo "bundle.sh: that is more than 64 MiB" >&2; exit 1; }
