"""Imports torch and asks whether it sees a device. Makes no tensor."""

import importlib
import json
from typing import Any


def answer() -> dict[str, Any]:
    """Its version, what it was built for, and the devices that it sees."""
    torch: Any = importlib.import_module("torch")
    available = bool(torch.cuda.is_available())
    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "available": available,
        "devices": torch.cuda.device_count() if available else 0,
    }


if __name__ == "__main__":
    print(json.dumps(answer()))
