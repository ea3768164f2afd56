"""Callers of a service: their roles, tokens and sessions, and which names and grants are allowed."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from discreet.errors import ParameterError
from discreet.noise import Stream

if TYPE_CHECKING:
    from collections.abc import Mapping

Role: TypeAlias = Literal["analyst", "curator", "operator"]
ROLES: tuple[Role, ...] = ("analyst", "curator", "operator")
"""Roles in the order of what they open: each may do what the one before it may."""

EVERY = "*"
"""Instead of the name of a data set: all of them, also those to come."""

PREFIX = "dsc_"
"""Beginning of every token, so that a leaked one is found by searching for it."""

_SECRET_WORDS = 4  # of 64 bits
_TOKEN = re.compile(re.escape(PREFIX) + r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller.

    Attributes
    ----------
    name : str
        Name under which charges are made, the owner in the ledger.
    token_id : int or None
        Number of the token that the caller presented; None for a person who signed in through a provider.
    grants : mapping of str to str
        Role on each data set, as of the request; the key ``"*"`` stands for all of them.
    display : str
        Name that pages show to the caller; empty for `name`.
    """

    name: str
    token_id: int | None
    grants: Mapping[str, Role]
    display: str = ""

    def role(self, dataset: str) -> Role | None:
        """Return the highest role on a data set; None if it is not granted."""
        return highest_role(self.grants, dataset)

    def may(self, role: Role, dataset: str) -> bool:
        """Return whether the caller has a role on a data set, or a higher one."""
        own = self.role(dataset)
        return own is not None and ROLES.index(own) >= ROLES.index(role)

    @property
    def is_operator(self) -> bool:
        """Whether the caller may operate the service as a whole."""
        return self.grants.get(EVERY) == "operator"

    @property
    def is_curator(self) -> bool:
        """Whether the caller is a curator of any data set, or an operator."""
        return any(role != "analyst" for role in self.grants.values())


def highest_role(grants: Mapping[str, Role], dataset: str) -> Role | None:
    """Return the higher of the roles that grants give on one data set and on every one; None for none."""
    roles = [grants[key] for key in (dataset, EVERY) if key in grants]
    return max(roles, key=ROLES.index, default=None)


@dataclass(frozen=True, slots=True)
class StoredToken:
    """What is stored about a token; the token itself is not.

    Attributes
    ----------
    id : int
        Number of the token, unique in the file.
    name : str
        Name of the token's bearer, as in `Caller`.
    dataset : str
        Data set at which the token is valid; ``"*"`` for every one that is granted to the bearer.
    created, expires : float
        Start and end of its validity, in seconds since 1970.
    revoked : float or None
        Time of its revocation, in seconds since 1970; None if it was not revoked.
    """

    id: int
    name: str
    dataset: str
    created: float
    expires: float
    revoked: float | None

    def state(self, now: float) -> str:
        """Return ``"valid"``, ``"expired"`` or ``"revoked"``, as of a time in seconds since 1970."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires <= now else "valid"


@dataclass(frozen=True, slots=True)
class Session:
    """The session of a browser.

    Attributes
    ----------
    caller : Caller
        Caller whose token opened the session.
    form : str
        CSRF token that every form of the session must carry.
    expires : float
        End of the session, in seconds since 1970.
    """

    caller: Caller
    form: str
    expires: float


@dataclass(frozen=True, slots=True)
class StopRecord:
    """The fact that a data set is stopped: by which caller, and since when in seconds since 1970."""

    caller: str
    since: float


def new_secret() -> str:
    """Return 256 random bits as text."""
    return base64.urlsafe_b64encode(Stream().words(_SECRET_WORDS).tobytes()).rstrip(b"=").decode()


def digest(secret: str) -> bytes:
    """Return the SHA-256 of a secret, which is all that is stored of it."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def contains_token(text: str) -> bool:
    """Return whether a text contains something that looks like a token."""
    return PREFIX in text and _TOKEN.search(text) is not None


def check_name(name: Any) -> None:
    """Refuse a name that no bearer may have."""
    if not (isinstance(name, str) and 0 < len(name) <= 64 and name.isprintable() and name == name.strip()):
        raise ParameterError(
            "The name of a token must be 1 to 64 printable characters, without a space at either end."
        )
    if name == "total":
        raise ParameterError("The name of a token must not be 'total', which stands for the whole budget.")


def check_grant(name: str, dataset: str, role: Any) -> None:
    """Refuse a name that no bearer may have, and a role that cannot be given on a data set."""
    check_name(name)
    if role not in ROLES:
        raise ParameterError(f"role of a grant must be one of {', '.join(ROLES)}, was {role!r}.")
    if (role == "operator") > (dataset == EVERY):
        raise ParameterError(
            f"An operator's grant must be for {EVERY!r}, which is every data set, was for {dataset!r}. Grant "
            "the role of curator for a single one."
        )
