"""An OpenID Connect provider on this machine, honest unless a test makes it lie."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import json
import threading
import time
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import httpx
from joserfc import jwk, jwt

from discreet.server.callers import new_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.server.conftest import RunningService

CLIENT, SECRET = "discreet", "a secret: of the client/&"
ADA = {"sub": "248289761001", "name": "Ada Lovelace", "email": "ada@example.org", "groups": ["town", "chess"]}


@cache
def key(number: int) -> jwk.RSAKey:
    """One of several keys that providers sign with."""
    return jwk.RSAKey.generate_key(2048, {"kid": f"key-{number}", "use": "sig", "alg": "RS256"})


class Provider:
    """Codes with PKCE, ID tokens, published keys; what it says can be changed in every part."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[str] = []
        self.reset()

    def reset(self) -> None:
        """Be honest again."""
        self.person: dict[str, Any] = dict(ADA)
        self.keys = [key(0)]
        self.published: list[dict[str, Any]] | None = None
        self.metadata: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}
        self.sent_back: dict[str, str | None] = {}
        self.sign: Callable[[dict[str, Any]], str] = self.signed
        self.failing = False
        self._codes: dict[str, dict[str, str]] = {}

    def signed(self, claims: dict[str, Any]) -> str:
        """Sign claims with the newest key."""
        newest = self.keys[-1]
        return jwt.encode({"alg": "RS256", "kid": newest.kid}, claims, newest)

    def configuration(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize?tenant=1",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/jwks",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            **self.metadata,
        }

    def key_set(self) -> dict[str, Any]:
        own = [one.as_dict(private=False) for one in self.keys]
        return {"keys": own if self.published is None else self.published}

    def authorize(self, query: dict[str, str]) -> str:
        """Return where a browser is sent back to, once its person has signed in."""
        assert query["response_type"] == "code"
        assert query["client_id"] == CLIENT
        assert query["scope"].split()[0] == "openid"
        assert query["code_challenge_method"] == "S256"
        code = new_secret()
        self._codes[code] = query
        back = {"code": code, "state": query["state"], "iss": self.url, **self.sent_back}
        sent = {name: value for name, value in back.items() if value is not None}
        return f"{query['redirect_uri']}?{urlencode(sent)}"

    def token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """Return status and body for a code, which is good once."""
        pair = base64.b64decode(authorization.removeprefix("Basic ")).decode().split(":")
        asked = self._codes.pop(form["code"], None)
        if [unquote(part) for part in pair] != [CLIENT, SECRET] or asked is None:
            return 400, {"error": "invalid_grant"}
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (challenge, form["redirect_uri"]) != (asked["code_challenge"], asked["redirect_uri"]):
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.url, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": asked["nonce"],
            **self.person, **self.claims,
        }  # fmt: skip
        token = self.sign({name: value for name, value in claims.items() if value is not None})
        return 200, {"access_token": "not used", "token_type": "Bearer", "id_token": token}


def _handler(provider: Provider) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            provider.requests.append(parts.path)
            match parts.path:
                case "/.well-known/openid-configuration" if not provider.failing:
                    self._send(200, provider.configuration())
                case "/jwks":
                    self._send(200, provider.key_set())
                case "/authorize":
                    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                    self.send_response(302)
                    self.send_header("location", provider.authorize(query))
                    self.send_header("content-length", "0")
                    self.end_headers()
                case _:
                    self._send(500, {})

        def do_POST(self) -> None:
            provider.requests.append(self.path)
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            self._send(*provider.token(form, self.headers.get("authorization", "")))

        def _send(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


@contextlib.contextmanager
def running_provider() -> Iterator[Provider]:
    """Run a provider in a thread."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        provider = Provider(f"http://127.0.0.1:{server.server_address[1]}")
        server.RequestHandlerClass = _handler(provider)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield provider
        server.shutdown()
        thread.join()


def sign_in_settings(provider: Provider, **changed: Any) -> dict[str, Any]:
    """What a configuration says about a provider."""
    settings = {
        "issuer": provider.url,
        "client_id": CLIENT,
        "client_secret_file": "client.secret",
        "redirect_url": "http://127.0.0.1:8000/sign-in/callback",
        "subjects": {ADA["sub"]: {"town": "analyst"}},
        **changed,
    }
    return {name: value for name, value in settings.items() if value is not None}


def begin(client: httpx.Client) -> str:
    """Begin to sign in, and return the path with which the provider sends the browser back."""
    response = client.get("/sign-in")
    assert response.status_code == 303, response.text
    sent = httpx.get(response.headers["location"])
    assert sent.status_code == 302
    parts = urlsplit(sent.headers["location"])
    return f"{parts.path}?{parts.query}"


def sign_in(service: RunningService) -> tuple[httpx.Client, httpx.Response]:
    """Sign in with a new browser; return it with the response to its coming back."""
    client = service.client(None)
    return client, client.get(begin(client))
