"""Requests to a service, with retries that never pay twice."""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import os
import ssl
import threading
import warnings
import weakref
from time import sleep
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

from discreet.client._arguments import check_number
from discreet.client.responses import FailedAttempt, ResponseReader
from discreet.errors import AccessRefused, DiscreetWarning, MissingExtra, ParameterError, ServiceError
from discreet.noise import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import httpx

TOKEN = "DISCREET_TOKEN"  # noqa: S105 - the name of a variable
MAX_BYTES = 2**29
"""Largest size of a response, unpacked."""

_FIRST_WAIT, _LONGEST_WAIT = 0.25, 8.0  # seconds between attempts, doubling
_CONNECTING, _IDLE = 10.0, 64  # seconds for a connection; idle connections that are kept
_MAX_UNANSWERED = 10_000  # requests without an answer whose keys are kept
_MOST_PATIENCE = 120.0  # longest seconds of Retry-After that are waited for


class BearerToken:
    """Bearer token that is sent to the service and shown nowhere else."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def header(self) -> dict[str, str]:
        """Return the header that carries the token."""
        return {"Authorization": f"Bearer {self._text}"}

    def __repr__(self) -> str:
        return "Token(...)"

    def __reduce__(self) -> NoReturn:
        raise ParameterError(
            "A token must not be pickled, and was about to be. Set DISCREET_TOKEN where it is needed."
        )


class Transport:
    """Sender of requests to one service, from any thread and on both sides of a fork.

    Parameters
    ----------
    url : str
        Address of the service, without a path below it.
    token : BearerToken
        Access token, sent to this address alone: redirections are not followed.
    timeout : float
        Seconds that one attempt may take.
    retries : int
        Number of attempts after one that failed.
    verify : bool or ssl.SSLContext
        Certificates by which the service is recognized, as httpx takes them.

    Privacy
    -------
    Every paid request has a key of 128 random bits, the same at each attempt: whatever is lost on the way,
    the service charges it once. The key of a request without an answer is kept: sent again, also after the
    table was replaced, it gets the answer that was paid for.

    Reference
    ---------
    docs/explanation/theorems/composition.md.
    """

    def __init__(
        self, url: str, token: BearerToken, *, timeout: float, retries: int, verify: bool | ssl.SSLContext
    ) -> None:
        """Keep the settings; clients are made at the first request of each process."""
        self.url = url
        self.timeout = timeout
        self.retries = retries
        self._httpx = _package()
        self._token = token
        self._reader = ResponseReader(url)
        self._verify = verify
        self._lock = threading.Lock()
        self._clients: dict[int, httpx.Client] = {}
        self._closed = False
        self._unanswered: dict[str, str] = {}

    def get(self, path: str, **parameters: Any) -> dict[str, Any]:
        """Return the response to a GET request, which is free; parameters that are None are left out."""
        given = {name: str(value) for name, value in parameters.items() if value is not None}
        return self._send("GET", path, params=given)

    def post(self, path: str, body: Mapping[str, Any], *, pays: bool) -> dict[str, Any]:
        """Return the response to a POST request; one that `pays` has a key that makes it safe to repeat."""
        content = json.dumps(body, allow_nan=False, separators=(",", ":")).encode("ascii")
        if not pays:
            return self._send("POST", path, content=content)
        with self._key(path, content) as key:
            return self._send("POST", path, content=content, key=key)

    def delete(self, path: str) -> dict[str, Any]:
        """Return the response to a DELETE request, which is free and may be sent again."""
        return self._send("DELETE", path)

    def close(self) -> None:
        """Close all connections. May be called again."""
        with self._lock:
            self._closed = True
            mine = self._clients.pop(os.getpid(), None)
        if mine is not None:
            mine.close()

    @contextlib.contextmanager
    def _key(self, path: str, content: bytes) -> Iterator[str]:
        """Yield the key of a request, which stays the same until there is an answer."""
        question = hashlib.sha256(path.encode() + b"\0" + content).hexdigest()
        with self._lock:
            key = self._unanswered.setdefault(question, f"{Stream().integer(128):032x}")
            while len(self._unanswered) > _MAX_UNANSWERED:
                self._unanswered.pop(next(iter(self._unanswered)))
        yield key
        # Not in a finally: after a failure, or an interrupt while waiting, it may have been charged.
        with self._lock:
            self._unanswered.pop(question, None)

    def _send(self, method: str, path: str, *, key: str | None = None, **more: Any) -> dict[str, Any]:
        """Send a request until the service has answered it, or no attempt is left."""
        headers = {"Accept": "application/json", **self._token.header()}
        if "content" in more:
            headers["Content-Type"] = "application/json"
        if key is not None:
            headers["Idempotency-Key"] = key
        # Clients that were refused together should not come back together.
        jitter = 1.0 if key is None else 0.5 + int(key[:4], 16) / 2**17
        attempt, lost = 0, False
        while True:
            attempt += 1
            outcome = self._attempt(method, path, headers=headers, **more)
            if not isinstance(outcome, FailedAttempt):
                return outcome
            lost = lost or outcome.lost
            wait = outcome.wait or jitter * min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** (attempt - 1))
            if not outcome.retry or attempt > self.retries or wait > _MOST_PATIENCE:
                raise outcome.error(attempts=attempt, pays=key is not None, lost=lost)
            sleep(wait)

    def _attempt(self, method: str, path: str, **more: Any) -> dict[str, Any] | FailedAttempt:
        """Send one request once, and return its body or how it failed."""
        # Errors of httpx hold the request and its headers: none of them may leave, not even as a cause.
        httpx = self._httpx
        try:
            with self._client().stream(method, f"{self.url}{path}", **more) as response:
                content = bytearray()
                for chunk in response.iter_bytes():
                    content += chunk
                    if len(content) > MAX_BYTES:
                        return self._reader.unexpected_response("more than an answer can have")
                return self._reader.read(response.status_code, response.headers, bytes(content))
        except httpx.HTTPError as problem:
            before = isinstance(problem, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
            # After the handshake, an error of a secure connection is a lost connection.
            certificate = _find_tls_error(problem) if before else None
            strange = isinstance(problem, httpx.DecodingError | httpx.TooManyRedirects)
            late = isinstance(problem, httpx.TimeoutException)
        if certificate is not None:
            return self._reader.insecure(certificate)
        if strange:
            return self._reader.unexpected_response("something that cannot be unpacked")
        return self._reader.no_response(self.timeout if late else None, lost=not before)

    def _client(self) -> httpx.Client:
        """Return the connections of this process; those of a parent process are not used after a fork."""
        with self._lock:
            if self._closed:
                raise ServiceError("RemoteDatabase must not be closed to be asked, and is. Make another one.")
            mine = self._clients.get(os.getpid())
            if mine is None:
                mine = self._clients[os.getpid()] = self._httpx.Client(
                    timeout=self._httpx.Timeout(self.timeout, connect=min(self.timeout, _CONNECTING)),
                    verify=self._verify,
                    follow_redirects=False,
                    limits=self._httpx.Limits(max_connections=None, max_keepalive_connections=_IDLE),
                )
                weakref.finalize(self, mine.close)  # for callers that do not close
            return mine


def open_transport(
    url: str,
    token: str | BearerToken | None,
    *,
    timeout: float,
    retries: int,
    verify: bool | str | os.PathLike[str] | ssl.SSLContext,
) -> Transport:
    """Return the sender of requests to a service, after checking every setting.

    Parameters
    ----------
    url, token, timeout, retries, verify
        As for :class:`~discreet.client.RemoteDatabase`.
    """
    address = validate_url(url)
    check_number("timeout", timeout, isinstance(timeout, int | float) and 0 < timeout < float("inf"))
    check_number("retries", retries, isinstance(retries, int) and 0 <= retries <= 100)
    bearer = read_token(token)
    transport = Transport(
        address, bearer, timeout=float(timeout), retries=retries, verify=tls_verification(verify)
    )
    warn_if_unencrypted(address)
    return transport


def validate_url(url: str) -> str:
    """Return the address of a service in its canonical form; refuses others without quoting secrets."""
    must = "url of RemoteDatabase must be http:// or https:// and a host"
    wrong = ParameterError(f"{must}, was something else. For instance https://data.example.org.")
    httpx = _package()
    try:
        parts = urlsplit(url.strip())
        port, host = parts.port, parts.hostname or ""
        httpx.URL(f"{parts.scheme}://{parts.netloc}")
    except (AttributeError, TypeError, ValueError, httpx.InvalidURL):
        raise wrong from None
    # What a resolver refuses in its own way.
    named = 0 < len(host) < 254 and all(len(label) < 64 for label in host.split("."))
    if parts.scheme not in ("http", "https") or not named or any(c.isspace() or c == "%" for c in host):
        raise wrong
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ParameterError(
            f"{must}, without a user, a query or a fragment, and had one. Give the token as token=, or set "
            "DISCREET_TOKEN: an address is written to logs."
        )
    place = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{place}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}"


def read_token(given: str | BearerToken | None) -> BearerToken:
    """Return the token that was given, or that of the environment."""
    if isinstance(given, BearerToken):
        return given
    text = os.environ.get(TOKEN) if given is None else given
    if not text:
        raise AccessRefused(
            f"token of RemoteDatabase must be given, or be in the variable {TOKEN}, and is not. The curator "
            "makes one with: discreet token create"
        )
    if not (isinstance(text, str) and text.isascii() and text.isprintable() and " " not in text):
        raise ParameterError(
            "token of RemoteDatabase must be the text that the curator was shown, and has characters that no "
            "token has. It is not repeated here; look for a space or a line break."
        )
    return BearerToken(text)


def tls_verification(verify: Any) -> bool | ssl.SSLContext:
    """Return the certificates by which a service is recognized, as httpx takes them."""
    if verify is True or isinstance(verify, ssl.SSLContext):
        return verify
    if isinstance(verify, str | os.PathLike):
        try:
            return ssl.create_default_context(cafile=os.fspath(verify))
        except (OSError, ssl.SSLError):
            raise ParameterError(
                "verify of RemoteDatabase must be a file of certificates, and cannot be read as one. It "
                "is a PEM file: ask the operator of the service for it."
            ) from None
    raise ParameterError(
        f"verify of RemoteDatabase must be True, a file of certificates or an ssl.SSLContext, was "
        f"{verify!r}. Without it, anybody on the way could take the token."
    )


def warn_if_unencrypted(url: str) -> None:
    """Warn if the token would be sent unencrypted to another machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        near = ipaddress.ip_address(host).is_loopback
    except ValueError:
        near = host == "localhost"
    if parts.scheme == "http" and not near:
        warnings.warn(
            "url of RemoteDatabase should be https:// unless the service is on this machine, was http://: "
            "anybody on the way can read the token and the answers.",
            DiscreetWarning,
            stacklevel=4,
        )


def _package() -> Any:
    try:
        import httpx
    except ImportError:
        raise MissingExtra(
            "RemoteDatabase needs httpx, which is not installed. Install it with: "
            "pip install 'discreet[serve]'"
        ) from None
    return httpx


def _find_tls_error(problem: BaseException) -> str | None:
    """Return OpenSSL's reason why no secure connection was made; None for another error."""
    link: BaseException | None = problem
    while link is not None:
        if isinstance(link, ssl.SSLError):
            return link.reason or "UNKNOWN"
        link = link.__cause__ or link.__context__
    return None
