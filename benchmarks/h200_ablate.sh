#!/usr/bin/env bash
# What `bubblescope ablate` shows of the embedded loop on an H200: all 42 layers, every pass, 3 starts,
# gates, recordings and floor. Cut off after nine minutes, it goes on with what is there:
#   benchmarks/h200_ablate.sh OUT_FOLDER [ablate-ling-h200.json of before]
set -u
out=$1
file=$out/ablate-ling-h200.json
if [ $# -gt 1 ]; then
  cp "$2" "$file"
  way=(--resume "$file")
else
  way=(--target ling --device cuda --rounds 4 --steps 100 --out "$file" --force)
fi
timeout -s INT -k 20 540 python3 -m bubblescope ablate "${way[@]}" --recordings /tmp/ablate-ling-rows \
  >"$out/ablate-ling.txt" 2>"$out/ablate-ling.err"
echo "ablate: exit $?"
cat "$out/ablate-ling.txt"
tail -5 "$out/ablate-ling.err"
tar -C /tmp -cf "$out/ablate-ling-rows.tar" ablate-ling-rows
