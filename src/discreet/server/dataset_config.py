"""Configuration of one data set: its table, its ledger and its limits, checked before anything is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from discreet.ledger import Rule  # noqa: TC001  # pydantic reads it
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, PosteriorOdds, Promise, PureDP
from discreet.schema import Schema  # noqa: TC001  # pydantic reads it

LIMITS = (
    "{epsilon: 1}, {epsilon: 1, delta: 1e-6}, {epsilon: 1, delta: 1e-6, queries: 100}, {rho: 0.1} or "
    "{mu: 0.5}"
)
"""Every form of a limit, for messages."""

MISSING_LIMIT = "Give for instance {epsilon: 4, delta: 1e-6}: what everything together may come to."
"""What to write where a required limit is missing."""


class ConfigPart(BaseModel):
    """Keys and values of a configuration: no other keys, no conversions, no infinite numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


Above = Annotated[float, Field(gt=0)]


class Limit(ConfigPart):
    """A budget: ``{epsilon}``, ``{epsilon, delta}``, ``{epsilon, delta, queries}``, ``{rho}`` or ``{mu}``."""

    epsilon: Above | None = None
    delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    rho: Above | None = None
    mu: Above | None = None
    queries: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _check_one_kind(self) -> Limit:
        names = [name for name in ("epsilon", "rho", "mu") if getattr(self, name) is not None]
        incomplete = (self.delta is not None and self.epsilon is None) or (
            self.queries is not None and self.delta is None
        )
        if len(names) != 1 or incomplete:
            raise ValueError(f"must be one of {LIMITS}")
        return self

    def promise(self, schema: Schema) -> Promise:
        """Return the limit as a promise about the unit and the neighbors of a schema."""
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


DatasetName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
"""Name of a data set: part of addresses, so plain letters, digits, dots, underscores and hyphens."""


def resolve_address(path: str, folder: Path) -> str:
    """Return a path relative to a folder; a URL or a bundled table stays as it is."""
    return path if "://" in path or path.startswith("demo:") else str(folder / path)


class _LedgerConfig(ConfigPart):
    """A ledger with the limits that were fixed when it was made."""

    limit: Limit
    analyst_limit: Limit | None = None
    rule: Rule = "mixed"
    order: Annotated[float, Field(gt=1, le=1e9)] | None = None

    @model_validator(mode="after")
    def _check_rule(self) -> _LedgerConfig:
        """Refuse a rule or an order without a limit that has one."""
        given = (self.limit, self.analyst_limit, getattr(self, "people_limit", None))
        limits = [limit for limit in given if limit is not None]
        ruled = any(limit.delta is not None and limit.queries is None for limit in limits)
        for key in ("rule", "order"):
            if key in self.model_fields_set and not ruled:
                raise ValueError(
                    f"{key}: must go with a limit of {{epsilon, delta}}, and there is none. Remove it: other "
                    "limits have only one rule"
                )
        if self.order is not None and self.rule != "mixed":
            raise ValueError(f"order: must go with rule: mixed, and the rule is {self.rule}. Remove it")
        return self


class PeopleConfig(_LedgerConfig):
    """People whom several data sets are about: one ledger, and one limit for all of them together.

    Attributes
    ----------
    ledger : str
        Ledger that all these data sets charge.
    limit, analyst_limit, rule, order
        As for :class:`DatasetConfig`, over all these data sets.
    """

    ledger: Annotated[str, Field(min_length=1)]


class DatasetConfig(_LedgerConfig):
    """One table of a service, with its ledger; its name is its key under ``datasets``.

    Attributes
    ----------
    name : str
        Permanent name, part of every address; that of the schema, if it declares one. A ledger of another
        data set is refused.
    table : str
        Source of the rows: a file, a URL or ``demo:census``.
    schema_file : path or None
        Schema of the table (key ``schema`` of the file); None takes the schema file beside the table.
    ledger : str
        Ledger that is charged: a file or ``postgresql://host/database#name``.
    people : str or None
        People whom the table is about, of ``people`` of the configuration, whose ledger it charges; None if
        no other table of the service counts against the same limit.
    people_limit : Limit or None
        Limit of all data sets about these people together; taken from there.
    limit, analyst_limit : Limit or None
        Limits on the sum of all charges, and on those of each analyst without a limit of their own; None for
        no limit per analyst, or for none beside that of the people.
    rule : {"mixed", "gaussian", "pure"}
        Noise that ``{epsilon, delta}`` limits admit: every kind, Gaussian alone, or pure alone.
    order : float or None
        Order above 1 of the rule "mixed"; None for the one at which the most Gaussian noise fits.
    new_ledger : bool
        Whether a table that was charged to another ledger before may be charged to this one.
    version : str or None
        Public name of this version of the rows; None for none.
    keep_ids : bool
        Whether fingerprints of ids are stored with the rows, for queries across services.
    keep : path or None
        Folder in which an encrypted copy of the curated table is kept for the next start; None for none.
    """

    name: DatasetName
    table: Annotated[str, Field(min_length=1)]
    schema_file: Path | None = Field(None, alias="schema")
    people: str | None = None
    people_limit: Limit | None = None
    ledger: Annotated[str, Field(min_length=1)]
    limit: Limit | None = None  # type: ignore[assignment]  # required without people
    new_ledger: bool = False
    version: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    keep_ids: bool = False
    keep: Path | None = None

    @field_validator("schema_file", "keep", mode="before")
    @classmethod
    def _path(cls, value: Any) -> Any:
        return Path(value) if isinstance(value, str) and value else value

    @model_validator(mode="after")
    def _check_limit(self) -> DatasetConfig:
        """Refuse a table without any limit."""
        if self.limit is None and self.people is None:
            raise ValueError(f"limit: is required. {MISSING_LIMIT}")
        return self

    def resolve_paths(self, folder: Path) -> DatasetConfig:
        """Return the entry with every relative path resolved against a folder."""
        resolved = {
            "table": resolve_address(self.table, folder),
            "ledger": resolve_address(self.ledger, folder),
            "schema_file": None if self.schema_file is None else folder / self.schema_file,
            "keep": None if self.keep is None else folder / self.keep,
        }
        return self.model_copy(update=resolved)


def shared_keys(key: str, entry: dict[str, Any], people: dict[str, PeopleConfig]) -> dict[str, Any]:
    """Return the keys that an entry has from its people; empty if it names none."""
    named = entry.get("people")
    if named is None:
        return {}
    if named not in people:
        raise ValueError(
            f"{key}.people: must be a name under people of the configuration, was {named!r}. Declare it there"
        )
    shared = people[named]
    keys = {name: getattr(shared, name) for name in shared.model_fields_set - {"limit"}}
    for name in ("ledger", "analyst_limit", "rule", "order"):
        if name in entry:
            raise ValueError(
                f"{key}.{name}: must not be set together with people, who share one ledger across their "
                "data sets. Remove it"
            )
    return {**keys, "people_limit": shared.limit}
