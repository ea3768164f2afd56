"""Public map from a declared column to the few values that a coarse release publishes of it."""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from discreet.errors import ParameterError
from discreet.privacy.priors import ListPrior
from discreet.schema import Column

if TYPE_CHECKING:
    from discreet._types import AnyArray, Floats, Ints
    from discreet.schema import Level

    Cuts: TypeAlias = Mapping[str, Sequence[float | str | datetime.date]]
    Groups: TypeAlias = Mapping[str, Mapping[str, Sequence[Level]]]

MOST_VALUES = 6
"""Number of values that a number gets by default, "missing" included."""
WIDE = 1000.0
"""Upper bound from which on a nonnegative number is cut where it doubles, not in equal parts."""
MOST_CUTS = 1000
NOT_PUBLISHED = "not published"
_OWNER = "CoarseRelease"


@dataclass(frozen=True, slots=True, eq=False)
class Coding:
    """Map from one declared column to the few values that are published of it.

    Attributes
    ----------
    column : Column
        Declared column that is coded.
    values : tuple
        Published values, without the missing cell.
    cuts : array or None
        Lower ends of all values of a number but the first; None for a list.
    places : array or None
        Position in ``values`` of each declared level of a list; None for a number.
    sampled : bool
        Whether some rows do not show the column.
    """

    column: Column
    values: tuple[Level, ...]
    cuts: Floats | None = None
    places: Ints | None = None
    sampled: bool = False

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.column.name

    @property
    def levels(self) -> int:
        """Number of values, the missing cell included where there may be one."""
        return len(self.values) + (not self.column.required)

    @property
    def prior(self) -> ListPrior:
        """Uniform prior on the values of declared levels, without "other" and "missing"."""
        codes = tuple(range(len(self.values)))
        if self.places is not None:
            codes = tuple(sorted(set(self.places[: len(self.column.values or ())].tolist())))
        left_out = ", other and missing left out" * (len(codes) < self.levels)
        return ListPrior(codes, f"values that it is published with{left_out}")

    @property
    def unpublished(self) -> str | int:
        """Value in the file where a row does not show the column; it is none of ``values``."""
        if all(type(value) is int for value in self.values):
            least = min(int(value) for value in self.values if value is not None)
            return min(-1, least - 1)
        if NOT_PUBLISHED in self.values:
            raise ParameterError(
                f"groups of {_OWNER} must not give {self.name!r} the value {NOT_PUBLISHED!r}, which stands "
                "for cells that a row does not show. Call it otherwise."
            )
        return NOT_PUBLISHED

    @property
    def published(self) -> Column:
        """Column of the released table."""
        values = (*self.values, self.unpublished) if self.sampled else self.values
        return Column(
            self.name,
            values=values,
            role=self.column.role,
            required=self.column.required,
            closed=True,
            bounds_source=self.column.bounds_source,
            title=self.column.title,
            description=self.column.description,
        )

    def hidden_code(self) -> int:
        """Return the published code of "not published"."""
        return len(self.values)

    def to_published(self, codes: Ints) -> Ints:
        """Return codes of the released table for positions among the values, "missing" being the last."""
        return codes + (codes == len(self.values)) if self.sampled else codes

    def from_published(self, codes: AnyArray) -> Ints:
        """Return positions among the values for codes of the released table, none "not published"."""
        codes = np.asarray(codes, np.int64)
        return codes - (codes > len(self.values)) if self.sampled else codes

    def encode(self, cells: AnyArray) -> Ints:
        """Return the codes of true cells in the released table."""
        if self.cuts is not None:
            missing = np.isnan(cells)
            codes = np.searchsorted(self.cuts, np.where(missing, self.column.fill, cells), side="right")
            codes = np.where(missing, len(self.values), codes)
        else:
            assert self.places is not None
            codes = self.places[cells]
        return self.to_published(codes.astype(np.int64))

    def to_sampled(self) -> Coding:
        """Return the coding of a column that some rows do not show."""
        values = self.values
        if all(isinstance(value, bool) for value in values):
            # A third value, "not published", does not fit into a list of booleans.
            values = tuple("true" if value else "false" for value in values)
        return replace(self, values=values, sampled=True)


def build_coding(column: Column, cuts: Cuts, groups: Groups) -> Coding:
    """Return the coding of a column, by its given cuts or groups or by default."""
    if column.is_category:
        return _group_levels(column, groups.get(column.name, {}))
    given = cuts.get(column.name)
    points = _default_cuts(column) if given is None else _check_cuts(column, given)
    return Coding(column, _value_labels(column, points), cuts=points)


def check_names(parameter: str, given: Mapping[str, Any], columns: Sequence[Column], what: str) -> None:
    """Raise if a parameter names a column that does not exist or is of another kind."""
    known = [column.name for column in columns]
    for name in given:
        if name not in known:
            raise ParameterError(
                f"{parameter} of {_OWNER} must name protected {what} of the schema, named {name!r}. "
                f"There are {', '.join(known) or 'none'}."
            )


