"""Declaration of a whole table: columns, protected unit, neighbors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, overload

import numpy as np

from discreet import formatting
from discreet.arguments import CheckedArguments, nearest
from discreet.errors import DataError, ParameterError, SchemaError
from discreet.schema.column import Column
from discreet.schema.dialect import Dialect, TextFormat
from discreet.schema.notation import PYTHON, Notation
from discreet.schema.table_checks import table_problems

if TYPE_CHECKING:
    import os

    from discreet._types import AnyArray, Floats
    from discreet.schema.dialect import FieldDraft


Neighbors: TypeAlias = Literal["replace-one", "add-remove"]


RowCount: TypeAlias = Literal["public", "private"]

_LONGEST = 60  # characters of a list of values in a notebook
_MOST_COLUMNS = 60  # that a notebook shows


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema(metaclass=CheckedArguments):
    """Public declaration of a table, made before any row is read.

    Parameters
    ----------
    columns : sequence of Column
        Every column of the table, in the order in which they are published.
    target : str, optional
        Name of the column that learners predict; the same as giving it ``role="target"``.
    neighbors : {"replace-one", "add-remove"}, default "replace-one"
        Relation between neighboring tables: one unit's rows replaced, or one unit's rows added or
        removed.
    dataset : str, optional
        Permanent name of the dataset, the same for every version of the table; it identifies the ledger.
    unit : str, default "person"
        Unit that promises protect, in the singular.
    id_column : str, optional
        Name of the column whose equal values mark the rows of one unit; None makes every row a unit.
    max_rows_per_unit : int, optional
        Largest number of rows of one unit that are used; required with ``id_column``.
    row_count : {"public", "private"}, default "public"
        Whether the number of rows is public.
    missing_values : tuple of str, default ("",)
        Texts that stand for a missing cell in a text file.
    dialect : Dialect, optional
        How the table is written as text; None for UTF-8 with a line of names, and decimal points.
    primary_key : tuple of str
        Names of the columns that identify a row.
    title, description : str, optional
        Title and description for people; None for none.
    notation : Notation
        Notation of error messages: that of Python or of a schema file.

    Privacy
    -------
    A promise protects one ``unit`` under the declared ``neighbors``. The schema itself is published
    in full with every release and holds nothing that was computed from rows.

    Reference
    ---------
    The file format is Frictionless Table Schema with one ``privacy`` block for the table and one
    for each field: ``docs/reference/schema.md``.

    Examples
    --------
    >>> schema = Schema(
    ...     columns=[Column("age", lower=0, upper=120), Column("owner", values=(0, 1))],
    ...     target="owner",
    ... )
    >>> [column.name for column in schema.features]
    ['age']
    >>> schema.clip(np.array([[130.0], [-2.0]])).tolist()
    [[120.0], [0.0]]
    """

    kind: ClassVar[str] = "schema"

    columns: Sequence[Column]
    target: str | None = None
    neighbors: Neighbors = "replace-one"
    dataset: str | None = None
    unit: str = "person"
    id_column: str | None = None
    max_rows_per_unit: int | None = None
    row_count: RowCount = "public"
    missing_values: tuple[str, ...] = ("",)
    dialect: Dialect | None = None
    primary_key: tuple[str, ...] = ()
    title: str | None = None
    description: str | None = None
    notation: InitVar[Notation] = PYTHON
    _index: dict[str, Column] = field(init=False, repr=False, compare=False)
    _digest: str | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self, notation: Notation) -> None:
        for name in ("columns", "missing_values", "primary_key"):
            given = getattr(self, name)
            if isinstance(given, Iterable) and not isinstance(given, str):
                object.__setattr__(self, name, tuple(given))
        self._normalize_target()
        problems = table_problems(self, notation)
        if problems:
            raise SchemaError(*problems)
        object.__setattr__(self, "_index", {column.name: column for column in self.columns})

    def _normalize_target(self) -> None:
        """Make ``target`` and the role of its column agree where only one of them was given."""
        if not all(isinstance(column, Column) for column in self.columns):
            return
        if self.target is None:
            names = [column.name for column in self.columns if column.role == "target"]
            object.__setattr__(self, "target", names[0] if names else None)
        promoted = tuple(
            replace(column, role="target")
            if column.name == self.target and column.role == "sensitive"
            else column
            for column in self.columns
        )
        object.__setattr__(self, "columns", promoted)

    def column(self, name: str) -> Column:
        """Return the column of that name."""
        try:
            return self._index[name]
        except KeyError:
            close = nearest(name, self._index)
            hint = f"Did you mean {close!r}?" if close else f"It has {', '.join(self._index)}."
            raise ParameterError(
                f"Schema.column: name must be a declared column, was {name!r}. {hint}"
            ) from None

    def __contains__(self, name: object) -> bool:
        return name in self._index

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all declared columns, in order."""
        return tuple(self._index)

    @property
    def released(self) -> tuple[Column, ...]:
        """Columns that are published: all but ids and dropped ones."""
        return tuple(column for column in self.columns if column.is_released)

    @property
    def features(self) -> tuple[Column, ...]:
        """Columns that are published and are not the target."""
        return tuple(column for column in self.released if column.role != "target")

    @property
    def numeric_features(self) -> tuple[Column, ...]:
        """Features with an order and a distance: numbers, integers and dates."""
        return tuple(column for column in self.features if column.is_number)

    def missing_values_of(self, column: Column) -> tuple[str, ...]:
        """Return the texts that stand for a missing cell of a column; an empty one does as in the table."""
        if column.missing_values is None:
            return self.missing_values
        return tuple(
            dict.fromkeys((*(mark for mark in self.missing_values if not mark), *column.missing_values))
        )

    def text_format(self, column: Column) -> TextFormat:
        """Return how the cells of a column are written where they are text."""
        return (self.dialect or Dialect()).text_format(column)

    @property
    def bounds(self) -> tuple[Floats, Floats]:
        """Lower and upper bounds of the numeric features, as two read-only vectors.

        A date is counted in days since its lower bound.
        """
        ranges = [column.range for column in self.numeric_features]
        lower = np.array([low for low, _ in ranges], dtype=np.float64)
        upper = np.array([high for _, high in ranges], dtype=np.float64)
        lower.setflags(write=False)
        upper.setflags(write=False)
        return lower, upper

    @overload
    def clip(self, rows: AnyArray) -> Floats: ...

    @overload
    def clip(self, rows: Mapping[str, AnyArray]) -> dict[str, AnyArray]: ...

    def clip(self, rows: AnyArray | Mapping[str, AnyArray]) -> Floats | dict[str, AnyArray]:
        """Return the rows with numbers clipped to their bounds, without a warning.

        Parameters
        ----------
        rows : array of shape (n_rows, n_numeric_features), or mapping of name to array
            Matrix of the numeric features in order, or batch with one array for each column, of which
            those that are not numbers are returned unchanged. Dates are counted in days since their
            lower bound.

        Returns
        -------
        array or dict
            A copy. NaN means missing and stays NaN: clipping neither makes nor removes a missing
            cell. Infinities go to the bounds. Clipping is idempotent.

        Privacy
        -------
        Whether or how often a value was clipped is not reported: a warning that depends on rows would
        be an unpaid release.
        """
        if isinstance(rows, Mapping):
            return {
                name: column.clip(values) if column.is_number and column.is_released else values
                for name, values in rows.items()
                for column in (self.column(name),)
            }
        lower, upper = self.bounds
        matrix = np.asarray(rows, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[1] != len(lower):
            raise DataError(
                f"Schema.clip: rows must have one column for each of the {len(lower)} numeric "
                f"features ({', '.join(c.name for c in self.numeric_features)}), had shape "
                f"{matrix.shape}. Give a mapping of names to arrays for anything else."
            )
        return np.clip(matrix, lower, upper) + 0.0

    def with_columns(self, *columns: Column) -> Schema:
        """Return a schema in which these columns replace those of the same names."""
        changed = {column.name: column for column in columns}
        for name in changed:
            self.column(name)
        return replace(self, columns=tuple(changed.get(c.name, c) for c in self.columns))

    def with_target(self, name: str) -> Schema:
        """Return a schema that predicts another column; the old target becomes sensitive, with its list."""
        self.column(name)
        columns = tuple(
            _as_sensitive(c) if c.role == "target" and c.name != name else c for c in self.columns
        )
        return replace(self, columns=columns, target=name)

    @property
    def plain(self) -> Schema:
        """The declaration of a table with the same columns that this package writes.

        It has no dialect and no codes for missing cells: what is published needs none, and a number that
        noise made must not be taken for a code.
        """
        columns = tuple(replace(column, text=None, missing_values=None) for column in self.columns)
        return replace(self, columns=columns, dialect=None, missing_values=("",))

    @property
    def digest(self) -> str:
        """SHA-256 of the schema in canonical JSON, independent of the layout of the file."""
        if self._digest is None:
            canonical = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
            object.__setattr__(self, "_digest", hashlib.sha256(canonical.encode("ascii")).hexdigest())
        assert self._digest is not None
        return self._digest

    def _repr_html_(self) -> str:
        return _draw_schema(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of a schema file, of plain JSON values."""
        from discreet.schema._document import document

        return document(self)

    def to_yaml(self) -> str:
        """Return the text of a ``*.schema.yaml`` file."""
        from discreet.schema.serialization import write_yaml

        return write_yaml(self.to_dict())

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Schema:
        """Return the schema that the content of a file declares; the inverse of :meth:`to_dict`."""
        from discreet.schema._document import read_document

        return read_document(content)

    @classmethod
    def from_yaml(cls, text: str) -> Schema:
        """Return the schema that the text of a ``*.schema.yaml`` file declares.

        Raises
        ------
        SchemaError
            With one sentence for each problem.
        """
        from discreet.schema.serialization import read_yaml

        return cls.from_dict(read_yaml(text))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schema:
        """Return the schema of a file: JSON if its name ends in ``.json``, YAML otherwise."""
        from discreet.schema.serialization import read_file

        return cls.from_dict(read_file(Path(path)))

    @staticmethod
    def draft(
        types: Mapping[str, str | FieldDraft],
        *,
        declared: Mapping[str, Mapping[str, Any]] | None = None,
        privacy: Mapping[str, Any] | None = None,
        accept_proposals: bool = False,
        dialect: Dialect | None = None,
        missing_values: Sequence[str] = ("",),
    ) -> str:
        """Return the text of a schema file for a person to complete, with ``???`` where only a person knows.

        Parameters
        ----------
        types : mapping of str to str or FieldDraft
            Name of each column and its type, one of ``number``, ``integer``, ``string``, ``boolean``,
            ``date``; or all that its table says of it.
        declared : mapping of str to mapping, optional
            What is known about some columns, from a codebook for example, as the keys of a field of a file.
        privacy : mapping of str to object, optional
            What is known about the table, such as ``dataset``, as the keys of the file's ``privacy`` block.
        accept_proposals : bool, default False
            Whether ranges that were proposed by the names of columns are confirmed in the draft already.
        dialect : Dialect, optional
            How the table is written as text; None for a table that is not text.
        missing_values : sequence of str, default ("",)
            Texts that stand for a missing cell.

        Privacy
        -------
        Its only input are names, types, formats out of fixed lists and what was declared, so no bound can
        come from a row. Columns whose names look like identifiers get a role with which they are not
        published.
        """
        from discreet.schema.draft import draft

        return draft(
            types,
            declared=declared,
            privacy=privacy,
            accept_proposals=accept_proposals,
            dialect=dialect,
            missing_values=missing_values,
        )


def _as_sensitive(target: Column) -> Column:
    """Return a target as a sensitive column with the same levels: the list of a target is closed."""
    column = replace(target, role="sensitive")
    return column if column.levels == target.levels else replace(column, closed=target.is_closed)


def _draw_schema(schema: Schema) -> str:
    """Return the columns of a schema as an HTML table, the first sixty of them."""
    from discreet.html_tables import write_cell, write_heading, write_html  # only a notebook draws

    head = [write_heading(text) for text in ("column", "type", "may hold", "role", "missing")]
    body = [
        [
            write_heading(formatting.name(column.name), "row"),
            write_cell(column.type or ""),
            write_cell(_describe_values(column)),
            write_cell(column.role),
            write_cell("no" if column.required else "yes"),
        ]
        for column in schema.columns[:_MOST_COLUMNS]
    ]
    more = len(schema.columns) - _MOST_COLUMNS
    rows = formatting.count_noun(schema.max_rows_per_unit or 1, "row")
    protected = f"Promises are for each {schema.unit} ({schema.neighbors}), with at most {rows}."
    notes = [f"… {formatting.count_noun(more, 'more column')}." if more > 0 else "", protected]
    return write_html(schema.title or schema.dataset or "Schema", head, body, filter(None, notes))


def _describe_values(column: Column) -> str:
    """Return the declared range or list of a column, shortened."""
    if column.values is not None:
        return formatting.shorten(", ".join(map(str, column.values)), _LONGEST)
    if column.lower is None or column.upper is None:
        return ""
    bounds = [
        formatting.number(bound) if isinstance(bound, int | float) else str(bound)
        for bound in (column.lower, column.upper)
    ]
    return formatting.append_unit(" to ".join(bounds), column.measure)
