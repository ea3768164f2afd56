"""What an operator writes to run a service: one YAML file, every key checked before anything is opened."""

from __future__ import annotations

import ipaddress
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from discreet.errors import ParameterError, SchemaError
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, PosteriorOdds, Promise, PureDP
from discreet.schema import Schema, nearest
from discreet.schema.serialization import read_yaml

if TYPE_CHECKING:
    import os

_HOST = re.compile(r"[A-Za-z0-9.-]+(:[0-9]+)?|\[[0-9A-Fa-f:.]+\](:[0-9]+)?")

_LIMITS = (
    "{epsilon: 1}, {epsilon: 1, delta: 1e-6}, {epsilon: 1, delta: 1e-6, queries: 100}, {rho: 0.1} or "
    "{mu: 0.5}"
)

DEFAULT_SLOT = 1.0
"""Seconds after which an answer leaves."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


Above = Annotated[float, Field(gt=0)]


class Limit(_Part):
    """A budget: ``{epsilon}``, ``{epsilon, delta}``, ``{epsilon, delta, queries}``, ``{rho}`` or ``{mu}``."""

    epsilon: Above | None = None
    delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    rho: Above | None = None
    mu: Above | None = None
    queries: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _one(self) -> Limit:
        given = [name for name in ("epsilon", "rho", "mu") if getattr(self, name) is not None]
        alone = (self.delta is not None and self.epsilon is None) or (
            self.queries is not None and self.delta is None
        )
        if len(given) != 1 or alone:
            raise ValueError(f"must be one of {_LIMITS}")
        return self

    def promise(self, schema: Schema) -> Promise:
        """Return the promise that it limits everything to."""
        about: dict[str, Any] = {"unit": schema.unit, "neighbors": schema.neighbors}
        if self.rho is not None:
            return ZCDP(rho=self.rho, **about)
        if self.mu is not None:
            return GaussianDP(mu=self.mu, **about)
        assert self.epsilon is not None
        if self.delta is None:
            return PureDP(epsilon=self.epsilon, **about)
        if self.queries is not None:
            return PosteriorOdds(epsilon=self.epsilon, delta=self.delta, queries=self.queries, **about)
        return ApproxDP(epsilon=self.epsilon, delta=self.delta, **about)


class Tls(_Part):
    """Where certificate and key are."""

    certificate: Path
    key: Path

    @field_validator("certificate", "key", mode="before")
    @classmethod
    def _path(cls, value: Any) -> Any:
        return Path(value) if isinstance(value, str) and value else value


class Limits(_Part):
    """How much one process does at once, and for one caller, and how large an answer may be."""

    body_bytes: Annotated[int, Field(ge=1024, le=2**28)] = 2**20
    concurrent: Annotated[int, Field(ge=1, le=1024)] = 64
    per_minute: Annotated[int, Field(ge=1, le=10**6)] = 600
    seconds: Annotated[float, Field(ge=1, le=86_400)] = 120.0
    cells: Annotated[int, Field(ge=1, le=2**22)] = 2**16


class Config(_Part):
    """A service, as its operator wrote it down; paths are relative to the file.

    Attributes
    ----------
    dataset : str
        What the service is about; a ledger of another one is refused.
    table : str
        A file, a URL or ``demo:census``.
    schema_file : path or None
        What is declared about it (``schema`` in the file); by default the file beside the table.
    ledger : str
        A file or ``postgresql://host/database#name``.
    limit, analyst_limit : Limit or None
        What the whole ledger, and each analyst who has no limit of their own, may come to.
    gaussian_share : float
        Part of epsilon that limits of ``{epsilon, delta}`` keep for Gaussian noise.
    new_ledger : bool
        Whether a table that is known to another ledger may be charged to this one all the same.
    access : path
        Tokens, sessions, stop switch.
    audit_log : path
        One line of JSON for everything that happened.
    listen : str
        Address and port.
    workers : int
        Processes.
    tls : Tls or None
        Certificate and key.
    behind_proxy : bool
        Whether somebody else ends TLS before us.
    address : str or None
        Where others reach it, such as ``https://data.example.org``: pages name it, and requests that name
        another host are refused.
    slots : float, mapping or None
        Seconds after which answers leave; None for ``slots: off``.
    limits : Limits
        Sizes and rates.
    session_hours : float
        After which a browser has to come with its token again.
    seed : int or None
        For tests, with ``testing: true`` alone.
    version : str or None
        A public name for this state of the rows.
    keep_ids : bool
        Whether fingerprints of ids are kept beside the rows, for questions across services.
    """

    dataset: Annotated[str, Field(min_length=1, max_length=128)]
    table: Annotated[str, Field(min_length=1)]
    schema_file: Path | None = Field(None, alias="schema")
    ledger: Annotated[str, Field(min_length=1)]
    limit: Limit
    analyst_limit: Limit | None = None
    gaussian_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    new_ledger: bool = False
    access: Path
    audit_log: Path
    listen: str = "127.0.0.1:8000"
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    tls: Tls | None = None
    behind_proxy: bool = False
    address: str | None = None
    slots: Above | dict[str, Above] | None = DEFAULT_SLOT
    limits: Limits = Limits()
    session_hours: Annotated[float, Field(gt=0, le=720)] = 8.0
    seed: int | None = None
    testing: bool = False
    version: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    keep_ids: bool = False

    @field_validator("schema_file", "access", "audit_log", mode="before")
    @classmethod
    def _path(cls, value: Any) -> Any:
        return Path(value) if isinstance(value, str) and value else value

    @field_validator("slots", mode="before")
    @classmethod
    def _slots(cls, value: Any) -> Any:
        # A 0, a false or nothing is more likely a mistake than a decision.
        if value == "off":
            return None
        lengths = value.values() if isinstance(value, dict) else [value]
        fits = all(
            isinstance(n, int | float) and not isinstance(n, bool) and 0 < n < math.inf for n in lengths
        )
        if not fits or value == {}:
            raise ValueError(
                f"must be seconds above 0, a mapping of kinds of questions to seconds, or the word off, was "
                f"{value!r}. Take several times what a question usually takes, such as 1"
            )
        if isinstance(value, dict):
            # Not above: configurations are read by commands that start fast, and most name no kinds.
            from discreet.query.aggregates import AGGREGATES

            for kind in value:
                if kind not in AGGREGATES:
                    close = nearest(str(kind), list(AGGREGATES))
                    hint = f"Did you mean {close}?" if close else f"There are {', '.join(AGGREGATES)}"
                    raise ValueError(f"must name kinds of questions, and {kind} is none. {hint}")
        return value

    @field_validator("listen", mode="before")
    @classmethod
    def _listen(cls, value: Any) -> Any:
        host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
        if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
            raise ValueError(
                f"must be an address and a port, such as 127.0.0.1:8000 or [::1]:8000, was {value!r}"
            )
        return value

    @field_validator("address")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            fits = (
                parts.scheme in ("http", "https")
                and bool(parts.hostname)
                and (parts.port is None or parts.port > 0)
                and value.rstrip("/") == f"{parts.scheme}://{parts.netloc}"
                and _HOST.fullmatch(parts.netloc) is not None
            )
        except ValueError:
            fits = False
        if not fits:
            raise ValueError("must be a scheme and a host alone, such as https://data.example.org")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _together(self) -> Config:
        if self.address is not None and self.address.startswith("https:") != self.secure:
            raise ValueError(
                "address: must begin with https:// where tls or behind_proxy is given, and with http:// "
                f"elsewhere, was {self.address}. Tokens are sent there"
            )
        limits = [limit for limit in (self.limit, self.analyst_limit) if limit is not None]
        divided = any(limit.delta is not None and limit.queries is None for limit in limits)
        if "gaussian_share" in self.model_fields_set and not divided:
            raise ValueError(
                "gaussian_share: must go with a limit of {epsilon, delta}, and no limit is one. Leave it "
                "out: other limits are not divided between kinds of noise"
            )
        if self.seed is not None and not self.testing:
            raise ValueError(
                "seed: must not be given, since a seed makes the noise public. Take it out; tests also say "
                "testing: true"
            )
        if self.tls is not None and self.behind_proxy:
            raise ValueError("tls: must not be given with behind_proxy, which says that TLS ends elsewhere")
        if not (self.loopback or self.secure):
            raise ValueError(
                f"listen: must be a loopback address while nothing encrypts, was {self.listen}: tokens would "
                "travel in the clear. Give tls, or behind_proxy: true, or listen: 127.0.0.1:8000"
            )
        return self

    @property
    def host(self) -> str:
        """The address without the port."""
        return self.listen.rpartition(":")[0].removeprefix("[").removesuffix("]")

    @property
    def port(self) -> int:
        """The port; 0 takes any that is free."""
        return int(self.listen.rpartition(":")[2])

    @property
    def loopback(self) -> bool:
        """Whether only this machine can come."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def secure(self) -> bool:
        """Whether browsers come over HTTPS."""
        return self.tls is not None or self.behind_proxy

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Config:
        """Read a configuration.

        Raises
        ------
        ParameterError
            Names every key that is unknown, missing or wrong, and the way out.
        """
        place = Path(path)
        try:
            content = read_yaml(place.read_text(encoding="utf-8-sig"))
        except OSError as problem:
            raise ParameterError(
                f"config must be a file that can be read, and {str(path)!r} is not ({problem.strerror}). "
                "Give the path of a YAML file."
            ) from None
        except UnicodeDecodeError as problem:
            raise ParameterError(
                f"config {str(path)!r} must be text in UTF-8, and byte {problem.start} is not. Save it as "
                "UTF-8."
            ) from None
        except SchemaError as problem:
            # Read by the rules of schemas, which speak of their own file.
            said = str(problem).replace("The schema file", "it").replace("`fields:`", "`dataset:`")
            raise ParameterError(f"config {str(path)!r} must be YAML, and is not: {said}") from None
        return cls.of(content, place.parent, named=str(path))

    @classmethod
    def of(cls, content: Any, folder: Path, *, named: str = "the configuration") -> Config:
        """Check what a file says; paths in it are relative to `folder`."""
        if not isinstance(content, dict):
            raise ParameterError(
                f"{named} must be a mapping of keys to values, and is not. Begin with dataset: and table:."
            )
        try:
            made = cls.model_validate(content)
        except ValidationError as problem:
            raise ParameterError(_told(problem, named)) from None
        placed = made._placed(folder.absolute())
        _check_apart(placed, named)
        return placed

    def _placed(self, folder: Path) -> Config:
        def at(place: str) -> str:
            return place if "://" in place or place.startswith("demo:") else str(folder / place)

        moved: dict[str, Any] = {
            "table": at(self.table),
            "ledger": at(self.ledger),
            "access": folder / self.access,
            "audit_log": folder / self.audit_log,
            "schema_file": None if self.schema_file is None else folder / self.schema_file,
        }
        if self.tls is not None:
            moved["tls"] = Tls(certificate=folder / self.tls.certificate, key=folder / self.tls.key)
        return self.model_copy(update=moved)


