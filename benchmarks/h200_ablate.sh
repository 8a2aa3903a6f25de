#!/usr/bin/env bash
# What `bubblescope ablate` shows on an H200: all 42 layers, 3 starts, 5 rounds of 200 steps, gates,
# recordings and floor; then the test that needs a GPU. About seven minutes.
#   benchmarks/h200_ablate.sh OUT_FOLDER
# Cut off, it goes on with: bubblescope ablate --resume OUT_FOLDER/ablate-ling-h200.json
set -u
out=$1
timeout 540 python3 -m bubblescope ablate --target ling --device cuda \
  --out "$out/ablate-ling-h200.json" --force >"$out/ablate.txt"
echo "ablate: exit $?"
cat "$out/ablate.txt"
timeout 200 python3 -m pytest -q -p no:cacheprovider -m gpu tests/test_ablate_gpu.py
