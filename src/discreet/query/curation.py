"""The curated table: what private rows look like to the engine, and nothing else does.

A released column becomes columns of numbers, never NULL:

- a whole number or a date is counted from its lower bound, exactly, in ``c``; if its range has 2**31 steps or
  more it is kept as any other number;
- a number is clamped to its bounds and kept in ``v`` as it is, for comparisons, cells of histograms, the
  choice of rows and the version of a table; beside it, in ``c``, is its place on a grid of 2**30 steps, for
  sums;
- a category is its position among the declared levels, where "other" and "missing" are levels;
- a number that may be missing holds its declared fill then, and has a column of 0 and 1 beside it.

Sums are over integers, so none can overflow up to 2**32 rows, meet a NULL or depend on the order of rows, on
any engine. Only two things are changed in a cell before it is compared: it is clamped, and counts as 0 if it
is nearer to zero than 2**-448 (1.4e-135), so that no product of two cells falls below the normal floats.

Columns are called ``c0``, ``v0``, ``m0``, ``c1``, ...: names never enter the SQL. Where people shall be found
again in another database, 60 bits of a fingerprint of their id are in ``i0``, ``i1``, ``i2``; under any other
schema with an ``id_column``, 64 bits of a salted one are in ``u``, by which people are counted.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from discreet.arguments import nearest
from discreet.errors import ParameterError, SchemaError
from discreet.query._person_signs import ID_BITS, LANE_BITS, id_lanes
from discreet.schema.column_checks import LARGEST_NUMBER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sqlglot.expressions import Expr as Tree

    from discreet._types import AnyArray, Floats, Ints, Words
    from discreet.schema import Column, Schema
    from discreet.schema.column import Level

BITS = 30
"""Grid on which numbers are summed: a sum over n rows is off by n * 2**-30 of the range at most."""
LARGEST_VALUE = LARGEST_NUMBER
"""How large a number may be, declared or computed: sums of such numbers stay far from the end of floats."""
TABLE = "curated"
LEAST_MAGNITUDE = 2.0**-448
"""Cells nearer to zero count as 0; every declared range is wider."""
_WHOLE_TOP = 2**31 - 1  # whole numbers with more steps do not fit the integers of every engine
_UNIT = "u"
_IDS = tuple(f"i{i}" for i in range(ID_BITS // LANE_BITS))
_MOST_COLUMNS = 2048
_MIXER = np.uint64(0xBF58476D1CE4E5B9)  # of the finalizer of SplitMix64


@dataclass(frozen=True, slots=True)
class Curated:
    """One column of the curated table.

    Attributes
    ----------
    name : str
        Declared name of the column.
    sql : str
        Name of the column of integers in the engine.
    values : str or None
        Name of the column of unrounded numbers; None where the integers are exact.
    flag : str or None
        Name of the column that is 1 where the cell was missing and 0 elsewhere; None if none can be.
    top : int
        Largest integer of a cell; the smallest is 0.
    lower, upper : float
        Declared bounds of a number; those of the codes for a category.
    levels : tuple
        Declared levels of a category; empty for a number.
    fill : float
        Number in place of a missing one.
    """

    name: str
    sql: str
    values: str | None
    flag: str | None
    top: int
    lower: float
    upper: float
    levels: tuple[Level, ...]
    fill: float

    @property
    def is_category(self) -> bool:
        """Whether cells are codes."""
        return bool(self.levels)

    @property
    def whole(self) -> bool:
        """Whether the integers are the cells themselves, counted from ``lower``."""
        return self.values is None

    @property
    def exact(self) -> str:
        """Name of the column that is compared: the unrounded numbers, or integers that are exact."""
        return self.values or self.sql

    @property
    def step(self) -> float:
        """Width of a step: an integer ``i`` stands for ``lower + step * i``, for a category for a code."""
        return 1.0 if self.whole else (self.upper - self.lower) / self.top

    def encode(self, values: AnyArray) -> dict[str, AnyArray]:
        """Return cells of :meth:`Table.batches` as arrays by SQL name: int32, and float64 of ``values``."""
        if self.levels:
            return {self.sql: np.asarray(values, np.int32)}
        cells = np.clip(np.asarray(values, np.float64), self.lower, self.upper)
        missing = np.isnan(cells)
        cells[missing] = self.fill
        if self.lower <= 0.0 <= self.upper:
            cells[np.abs(cells) < LEAST_MAGNITUDE] = 0.0  # -0.0 too
        arrays: dict[str, AnyArray] = {self.sql: self.integers(cells)}
        if self.values is not None:
            arrays[self.values] = cells
        if self.flag is not None:
            arrays[self.flag] = missing.astype(np.int32)
        return arrays

    def integers(self, cells: Floats) -> AnyArray:
        """Return what is summed of numbers within the bounds: how many steps each is above the lower one."""
        places = cells - self.lower
        if not self.whole:
            places /= self.upper - self.lower
            places *= self.top
        # floor(x + 1/2), not round(): engines and languages disagree about ties.
        places += 0.5
        return places.astype(np.int32)

    def start(self, edge: float) -> float | int:
        """Return an edge as a number to compare cells of :attr:`exact` with: they are below it, or not."""
        if not self.whole:
            return float(edge)
        # In integers or fractions: the difference of two floats could be rounded to a whole number.
        lower = self.lower
        steps = (
            math.ceil(edge) - int(lower)
            if lower == int(lower)
            else math.ceil(Fraction(edge) - Fraction(lower))
        )
        return min(max(steps, 0), self.top + 1)


@dataclass(frozen=True, slots=True)
class Version:
    """Which rows a curated table holds: their number and the sum of their fingerprints modulo 2**64.

    The second sum is over fingerprints of rows with their units. Only counts of units depend on it: to other
    questions, rows whose ids were corrected are the same rows.

    Privacy
    -------
    Private. An attacker who knows all rows but one could test guesses at that one against it, so it is kept
    in the curator's process and is written down only under a secret key.
    """

    n_rows: int
    checksum: int
    unit_checksum: int = 0

    def digest(self, key: bytes, *, units: bool = False) -> str:
        """Return a name for these rows, or with `units` for rows and units; tells nothing without the key."""
        text = f"{self.n_rows},{self.checksum}" + (f",{self.unit_checksum}" if units else "")
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
    stored : frozenset of str or None
        Names of the released columns that are in the curated table, beside those of units; None for all. The
        version of the rows is over all columns in either case.

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
    >>> arrays = curation.encode({"x": np.array([0.1, 0.3, 5.0])})
    >>> arrays["v0"].tolist(), arrays["c0"].tolist()
    ([0.1, 0.3, 1.0], [107374182, 322122547, 1073741824])
    """

    schema: Schema
    columns: tuple[Curated, ...]
    ids: bool = False
    stored: frozenset[str] | None = None

    @classmethod
    def from_schema(
        cls, schema: Schema, *, ids: bool = False, stored: Iterable[str] | None = None
    ) -> Curation:
        """Return the layout of the released columns of a schema.

        Parameters
        ----------
        schema : Schema
            Declaration of the columns.
        ids : bool
            Whether fingerprints of ids are kept.
        stored : iterable of str, optional
            Names of the columns that are kept in the curated table; None for all of them.
        """
        layouts = _layouts(SchemaKey(schema))
        if ids and (schema.id_column is None or schema.max_rows_per_unit != 1):
            raise SchemaError(
                "id_column of a schema must be given, with max_rows_per_unit=1, where ids are kept, and "
                f"{'was left out' if schema.id_column is None else 'allows more rows'}. People of another "
                "database are found by it: declare a column of role id that has each of them once."
            )
        if not 0 < len(layouts) <= _MOST_COLUMNS:
            raise SchemaError(
                f"A private database must have 1 to {_MOST_COLUMNS} released columns, and the schema has "
                f"{len(layouts)}. Give a column another role."
            )
        if stored is None:
            return cls(schema, layouts, ids)
        curation = cls(schema, layouts, ids, frozenset(stored))
        for name in sorted(curation.stored or ()):
            curation.column(name)  # refuses a column that is not released
        if not curation.identifiers():
            raise ParameterError("columns of a Database must name at least one released column, was empty.")
        return curation

    @cached_property
    def _index(self) -> dict[str, Curated]:
        return {column.name: column for column in self.columns}

    def column(self, name: str) -> Curated:
        """Return the curated column of that name."""
        if name not in self._index:
            close = nearest(name, self._index)
            hint = f"Did you mean {close!r}?" if close else f"It has {', '.join(self._index)}."
            raise ParameterError(f"A query must name released columns, was {name!r}. {hint}")
        if not self._is_stored(name):
            raise ParameterError(
                f"A query must name columns that are stored, and {name!r} is not. Add it to the columns of "
                "the Database, or leave them out to store all."
            )
        return self._index[name]

    def _is_stored(self, name: str) -> bool:
        return self.stored is None or name in self.stored

    def identifiers(self) -> tuple[str, ...]:
        """Return the SQL names of all columns of the curated table, in order."""
        stored = (column for column in self.columns if self._is_stored(column.name))
        cells = ((column.sql, column.values, column.flag) for column in stored)
        return tuple(name for names in cells for name in names if name) + self.unit_identifiers()

    def exact_identifiers(self) -> tuple[str, ...]:
        """Return the SQL names of the columns that hold cells unrounded, of flags and of ids, in order."""
        cells = ((column.exact, column.flag) for column in self.columns)
        return tuple(name for names in cells for name in names if name) + (_IDS if self.ids else ())

    @property
    def has_units(self) -> bool:
        """Whether the rows of one unit can be found in the curated table."""
        return self.schema.id_column is not None

    def unit_identifiers(self) -> tuple[str, ...]:
        """Return the SQL names of the columns by which units are told apart; none if every row is a unit."""
        return _IDS if self.ids else (_UNIT,) if self.has_units else ()

    def unit_sql(self) -> Tree:
        """Return the SQL of a 64-bit integer for the unit of a row, 0 if the row has no id."""
        from sqlglot import exp  # loaded here: rows are also curated without an engine

        assert self.has_units
        if not self.ids:
            return exp.column(_UNIT)
        first, *rest = (exp.Cast(this=exp.column(name), to=exp.DataType.build("BIGINT")) for name in _IDS)
        joined: Tree = first
        for i, lane in enumerate(rest, 1):
            shifted = exp.Mul(this=lane, expression=exp.Literal.number(2 ** (i * LANE_BITS)))
            joined = exp.Add(this=joined, expression=shifted)
        return joined

    def id_identifiers(self) -> tuple[str, ...]:
        """Return the SQL names of the columns that hold fingerprints of ids."""
        if not self.ids:
            raise ParameterError(
                "A question about signs of ids must be asked of a table that was registered with its ids, "
                "and this one was not. Register it with Database(..., keep_ids=True), or a service with "
                "keep_ids: true in its configuration."
            )
        return _IDS

    def kind(self, identifier: str) -> Literal["SMALLINT", "INTEGER", "BIGINT", "DOUBLE"]:
        """Return the type of an SQL column."""
        if identifier == _UNIT:
            return "BIGINT"
        if identifier in _IDS:
            return "INTEGER"
        if is_double(identifier):
            return "DOUBLE"
        small = identifier.startswith("m") or self.columns[int(identifier[1:])].top < 2**15
        return "SMALLINT" if small else "INTEGER"

    def dtype(self, identifier: str) -> np.dtype[Any]:
        """Return the type of the arrays of an SQL column."""
        dtypes = {"DOUBLE": np.float64, "BIGINT": np.int64}
        return np.dtype(dtypes.get(self.kind(identifier), np.int32))

    def sql_name(self, name: str) -> str:
        """Return the SQL name of exact cells of a declared column, or of the flag ``<column>_missing``."""
        if name not in self._index:
            for column in self.columns:
                declared = self.schema.column(column.name)
                if column.flag is not None and declared.missing_flag == name:
                    self.column(column.name)  # refuses one that is not stored
                    return column.flag
        return self.column(name).exact

    def sql_column(self, name: str) -> Tree:
        """Return the SQL column of :meth:`sql_name`."""
        from sqlglot import exp  # as above

        return exp.Column(this=exp.to_identifier(self.sql_name(name)))  # exp.column() takes twice as long

    def encode(self, batch: Mapping[str, AnyArray], *, stored: bool = False) -> dict[str, AnyArray]:
        """Return a batch of rows as arrays by SQL name, int32 or float64; with `stored`, those stored."""
        arrays: dict[str, AnyArray] = {}
        for column in self.columns:
            if not stored or self._is_stored(column.name):
                arrays |= column.encode(batch[column.name])
        return arrays

    def id_salt(self, salt: str) -> str:
        """Return the salt of ids: that of the ledger, or none where other databases have the same ids."""
        return "" if self.ids else salt

    def encode_ids(self, fingerprints: Words) -> dict[str, AnyArray]:
        """Return fingerprints of ids, with :meth:`id_salt`, as arrays of the curated table by SQL name."""
        if not self.ids:
            return {_UNIT: fingerprints.view(np.int64)}
        return dict(zip(_IDS, id_lanes(fingerprints), strict=True))

    def name_arrays(self, arrays: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
        """Return exact curated arrays by the names that expressions use, of columns and their flags."""
        result: dict[str, AnyArray] = {}
        for column in self.columns:
            if column.exact in arrays:
                result[column.name] = arrays[column.exact]
            if column.flag is not None and column.flag in arrays:
                result[self.schema.column(column.name).missing_flag or ""] = arrays[column.flag]
        return result

    @cached_property
    def _weights(self) -> list[np.uint64]:
        """A public odd multiplier for each exact column and, last, for the unit, fixed by the schema."""
        texts = (f"{name}:{self.schema.digest}" for name in (*self.exact_identifiers(), _UNIT))
        return [np.uint64(int.from_bytes(hashlib.sha256(t.encode()).digest()[:8]) | 1) for t in texts]

    def checksums(self, arrays: Mapping[str, AnyArray]) -> tuple[int, int]:
        """Return the sums of fingerprints of rows, without and with units, modulo 2**64.

        Those of batches add up to the table's. The second is 0 in a table without the column of units.

        Notes
        -----
        The fingerprint of a row is a mixture of ``w_0 x_0 + ... + w_k x_k`` modulo 2**64, with public odd
        weights ``w`` and the exact cells ``x``, a float by its 64 bits.
        """
        total = np.zeros(len(next(iter(arrays.values()))), np.uint64)
        for name, weight in zip(self.exact_identifiers(), self._weights, strict=False):
            words = _words(arrays[name])
            words *= weight
            total += words
        if _UNIT not in arrays:
            return _sum_mixed(total), 0
        units = arrays[_UNIT].view(np.uint64) * self._weights[-1]
        return _sum_mixed(total.copy()), _sum_mixed(total + units)

    def __iter__(self) -> Iterator[Curated]:
        return iter(self.columns)


def _sum_mixed(total: Words) -> int:
    """Return the sum of mixed words modulo 2**64, and mix them in place."""
    # Without this, columns would be exchanged between rows unnoticed.
    total ^= total >> np.uint64(32)
    total *= _MIXER
    total ^= total >> np.uint64(29)
    total *= _MIXER
    return int((total ^ (total >> np.uint64(32))).sum(dtype=np.uint64))


def is_double(identifier: str) -> bool:
    """Return whether an SQL column of the curated table holds unrounded numbers."""
    return identifier.startswith("v")


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


def exact_words(values: AnyArray) -> Ints:
    """Return cells of the curated table as 64-bit integers, floats by their bits: equal for equal cells."""
    return values.view(np.int64) if values.dtype == np.float64 else values.astype(np.int64)


def _words(values: AnyArray) -> Words:
    """Return cells as new 64-bit words, which differ in low bits where floats differ in high ones."""
    words = exact_words(values).view(np.uint64)
    # A product modulo 2**64 keeps nothing of high bits but their own place.
    return words ^ (words >> np.uint64(32)) if values.dtype == np.float64 else words


def _layout(i: int, column: Column) -> Curated:
    """Return the layout of the i-th released column.

    Whole numbers and dates with a range below 2**31 keep their own steps; other numbers get ``2**BITS``.
    """
    sql = f"c{i}"
    if column.is_category:
        top = len(column.levels) - 1
        return Curated(column.name, sql, None, None, top, 0.0, float(top), column.levels, 0.0)
    lower, upper = column.range
    whole = column.is_whole and upper - lower <= _WHOLE_TOP
    values, top = (None, round(upper - lower)) if whole else (f"v{i}", 2**BITS)
    flag = None if column.required else f"m{i}"
    return Curated(column.name, sql, values, flag, top, lower, upper, (), column.fill)
