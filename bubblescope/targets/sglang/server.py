"""A server that runs already, over HTTP: one line for whatever it answers that is no answer."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from typing import Any
from urllib.parse import urlsplit

from bubblescope.errors import BubblescopeError

ASK_S = 30.0
"""How long a server may think about what takes it no time."""
STALL_S = 120.0
"""A request of ours that gives nothing for so long is not coming."""


class Refused(BubblescopeError):
    """An answer that is an error; status: of HTTP."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status


class Server:
    """SGLang's server at a URL.

    No proxy is asked: what a profiler writes is on the machine that it runs on.
    """

    def __init__(self, url: str, key: str | None = None) -> None:
        """Nothing is asked yet.

        Args:
            url: as in http://127.0.0.1:30000.
            key: its API key, or the admin API key where it has one.

        Raises:
            BubblescopeError: no URL of a server.
        """
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            raise BubblescopeError(f"--attach {url!r}: write http://HOST:PORT")
        self.url = url.rstrip("/")
        self._host, self._port, self._path = parts.hostname, port, parts.path.rstrip("/")
        self._secure = parts.scheme == "https"
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    def get(self, path: str) -> Any:
        """What JSON is at a path.

        Raises:
            BubblescopeError: there is none.
        """
        text = self._ask("GET", path, None, ASK_S)
        try:
            return json.loads(text)
        except ValueError:
            raise BubblescopeError(
                f"{self.url}{path}: answers with something else than JSON; is it SGLang's server?"
            ) from None

    def post(self, path: str, body: dict[str, Any], seconds: float = ASK_S) -> str:
        """Send JSON; the answer's text.

        Raises:
            Refused: it answers with an error.
            BubblescopeError: it does not answer.
        """
        return self._ask("POST", path, body, seconds)

    def generate(self, body: dict[str, Any], speculates: bool) -> Generation:
        """Begin a request whose answer comes in parts.

        Args:
            body: the request.
            speculates: whether a step can give several tokens.

        Raises:
            BubblescopeError: it is refused.
        """
        body = body | {"stream": True}
        connection, sock, answer = self._send("POST", "/generate", body, STALL_S)
        return Generation(connection, sock, answer, speculates)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None, seconds: float) -> str:
        connection, _, answer = self._send(method, path, body, seconds)
        with contextlib.closing(connection):
            return self._read(path, answer)

    def _send(
        self, method: str, path: str, body: dict[str, Any] | None, seconds: float
    ) -> tuple[http.client.HTTPConnection, socket.socket, http.client.HTTPResponse]:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=ASK_S)
        try:
            connection.connect()
            sock: socket.socket = connection.sock
            sock.settimeout(seconds)
            text = None if body is None else json.dumps(body)
            connection.request(method, self._path + path, text, self._headers)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._silent(path, error) from None
        if answer.status != 200:
            with contextlib.closing(connection):
                raise self._refused(path, answer.status, self._read(path, answer))
        return connection, sock, answer

    def _read(self, path: str, answer: http.client.HTTPResponse) -> str:
        try:
            return answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise self._silent(path, error) from None

    def _silent(self, path: str, error: Exception) -> BubblescopeError:
        if isinstance(error, ConnectionRefusedError):
            return BubblescopeError(f"{self.url}: connection refused; does the server run there?")
        if isinstance(error, TimeoutError):
            return BubblescopeError(f"{self.url}{path}: no answer in time; is the server well?")
        what = str(error) or type(error).__name__
        return BubblescopeError(f"{self.url}{path}: {what}; is it SGLang's server?")

    def _refused(self, path: str, status: int, text: str) -> Refused:
        if status in (401, 403):
            return Refused(
                status,
                f"{self.url}{path}: the server wants another key (HTTP {status}); --api-key KEY or "
                "SGLANG_API_KEY, its admin key where it has one",
            )
        if status == 404:
            said = f"{self.url}: has no {path} (HTTP 404); is it the server of SGLang 0.5 or later?"
            return Refused(status, said)
        first = " ".join(text.split())[:200]
        return Refused(status, f"{self.url}{path}: HTTP {status} ({first}); see the server's log")


class Generation:
    """A request of ours while its answer comes in.

    steps: decode steps so far, with speculation about. tokens: new tokens so far. arrived: (steps,
    monotonic ns) of each part of the answer. over: whether there is no more. problem: why, where it
    was cut off.
    """

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        sock: socket.socket,
        answer: http.client.HTTPResponse,
        speculates: bool,
    ) -> None:
        self.steps = self.tokens = 0
        self._speculates = speculates
        self.arrived: list[tuple[int, int]] = []
        self.over, self.problem = False, ""
        self._connection, self._socket, self._answer = connection, sock, answer
        self._reader = threading.Thread(target=self._read, name="answer", daemon=True)
        self._reader.start()

    def end(self) -> None:
        """Let go of it: SGLang drops a request whose client left."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._connection.close()

    def _read(self) -> None:
        try:
            for line in self._answer:
                if line.startswith(b"data: {"):
                    self._part(json.loads(line[len(b"data: ") :]), time.monotonic_ns())
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.problem = self.problem or str(error)
        finally:
            self.over = True

    def _part(self, said: dict[str, Any], now: int) -> None:
        if "error" in said:
            error = said["error"]
            text = error.get("message", error) if isinstance(error, dict) else error
            self.problem = " ".join(str(text).split())[:200]
            return
        before, self.tokens = (
            self.tokens,
            int(said.get("meta_info", {}).get("completion_tokens", 0)),
        )
        if self.tokens > before:
            # The first is the prefill's. How many steps of speculation there were is only said at
            # the end: a part is one, or several where the server is asked less often than it steps.
            self.steps = len(self.arrived) if self._speculates else self.tokens - 1
            self.arrived.append((self.steps, now))
