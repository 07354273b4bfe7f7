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

for phases in steady arrivals; do
  "$build/kvsim" sweep "configs/sweeps/flush_$phases.yaml" >&2
done
"$python" plots/flush_phases.py --steady results/flush_steady/runs.csv --arrivals results/flush_arrivals/runs.csv --out figures

for name in speculation slo_rate; do  # batches that do not fit are told on stderr, and are the figure's ends of lines
  "$build/kvsim" sweep "configs/sweeps/$name.yaml" >&2
  "$python" "plots/$name.py" --runs "results/$name/runs.csv" --out figures
done

"$build/kvsim" sweep configs/sweeps/step_gain.yaml >&2
"$python" plots/step_gain.py --runs results/step_gain/runs.csv --out figures

rm -rf results/steps results/validation
mkdir -p results/steps results/validation
for model in qwen3.5-4b qwen3.5-27b qwen3.5-35b-a3b; do
  for batch in 1 8 32 128 256 512; do
    for form in recurrent buffered; do
      "$build/kvsim" explain configs/experiments/steady_decode.yaml --set model="$model" --set linear.form="$form" \
        --batch "$batch" --json > "results/steps/$model-$form-$batch.json"
    done
  done
done
"$python" plots/step_breakdown.py --steps results/steps --out figures

# Tables that others published are not part of the repository: what is not in KVSIM_TABLES is left out of the figure.
tables=${KVSIM_TABLES:-../shared/measurements}
for folder in h200_sxm h100_sxm l40s; do
  if [ ! -d "$tables/$folder" ]; then continue; fi
  gpu=${folder%_sxm}
  "$build/kvsim" validate "profiles/$gpu" --tables "$tables/$folder" --rows "results/validation/${gpu}_tables.csv" >&2
done
validate_steps() {  # TABLE CSV
  "$build/kvsim" validate-steps configs/experiments/steady_decode.yaml --table "$1" --rows "results/validation/$2" >&2
}
validate_steps profiles/published_steps.csv published_steps.csv
if [ -f "$tables/h200_sxm/whole_step_decode.csv" ]; then
  validate_steps "$tables/h200_sxm/whole_step_decode.csv" whole_steps.csv
fi
"$python" plots/validation.py --rows results/validation --kernels results/h200_rows.csv \
  --steps results/validation/published_steps.csv --out figures