def _check_apart(config: Config, named: str) -> None:
    """Refuse one file for two purposes: each would be written over by the other."""
    purposes = {
        "table": config.table,
        "schema": config.schema_file,
        "ledger": config.ledger,
        "access": config.access,
        "audit_log": config.audit_log,
    }
    found: dict[Path, str] = {}
    for key, place in purposes.items():
        if place is None or "://" in str(place):
            continue
        other = found.setdefault(Path(place).resolve(), key)
        if other != key:
            raise ParameterError(
                f"{key} of {named} must be a file of its own, and is the one that {other} names. Give "
                "another."
            )


def _told(problem: ValidationError, named: str) -> str:
    """Write one line for each key that is wrong: what it must be, what it was, the way out."""
    lines = []
    for error in problem.errors(include_url=False):
        key = ".".join(str(part) for part in error["loc"])
        said = str(error["msg"]).removeprefix("Value error, ")
        if error["type"] == "extra_forbidden":
            said = _unknown(error["loc"])
        elif error["type"] == "missing":
            said = f"is required. {_MISSING.get(key, 'Add it.')}"
        elif not key:
            key, _, said = said.partition(": ")
        elif error["type"] != "value_error":
            said = f"{_expected(error)}{_was(error)}. {_way(error['loc'])}"
        lines.append(f"{key} of {named} {said}" + "." * (said[-1] not in ".?"))
    return "\n".join(lines)


