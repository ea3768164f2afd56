"""The documents that are published with a table: its privacy statement, and how all documents become JSON.

Everything in them is declared, or follows from what was declared, or is computed from the published file
itself; ``docs/reference/statement.md`` explains every block. The order of fields, and the docstrings of the
records, are part of the published JSON Schemas.
"""

from __future__ import annotations

import json
from typing import Any, Literal, NoReturn, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from discreet.errors import ParameterError
from discreet.formatting import list_names


def write_json(value: Any) -> str:
    """Write sorted, indented JSON with a line end: the same value gives the same bytes."""
    return json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(content: bytes, what: str) -> Any:
    """Read JSON from an untrusted file; `what` names it in errors.

    A key that stands twice in one object is refused, because two readers could then see two things, and so
    are infinities and what is not a number.
    """
    try:
        return json.loads(content.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as problem:
        raise ParameterError(
            f"{what} must be plain JSON, and is not ({_reason(problem)}). Ask for the file again."
        ) from None


def _reason(problem: Exception) -> str:
    if isinstance(problem, json.JSONDecodeError):
        return f"line {problem.lineno}, column {problem.colno}"
    if isinstance(problem, UnicodeDecodeError):
        return "not UTF-8"
    if isinstance(problem, RecursionError):
        return "nested too deeply"
    return str(problem)[:200]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return values


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


class Record(BaseModel):
    """A frozen record; unknown keys are errors, numbers are finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class Document(Record):
    """A record that is published as a file of its own, and read again by those who trust nobody."""

    def to_json(self) -> str:
        """Return the content of ``statement.json``: sorted, indented, the same for equal statements."""
        return write_json(self.model_dump(mode="json"))

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """Read the content of a ``statement.json`` that somebody else may have written.

        Raises
        ------
        ParameterError
            Names the first thing that is not as the JSON Schema says.
        """
        value = read_json(content, "statement.json")
        try:
            return cls.model_validate(value)
        except (ValidationError, RecursionError) as problem:
            first = "nested too deeply"
            if isinstance(problem, ValidationError):
                wrong = problem.errors(include_url=False, include_input=False)[0]
                first = f"{'.'.join(str(part) for part in wrong['loc'])}: {wrong['msg']}"
            raise ParameterError(
                f"statement.json must be a statement of this version, and is not ({first[:200]}). It may "
                "have been changed, or written by a newer version."
            ) from None


PRODUCT = "discreet"
STATEMENT_SCHEMA = "statement.schema.json"
"""Name of the JSON Schema of a statement, a file of this package."""


class About(Record):
    """What only people can say about a release; all of it is optional and published as it stands.

    Attributes
    ----------
    curator, purpose, contact, license : str or None
        Who publishes, what for, whom to ask, under which terms.
    supersedes : str or None
        The release that this one replaces, by its name.
    """

    curator: str | None = None
    purpose: str | None = None
    contact: str | None = None
    license: str | None = None
    supersedes: str | None = None


class Method(Record):
    """Which release it was, with everything needed to plan it again."""

    name: str
    parameters: dict[str, Any]


class PublicationHead(Record):
    """What every statement says first: the name, the maker and the words of people."""

    release: str
    product: str = PRODUCT
    product_version: str
    created: str
    dataset: str | None = None
    curator: str | None = None
    purpose: str | None = None
    contact: str | None = None
    license: str | None = None
    supersedes: str | None = None


class What(PublicationHead):
    """What was published, by whom and what for."""

    method: Method
    rows_read: int | None = Field(ge=1)
    rows_published: int = Field(ge=1)


class Unit(Record):
    """Whom the promises protect, and what counts as a change."""

    unit: str
    neighbors: Literal["replace-one", "add-remove"]
    max_rows_per_unit: int
    row_count: Literal["public", "private"]


class Definition(Record):
    """Which kinds of promise hold, in words; a release without differential privacy says so here."""

    kinds: list[str]
    differential_privacy: bool
    deployment: str
    sentences: list[str]


class Theorem(Record):
    """Where a number comes from."""

    id: str
    about: str


class ColumnNumbers(Record):
    """What was done to one published column and what that proves.

    Attributes
    ----------
    type : str
        As declared: number, integer, date, datetime or category.
    holds : str
        What the cells of the file are: number, integer, date, datetime, text or boolean. Noised integers,
        dates and datetimes are plain numbers.
    origin : str or None
        Of a date or datetime that is published as a number: from when its days or other steps are counted.
    lower, upper : float or None
        The declared range in the unit of the file; noise may leave it.
    step : float or None
        Step to which ``readable.csv`` rounds the numbers of ``data.parquet``, after clamping them to the
        range; None where it has the same cells.
    levels : list or None
        Everything that a cell of a list may hold; None in it stands for a missing cell.
    without : float or None
        The error of the best guess without the file, under the same prior as the floor.
    """

    column: str
    role: str
    type: str
    holds: str
    measure: str | None = None
    origin: str | None = None
    lower: float | None = None
    upper: float | None = None
    step: float | None = None
    levels: list[str | int | bool | None] | None = None
    missing: bool
    law: dict[str, Any]
    law_in_words: str
    epsilon: float | None = None
    floor: dict[str, Any] | None = None
    without: float | None = None
    sentence: str


class Numbers(Record):
    """The promises in full, per column and in total, with the theorems they come from."""

    promises: list[dict[str, Any]]
    epsilon: float | None = None
    delta: float | None = None
    columns: list[ColumnNumbers]
    theorems: list[Theorem]


class DeclaredBound(Record):
    """What a column may contain, and who says so."""

    column: str
    type: str
    lower: float | str | None = None
    upper: float | str | None = None
    values: list[Any] | None = None
    missing: bool
    source: str | None = None
    outside: str
    grid: float | None = None


class EarlierCharge(Record):
    """A charge to the same ledger before this one, and its row there."""

    row: int
    what: str
    when: str
    promises: list[dict[str, Any]]


class LedgerPosition(Record):
    """Where in its ledger something was charged, so that nothing before it can be left out unnoticed.

    Attributes
    ----------
    previous : str or None
        Hash of the row before that of the receipt, with which the hash of the receipt can be computed again;
        None for a model, whose charges hold more than their receipts.
    others : mapping of str to int
        How many of the rows before are no charges, by type: the opening, a data set's name, kept answers.
    head_row, head : int, str
        The last row of the ledger, and its hash, when the statement was written.
    """

    previous: str | None = None
    others: dict[str, int]
    head_row: int
    head: str


class Charges(Record):
    """What compositions of tables and of models have in common: what the limits of a service count."""

    service: str | None = None

    # A return type would replace the published JSON Schema by its own.
    @model_serializer(mode="wrap")
    def _leave_out_service(self, write: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def]  # noqa: ANN202
        """Write no empty field, so that statements of tables at hand are as they were."""
        content = write(self)
        if content.get("service") is None:
            content.pop("service", None)
        return content


class Composition(Charges):
    """What else was charged in the same ledger, and what that adds up to."""

    counted: bool
    ledger: str | None = None
    position: LedgerPosition | None = None
    receipt: dict[str, Any]
    earlier: list[EarlierCharge]
    total: str
    limit: str | None = None
    next: str
    other_ledgers: list[str] = Field(default_factory=list)


class Tuning(Record):
    """Whether the amount of noise was chosen by looking at private rows."""

    on_private_rows: Literal["no", "possible", "yes"]
    why: str


class Implementation(Record):
    """How the noise was made."""

    sampler: str
    arithmetic: str
    lattice: str
    randomness: str
    key_commitment: str
    seeded: bool
    shuffled: bool
    rows_salt: str | None = None
    total_variation: float
    post_processing: list[str]
    timing: str
    versions: dict[str, str]


class Statement(Document):
    """A privacy statement.

    Attributes
    ----------
    declared : mapping
        The whole schema, as :meth:`discreet.Schema.to_dict` writes it, and ``digest`` its hash.
    risk : mapping or None
        What attackers gain, measured on made-up people before the charge, as
        :meth:`discreet.audit.Risk.to_dict` writes it. It follows from the schema, the method and the number
        of rows. Older statements leave it out.
    attacks : list of mappings
        Attacks that anybody can run from the published file and the schema alone, as
        :meth:`discreet.audit.Guess.to_dict` writes them; how long they took is left out, written as 0. For
        synthetic and masked tables, attacks on people drawn from the published answers or the schema, as
        :meth:`discreet.audit.MemberComparison.to_dict` writes them.
    files : mapping of str to str
        SHA-256 of each file of data.

    Privacy
    -------
    May be published: nothing in it depends on private rows but through the released file.
    """

    kind: Literal["discreet-statement"] = "discreet-statement"
    version: Literal[1] = 1
    what: What
    unit: Unit
    definition: Definition
    numbers: Numbers
    declared: dict[str, Any]
    digest: str
    bounds: list[DeclaredBound]
    not_protected: list[str]
    assumptions: list[str]
    composition: Composition
    tuning: Tuning
    implementation: Implementation
    risk: dict[str, Any] | None = None
    attacks: list[dict[str, Any]]
    files: dict[str, str]

    def _repr_html_(self) -> str:
        """Return the main facts and the promises in words, for a notebook."""
        from discreet.html_tables import draw_facts  # only a notebook draws

        facts = {
            "method": self.what.method.name,
            "rows": f"{self.what.rows_published:,}",
            "columns": list_names([column.column for column in self.numbers.columns]),
            "protects": f"each {self.unit.unit} ({self.unit.neighbors})",
            "attacks": f"{len(self.attacks):,} in the statement",
        }
        return draw_facts("Privacy statement", facts.items(), notes=self.definition.sentences)

    # A return type would replace the published JSON Schema by its own.
    @model_serializer(mode="wrap")
    def _leave_out_risk(self, write: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def]  # noqa: ANN202
        """Write no empty block, so that older statements are as they were."""
        content = write(self)
        if content.get("risk") is None:
            content.pop("risk", None)
        return content


def statement_schema() -> str:
    """Return the JSON Schema of a statement, as it is published in the package."""
    schema = Statement.model_json_schema(mode="serialization")
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "A privacy statement of discreet, version 1"
    return write_json(schema)
