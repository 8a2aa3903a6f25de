"""The process that holds the engine: starts it, generates when told to, and ends with it.

Orders come as lines of JSON on standard input, answers go the same way through a file descriptor
of their own, since SGLang writes to standard output.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import Any


def main(answers: int) -> None:
    """Obey orders until there are no more."""
    with os.fdopen(answers, "w") as out:

        def answer(**said: Any) -> None:
            out.write(json.dumps(said) + "\n")
            out.flush()

        engine = None
        try:
            order = json.loads(sys.stdin.readline())
            import sglang

            arguments = order["arguments"]
            engine = sglang.Engine(**arguments)
            answer(ok=True, sglang=sglang.__version__, sockets=_sockets(engine))
            for line in sys.stdin:
                order = json.loads(line)
                if order["do"] == "generate" and not arguments.get("disable_radix_cache"):
                    _forget(engine)
                try:
                    answer(ok=True, **_obey(engine, order))
                except AssertionError as error:  # what a called method raised: the engine runs on
                    traceback.print_exc()
                    answer(ok=False, problem=str(error))
        except Exception as error:
            traceback.print_exc()
            answer(ok=False, ended=True, problem=f"{type(error).__name__}: {error}")
        finally:
            if engine is not None:
                engine.shutdown()


def _forget(engine: Any) -> None:
    """Make every generation compute its prompt, also where an earlier one had the same.

    What it is compared with did, and its experts are counted from what it computes. The last step
    of the generation before may still be under way.
    """
    for _ in range(100):
        if engine.flush_cache().success:
            return
        time.sleep(0.05)
    raise RuntimeError("the prefix cache is not flushed: other requests are running")


def _sockets(engine: Any) -> list[str]:
    """Files in the temporary folder that SGLang makes for its sockets, and leaves there."""
    ports = getattr(engine, "port_args", None)
    named = (getattr(ports, name, None) for name in dir(ports) if name.endswith("ipc_name"))
    return [x.removeprefix("ipc://") for x in named if isinstance(x, str) and x.startswith("ipc:/")]


def _obey(engine: Any, order: dict[str, Any]) -> dict[str, Any]:
    """One order: "call" a method of the scheduler, or "generate"."""
    if order["do"] == "call":
        engine.collective_rpc(order["method"], **order["parameters"])
        return {}
    made = engine.generate(
        input_ids=order["prompt"],
        sampling_params={"temperature": 0, "max_new_tokens": order["tokens"], "ignore_eos": True},
    )
    meta = made["meta_info"]
    kept = ("completion_tokens", "spec_accept_length", "e2e_latency", "spec_verify_ct")
    return {"ids": made["output_ids"], "meta": {k: meta[k] for k in kept if k in meta}}


if __name__ == "__main__":
    main(int(sys.argv[1]))
