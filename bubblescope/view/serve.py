"""A page served on this machine alone, for a browser that cannot read the file."""

from __future__ import annotations

import secrets
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bubblescope.errors import BubblescopeError

LOOPBACK = "127.0.0.1"


class PageServer(ThreadingHTTPServer):
    """Serves one page under an address that cannot be guessed: other users share the loopback."""

    daemon_threads = True

    def __init__(self, page: bytes, port: int = 0) -> None:
        """Listen on that port of the loopback, on a free one for 0.

        Raises:
            BubblescopeError: it cannot listen there.
        """
        self.page = page
        self.path = f"/{secrets.token_urlsafe(16)}/"
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except OSError as error:
            raise BubblescopeError(
                f"--port {port}: cannot listen there: {error.strerror}; leave it out for a free one"
            ) from None

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://{LOOPBACK}:{self.server_address[1]}{self.path}"


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        # A foreign site whose name was pointed at the loopback states its own name here.
        host = self.headers.get("Host", "").rsplit(":", 1)[0]
        if self.path != self.server.path or host not in (LOOPBACK, "localhost"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(self.server.page)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(self.server.page)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of requests."""
