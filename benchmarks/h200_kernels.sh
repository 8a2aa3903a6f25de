#!/usr/bin/env bash
# What `bubblescope kernels` shows on an H200: a few layers first, then all 42; nsight-python's
# durations beside the recording's, and ncu's DRAM throughput. About four minutes.
#   benchmarks/h200_kernels.sh OUT_FOLDER
# All that was written is in OUT_FOLDER/kernels.tgz.
set -u
out=$(mktemp -d)
trap 'tar -C "$out" -czf "$1/kernels.tgz" .' EXIT
kernels="python3 -m bubblescope kernels ling --device cuda"
small="--layers 6 --step 20 --steps 5"
say() {
  name=$1
  limit=$2
  shift 2
  SECONDS=0
  timeout "$limit" "$@" >"$out/$name" 2>"$out/$name.err"
  echo "== $name: exit $?, $SECONDS s"
  head -c 3000 "$out/$name"
  tail -n 3 "$out/$name.err"
}

ncu --version 2>&1 | tail -n 2
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader

# What the measuring processes themselves answer: raw, for whoever reads this later.
cat >"$out/asked.json" <<JSON
{"way": "cupti", "run": {"device": "cuda", "layers": 6, "step": 5, "steps": 3}}
JSON
say child-nsight.txt 40 python3 -m bubblescope.kernels.child "$out/asked.json" "$out/answer.json"
head -c 600 "$out/answer.json"
echo
sed 's/cupti/steps/' "$out/asked.json" >"$out/asked-steps.json"
python3 - "$out" >"$out/ncu-command.sh" <<'PYTHON'
import shlex
import sys
from pathlib import Path

from bubblescope.kernels import ncu

out = Path(sys.argv[1])
program = ["python3", "-m", "bubblescope.kernels.child"]
program += [str(out / "asked-steps.json"), str(out / "answer-steps.json")]
functions = ["vectorized_gather_kernel", "gatherTopK", "elementwise_kernel"]
print(shlex.join(ncu.command(ncu.find().path, functions, 20, out / "ncu.csv", program)))
PYTHON
say child-ncu.txt 40 bash "$out/ncu-command.sh"
head -n 12 "$out/ncu.csv" 2>&1 | cut -c 1-400

say small.txt 30 $kernels $small --no-nsight
say small-nsight.txt 60 $kernels $small
say small-dram.txt 50 $kernels $small --no-nsight --dram --dram-launches 100
say full-nsight.json 110 $kernels --step 50 --steps 5 --json
say full-dram.txt 100 $kernels --step 50 --steps 5 --no-nsight --dram --dram-launches 300 --top 15
python3 - "$out/full-nsight.json" <<'PYTHON'
import json
import sys
from pathlib import Path

text = Path(sys.argv[1]).read_text()
if text:
    told = json.loads(text)
    print({k: v for k, v in told.items() if k not in ("kernels", "health", "warnings")})
    for row in told["kernels"][:15]:
        nsight = row["nsight"] or {"mean_ns": 0, "calls_per_step": 0}
        print(
            f"{row['mean_ns']:8} {nsight['mean_ns']:8} ns  {row['calls_per_step']:6.1f} "
            f"{nsight['calls_per_step']:6.1f}  {row['short'][:70]}"
        )
PYTHON
timeout 60 python3 -m pytest -q -p no:cacheprovider -m gpu tests/test_kernels_gpu.py 2>&1 |
  tee "$out/pytest.txt" | tail -n 8
