"""All laws by their kind, and the law of a whole published table, which a learner receives with its rows."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from discreet.errors import ParameterError
from discreet.noise_law._column import (
    Additive,
    BoundedLaw,
    Clear,
    CorrelatedGaussianLaw,
    GaussianLaw,
    InRangeLaw,
    InvariantLaw,
    JointBoundedLaw,
    JointResponseLaw,
    LaplaceLaw,
    Law,
    ResponseLaw,
    SampledLaw,
    SphericalLaw,
)
from discreet.noise_law._made_up import MaskedLabelLaw, MaskedLaw, MaskedSvmLaw, SyntheticLaw

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from discreet.noise_law._column import Law
    from discreet.schema import Column
    from discreet.schema.column import Level

KINDS: dict[str, type[Law]] = {
    law.kind: law
    for law in (
        Clear,
        GaussianLaw,
        LaplaceLaw,
        SphericalLaw,
        BoundedLaw,
        InRangeLaw,
        ResponseLaw,
        JointResponseLaw,
        SampledLaw,
        InvariantLaw,
        MaskedLaw,
        MaskedSvmLaw,
        MaskedLabelLaw,
        SyntheticLaw,
    )
}
"""Class of each law by its ``kind``; a method with a new law adds it here."""


def law_from_dict(values: Mapping[str, Any]) -> Law:
    """Return the law that :meth:`Law.to_dict` wrote; raise ParameterError for unknown kinds and keys."""
    rest = dict(values)
    kind = KINDS.get(str(rest.pop("kind", "")))
    if kind is GaussianLaw and "covariances" in rest:
        kind = CorrelatedGaussianLaw
    if kind is BoundedLaw and "covariances" in rest:
        kind = JointBoundedLaw
    if kind is None or set(rest) != {f.name for f in dataclasses.fields(kind)}:
        raise ParameterError(
            f"The law of a column must be of a kind among {', '.join(sorted(KINDS))} with all of its keys. "
            "It may have been written by a newer version."
        )
    if kind is SampledLaw:
        rest["law"] = law_from_dict(rest["law"])
    return kind(**rest)


_KEYS = frozenset(("name", "type", "role", "lower", "upper", "levels", "missing", "origin", "law"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLaw:
    """One published column: the declared values of a true cell, and the law of the published one.

    Attributes
    ----------
    name : str
        Name of the column in the file.
    law : Law
        Distribution of a published cell given the true one.
    type : str
        Declared type: number, integer, date, datetime or category.
    role : str
        Declared role; "target" is the label, every other column is a feature.
    lower, upper : float or None
        Declared range of a number in the unit of the file, which noise may leave; None for a category.
    levels : tuple or None
        Declared list of a category, with None for a missing cell and without "not published"; None for a
        number.
    missing : bool
        Whether a true cell may be missing.
    origin : str or None
        From when the range counts, in ISO 8601, for a date or datetime that is written as such; else None.
    step : str or None
        Step in which such a datetime is counted: hour, minute or second; None for all others.

    Examples
    --------
    >>> from discreet.noise_law import ColumnLaw, GaussianLaw
    >>> ColumnLaw(name="age", lower=0, upper=100, law=GaussianLaw(variance=400.0)).law.variance
    400.0
    """

    name: str
    law: Law
    type: str = "number"
    role: str = "sensitive"
    lower: float | None = None
    upper: float | None = None
    levels: tuple[Level, ...] | None = None
    missing: bool = False
    origin: str | None = None
    step: str | None = None

    def __post_init__(self) -> None:
        """Check that law, list and range fit each other."""
        where = f"The law of column {self.name!r}"
        if self.levels is not None:
            object.__setattr__(self, "levels", tuple(self.levels))
        cell = self.cell_law
        if self.is_category:
            count = len(self.levels or ())
            # By repr: 1, True and 1.0 are equal to Python, and different levels of a list.
            if count < 2 or len(set(map(repr, self.levels or ()))) != count:
                raise ParameterError(
                    f"{where} must have a list of at least two levels, each once, had {count}. "
                    "Take it from the statement of the release."
                )
            if isinstance(cell, ResponseLaw) and cell.levels != count:
                raise ParameterError(
                    f"{where} must be for the {count} levels of its list, was for {cell.levels}. "
                    "Take law and list from one statement."
                )
            if isinstance(self.law, SampledLaw) and self.law.unpublished in (self.levels or ()):
                raise ParameterError(
                    f"{where} must have a word for 'not published' that is no level, had "
                    f"{self.law.unpublished!r}. A missing cell says something, an unpublished one does not."
                )
        else:
            low, high = self.lower, self.upper
            if low is None or high is None or not (math.isfinite(high - low) and low < high):
                raise ParameterError(
                    f"{where} must have a finite declared range, had {low} to {high}. "
                    "Take it from the statement of the release."
                )
            if isinstance(cell, ResponseLaw | JointResponseLaw):
                raise ParameterError(
                    f"{where} must have a list of levels for randomized response, had a range."
                )
            if isinstance(self.law, SampledLaw) and self.missing:
                raise ParameterError(
                    f"{where} must not both be sampled and have missing numbers: NaN cannot say which. "
                    "Bin the numbers, and missing becomes a level."
                )
        if (
            isinstance(cell, ResponseLaw | JointResponseLaw)
            # A chance of 1 / levels may have lost its last digits in rounding.
            and not 1 - 2.0**-40 <= cell.keep * cell.levels <= cell.levels
        ):
            raise ParameterError(
                f"{where} must keep a cell with a chance from 1/{cell.levels} to 1, had {cell.keep!r}."
            )
        if isinstance(cell, Additive) and not (math.isfinite(cell.variance) and cell.variance >= 0):
            raise ParameterError(f"{where} must have a variance of at least 0, had {cell.variance!r}.")

    @property
    def is_category(self) -> bool:
        """Whether cells come from a list."""
        return self.type == "category"

    @property
    def cell_law(self) -> Law:
        """The law of a cell that is published."""
        return self.law.law if isinstance(self.law, SampledLaw) else self.law

    def is_randomized_with(self, other: ColumnLaw) -> bool:
        """Return whether both columns have one law and are published in the same rows."""
        shown = [
            (law.picked, law.among) if isinstance(law, SampledLaw) else None for law in (self.law, other.law)
        ]
        return self.cell_law == other.cell_law and shown[0] == shown[1]

    @property
    def is_clear(self) -> bool:
        """Whether cells are published as they are."""
        return isinstance(self.cell_law, Clear)

    @property
    def width(self) -> float:
        """Upper minus lower bound."""
        assert self.lower is not None
        assert self.upper is not None
        return self.upper - self.lower

    @property
    def fill(self) -> float:
        """Number that the release put in place of a missing one: the middle of the range."""
        assert self.lower is not None
        middle = self.lower + self.width / 2
        # Integers and dates are filled with one of their own values.
        return middle if self.type == "number" else float(math.floor(middle))

    @classmethod
    def from_column(cls, column: Column, law: Law) -> Self:
        """Return the law of a published column together with its declaration."""
        sampled = law.unpublished if isinstance(law, SampledLaw) else None
        written = column.is_calendar and (column.role == "public" or isinstance(law, SyntheticLaw))
        return cls(
            name=column.name,
            law=law,
            type=str(column.type),
            role=column.role,
            lower=column.range[0] if column.is_number else None,
            upper=column.range[1] if column.is_number else None,
            levels=tuple(level for level in column.levels if sampled is None or level != sampled)
            if column.is_category
            else None,
            missing=not column.required,
            origin=str(column.lower) if written else None,
            step=column.step if written else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        levels = None if self.levels is None else list(self.levels)
        plain = {key: getattr(self, key) for key in _KEYS - {"levels", "law"}}
        if self.step is not None:
            plain["step"] = self.step
        return {**plain, "levels": levels, "law": self.law.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the law that :meth:`to_dict` wrote; raise ParameterError for unknown keys."""
        if set(values) - {"step"} != _KEYS:
            raise ParameterError(
                f"A column of a noise law must have the keys {', '.join(sorted(_KEYS))}, had "
                f"{', '.join(sorted(values))}. It may have been written by a newer version."
            )
        return cls(**{**values, "law": law_from_dict(values["law"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseLaw:
    """Distribution of every cell of a published table given the true one.

    Parameters
    ----------
    columns : sequence of ColumnLaw
        Laws of all columns of the file, in order; at most one has the role "target".

    Privacy
    -------
    Public: it follows from what was declared and is part of the statement of every release.

    Reference
    ---------
    docs/explanation/theorems/noise-aware.md

    Examples
    --------
    >>> from discreet.noise_law import Clear, ColumnLaw, GaussianLaw, NoiseLaw
    >>> law = NoiseLaw(columns=[
    ...     ColumnLaw(name="age", lower=0, upper=100, law=GaussianLaw(variance=400.0)),
    ...     ColumnLaw(name="owner", type="category", levels=("no", "yes"), role="target", law=Clear()),
    ... ])
    >>> law.clear, law == NoiseLaw.from_dict(law.to_dict())
    (('owner',), True)
    """

    kind: ClassVar[str] = "noise-law"
    columns: tuple[ColumnLaw, ...]

    def __post_init__(self) -> None:
        """Check names and target, and that groups and sampling of the columns agree."""
        object.__setattr__(self, "columns", tuple(self.columns))
        names = [column.name for column in self.columns]
        labels = [column.name for column in self.columns if column.role == "target"]
        if not names or len(set(names)) != len(names):
            raise ParameterError("columns of NoiseLaw must be at least one, each name once, and are not.")
        if len(labels) > 1:
            raise ParameterError(
                f"columns of NoiseLaw must have one target at most, had {', '.join(labels)}."
            )
        self._check_groups()
        self._check_sampling()

    def _check_groups(self) -> None:
        """Check that columns randomized together share one law with the right number of combinations."""
        for column in self.columns:
            law = column.cell_law
            if not isinstance(law, JointResponseLaw):
                continue
            members = [self._find(name) for name in law.columns]
            if column.name not in law.columns or any(
                m is None or not column.is_randomized_with(m) for m in members
            ):
                raise ParameterError(
                    f"Columns randomized together must all have the same law, and {column.name!r} is in a "
                    f"group of {', '.join(law.columns)} that has not. Take the law from one statement."
                )
            if law.levels != math.prod(len(m.levels or ()) for m in members if m is not None):
                raise ParameterError(
                    f"The group of {', '.join(law.columns)} must have as many combinations as its lists "
                    f"give, had {law.levels}. Take law and lists from one statement."
                )

    def _check_sampling(self) -> None:
        """Check that all sampled columns, none of them the target, are drawn from the same set."""
        sampled = [c for c in self.columns if isinstance(c.law, SampledLaw)]
        choices = {(c.law.picked, c.law.among) for c in sampled if isinstance(c.law, SampledLaw)}
        if not sampled:
            return
        if any(c.role == "target" for c in sampled):
            raise ParameterError("The target of a noise law must be published in every row, and is sampled.")
        # Columns that are randomized together are picked together.
        units = {c.cell_law.columns if isinstance(c.cell_law, JointResponseLaw) else c.name for c in sampled}
        if choices != {(next(iter(choices))[0], len(units))}:
            raise ParameterError(
                f"Sampled columns of a noise law must all be among the {len(units)} that a row's are picked "
                "from, and say otherwise. Take every column of the release."
            )

    def _find(self, name: str) -> ColumnLaw | None:
        return next((column for column in self.columns if column.name == name), None)

    @property
    def features(self) -> tuple[ColumnLaw, ...]:
        """Every column but the label."""
        return tuple(column for column in self.columns if column.role != "target")

    @property
    def label(self) -> ColumnLaw | None:
        """The column that learners predict, if there is one."""
        return next((column for column in self.columns if column.role == "target"), None)

    @property
    def clear(self) -> tuple[str, ...]:
        """Names of the columns that are published unchanged, without protection."""
        return tuple(column.name for column in self.columns if column.is_clear)

    @property
    def column_sample(self) -> tuple[int, int] | None:
        """Number of columns that a row shows and number it chooses from; None if it shows all."""
        laws = [column.law for column in self.columns if isinstance(column.law, SampledLaw)]
        return (laws[0].picked, laws[0].among) if laws else None

    @classmethod
    def from_columns(cls, columns: Iterable[tuple[Column, Law]]) -> Self:
        """Return the law of a published table from its declared columns and their laws."""
        return cls(columns=tuple(ColumnLaw.from_column(column, law) for column, law in columns))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, from which :meth:`from_dict` makes an equal law."""
        return {"kind": self.kind, "columns": [column.to_dict() for column in self.columns]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the law that :meth:`to_dict` wrote."""
        if values.get("kind") != cls.kind or set(values) != {"kind", "columns"}:
            raise ParameterError(
                f"A noise law must have the kind {cls.kind!r} and its columns. Write it with to_dict()."
            )
        return cls(columns=tuple(ColumnLaw.from_dict(column) for column in values["columns"]))
