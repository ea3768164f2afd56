"""Stand-ins on a loopback port: a service that says what a test wants, and a proxy that loses answers."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Heard:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def values(self) -> Any:
        """The body's JSON."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Say:
    """One response; a status of 0 closes the connection instead of saying anything."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})

    @classmethod
    def json(cls, values: Any, status: int = 200, **headers: str) -> Say:
        """Say some JSON."""
        told = {"Content-Type": "application/json"}
        told |= {name.replace("_", "-"): value for name, value in headers.items()}
        return cls(status, json.dumps(values).encode(), told)

    @classmethod
    def error(cls, status: int, code: str, /, details: Any = None, **headers: str) -> Say:
        """Say an error in the service's one shape."""
        error = {"code": code, "message": f"It is {code}.", "hint": "Do otherwise.", "details": details or {}}
        return cls.json({"error": {**error, "request_id": "r"}}, status, **headers)


SILENCE = Say(status=0)


@contextlib.contextmanager
def served(respond: Callable[[Heard], Say], *, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve what a function says; yields the URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # a body would wait for the acknowledgement of its headers, 40 ms

        def _all(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            told = respond(Heard(self.command, self.path, headers, body))
            if told.status == 0:
                self.close_connection = True
                return
            self.send_response(told.status)
            for name, value in told.headers.items():
                self.send_header(name, value)
            if "Content-Length" in told.headers:
                self.close_connection = True  # a length that is not true is all that there will be
            else:
                self.send_header("Content-Length", str(len(told.body)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(told.body)

        do_GET = do_POST = _all  # noqa: N815 - what http.server calls

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that hangs up is expected
    if tls is not None:
        # Handshakes happen in the threads of requests: one that fails must not end the service.
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class LossyProxy:
    """Passes requests on; of the posts whose turn has come, the answer is lost once the service has given it.

    Parameters
    ----------
    target : str
        URL of the service.
    loses : callable
        Whether the answer to the n-th post (from 1) is lost.
    """

    def __init__(self, target: str, loses: Callable[[int], bool]) -> None:
        self.target = target
        self.heard: list[Heard] = []
        self.answered: list[bytes] = []
        self._loses = loses
        self._lock = threading.Lock()

    def __call__(self, heard: Heard) -> Say:
        status, headers, content = forwarded(self.target, heard)
        if heard.method != "POST":
            return Say(status, content, headers)
        with self._lock:
            self.heard.append(heard)
            self.answered.append(content)
            lost = self._loses(len(self.heard))
        return SILENCE if lost else Say(status, content, headers)


def forwarded(target: str, heard: Heard) -> tuple[int, dict[str, str], bytes]:
    """Pass one request on; returns status, headers and body of the answer."""
    connection = http.client.HTTPConnection(target.removeprefix("http://"), timeout=60)
    try:
        passed = {
            n: v for n, v in heard.headers.items() if n not in ("host", "connection", "accept-encoding")
        }
        connection.request(heard.method, heard.path, heard.body or None, passed)
        answer = connection.getresponse()
        content = answer.read()
        kept = {"content-type", "retry-after"}
        return answer.status, {n: v for n, v in answer.getheaders() if n.lower() in kept}, content
    finally:
        connection.close()
