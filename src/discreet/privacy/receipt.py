"""Receipts: the record of a charge, in a form that is published with the result."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

from discreet.errors import ParameterError
from discreet.privacy.promises import Promise, promise_from_dict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A charge, as its ledger recorded it.

    Attributes
    ----------
    id : str
        Identifier of the charge, unique within its ledger and, with the ledger's identity, anywhere.
    what : str
        Short description for people, such as "release of survey.parquet".
    when : str
        Universal time of the charge, ISO 8601, to the minute.
    promises : tuple of Promise
        Promises whose cost was charged together.
    owner : str or None
        Name of the owner whose own budget was charged beside the total; None if only the total was.
    ledger : str or None
        Identity of the ledger; None if the result was made without one.
    seq : int or None
        Number of the row in the ledger's record; None without a ledger.
    hash : str or None
        Hash of that row, by which :meth:`Ledger.check` verifies it; None without a ledger.
    question : str or None
        Digest of the query, if its answer is stored for repeats; else None.
    schema : str or None
        Digest of the schema whose bounds the promises use; None if there is no schema.
    version : str
        Version of discreet that made the charge.
    seeded : bool
        Whether the noise came from a seed, which makes it public: for tests alone.
    answer : bytes or None
        Stored answer, if the charge was a repeat; else None. Not part of the JSON.
    accounts : tuple or None
        Accounts of the owner and of the total right after the charge, as :meth:`Ledger.accounts` returns
        them; None on a receipt that was read back. Not part of the JSON.

    Privacy
    -------
    A receipt holds declared and public facts only, and may be published. One without a ledger only states
    that its maker recorded no charge.

    Reference
    ---------
    ``docs/explanation/theorems/composition.md``.
    """

    id: str
    what: str
    when: str
    promises: tuple[Promise, ...]
    owner: str | None = None
    ledger: str | None = None
    seq: int | None = None
    hash: str | None = None
    question: str | None = None
    schema: str | None = None
    version: str
    seeded: bool = False
    answer: bytes | None = field(default=None, compare=False, repr=False)
    accounts: tuple[Any, Any] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def from_promises(
        cls,
        promises: Promise | Iterable[Promise],
        *,
        what: str,
        schema: str | None = None,
        seeded: bool = False,
    ) -> Receipt:
        """Return the receipt of a result that no ledger recorded."""
        parts = (promises,) if isinstance(promises, Promise) else tuple(promises)
        when = now()
        # A digest instead of a counter: there is no ledger that could number the receipt.
        text = canonical([what, when, [part.to_dict() for part in parts]])
        return cls(
            id="unrecorded-" + hashlib.sha256(text.encode()).hexdigest()[:16],
            what=what,
            when=when,
            promises=parts,
            schema=schema,
            version=product_version(),
            seeded=seeded,
        )

    @property
    def recorded(self) -> bool:
        """Whether a ledger recorded the charge."""
        return self.ledger is not None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without the answer."""
        values = {name: getattr(self, name) for name in _names()}
        values["promises"] = [promise.to_dict() for promise in self.promises]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Receipt:
        """Return the receipt that :meth:`to_dict` wrote."""
        # A key that is not known may say something that this version would ignore.
        if set(values) != set(_names()):
            raise ParameterError(
                f"keys of Receipt must be {', '.join(sorted(_names()))}, got "
                f"{', '.join(sorted(values))}. Write them with to_dict()."
            )
        fields = dict(values)
        fields["promises"] = tuple(promise_from_dict(promise) for promise in values["promises"])
        return cls(**fields)


@cache
def _names() -> tuple[str, ...]:
    """Return the names of the fields that are part of the JSON."""
    return tuple(item.name for item in dataclasses.fields(Receipt) if item.compare)


def now() -> str:
    """Return universal time, to the minute, as text.

    Receipts are published, several of them with a model of several passes: finer times would reveal how long
    each pass over private rows took.
    """
    return _minute_text(int(time.time() // 60))


@lru_cache(maxsize=2)
def _minute_text(minute: int) -> str:
    """Return a minute since 1970 as text; kept, because a service asks for it at every charge."""
    return datetime.fromtimestamp(60 * minute, UTC).isoformat(timespec="seconds")


# NaN has no JSON, and would make two readers compute different hashes.
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical(value: Any) -> str:
    """Return canonical JSON, the form that is hashed: sorted keys, no spaces, plain ASCII."""
    return _CANONICAL.encode(value)


@cache
def product_version() -> str:
    """Return the installed version, or "unknown" when run from a source tree."""
    try:
        return metadata.version("discreet")
    except metadata.PackageNotFoundError:
        return "unknown"


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of this package, of Python and of the given packages, by name."""
    own = {"discreet": product_version(), "python": platform.python_version()}
    return own | {name: package_version(name) for name in packages}


@cache
def package_version(name: str) -> str:
    """Return the version of an installed package."""
    return metadata.version(name)
