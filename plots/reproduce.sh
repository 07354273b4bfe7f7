#!/usr/bin/env bash
# From the measured profiles to the figures: installs what is missing, builds kvsim, runs the sweeps, draws.
#   bash plots/reproduce.sh
# Results go to results/, figures to figures/. KVSIM_BUILD names the build folder (default: build).
set -euo pipefail
cd "$(dirname "$0")/.."
source tests/setup.sh

install_packages
python=$(python_with_matplotlib)
build=${KVSIM_BUILD:-build}
configure_kvsim "$build"
cmake --build "$build" --target kvsim >&2

"$build/kvsim" sweep configs/sweeps/buffer_length.yaml >&2
"$python" plots/buffer_length.py --runs results/buffer_length/runs.csv --profile profiles/h200 --out figures
"$python" plots/kernel_latency.py --profile profiles/h200 --out figures
"$build/kvsim" validate profiles/h200 --rows results/h200_rows.csv >&2
"$python" plots/roofline.py --profile profiles/h200 --rows results/h200_rows.csv --out figures

for q in 1 3 5; do  # SGLang: radix cache off, on, on with an extra buffer
  "$build/kvsim" capacity configs/experiments/steady_decode.yaml --compare --json --tokens 2048 \
    --drafts 0,1,2,3,4,5,6,7,8 --set engine.memory.slots_per_request=$q > results/capacity_q$q.json
done
"$python" plots/capacity.py results/capacity_q{1,3,5}.json --out figures
