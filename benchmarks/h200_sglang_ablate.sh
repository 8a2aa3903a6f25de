#!/usr/bin/env bash
# The ladder of SGLang's fixes on an H200, with gates and recordings, in one start of each engine:
# about nine minutes. More starts, for intervals: bubblescope ablate --resume FILE --starts 3.
#   benchmarks/h200_sglang_ablate.sh OUT_FOLDER
set -u
out=$1
passes=seq-len-sync,draft-extend-graph,pdl-chain,router-moe,bf16-heads,staged-kda,verify-attention
timeout -s INT -k 20 560 python3 -m bubblescope ablate --target sglang --passes "$passes" \
  --starts 1 --rounds 4 --steps 100 --out "$out/ablate-sglang-h200.json" --force \
  --recordings /tmp/ablate-sglang-rows \
  >"$out/ablate-sglang.txt" 2>"$out/ablate-sglang.err"
echo "ablate: exit $?"
cat "$out/ablate-sglang.txt"
tar -C /tmp -cf "$out/ablate-sglang-rows.tar" ablate-sglang-rows
