"""Configuration of a service: one YAML file, every key checked before anything is opened."""

from __future__ import annotations

import ipaddress
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from pydantic import (
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from discreet.arguments import nearest
from discreet.errors import ParameterError, SchemaError
from discreet.ledger.postgres import is_postgres
from discreet.schema.serialization import read_yaml
from discreet.server.config_errors import GIVEN_KEYS, describe_errors
from discreet.server.dataset_config import (
    Above,
    ConfigPart,
    DatasetConfig,
    PeopleConfig,
    resolve_address,
    shared_keys,
)
from discreet.server.sign_in import SignInConfig  # noqa: TC001  # pydantic reads it

if TYPE_CHECKING:
    import os

_HOST = re.compile(r"[A-Za-z0-9.-]+(:[0-9]+)?|\[[0-9A-Fa-f:.]+\](:[0-9]+)?")

DEFAULT_SLOT = 1.0
"""Length of a slot in seconds: an answer is sent a whole number of slots after the engine was called."""


class Tls(ConfigPart):
    """PEM files of the certificate and its private key."""

    certificate: Path
    key: Path

    @field_validator("certificate", "key", mode="before")
    @classmethod
    def _path(cls, value: Any) -> Any:
        return Path(value) if isinstance(value, str) and value else value


class Limits(ConfigPart):
    """Limits of a service: size of a body, concurrency, rate per caller, time, cells, open connections."""

    body_bytes: Annotated[int, Field(ge=1024, le=2**28)] = 2**20
    concurrent: Annotated[int, Field(ge=1, le=1024)] = 64
    per_minute: Annotated[int, Field(ge=1, le=10**6)] = 600
    seconds: Annotated[float, Field(ge=1, le=86_400)] = 120.0
    cells: Annotated[int, Field(ge=1, le=2**22)] = 2**16
    connections: Annotated[int, Field(ge=16, le=2**16)] = 1024
    connections_per_address: Annotated[int, Field(ge=4, le=2**16)] = 128
    work_per_hour: Annotated[float, Field(ge=1, le=10**9)] = 900.0


class Config(ConfigPart):
    """Configuration of a service; relative paths are resolved against the folder of the file.

    Attributes
    ----------
    datasets : dict of str to DatasetConfig
        Tables that the service answers for, by name; at least one.
    access : str
        Store of tokens, grants, sessions and stop switches: a file, or ``postgresql://host/database#name`` so
        that several machines share it.
    people : dict of str to PeopleConfig
        People whom several of the tables are about, by a name that the tables refer to.
    audit_log : path or str
        File of the audit log, one line of JSON per event; or ``postgresql://host/database#name``, so that
        several machines share it.
    jobs_file : path or None
        File of this machine's jobs; None for one beside the audit log.
    listen : str
        Address and port to listen on, such as ``127.0.0.1:8000``.
    workers : int
        Number of processes, from 1 to 256.
    tls : Tls or None
        Certificate and private key; None for plain HTTP.
    behind_proxy : bool
        Whether a reverse proxy terminates TLS in front of the service.
    address : str or None
        Public address, such as ``https://data.example.org``: pages show it, and requests with another Host
        are refused. None accepts any Host.
    slots : float, mapping or None
        Slot length in seconds, one for all or one per kind of aggregate; None for ``slots: off``.
    limits : Limits
        Limits on sizes, rates and times of requests.
    session_hours : float
        Hours after which a browser has to log in again.
    sign_in : SignInConfig or None
        OpenID Connect provider through which people sign in to the pages; None for tokens alone.
    seed : int or None
        Seed of the noise, accepted only with ``testing: true``; None draws from the system.
    """

    people: dict[str, PeopleConfig] = Field(default={})
    datasets: Annotated[dict[str, DatasetConfig], Field(min_length=1)]
    access: Annotated[str, Field(min_length=1)]
    audit_log: Path | str
    jobs_file: Path | None = Field(default=None, alias="jobs")
    listen: str = "127.0.0.1:8000"
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    tls: Tls | None = None
    behind_proxy: bool = False
    address: str | None = None
    slots: Above | dict[str, Above] | None = DEFAULT_SLOT
    limits: Limits = Limits()
    session_hours: Annotated[float, Field(gt=0, le=720)] = 8.0
    sign_in: SignInConfig | None = None
    seed: int | None = None
    testing: bool = False

    @field_validator("datasets", mode="before")
    @classmethod
    def _name_datasets(cls, value: Any, info: ValidationInfo) -> Any:
        """Give every entry the name that is its key, and the ledger of its people."""
        if not isinstance(value, dict):
            return value
        people: dict[str, PeopleConfig] = info.data.get("people", {})
        entries = {}
        for key, entry in value.items():
            entries[key] = entry
            if isinstance(entry, dict):
                for name in GIVEN_KEYS:
                    if name in entry:
                        raise ValueError(f"{key}.{name}: must not be set. Remove it")
                entries[key] = {**entry, **shared_keys(key, entry, people), "name": key}
        return entries

    @field_validator("audit_log", "jobs_file", mode="before")
    @classmethod
    def _path(cls, value: Any) -> Any:
        return Path(value) if isinstance(value, str) and value and not is_postgres(value) else value

    @field_validator("audit_log", mode="before")
    @classmethod
    def _audit_log(cls, value: Any) -> Any:
        if not isinstance(value, str | Path) or value == "":
            raise ValueError(
                "must be the path of a file, or a postgresql:// URL. Name a file; it will be created"
            )
        return value

    @field_validator("slots", mode="before")
    @classmethod
    def _slots(cls, value: Any) -> Any:
        """Check slot lengths and return them, with None for the word off."""
        # A 0, a false or an empty value is more likely a mistake than a decision.
        if value == "off":
            return None
        lengths = value.values() if isinstance(value, dict) else [value]
        fits = all(
            isinstance(n, int | float) and not isinstance(n, bool) and 0 < n < math.inf for n in lengths
        )
        if not fits or value == {}:
            raise ValueError(
                f"must be seconds above 0, a mapping of kinds of questions to seconds, or the word off, was "
                f"{value!r}. Choose several times as long as a question usually takes, such as 1"
            )
        if isinstance(value, dict):
            # Not above: configurations are read by commands that start fast, and most name no kinds.
            from discreet.query.aggregates import AGGREGATES

            for kind in value:
                if kind not in AGGREGATES:
                    close = nearest(str(kind), list(AGGREGATES))
                    hint = f"Did you mean {close}?" if close else f"The kinds are {', '.join(AGGREGATES)}"
                    raise ValueError(f"must name kinds of questions, and {kind} is not one. {hint}")
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
        """Check that an address is scheme and host alone, and return it without a final slash."""
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
    def _check_combinations(self) -> Config:
        """Refuse keys that contradict each other, and tokens sent over unencrypted connections."""
        if self.address is not None and self.address.startswith("https:") != self.secure:
            raise ValueError(
                "address: must begin with https:// where tls or behind_proxy is given, and with http:// "
                f"elsewhere, was {self.address}. Tokens are sent there"
            )
        if self.seed is not None and not self.testing:
            raise ValueError(
                "seed: must not be set, because whoever knows the seed can compute the noise. Remove it; in "
                "tests, add testing: true instead"
            )
        if self.tls is not None and self.behind_proxy:
            raise ValueError(
                "tls: must not be set together with behind_proxy, which says that TLS ends at the proxy. "
                "Remove one of them"
            )
        if not (self.loopback or self.secure):
            raise ValueError(
                f"listen: must be a loopback address unless connections are encrypted, was {self.listen}: "
                "tokens would be sent in plain text. Set tls, or behind_proxy: true, or "
                "listen: 127.0.0.1:8000"
            )
        if isinstance(self.audit_log, str) and self.jobs_file is None:
            raise ValueError(
                "jobs: is required if audit_log is in a database. Name a file on this machine; it will be "
                "created"
            )
        if self.sign_in is not None:
            self.sign_in.check_service(self.address, self.datasets, secure=self.secure)
        return self

    @property
    def host(self) -> str:
        """The address without the port."""
        return self.listen.rpartition(":")[0].removeprefix("[").removesuffix("]")

    @property
    def port(self) -> int:
        """The port; 0 chooses any free one."""
        return int(self.listen.rpartition(":")[2])

    @property
    def loopback(self) -> bool:
        """Whether the service is reachable from this machine only."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def jobs(self) -> Path:
        """File of the jobs, beside the audit log unless the configuration names one."""
        if self.jobs_file is not None:
            return self.jobs_file
        assert isinstance(self.audit_log, Path)
        return self.audit_log.with_name(f"{self.audit_log.name}.jobs")

    @property
    def secure(self) -> bool:
        """Whether browsers connect over HTTPS."""
        return self.tls is not None or self.behind_proxy

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Config:
        """Read and check a configuration file.

        Raises
        ------
        ParameterError
            The message has one line for each unknown, missing or wrong key, with the way out.
        """
        file = Path(path)
        try:
            content = read_yaml(file.read_text(encoding="utf-8-sig"))
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
            # The YAML reader is that of schema files, and its messages name such a file.
            reason = str(problem).replace("The schema file", "it").replace("`fields:`", "`datasets:`")
            raise ParameterError(f"config {str(path)!r} must be YAML, and is not: {reason}") from None
        return cls.from_dict(content, file.parent, source=str(path))

    @classmethod
    def from_dict(cls, content: Any, folder: Path, *, source: str = "the configuration") -> Config:
        """Check the content of a configuration file; its paths are relative to `folder`."""
        if not isinstance(content, dict):
            raise ParameterError(
                f"{source} must be a mapping of keys to values, and is not. Begin with datasets:."
            )
        try:
            config = cls.model_validate(content)._resolve_paths(folder.absolute())
        except ValidationError as problem:
            raise ParameterError(describe_errors(problem, source, cls)) from None
        _check_distinct_files(config, source)
        return config

    def _resolve_paths(self, folder: Path) -> Config:
        """Return the configuration with every relative path resolved against a folder."""
        resolved: dict[str, Any] = {
            "people": {
                name: one.model_copy(update={"ledger": resolve_address(one.ledger, folder)})
                for name, one in self.people.items()
            },
            "datasets": {name: one.resolve_paths(folder) for name, one in self.datasets.items()},
            "access": resolve_address(self.access, folder),
            "audit_log": self.audit_log if isinstance(self.audit_log, str) else folder / self.audit_log,
            "jobs_file": None if self.jobs_file is None else folder / self.jobs_file,
        }
        if self.sign_in is not None:
            resolved["sign_in"] = self.sign_in.resolve_paths(folder)
        if self.tls is not None:
            resolved["tls"] = Tls(certificate=folder / self.tls.certificate, key=folder / self.tls.key)
        return self.model_copy(update=resolved)


def _check_distinct_files(config: Config, source: str) -> None:
    """Refuse one file for two purposes, since one would overwrite the other."""
    purposes: list[tuple[str, Any]] = [
        ("access", config.access), ("audit_log", config.audit_log), ("jobs", config.jobs),
    ]  # fmt: skip
    purposes += [(f"people.{name}.ledger", one.ledger) for name, one in config.people.items()]
    for name, entry in config.datasets.items():
        files: dict[str, Any] = {"table": entry.table, "schema": entry.schema_file}
        if entry.people is None:
            files["ledger"] = entry.ledger
        purposes += [(f"datasets.{name}.{key}", path) for key, path in files.items()]
    keys: dict[str, str] = {}
    for key, path in purposes:
        if path is None or str(path).startswith("demo:"):
            continue
        place = str(path) if "://" in str(path) else str(Path(path).resolve())
        other = keys.setdefault(place, key)
        # Two tables of one schema, or two views of one file, are each to themselves; a ledger is not.
        alike = {other.rpartition(".")[2], key.rpartition(".")[2]}
        if other != key and alike not in ({"table"}, {"schema"}):
            raise ParameterError(
                f"{key} of {source} must be a separate file, and is the same as {other}. Name another one."
            )
