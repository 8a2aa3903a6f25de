"""Imports cupti-python, and asks a CUPTI library its version. Subscribes to nothing."""

import ctypes
import importlib
import json
import sys
from typing import Any


def answer(library: str) -> dict[str, Any]:
    """Why cupti-python cannot be imported or the library not loaded; the library's version.

    Without a driver the library does not answer: "version" is then left out.
    """
    told: dict[str, Any] = {}
    if library:
        try:
            version = ctypes.c_uint32()
            if ctypes.CDLL(library).cuptiGetVersion(ctypes.byref(version)) == 0:
                told["version"] = version.value
        except (OSError, AttributeError) as error:
            told["library"] = str(error)
    try:
        importlib.import_module("cupti.cupti")
    except Exception as error:
        told["package"] = f"{type(error).__name__}: {error}"
    return told


if __name__ == "__main__":
    print(json.dumps(answer("".join(sys.argv[1:]))))
