"""Who may sign in through an OpenID Connect provider, and under which name a person is charged."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from discreet.errors import ParameterError
from discreet.server.callers import EVERY, ROLES, Role
from discreet.server.dataset_config import ConfigPart

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

CALLBACK = "/sign-in/callback"
"""Path to which the provider sends a browser back."""

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]
"""Signatures with a private key. With those of a shared secret, whoever can check a token can forge it."""

Roles = dict[str, Role]

_MAX_SECRET = 4096  # bytes of a client secret
_MAX_DISPLAYED = 64  # characters of a name that pages show


class SignInConfig(ConfigPart):
    """Sign-in of people to the pages through an OpenID Connect provider.

    Attributes
    ----------
    issuer : str
        Address of the provider, exactly as its ID tokens name it.
    client_id : str
        Name under which the provider knows this service.
    client_secret_file : path or None
        File with the client secret; None if it is in a variable, or if the service is a public client.
    client_secret_variable : str or None
        Environment variable with the client secret; None if it is in a file, or if there is none.
    redirect_url : str or None
        Address to which the provider sends browsers back, as registered there; None for the address of the
        service with ``/sign-in/callback``.
    scopes : list of str
        Scopes that are requested, ``openid`` among them.
    subjects : dict of str to dict
        People who may sign in, by the subject that the provider gives them, each with roles by data set. A
        person without any role may not sign in, whatever groups say.
    groups : dict of str to dict
        Groups whose members may sign in, each with roles by data set.
    groups_claim : str
        Claim of the ID token that lists the groups of a person.
    algorithms : list of str
        Signatures that are accepted.
    """

    issuer: str
    client_id: Annotated[str, Field(min_length=1, max_length=256)]
    client_secret_file: Path | None = None
    client_secret_variable: Annotated[str, Field(min_length=1)] | None = None
    redirect_url: str | None = None
    scopes: list[Annotated[str, Field(pattern=r"^[!#-\[\]-~]+$")]] = Field(default=["openid", "profile"])
    subjects: dict[str, Roles] = Field(default={})
    groups: dict[str, Roles] = Field(default={})
    groups_claim: Annotated[str, Field(min_length=1)] = "groups"
    algorithms: list[Algorithm] = Field(default=["RS256", "PS256", "ES256"], min_length=1)

    @field_validator("client_secret_file", mode="before")
    @classmethod
    def _path(cls, value: Any) -> Any:
        return Path(value) if isinstance(value, str) and value else value

    @field_validator("issuer")
    @classmethod
    def _issuer(cls, value: str) -> str:
        if not is_provider_url(value) or urlsplit(value).query or "#" in value:
            raise ValueError(
                f"must be an https:// address as ID tokens of the provider name it, was {value!r}. Only on "
                "this machine may it be http://"
            )
        return value

    @field_validator("redirect_url")
    @classmethod
    def _redirect_url(cls, value: str | None) -> str | None:
        if value is not None and (not is_provider_url(value) or not value.endswith(CALLBACK)):
            raise ValueError(
                f"must be the https:// address of this service with the path {CALLBACK}, was {value!r}"
            )
        return value

    @field_validator("scopes")
    @classmethod
    def _scopes(cls, value: list[str]) -> list[str]:
        if "openid" not in value:
            raise ValueError("must contain openid. Add it, or leave scopes out")
        return value

    @model_validator(mode="after")
    def _check_keys(self) -> SignInConfig:
        """Refuse two secrets, a list of nobody, and roles that cannot be given."""
        if self.client_secret_file is not None and self.client_secret_variable is not None:
            raise ValueError(
                "client_secret_variable: must not be set together with client_secret_file. Remove one of them"
            )
        if not self.subjects and not self.groups:
            raise ValueError(
                "subjects: must name at least one person, or groups at least one group: nobody else may sign "
                "in"
            )
        for roles in (*self.subjects.values(), *self.groups.values()):
            for dataset, role in roles.items():
                if (role == "operator") > (dataset == EVERY):
                    raise ValueError(
                        f"subjects: must give operators {EVERY!r}, every data set, was {dataset!r}. Make "
                        "them curators there, or write '*'"
                    )
        return self

    def check_service(self, address: str | None, datasets: Iterable[str], *, secure: bool) -> None:
        """Refuse roles on unknown data sets, and an address to come back to that is not the service's.

        Parameters
        ----------
        address : str or None
            Public address of the service.
        datasets : iterable of str
            Names of its data sets.
        secure : bool
            Whether browsers connect to it over HTTPS.

        Raises
        ------
        ValueError
            The message begins with the key and a colon.
        """
        known = list(datasets)
        for roles in (*self.subjects.values(), *self.groups.values()):
            for name in roles.keys() - {*known, EVERY}:
                raise ValueError(
                    f"sign_in: must give roles on data sets of this configuration, and {name!r} is not one. "
                    f"They are {', '.join(known)}, and '*' for all"
                )
        if address is None and self.redirect_url is None:
            raise ValueError(
                "sign_in.redirect_url: is required where the service has no address. Add address: "
                "https://HOST to the configuration"
            )
        origin = (self.redirect_url or "").removesuffix(CALLBACK)
        if origin and address is not None and origin != address:
            raise ValueError(
                f"sign_in.redirect_url: must be {address}{CALLBACK}, as address says, was "
                f"{self.redirect_url}. Leave it out"
            )
        if origin and origin.startswith("https:") != secure:
            raise ValueError(
                "sign_in.redirect_url: must begin with https:// where tls or behind_proxy is given, and with "
                "http:// elsewhere. Leave it out"
            )

    def without_people(self) -> SignInConfig:
        """Return the configuration without subjects and groups, which may change while the service runs."""
        return self.model_copy(update={"subjects": {}, "groups": {}})

    def resolve_paths(self, folder: Path) -> SignInConfig:
        """Return the configuration with a relative path resolved against a folder."""
        if self.client_secret_file is None:
            return self
        return self.model_copy(update={"client_secret_file": folder / self.client_secret_file})

    def client_secret(self) -> str | None:
        """Return the client secret; None for a public client.

        Raises
        ------
        ParameterError
            The file or the variable is missing or empty.
        """
        if self.client_secret_variable is not None:
            secret = os.environ.get(self.client_secret_variable, "")
            if not secret:
                raise ParameterError(
                    "sign_in.client_secret_variable of the configuration must name an environment variable "
                    f"with the client secret, and {self.client_secret_variable} is not set. Set it, or use "
                    "client_secret_file."
                )
            return secret
        if self.client_secret_file is None:
            return None
        try:
            with self.client_secret_file.open(encoding="utf-8") as file:
                secret = file.read(_MAX_SECRET).strip()
        except (OSError, UnicodeDecodeError):
            secret = ""
        if not secret:
            raise ParameterError(
                "sign_in.client_secret_file of the configuration must be a file with the client secret that "
                f"the service can read, and {str(self.client_secret_file)!r} is not. Write the secret into "
                "it, with mode 0600 and the service's user as its owner."
            )
        return secret

    def roles(self, identity: Identity) -> Roles | None:
        """Return the roles of a person by data set, as declared here; None for one who may not sign in."""
        listed = self.subjects.get(identity.subject)
        if identity.issuer != self.issuer or listed == {}:
            return None
        declared = [self.groups[group] for group in identity.groups if group in self.groups]
        if listed is not None:
            declared.append(listed)
        return merge_roles(declared) if declared else None

    def identity(self, claims: Mapping[str, Any]) -> Identity:
        """Return the person whom verified claims of an ID token name, with those groups that have roles."""
        claimed = claims.get(self.groups_claim)
        groups = [claimed] if isinstance(claimed, str) else claimed if isinstance(claimed, list) else []
        known = {name for name in groups if isinstance(name, str)} & self.groups.keys()
        return Identity(self.issuer, claims["sub"], _display_name(claims), tuple(sorted(known)))


@dataclass(frozen=True, slots=True)
class Identity:
    """A person whom a provider vouches for.

    Attributes
    ----------
    issuer, subject : str
        Provider, and its identifier of the person, which never changes and is never given to another.
    display : str
        Name that pages show; it may change, and two people may have the same.
    groups : tuple of str
        Groups of the person that the configuration names, as of the last sign-in.
    """

    issuer: str
    subject: str
    display: str
    groups: tuple[str, ...] = ()

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Identity:
        """Return the person of a row of the access store: issuer, subject, name, groups as JSON, and more."""
        issuer, subject, display, groups = row[:4]
        return cls(issuer, subject, display, tuple(json.loads(groups)))

    @property
    def name(self) -> str:
        """Name under which charges are made: it follows from issuer and subject alone."""
        digest = hashlib.sha256(json.dumps([self.issuer, self.subject]).encode()).digest()
        return "oidc-" + base64.b32encode(digest)[:26].decode().lower()


def list_people(
    config: SignInConfig | None, signed_in: Iterable[tuple[Identity, float]]
) -> list[dict[str, Any]]:
    """Return name, issuer, subject, displayed name, roles and last sign-in of people, by name.

    Parameters
    ----------
    config : SignInConfig or None
        Configuration, whose subjects are listed even if they never signed in; None for none.
    signed_in : iterable of (Identity, float)
        People who signed in, each with the time of the last sign-in in seconds since 1970.
    """
    people: dict[str, tuple[Identity, float | None]] = {}
    if config is not None:
        for subject in config.subjects:
            listed = Identity(config.issuer, subject, "")
            people[listed.name] = listed, None
    people |= {identity.name: (identity, latest) for identity, latest in signed_in}
    return [
        {
            "name": name,
            "issuer": one.issuer,
            "subject": one.subject,
            "display": one.display,
            "roles": {} if config is None else config.roles(one) or {},
            "latest": latest,
        }
        for name, (one, latest) in sorted(people.items())
    ]


def _display_name(claims: Mapping[str, Any]) -> str:
    """Return the name of a person that pages show, from the claims of an ID token; empty without one."""
    for key in ("name", "preferred_username", "email"):
        value = claims.get(key)
        if isinstance(value, str) and value.strip():
            return "".join(c for c in value if c.isprintable()).strip()[:_MAX_DISPLAYED]
    return ""


def merge_roles(parts: Iterable[Mapping[str, Role]]) -> Roles:
    """Return the highest role on each data set."""
    merged: Roles = {}
    for part in parts:
        for dataset, role in part.items():
            merged[dataset] = max(role, merged.get(dataset, role), key=ROLES.index)
    return merged


def is_provider_url(url: str) -> bool:
    """Return whether an address is https, or http on this machine, and names no user."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        parts.port  # noqa: B018 - raises for a wrong one
    except ValueError:
        return False
    if not host or "@" in parts.netloc or not url.isascii() or not url.isprintable() or " " in url:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
