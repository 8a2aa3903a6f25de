# Source this on a machine without a network, in the repository's root: unpacks what h200_prepare.sh
# packed, and what is beside it, and puts it on PYTHONPATH.
#   . benchmarks/h200_env.sh .h200
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
for packed in "$1"/*.tar.xz; do
  unpacked=/tmp/h200/$(basename "$packed" .tar.xz)
  if [ ! -d "$unpacked" ]; then
    mkdir -p "$unpacked"
    tar -C "$unpacked" -xJf "$packed"
  fi
  PYTHONPATH=$PYTHONPATH:$unpacked
done
export SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK=1 HF_HUB_OFFLINE=1
export TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-/tmp/h200/triton}
