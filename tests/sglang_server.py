"""SGLang's HTTP server as release 0.5.23 answers, whose profiler writes what it is given."""

from __future__ import annotations

import gzip
import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

STEP_S = 0.002
INFO = {
    "model_path": "inclusionAI/Ling-3.0-flash",
    "tp_size": 1,
    "dp_size": 1,
    "pp_size": 1,
    "speculative_algorithm": "EAGLE",
    "speculative_num_draft_tokens": 6,
    "attention_backend": "triton",
    "api_key": "secret-key",
    "launch_command": "python -m sglang.launch_server --api-key secret-key",
    "version": "0.5.23",
    "max_req_input_len": 16_000,
    "internal_states": [{"world_size": 1, "avg_spec_accept_length": 3.21}],
}


class FakeServer:
    """Decodes while there are requests, and profiles as the scheduler of 0.5.23 does.

    files: what each rank writes. busy: requests of others. key: that it asks for. missing: paths
    that it does not have. elsewhere: it writes on a machine of its own. fails: the profiler does
    not start. gives: a request ends after so many tokens.
    """

    def __init__(self, files: list[bytes], **changed: Any) -> None:
        self.files = files
        self.info: dict[str, Any] = INFO | changed.pop("info", {})
        self.busy: int = changed.pop("busy", 0)
        self.key: str = changed.pop("key", "")
        self.missing: set[str] = changed.pop("missing", set())
        self.elsewhere: bool = changed.pop("elsewhere", False)
        self.fails: bool = changed.pop("fails", False)
        self.gives: int = changed.pop("gives", 1 << 30)
        assert not changed
        self.log: list[tuple[str, dict[str, Any]]] = []
        self.steps_at_start = -1
        self._lock = threading.Lock()
        self._order: dict[str, Any] | None = None
        self._left = self._requests = self._steps = 0
        self._over = threading.Event()

    @property
    def profiling(self) -> bool:
        return self._order is not None

    @property
    def requests(self) -> int:
        return self._requests

    @contextmanager
    def __call__(self):
        served = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        threads = [threading.Thread(target=served.serve_forever, args=[0.01])]
        threads += [threading.Thread(target=self._loop)]
        for thread in threads:
            thread.start()
        try:
            yield f"http://127.0.0.1:{served.server_port}"
        finally:
            self._over.set()
            served.shutdown()
            served.server_close()
            for thread in threads:
                thread.join()

    def _loop(self) -> None:
        while not self._over.wait(STEP_S):
            with self._lock:
                if not self._requests + self.busy:
                    continue
                self._steps += 1
                if self._order is not None:
                    self._left -= 1
                    if not self._left:
                        self._write()

    def _write(self) -> None:
        order, self._order = self._order, None
        assert order is not None
        if self.elsewhere:
            return
        for rank, data in enumerate(self.files):
            Path(order["output_dir"], f"1796.25-TP-{rank}.trace.json.gz").write_bytes(data)

    def start(self, order: dict[str, Any]) -> int:
        with self._lock:
            if self.fails or self._order is not None:
                return 500
            assert order["activities"] == ["CPU", "GPU"]
            assert not order.get("profile_by_stage")
            self._order, self._left = order, order["num_steps"] + 1
            self.steps_at_start = self._steps
            return 200

    def stop(self) -> int:
        with self._lock:
            if self._order is None:
                return 500
            self._write()
            return 200

    def generate(self, body: dict[str, Any], send: Callable[[bytes], object]) -> None:
        limit = min(body["sampling_params"]["max_new_tokens"], self.gives)
        with self._lock:
            self._requests += 1
        tokens = 1
        try:
            while not self._over.is_set():
                said = {"meta_info": {"id": "x", "completion_tokens": tokens}}
                send(b"data: " + json.dumps(said).encode() + b"\n\n")
                if tokens >= limit:
                    break
                time.sleep(STEP_S)
                tokens = min(tokens + 3, limit)
            send(b"data: [DONE]\n\n")
        except OSError:
            pass  # the client left
        finally:
            with self._lock:
                self._requests -= 1


def _handler(server: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._any({})

        def do_POST(self) -> None:
            self._any(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _any(self, body: dict[str, Any]) -> None:
            path = self.path.partition("?")[0]
            server.log.append((path, body))
            if server.key and self.headers["Authorization"] != f"Bearer {server.key}":
                self._say(401, {"error": "Unauthorized"})
            elif path in server.missing:
                self._say(404, {"detail": "Not Found"})
            elif path in ("/server_info", "/get_server_info"):
                self._say(200, server.info)
            elif path == "/v1/loads":
                count = server.busy + server.requests
                self._say(200, {"loads": [{"num_running_reqs": count, "num_waiting_reqs": 0}]})
            elif path == "/start_profile":
                self._say(server.start(body), "Start profiling.")
            elif path == "/stop_profile":
                self._say(server.stop(), "Stop profiling.")
            elif path == "/generate":
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                server.generate(body, self.wfile.write)
            else:
                self._say(404, {"detail": "Not Found"})

        def _say(self, status: int, said: Any) -> None:
            data = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_words: object) -> None:
            pass

    return Handler


def profile(events: list[dict[str, Any]], rank: int = 0, ranks: int = 1) -> bytes:
    """Events as Kineto's file of a rank."""
    document = {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
        "baseTimeNanoseconds": 1_796_000_000_000_000_000,
        "deviceProperties": [{"id": rank, "name": "NVIDIA H200", "totalGlobalMem": 1 << 37}],
        "traceEvents": [
            e if e["cat"] != "kernel" else e | {"args": e["args"] | {"device": rank}}
            for e in events
        ],
        "pid": os.getpid(),
    }
    return gzip.compress(json.dumps(document).encode())
