#!/usr/bin/env bash
# Builds everything and runs all tests: bash tests/run.sh [ctest options...]
# Installs missing packages (root or sudo). Without a CUDA toolkit the GPU parts are left out; with one they are built,
# and their tests run where a device is present. KVSIM_BUILD names the build folder (default: build).
set -euo pipefail
cd "$(dirname "$0")/.."
source tests/setup.sh

install_packages
build=${KVSIM_BUILD:-build}
configure_kvsim "$build" -DKVSIM_CUDA=AUTO -DKVSIM_TESTS=ON
cmake --build "$build" --target all all_verify_interface_header_sets
ctest --test-dir "$build" --output-on-failure -j2 "$@"
