"""For whom a request is meant: one that names another host than ours is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from discreet.server.errors import HOST, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

_PORTS = {"http": 80, "https": 443}
_OPEN = ("/health", "/ready")  # asked by whoever keeps it running, under the names of single machines


class Hosts:
    """Lets in requests that name the address of the service, or the one at which they arrived.

    Parameters
    ----------
    app : ASGI application
        Who answers them.
    address : str
        As the configuration has it.
    """

    def __init__(self, app: Any, address: str) -> None:
        self._app = app
        parts = urlsplit(address)
        self._default = _PORTS[parts.scheme]
        self._ours = (parts.hostname, parts.port or self._default)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Hand a request on, or refuse it."""
        if scope["type"] == "http" and scope["path"] not in _OPEN and not self._meant(scope):
            raise Refusal(HOST)
        await self._app(scope, receive, send)

    def _meant(self, scope: Any) -> bool:
        named = self._named(scope["headers"])
        here = tuple(scope.get("server") or ())
        return named is not None and named in (self._ours, here)

    def _named(self, headers: Iterable[tuple[bytes, bytes]]) -> tuple[str | None, int] | None:
        sent = [value.decode("latin-1") for name, value in headers if name == b"host"]
        try:
            (host,) = sent
            parts = urlsplit(f"//{host}")
            return (parts.hostname, parts.port or self._default) if parts.netloc == host else None
        except ValueError:
            return None
