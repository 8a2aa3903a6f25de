#!/usr/bin/env bash
# Packs what a machine without a network lacks to run the h200_*.sh scripts: an archive of unpacked
# wheels, for Python 3.12 on x86_64 unless PYTHON says otherwise. The machine has torch, triton, numpy,
# pyarrow, rich, click, pytest and hypothesis.
#   benchmarks/h200_prepare.sh .h200          # then, on the machine: . benchmarks/h200_env.sh .h200
# For the scripts that run SGLang, pack a folder that holds it, too, as .h200/sglang.tar.xz.
set -eu
out=$1 python=${PYTHON:-3.12}
wheels=$(mktemp -d) packages=$(mktemp -d)
trap 'rm -rf "$wheels" "$packages"' EXIT
platforms=()
for n in $(seq 17 39); do platforms+=(--platform "manylinux_2_${n}_x86_64"); done
python3 -m pip download -q --no-deps --only-binary=:all: --implementation cp --python-version "$python" \
  "${platforms[@]}" --platform manylinux2014_x86_64 -d "$wheels" \
  'cupti-python>=13.4' pyelftools msgspec nsight-python nvtx 'plotly>=6'
for wheel in "$wheels"/*.whl; do python3 -m zipfile -e "$wheel" "$packages"; done
# bubblescope itself is run from its checkout: only what says its version and its entry points.
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
info="$packages/bubblescope-$version.dist-info"
mkdir -p "$info"
printf 'Metadata-Version: 2.1\nName: bubblescope\nVersion: %s\n' "$version" >"$info/METADATA"
printf '[pytest11]\nbubblescope = bubblescope.pytest_plugin\n' >"$info/entry_points.txt"
mkdir -p "$out"
tar -C "$packages" -cf - . | xz -6 -T0 >"$out/packages.tar.xz"
ls -l "$out"
