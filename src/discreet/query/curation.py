"""The curated table: what private rows look like to the engine, and nothing else does.

Every released column becomes one column of small integers, never NULL:

- a number is clamped to its bounds and put on a grid of 2**20 steps;
- a whole number or a date is counted from its lower bound, exactly, unless it has more steps than that;
- a category is its position among the declared levels, where "other" and "missing" are levels;
- a number that may be missing holds its declared fill then, and has a column of 0 and 1 beside it.

So no sum over it can overflow, divide by zero, meet a NULL or depend on the order of rows, on any engine.
Columns are called ``c0``, ``c1``, ... and flags ``m0``, ``m1``, ...: names never enter the SQL. Where people
shall be found again in another database, 60 bits of a fingerprint of their id are in ``i0``, ``i1``, ``i2``.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from discreet.errors import ParameterError, SchemaError
from discreet.query._person_signs import ID_BITS, LANE_BITS, id_lanes
from discreet.schema.column_checks import LARGEST_NUMBER
from discreet.schema.notation import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlglot.expressions import Expr as Tree

    from discreet._types import AnyArray, Words
    from discreet.schema import Column, Schema
    from discreet.schema.column import Level

BITS = 20
"""Grid of a number: n rows sum to less than 2**63 up to n = 8.8e12."""
LARGEST_VALUE = LARGEST_NUMBER
"""How large a number may be, declared or computed: sums of such numbers stay far from the end of floats."""
TABLE = "curated"
_PRIME = 2**31 - 1
_LANES = 2
_IDS = tuple(f"i{i}" for i in range(ID_BITS // LANE_BITS))
_MOST_COLUMNS = 2048  # a row's checksum then stays below 2**63 in every engine


@dataclass(frozen=True, slots=True)
class Curated:
    """One column of the curated table.

    Attributes
    ----------
    name : str
        Declared name of the column.
    sql : str
        Name of the column in the engine.
    flag : str or None
        Name of the column that is 1 where the cell was missing and 0 elsewhere; None if none can be.
    top : int
        Largest integer of a cell; the smallest is 0.
    lower, step : float
        An integer ``i`` stands for ``lower + step * i``; for a category the code itself.
    levels : tuple
        Declared levels of a category; empty for a number.
    fill : int
        Integer in place of a missing number.
    whole : bool
        Whether the integers are the cells themselves, counted from ``lower``.
    """

    name: str
    sql: str
    flag: str | None
    top: int
    lower: float
    step: float
    levels: tuple[Level, ...]
    fill: int
    whole: bool

    @property
    def is_category(self) -> bool:
        """Whether cells are codes."""
        return bool(self.levels)

    def encode(self, values: AnyArray) -> AnyArray:
        """Return cells of :meth:`Table.batches` as integers."""
        if self.levels:
            return np.asarray(values, np.int32)
        cells = np.asarray(values, np.float64)
        known = np.clip(np.where(np.isnan(cells), self.lower, cells), self.lower, self._upper) - self.lower
        # floor(x + 1/2), not round(): engines and languages disagree about ties.
        steps = known if self.whole else known / (self.step * self.top) * self.top
        index = np.minimum(np.floor(steps + 0.5), self.top).astype(np.int32)
        return np.where(np.isnan(cells), np.int32(self.fill), index)

    @property
    def _upper(self) -> float:
        return self.lower + self.step * self.top

    def nearest_index(self, value: float) -> int:
        """Return the smallest integer whose value is at least ``value``, within 0 and ``top + 1``."""
        if math.isnan(value):
            raise ParameterError(f"An edge on column {self.name!r} must be a number, was nan.")
        guess = (value - self.lower) / self.step
        index = int(min(max(math.ceil(guess), 0), self.top + 1))
        # The quotient may be off by a rounding; the decoded value decides.
        while index > 0 and self.lower + self.step * (index - 1) >= value:
            index -= 1
        while index <= self.top and self.lower + self.step * index < value:
            index += 1
        return index


@dataclass(frozen=True, slots=True)
class Version:
    """Which rows a curated table holds: their number and two sums of row fingerprints.

    Privacy
    -------
    Private. An attacker who knows all rows but one could test guesses at that one against it, so it is kept
    in the curator's process and is written down only under a secret key.
    """

    n_rows: int
    checksum: tuple[int, ...]

    def digest(self, key: bytes) -> str:
        """Return a name for these rows that reveals nothing without the key."""
        text = ",".join(map(str, (self.n_rows, *self.checksum)))
        return hashlib.blake2b(text.encode(), key=key[:64], digest_size=32).hexdigest()


@dataclass(frozen=True)
class Curation:
    """Public layout of a curated table, made by :meth:`from_schema`.

    Attributes
    ----------
    schema : Schema
        Schema of the table, with its declared columns.
    columns : tuple of Curated
        Layout of each released column, in the order of the schema.
    ids : bool
        Whether fingerprints of ids are kept, for sums that other databases have about the same people.

    Privacy
    -------
    The layout depends on the schema alone. Cells outside their bounds are clamped in silence.

    Reference
    ---------
    Blum, Dwork, McSherry and Nissim (2005) sum real numbers; on integers the sum and its sensitivity are
    exact: docs/explanation/theorems/sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet.schema import Column, Schema
    >>> curation = Curation.from_schema(Schema(columns=[Column("x", lower=0, upper=1)]))
    >>> curation.encode({"x": np.array([0.1, 0.3, 5.0])})["c0"].tolist()
    [104858, 314573, 1048576]
    """

    schema: Schema
    columns: tuple[Curated, ...]
    ids: bool = False

    @classmethod
    def from_schema(cls, schema: Schema, *, ids: bool = False) -> Curation:
        """Return the layout of the released columns of a schema, with fingerprints of ids if `ids`."""
        released = schema.released
        if ids and (schema.id_column is None or schema.max_rows_per_unit != 1):
            raise SchemaError(
                "id_column of a schema must be given, with max_rows_per_unit=1, where ids are kept, and "
                f"{'was left out' if schema.id_column is None else 'allows more rows'}. People of another "
                "database are found by it: declare a column of role id that has each of them once."
            )
        if not 0 < len(released) <= _MOST_COLUMNS:
            raise SchemaError(
                f"A private database must have 1 to {_MOST_COLUMNS} released columns, and the schema has "
                f"{len(released)}. Give a column another role."
            )
        return cls(schema, _layouts(SchemaKey(schema)), ids)

    @cached_property
    def _index(self) -> dict[str, Curated]:
        return {column.name: column for column in self.columns}

    def column(self, name: str) -> Curated:
        """Return the curated column of that name."""
        if name not in self._index:
            close = nearest(name, self._index)
            hint = f"Did you mean {close!r}?" if close else f"It has {', '.join(self._index)}."
            raise ParameterError(f"A query must name released columns, was {name!r}. {hint}")
        return self._index[name]

    def identifiers(self) -> tuple[str, ...]:
        """Return the SQL names of all columns of the curated table, in order."""
        cells = tuple(name for column in self.columns for name in (column.sql, column.flag) if name)
        return cells + (_IDS if self.ids else ())

    def id_identifiers(self) -> tuple[str, ...]:
        """Return the SQL names of the columns that hold fingerprints of ids."""
        if not self.ids:
            raise ParameterError(
                "A question about signs of ids must be asked of a table that was registered with its ids, "
                "and this one was not. Register it with Database(..., keep_ids=True), or a service with "
                "keep_ids: true in its configuration."
            )
        return _IDS

    def small(self, identifier: str) -> bool:
        """Return whether the integers of an SQL column fit SMALLINT."""
        if identifier in _IDS:
            return False
        return identifier.startswith("m") or self.columns[int(identifier[1:])].top < 2**15

    def sql_column(self, name: str) -> Tree:
        """Return the SQL column that holds a declared column, or the flag named ``<column>_missing``."""
        if name not in self._index:
            for column in self.columns:
                declared = self.schema.column(column.name)
                if column.flag is not None and declared.missing_flag == name:
                    return exp.column(column.flag)
        return exp.column(self.column(name).sql)

    def encode(self, batch: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
        """Return a batch of rows as the integers of the curated table, int32 arrays by SQL name."""
        arrays: dict[str, AnyArray] = {}
        for column in self.columns:
            values = batch[column.name]
            arrays[column.sql] = column.encode(values)
            if column.flag is not None:
                arrays[column.flag] = np.isnan(values).astype(np.int32)
        return arrays

    def encode_ids(self, fingerprints: Words) -> dict[str, AnyArray]:
        """Return fingerprints of ids as the integers of the curated table, int32 arrays by SQL name."""
        return dict(zip(_IDS, id_lanes(fingerprints), strict=True))

    def name_arrays(self, arrays: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
        """Return curated arrays by the names that expressions use, of columns and their flags."""
        result: dict[str, AnyArray] = {}
        for column in self.columns:
            if column.sql in arrays:
                result[column.name] = arrays[column.sql]
            if column.flag is not None and column.flag in arrays:
                result[self.schema.column(column.name).missing_flag or ""] = arrays[column.flag]
        return result

    @cached_property
    def _weights(self) -> list[list[int]]:
        """For each lane a public multiplier per SQL column and a last one, fixed by the schema."""
        names = (*self.identifiers(), "")
        schema = self.schema.digest
        return [
            [
                int.from_bytes(hashlib.sha256(f"{lane}:{name}:{schema}".encode()).digest()[:8]) % (_PRIME - 1)
                + 1
                for name in names
            ]
            for lane in range(_LANES)
        ]

    def checksum(self, arrays: Mapping[str, AnyArray]) -> tuple[int, ...]:
        """Return the sums of the fingerprints of rows; sums of batches add up to those of the table."""
        sums = []
        for weights in self._weights:
            *per_column, last = weights
            total = np.full(len(next(iter(arrays.values()))), last, np.int64)
            for name, weight in zip(self.identifiers(), per_column, strict=True):
                total += arrays[name].astype(np.int64) * weight
            total %= _PRIME
            sums.append(int(np.sum(total * total % _PRIME)))
        return tuple(sums)

    def checksum_sql(self) -> list[Tree]:
        """Return the same fingerprints as integer expressions over the curated table."""
        return [self._fingerprint(weights) for weights in self._weights]

    def _fingerprint(self, weights: list[int]) -> Tree:
        """Return the fingerprint of a row as an integer expression.

        Notes
        -----
        ``(w_0 c_0 + ... + w_k) ** 2 mod p`` with ``p = 2**31 - 1``, public weights ``w`` and the integers
        ``c`` of the row, as in :meth:`checksum`.
        """
        *per_column, last = weights
        terms: list[Tree] = [
            exp.Mul(this=bigint(exp.column(name)), expression=bigint(exp.Literal.number(weight)))
            for name, weight in zip(self.identifiers(), per_column, strict=True)
        ]
        linear = exp.Mod(
            this=exp.Paren(this=balanced_sum([*terms, bigint(exp.Literal.number(last))])),
            expression=bigint(exp.Literal.number(_PRIME)),
        )
        square = exp.Mul(this=exp.Paren(this=linear), expression=exp.Paren(this=linear.copy()))
        return exp.Mod(this=exp.Paren(this=square), expression=bigint(exp.Literal.number(_PRIME)))

    def __iter__(self) -> Iterator[Curated]:
        return iter(self.columns)


class SchemaKey:
    """A schema by identity: equal ones may list levels of other types, such as 1 and True."""

    __slots__ = ("schema",)

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SchemaKey) and other.schema is self.schema


@lru_cache(maxsize=16)
def _layouts(same: SchemaKey) -> tuple[Curated, ...]:
    # Kept, because every text of a question is parsed against a layout of all columns.
    return tuple(_layout(i, column) for i, column in enumerate(same.schema.released))


def bigint(expression: Tree) -> Tree:
    """Cast to 64 bits."""
    return exp.Cast(this=expression, to=exp.DataType.build("BIGINT"))


def balanced_sum(terms: list[Tree]) -> Tree:
    """Add terms as a tree of logarithmic depth: engines limit how deep an expression may be."""
    while len(terms) > 1:
        pairs = [terms[i : i + 2] for i in range(0, len(terms), 2)]
        terms = [
            exp.Paren(this=exp.Add(this=pair[0], expression=pair[1])) if len(pair) == 2 else pair[0]
            for pair in pairs
        ]
    return terms[0]


def _layout(i: int, column: Column) -> Curated:
    """Return the layout of the i-th released column.

    Whole numbers and dates with a range of at most ``2**BITS`` keep their own steps; other numbers get
    ``2**BITS`` steps.
    """
    sql = f"c{i}"
    if column.is_category:
        levels = column.levels
        return Curated(column.name, sql, None, len(levels) - 1, 0.0, 1.0, levels, 0, True)
    lower, upper = column.range
    width = upper - lower
    whole = column.type in ("integer", "date") and width <= 2**BITS
    top = round(width) if whole else 2**BITS
    flag = None if column.required else f"m{i}"
    bare = Curated(column.name, sql, flag, top, lower, width / top, (), 0, whole)
    fill = int(bare.encode(np.array([column.fill]))[0])
    return Curated(column.name, sql, flag, top, lower, width / top, (), fill, whole)
