#!/usr/bin/env bash
# What issue "bubblescope trace" shows on an H200, in one call: the 42-layer loop with and without
# the pass, a program that is not ours, doctor, and the tests that need a GPU.
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
timeout 40 $bubblescope doctor >"$out/doctor.txt" 2>&1
head -3 "$out/doctor.txt"
timeout 200 python3 -m pytest -q -p no:cacheprovider -m gpu tests/test_ling_gpu.py \
  tests/test_capture_gpu.py tests/test_capture_command_gpu.py 2>&1 | tee "$out/pytest.txt" | tail -8