def _default_cuts(column: Column) -> Floats:
    """Cut the declared range at round numbers, into equal parts or, where it is wide, into doubling ones.

    Amounts that may be large are small for most people, and equal parts would put nearly everyone into the
    first. The declared range decides, not the rows.
    """
    lower, upper = column.range
    parts = MOST_VALUES - (not column.required)
    doubling = [upper / 2.0**i for i in range(parts - 1, 0, -1)]
    wide = not column.is_calendar and lower >= 0 and upper >= WIDE and doubling[0] > lower
    if column.type != "number" and not wide:
        parts = min(parts, column.n_integers)
        steps = [lower + math.ceil(i * column.n_integers / parts) for i in range(1, parts)]
        return np.array(steps, np.float64)
    exact = doubling if wide else [lower + (upper - lower) * i / parts for i in range(1, parts)]
    # Three significant digits of the width, if that leaves the points in order.
    digits = 2 - math.floor(math.log10(upper - lower))
    rounded = [round(point, digits) for point in exact]
    whole = [lower, *rounded, upper]
    fits = all(a < b for a, b in itertools.pairwise(whole))
    chosen = rounded if fits else exact
    return np.array(
        [math.ceil(point) for point in chosen] if column.type == "integer" else chosen, np.float64
    )


def _check_cuts(column: Column, given: Sequence[float | str | datetime.date]) -> Floats:
    """Return given cut points as numbers; raise if they do not increase inside the declared range."""
    where = f"cuts of {_OWNER} for {column.name!r}"
    try:
        points = [_parse_cut(column, cut) for cut in given]
    except (TypeError, ValueError):
        kind = f"{column.type}s" if column.is_calendar else "numbers"
        raise ParameterError(f"{where} must be {kind}, each larger than the one before.") from None
    lower, upper = column.range
    rising = all(a < b for a, b in itertools.pairwise([lower, *points]))
    if not points or not rising or not points[-1] <= upper or len(points) > MOST_CUTS:
        raise ParameterError(
            f"{where} must be 1 to {MOST_CUTS} points inside the declared range, each larger than the one "
            f"before, were {len(points)} that are not. A value begins at each of them, the first at the "
            "lower bound."
        )
    return np.array(points)


def _parse_cut(column: Column, cut: float | str | datetime.date) -> float:
    """Return a cut point as a number: steps for a date or datetime, rounded up for an integer."""
    if isinstance(column.lower, datetime.date):
        moment = type(column.lower).fromisoformat(cut) if isinstance(cut, str) else cut
        if not isinstance(moment, type(column.lower)):
            raise TypeError
        return float((moment - column.lower) // column.step_length)
    if isinstance(cut, bool) or not isinstance(cut, int | float | np.number) or not math.isfinite(cut):
        raise TypeError
    return float(math.ceil(cut)) if column.type == "integer" else float(cut)


def _value_labels(column: Column, cuts: Floats) -> tuple[Level, ...]:
    """Return the published name of each value, such as "17 to 24"."""
    lower, upper = column.range
    starts = [lower, *cuts.tolist()]
    if column.type == "number":
        ends = [f"under {_format_number(cut)}" for cut in cuts.tolist()] + [_format_number(upper)]
        return tuple(f"{_format_number(a)} to {b}" for a, b in zip(starts, ends, strict=True))
    lasts = [cut - 1 for cut in cuts.tolist()] + [upper]
    pairs = list(zip(starts, lasts, strict=True))
    if column.type == "integer" and all(a == b for a, b in pairs):
        return tuple(int(a) for a, _ in pairs)
    texts = [(_format_step(column, a), _format_step(column, b)) for a, b in pairs]
    return tuple(a if a == b else f"{a} to {b}" for a, b in texts)


def _format_number(value: float) -> str:
    return f"{value:.12g}"


def _format_step(column: Column, value: float) -> str:
    return str(column.moment(int(value)) if column.is_calendar else int(value))


def _group_levels(column: Column, groups: Mapping[str, Sequence[Level]]) -> Coding:
    """Return the coding of a list by given groups; levels in no group stay as they are.

    Raises
    ------
    ParameterError
        If a level is unknown, in two groups, or has the name of a group, or if one value alone is left.
    """
    where = f"groups of {_OWNER} for {column.name!r}"
    declared = [level for level in column.levels if level is not None]
    if not isinstance(groups, Mapping) or any(
        isinstance(members, str) or not isinstance(members, Sequence) for members in groups.values()
    ):
        raise ParameterError(f"{where} must give each group a list of levels, such as {{'yes': ['a', 'b']}}.")
    group_of: dict[Level, str] = {}
    for name, members in groups.items():
        for member in members:
            if member not in declared or member in group_of:
                why = "is in two groups" if member in group_of else "is none"
                raise ParameterError(
                    f"{where} must hold declared levels, each in one group at most, and {member!r} {why}. "
                    f"The levels are {', '.join(map(repr, declared))}."
                )
            group_of[member] = name
    named = [group_of.get(level, level if not groups else str(level)) for level in declared]
    values = tuple(dict.fromkeys(named))
    alone = {str(level) for level in declared if level not in group_of}
    if clash := sorted(alone & set(groups)):
        raise ParameterError(
            f"{where} must not call a group {clash[0]!r}, a level that is not in it. Put it in, or call the "
            "group otherwise."
        )
    if len(values) + (not column.required) < 2:
        raise ParameterError(
            f"{where} must leave at least two values, and leave one. Give the column role: drop in the "
            "schema."
        )
    places = [values.index(name) for name in named] + [len(values)] * (not column.required)
    return Coding(column, values, places=np.array(places, np.int64))
