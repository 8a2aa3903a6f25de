#!/usr/bin/env bash
# On an H200, in one call: the 42-layer loop recorded with and without the pass, a program of PyTorch's
# own, doctor, and all tests that need a GPU.
#   benchmarks/h200_trace.sh OUT_FOLDER
set -u
out=$1
bubblescope="python3 -m bubblescope"
for way in base seq-len-sync; do
  passes=""
  [ "$way" = base ] || passes="--passes $way"
  timeout 100 $bubblescope trace --step 200 --device cuda $passes --force \
    -o "$out/ling3-rank-h200-$way.bscope" >"$out/$way.txt" 2>&1
  echo "$way: exit $?"
  head -40 "$out/$way.txt"
done
timeout 60 $bubblescope trace --step 200 --device cuda --level node --force \
  -o "$out/ling3-rank-h200-node.bscope" >"$out/node.txt" 2>&1
echo "node: exit $?"
head -30 "$out/node.txt"
timeout 60 $bubblescope trace --step 200 -- python3 tests/gpu_program.py 300 >"$out/program.txt" 2>&1
echo "program: exit $?"
head -30 "$out/program.txt"
# A program that is not ours: an example that comes with PyTorch.
timeout 120 $bubblescope trace --step 20 --force -o "$out/torch-example-h200.bscope" -- \
  python3 -m torch.utils.benchmark.examples.spectral_ops_fuzz_test --device cuda --bench fft_real \
  --samples 2 >"$out/torch-example.txt" 2>&1
echo "torch's example: exit $?"
tail -40 "$out/torch-example.txt"
timeout 40 $bubblescope doctor >"$out/doctor.txt" 2>&1
head -3 "$out/doctor.txt"
timeout 400 python3 -m pytest -q -p no:cacheprovider -m gpu tests 2>&1 | tee "$out/pytest.txt" | tail -8
