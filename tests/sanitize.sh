#!/usr/bin/env bash
# Builds all but the CUDA parts with g++ under AddressSanitizer and UndefinedBehaviorSanitizer and runs all tests, then
# builds with clang++, warnings as errors: bash tests/sanitize.sh [ctest options...]. Twice the time of tests/run.sh, so it
# is run by hand.
set -euo pipefail
cd "$(dirname "$0")/.."
source tests/setup.sh

install_packages
export KVSIM_CMAKE_OPTIONS="-DKVSIM_CUDA=OFF -DKVSIM_TESTS=ON"
command -v clang++ >/dev/null || { echo "No clang++ (package clang)" >&2; exit 2; }

# Warnings are no errors here: g++ sees uninitialised members in instrumented code of its own library.
# -O1: half the time to build, and a stack that still reads well.
configure_kvsim build-sanitize -DKVSIM_SANITIZE=address,undefined "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -g1"
cmake --build build-sanitize
ctest --test-dir build-sanitize --output-on-failure -j2 "$@"

configure_kvsim build-clang -DKVSIM_WERROR=ON -DCMAKE_CXX_COMPILER=clang++ "-DCMAKE_CXX_FLAGS_RELEASE=-O0"
cmake --build build-clang
