#!/usr/bin/env bash
# Installs with apt the packages that Troupe needs, and says what it does. It may run again: installed packages stay as they are.
# Debian 12 is what the project is built and tested on; Ubuntu 24.04 is best effort. A CUDA toolkit is detected, never
# required. Each purpose includes the ones before it, except that fuzz, bench and deploy include only build.
#   deploy/bootstrap.sh [--check] [build|test|fuzz|bench|deploy]
#     build   compiles everything and runs the demo and the examples
#     test    every test, and `make check` (the default)
#     fuzz    the fuzz targets, which clang compiles
#     bench   the baselines that the benchmarks measure against
#     deploy  Ansible, and the hosts of `make test-deploy`
#   --check   only says what is missing; exit 1 if anything is
set -euo pipefail

build_packages=(
  build-essential cmake ninja-build ccache git
  libcaf-dev                              # actors
  libprotobuf-dev protobuf-compiler       # messages
  librocksdb-dev                          # metadata
  libucx-dev                              # bytes between machines
  libonnx-dev                             # models
  libdnnl-dev libgomp1                    # CPU kernels
  libseccomp-dev                          # the jail of imports and workers
  libsystemd-dev                          # tells systemd that a daemon serves and lives
  libboost1.81-dev libboost-json1.81-dev  # HTTP and JSON
  libabsl-dev libssl-dev libspdlog-dev libcli11-dev libyaml-cpp-dev libedit-dev zlib1g-dev prometheus-cpp-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  python3 python3-numpy python3-onnx      # the demo and the examples
  curl procps
  file                                    # `make package`
)
test_packages=(
  libonnx-testdata                        # conformance tests
  clang-format clang-tidy                 # `make check`
  lld                                     # links the tests
  clang-16 libclang-rt-16-dev libomp-16-dev llvm-16  # the sanitizers' build, in half of GCC's time
  chromium chromium-driver                # the console's test
  jq openssl                              # the end-to-end tests
  iproute2 nftables util-linux            # networks of the chaos tests
  prometheus                              # promtool: the tests check each page of metrics with it
)
fuzz_packages=(clang-16 libclang-rt-16-dev libomp-16-dev llvm-16)  # compiler, libFuzzer and ASan, OpenMP, symbols
bench_packages=(python3-torch nginx-light ucx-utils)               # what `make bench` measures against

deploy_packages=(
  ansible-core openssh-client python3-yaml  # playbooks, and how they reach hosts
  systemd-container mmdebstrap iproute2 util-linux  # hosts that are made on this machine
  lintian man-db zsh fish                 # what judges packages, man pages and completion
)

say() { printf 'bootstrap: %s\n' "$*"; }

missing() {
  local package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || printf '%s\n' "$package"
  done
}

check=no
purpose=test
for word in "$@"; do
  case "$word" in
    --check) check=yes ;;
    build | test | fuzz | bench | deploy) purpose=$word ;;
    *) say "'$word' is not a purpose: write build, test, fuzz, bench or deploy"; exit 2 ;;
  esac
done
wanted=("${build_packages[@]}")
case "$purpose" in
  test) wanted+=("${test_packages[@]}") ;;
  fuzz) wanted+=("${fuzz_packages[@]}") ;;
  bench) wanted+=("${bench_packages[@]}") ;;
  deploy) wanted+=("${deploy_packages[@]}") ;;
esac
mapfile -t absent < <(missing "${wanted[@]}")

if [ -x /usr/local/cuda/bin/nvcc ] || command -v nvcc >/dev/null; then
  say "CUDA toolkit found; GPU plug-ins can be built"
else
  say "no CUDA toolkit: everything runs on virtual GPUs"
fi

if [ "${#absent[@]}" -eq 0 ]; then
  say "all ${#wanted[@]} packages for $purpose are installed"
  exit 0
fi
say "missing: ${absent[*]}"
[ "$check" = yes ] && exit 1

if ! command -v apt-get >/dev/null; then
  say "this is not Debian or Ubuntu: install the packages above with your own package manager"
  exit 2
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { say "run as root, or install sudo"; exit 2; }
  sudo=(sudo)
fi
say "refreshing the package lists"
"${sudo[@]}" apt-get update -qq
say "installing ${#absent[@]} packages"
# Packages that are only yardsticks or checkers bring services (nginx, prometheus), which must not start by themselves.
policy=/usr/sbin/policy-rc.d
made_policy=no
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" >/dev/null
  "${sudo[@]}" chmod +x "$policy"
  made_policy=yes
fi
status=0
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${absent[@]}" || status=$?
[ "$made_policy" = yes ] && "${sudo[@]}" rm -f "$policy"
if [ "$status" -ne 0 ]; then
  say "apt-get failed (exit $status); fix what it names above and run this again"
  exit "$status"
fi
if [ -d /run/systemd/system ]; then
  for service in nginx prometheus; do
    [[ " ${absent[*]} " == *" $service"* ]] && "${sudo[@]}" systemctl disable --quiet "$service" || true
  done
fi
say "done"
