#!/usr/bin/env bash
# What each of SGLang's fixes brings on an H200, with gates and recordings, in one engine start: about
# nine minutes. A file of before goes on with one start more, which intervals need three of.
#   benchmarks/h200_sglang_ablate.sh OUT_FOLDER [cumulative|alone|leave-one-out [FILE.json STARTS]]
# Other passes under another name; one that needs a restart takes four engine starts with its gates:
#   PASSES=replay-ssm NAME=ablate-sglang-replay-h200 benchmarks/h200_sglang_ablate.sh OUT_FOLDER alone
set -u
out=$1
ladder=${2:-cumulative}
name=ablate-sglang-h200
[ "$ladder" = cumulative ] || name=$name-$ladder
name=${NAME:-$name}
file=$out/$name.json
if [ $# -gt 2 ]; then
  cp "$3" "$file"
  way=(--resume "$file" --starts "$4")
else
  passes=seq-len-sync,draft-extend-graph,pdl-chain,router-moe,bf16-heads,staged-kda,verify-attention
  passes=${PASSES:-$passes}
  way=(--target sglang --ladder "$ladder" --passes "$passes" --starts 1 --rounds 4 --steps 100)
  way+=(--out "$file" --force)
fi
timeout -s INT -k 20 560 python3 -m bubblescope ablate "${way[@]}" --recordings "/tmp/$name-rows" \
  >"$out/$name.txt" 2>"$out/$name.err"
echo "ablate: exit $?"
cat "$out/$name.txt"
tail -5 "$out/$name.err"
tar -C /tmp -cf "$out/$name-rows.tar" "$name-rows"