_EXPECTED = {
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "path_type": "must be the path of a file",
    "is_instance_of": "must be the path of a file",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "model_type": "must be keys and values",
    "finite_number": "must be a finite number",
}


def _expected(error: Any) -> str:
    """Say what a value must be."""
    said = str(error["msg"])
    return _EXPECTED.get(error["type"]) or re.sub(r"^(Input|String) should", "must", said)


def _was(error: Any) -> str:
    """Say what a value was, unless that could hold a password or be long."""
    value = error["input"]
    if value is None:
        return ", was left empty"
    if isinstance(value, bool | int | float):
        return f", was {str(value).lower()}"
    if (
        isinstance(value, str)
        and error["type"] in ("int_type", "float_type", "bool_type")
        and len(value) < 40
    ):
        return f", was the text {value!r}"
    return ""


def _way(loc: tuple[int | str, ...]) -> str:
    """Say what to write instead."""
    key = str(loc[0])
    if key in _FORMS:
        return f"Write {_FORMS[key]}."
    field = {item.alias or name: item for name, item in Config.model_fields.items()}[key]
    if field.is_required():
        return _MISSING[key]
    if isinstance(field.default, bool):
        return f"Leave it out for {str(field.default).lower()}."
    return "Put it in quotes, or leave it out." if field.default is None else f"The usual is {field.default}."


_FORMS = {
    "limit": _LIMITS,
    "analyst_limit": _LIMITS,
    "limits": "for instance {per_minute: 120, concurrent: 32}",
    "tls": "{certificate: FILE, key: FILE}",
    "seed": "a whole number, in tests alone",
}


def _unknown(loc: tuple[int | str, ...]) -> str:
    parts: dict[str, type[BaseModel]] = {
        "limit": Limit, "analyst_limit": Limit, "limits": Limits, "tls": Tls,
    }  # fmt: skip
    model = parts[str(loc[0])] if len(loc) > 1 else Config
    known = [item.alias or name for name, item in model.model_fields.items()]
    close = nearest(str(loc[-1]), known)
    hint = f"Did you mean {close}?" if close else f"There are {', '.join(known)}."
    return f"is not a key that is known. {hint}"


_MISSING: dict[str, str] = {
    "dataset": "Name the data set, as its schema does.",
    "table": "Give a file, a URL or demo:census.",
    "ledger": "Name a file that does not exist yet; it is made.",
    "limit": "Give for instance {epsilon: 4, delta: 1e-6}: what everything together may come to.",
    "access": "Name a file for tokens and sessions; it is made.",
    "audit_log": "Name a file for the audit trail; it is made.",
}
