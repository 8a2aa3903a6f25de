"""Before anything imports triton: without a CUDA device its kernels are interpreted on the CPU."""

from __future__ import annotations

import os
from pathlib import Path

if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")
