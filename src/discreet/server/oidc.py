"""A client of OpenID Connect: authorization code flow with PKCE, and ID tokens verified in full."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from discreet.errors import DiscreetError, MissingExtra, ServiceUnavailable
from discreet.server.sign_in import CALLBACK, is_provider_url

try:
    import httpx
    from joserfc import jwk, jwt
    from joserfc.errors import JoseError
except ImportError:  # pragma: no cover - reported as an error of the package
    raise MissingExtra(
        "joserfc is needed to sign in through an OpenID Connect provider, and is not installed. Run "
        "`pip install 'discreet[serve,oidc]'`."
    ) from None

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet.server.config import Config

_SECONDS = 10.0  # for all requests of one sign-in
_MAX_BYTES = 1 << 20  # of a response
_MAX_SIGN_INS = 16  # that wait for the provider at the same time
_METADATA_SECONDS = 3600.0  # after which endpoints and keys are read again
_KEYS_SECONDS = 30.0  # before which keys are not read again for an unknown one
_LEEWAY = 60  # seconds by which two clocks may differ
_MAX_AGE = 600  # seconds since an ID token was issued
_MIN_RSA_BITS = 2048
_MAX_SUBJECT = 255  # characters, by the standard
_KEY_PARTS = ("kty", "n", "e", "crv", "x", "y")
_KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC"}


class SignInRefused(DiscreetError):
    """A sign-in that fails a check. The message is for the log of the operator, and quotes nothing sent."""


class Attempt:
    """One sign-in of one browser; all its values follow from a secret that only its cookie holds.

    Parameters
    ----------
    secret : str
        Random text of the cookie.
    """

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self.state, self.nonce, self.verifier = (
            _urlsafe(hashlib.sha256(f"{purpose}:{secret}".encode()).digest())
            for purpose in ("state", "nonce", "verifier")
        )

    @property
    def challenge(self) -> str:
        """The PKCE challenge, from which the verifier does not follow."""
        return _urlsafe(hashlib.sha256(self.verifier.encode()).digest())


class OpenIdProvider:
    """The provider that a configuration names.

    Parameters
    ----------
    config : Config
        Configuration of the service, with ``sign_in``.

    Privacy
    -------
    An ID token is accepted from the provider's token endpoint alone, signed by a published key with an
    algorithm of the configuration, for this client, unexpired, and with the nonce of the browser's own
    attempt. No token is stored or logged.
    """

    def __init__(self, config: Config) -> None:
        assert config.sign_in is not None
        self._config = config.sign_in
        self.redirect_url = self._config.redirect_url or f"{config.address}{CALLBACK}"
        self._secret = self._config.client_secret()
        self._metadata: dict[str, Any] = {}
        self._metadata_until = 0.0
        self._keys: list[dict[str, Any]] = []
        self._keys_read = -_KEYS_SECONDS
        self._waiting = 0

    @property
    def is_busy(self) -> bool:
        """Whether as many sign-ins wait for the provider as may."""
        return self._waiting >= _MAX_SIGN_INS

    async def check(self) -> None:
        """Read the provider's endpoints and keys.

        Raises
        ------
        ServiceUnavailable
            The provider cannot be reached, or lacks what a sign-in needs.
        """
        async with self._client() as client:
            await self._discover(client)
            await self._read_keys(client)

    async def authorization_url(self, attempt: Attempt) -> str:
        """Return the address of the provider at which a browser begins an attempt."""
        async with self._client() as client:
            metadata = await self._discover(client)
        parameters = {
            "response_type": "code",
            "client_id": self._config.client_id,
            "redirect_uri": self.redirect_url,
            "scope": " ".join(self._config.scopes),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        endpoint: str = metadata["authorization_endpoint"]
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(parameters)}"

    async def finish(self, attempt: Attempt, parameters: Mapping[str, str]) -> dict[str, Any]:
        """Return the verified claims about the person of an attempt whose browser has come back.

        Parameters
        ----------
        attempt : Attempt
            Attempt of the browser's cookie.
        parameters : mapping of str to str
            Query parameters with which the provider sent the browser back.

        Raises
        ------
        SignInRefused
            A check failed.
        ServiceUnavailable
            The provider cannot be reached.
        """
        if not hmac.compare_digest(attempt.state.encode(), parameters.get("state", "").encode()):
            raise SignInRefused("The state is not that of the browser's attempt.")
        self._waiting += 1
        try:
            async with self._client() as client:
                metadata = await self._discover(client)
                issuer = parameters.get("iss")
                required = metadata.get("authorization_response_iss_parameter_supported") is True
                if issuer != self._config.issuer and (issuer is not None or required):
                    raise SignInRefused("The response comes from another provider.")
                if "error" in parameters or not parameters.get("code"):
                    raise SignInRefused("The provider sent no code.")
                token = await self._exchange(client, metadata, attempt, parameters["code"])
                return await self._verify(client, token, attempt.nonce)
        finally:
            self._waiting -= 1

    # Requests to the provider.

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(timeout=_SECONDS, follow_redirects=False)

    async def _request(self, client: httpx.AsyncClient, method: str, url: str, **more: Any) -> httpx.Response:
        """Return a response whose body was read up to a limit."""
        try:
            async with asyncio.timeout(_SECONDS), client.stream(method, url, **more) as response:
                body = b""
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > _MAX_BYTES:
                        raise self._unavailable("sends too long a response")
                return httpx.Response(response.status_code, content=body)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as problem:
            raise self._unavailable(f"cannot be reached ({type(problem).__name__})") from None

    async def _read_json(self, client: httpx.AsyncClient, url: str) -> dict[str, Any]:
        response = await self._request(client, "GET", url, headers={"accept": "application/json"})
        if response.status_code != 200:
            raise self._unavailable(f"answers with status {response.status_code}")
        content = _json_object(response.content)
        if content is None:
            raise self._unavailable("sends no JSON object")
        return content

    def _unavailable(self, what: str) -> ServiceUnavailable:
        return ServiceUnavailable(
            f"sign_in.issuer of the configuration must be an OpenID Connect provider that answers, and "
            f"{self._config.issuer} {what}. Check the address and the provider."
        )

    async def _discover(self, client: httpx.AsyncClient) -> dict[str, Any]:
        """Return the metadata of the provider, from memory for an hour."""
        if time.monotonic() < self._metadata_until:
            return self._metadata
        address = f"{self._config.issuer.rstrip('/')}/.well-known/openid-configuration"
        metadata = await self._read_json(client, address)
        if metadata.get("issuer") != self._config.issuer:
            raise self._unavailable("says that its issuer is another")
        for key in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            url = metadata.get(key)
            local = self._config.issuer.startswith("http:")
            if not (isinstance(url, str) and is_provider_url(url) and (local or url.startswith("https:"))):
                raise self._unavailable(f"has no {key} over https")
        # Providers that know PKCE do not all say so; one that lists other methods alone does not.
        for key, needed in (
            ("response_types_supported", "code"),
            ("code_challenge_methods_supported", "S256"),
        ):
            listed = metadata.get(key)
            if isinstance(listed, list) and needed not in listed:
                raise self._unavailable(f"does not support {needed} ({key})")
        self._metadata, self._metadata_until = metadata, time.monotonic() + _METADATA_SECONDS
        return metadata

    async def _read_keys(self, client: httpx.AsyncClient) -> None:
        content = await self._read_json(client, self._metadata["jwks_uri"])
        keys = content.get("keys")
        if not isinstance(keys, list):
            raise self._unavailable("publishes no keys")
        self._keys = [key for key in keys if isinstance(key, dict)]
        self._keys_read = time.monotonic()

    async def _exchange(
        self, client: httpx.AsyncClient, metadata: Mapping[str, Any], attempt: Attempt, code: str
    ) -> str:
        """Return the ID token for a code."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_url,
            "code_verifier": attempt.verifier,
        }
        headers = {"accept": "application/json"}
        methods = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if self._secret is None:
            form["client_id"] = self._config.client_id
        elif "client_secret_basic" in methods or "client_secret_post" not in methods:
            pair = ":".join(quote(part, safe="") for part in (self._config.client_id, self._secret))
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": self._config.client_id, "client_secret": self._secret}
        response = await self._request(client, "POST", metadata["token_endpoint"], data=form, headers=headers)
        if response.status_code >= 500:
            raise self._unavailable(f"answers with status {response.status_code}")
        content = _json_object(response.content) or {}
        token = content.get("id_token")
        if response.status_code != 200 or not isinstance(token, str):
            raise SignInRefused("The provider gave no ID token for the code.")
        return token

    # The ID token.

    async def _verify(self, client: httpx.AsyncClient, token: str, nonce: str) -> dict[str, Any]:
        """Return the claims of an ID token after all checks."""
        header = _json_object(_decode(token.partition(".")[0])) or {}
        algorithm, number = header.get("alg"), header.get("kid")
        if algorithm not in self._config.algorithms:
            raise SignInRefused("The ID token is signed by an algorithm that is not accepted.")
        age = time.monotonic() - self._keys_read
        # A key that the provider has withdrawn must not be believed for ever.
        key = self._find_key(algorithm, number) if age < _METADATA_SECONDS else None
        if key is None and age >= _KEYS_SECONDS:
            # The provider may have begun to use a new key; not read for every token, which anybody can send.
            await self._read_keys(client)
            key = self._find_key(algorithm, number)
        if key is None:
            raise SignInRefused("The ID token is signed by a key that the provider does not publish.")
        try:
            claims = jwt.decode(token, key, algorithms=[algorithm]).claims
            registry = jwt.JWTClaimsRegistry(
                leeway=_LEEWAY,
                iss={"essential": True, "value": self._config.issuer},
                aud={"essential": True, "value": self._config.client_id},
                sub={"essential": True},
                exp={"essential": True},
                iat={"essential": True},
                nonce={"essential": True, "value": nonce},
            )
            registry.validate(claims)
        except (JoseError, ValueError) as problem:
            raise SignInRefused(f"The ID token is not valid ({type(problem).__name__}).") from None
        several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if claims.get("azp", None if several else self._config.client_id) != self._config.client_id:
            raise SignInRefused("The ID token was issued to another client.")
        if claims["iat"] < time.time() - _MAX_AGE:
            raise SignInRefused("The ID token is too old.")
        if not (
            claims["sub"].isascii() and claims["sub"].isprintable() and len(claims["sub"]) <= _MAX_SUBJECT
        ):
            raise SignInRefused("The subject of the ID token is too long, or not printable ASCII.")
        return claims

    def _find_key(self, algorithm: str, number: Any) -> jwk.Key | None:
        """Return the only published key that can have made a signature; None for none or several."""
        fitting = [
            key
            for key in self._keys
            if key.get("kty") == _KEY_TYPES[algorithm[:2]]
            and key.get("use", "sig") == "sig"
            and key.get("alg", algorithm) == algorithm
            and (number is None or key.get("kid") == number)
        ]
        if len(fitting) != 1:
            return None
        try:
            # The parts of a public key alone, whatever else the provider may have published.
            key = jwk.import_key({name: fitting[0][name] for name in _KEY_PARTS if name in fitting[0]})
        except (JoseError, ValueError, TypeError):
            return None
        too_short = isinstance(key, jwk.RSAKey) and key.public_key.key_size < _MIN_RSA_BITS
        return None if too_short else key


def check_provider(config: Config) -> None:
    """Read endpoints and keys of the provider that a configuration names.

    Raises
    ------
    ServiceUnavailable
        The provider cannot be reached, or lacks what a sign-in needs.
    """
    asyncio.run(OpenIdProvider(config).check())


def _urlsafe(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return b""


def _json_object(content: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
