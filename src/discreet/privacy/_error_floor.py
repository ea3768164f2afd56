"""Error floors as promises: the least error of any guess at a column, in the column's unit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from discreet.errors import ParameterError, PromiseError
from discreet.formatting import plain_number
from discreet.privacy._base import (
    Arithmetic,
    Promise,
    Statistic,
    check_choice,
    check_names,
    check_positive,
    set_field,
)
from discreet.privacy.rounding import exact, float_up, root_down

if TYPE_CHECKING:
    from typing import Self

    from discreet.schema.schema import Neighbors


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFloor:
    """Least error with which one column can be guessed, in the column's own unit.

    Parameters
    ----------
    error : float
        Proven lower bound on the error of any guess, averaged over `prior`; above 0.
    measure : str or None
        Name of the column's unit, such as "years"; None if it has none.
    statistic : {"root-mean-square error", "probability of a wrong guess"}
        Statistic that `error` bounds: a distance in the column's unit, or a probability.
    prior : str
        Name of the public prior, such as "uniform" or "uniform from 17 to 90".
    van_trees : float or None
        Closed-form bound under the cosine-squared prior, which may lie above `error` and composes over
        several releases; None if not proven.
    cramer_rao : float or None
        Bound for unbiased attackers only, in the column's unit; None if not stated.
    fisher_information : float or None
        Fisher information of the release about the column, rounded up, which adds up over several releases;
        None if not stated.
    """

    error: float
    measure: str | None = None
    statistic: Statistic = "root-mean-square error"
    prior: str = "uniform"
    van_trees: float | None = None
    cramer_rao: float | None = None
    fisher_information: float | None = None

    def __post_init__(self) -> None:
        check_choice("ColumnFloor", "statistic", self.statistic)
        chance = self.statistic == "probability of a wrong guess"
        check_positive(self, "error", below=1.0 if chance else None)
        for name in ("van_trees", "cramer_rao", "fisher_information"):
            if getattr(self, name) is not None:
                check_positive(self, name)

    def compose(self, m: int) -> ColumnFloor:
        """Return the floor after `m` independent releases of the same value.

        The van Trees bound is ``1 / (I + J)`` with information I of the release and J of the prior,
        so m releases give ``1 / ((m - 1) I + 1 / van_trees**2)``: both terms only err on the safe side.
        """
        if self.van_trees is None or self.fisher_information is None:
            raise PromiseError(
                "ColumnFloor must carry van_trees and fisher_information to be read for several "
                "rows or releases, and this one does not. Compute the floor of the joint release."
            )
        info, start = exact(self.fisher_information), exact(self.van_trees)
        # The stated bound stands for one release with the prior; only m - 1 more are added.
        bound = root_down(1 / ((m - 1) * info + 1 / start**2))
        return dataclasses.replace(
            self, error=bound, van_trees=bound, prior="cosine squared",
            cramer_rao=root_down(1 / (m * info)), fisher_information=float_up(m * info),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False)
class ErrorFloor(Promise):
    """Promise of a least error for any guess at a column, by any method: ``ErrorFloor(age=9)``.

    Parameters
    ----------
    columns : mapping of str to float or ColumnFloor, optional, positional
        Floors by column name, for names that are no identifiers or are keywords of this class.
    **floors : float or ColumnFloor
        Floors by column name; a bare number is the error in the column's unit.
    unpublished : tuple of str
        Columns of the table that the release neither publishes nor uses: under the independence that the
        promise assumes, it tells nothing about them. A ledger adds nothing up for them, and for a column
        that is named neither here nor above it keeps no floor.
    unit, neighbors, covers, assumes, arithmetic, total_variation
        As for every promise; `covers` is by default the columns named.

    Attributes
    ----------
    entries : tuple of (str, ColumnFloor)
        Column names with their floors, sorted by name.

    Privacy
    -------
    For a value drawn from the named prior, every attacker's error averaged over that prior is at
    least the floor; hence for every attacker some value in the range has at least that error. It is
    no promise for each person, and no differential privacy: it has no epsilon.

    Reference
    ---------
    Gill and Levit 1995 (van Trees). ``docs/explanation/theorems/composition.md``.

    Examples
    --------
    >>> ErrorFloor(age=9)["age"].error
    9.0
    """

    kind: ClassVar[str] = "error-floor"
    entries: tuple[tuple[str, ColumnFloor], ...]
    unpublished: tuple[str, ...] = ()

    def __init__(
        self,
        columns: Mapping[str, float | ColumnFloor] | None = None,
        /,
        *,
        unit: str = "person",
        neighbors: Neighbors = "replace-one",
        covers: tuple[str, ...] | None = None,
        assumes: tuple[str, ...] = (),
        arithmetic: Arithmetic = "exact",
        total_variation: float = 0.0,
        unpublished: tuple[str, ...] = (),
        entries: tuple[tuple[str, ColumnFloor], ...] | float | ColumnFloor = (),
        **floors: float | ColumnFloor,
    ) -> None:
        """Collect the floors from the mapping and the keywords, and check them."""
        # A column called "entries" arrives as a number; dataclasses.replace passes the real ones.
        named: dict[str, float | ColumnFloor] = {}
        if isinstance(entries, tuple):
            named.update(entries)
        else:
            named["entries"] = entries
        if columns is not None and not isinstance(columns, Mapping):
            raise ParameterError(
                f"columns of ErrorFloor must name a column for each floor, was {columns!r}. "
                f"Write ErrorFloor(age={columns!r}), or a mapping."
            )
        for name, floor in [*(columns or {}).items(), *floors.items()]:
            if not isinstance(name, str) or not name or name in named:
                raise ParameterError(
                    f"columns of ErrorFloor must be distinct names, got {name!r}. Give each column once."
                )
            named[name] = floor
        unpublished_names = tuple(sorted(check_names("ErrorFloor", "unpublished", unpublished)))
        if overlap := sorted(set(unpublished_names) & set(named)):
            raise ParameterError(
                f"unpublished of ErrorFloor must be columns without a floor, got {overlap[0]!r}. "
                "A column that is not published needs none."
            )
        if not named:
            raise ParameterError(
                "columns of ErrorFloor must name at least one column, got none. "
                "Say for instance ErrorFloor(age=9)."
            )
        column_floors = {
            name: floor if isinstance(floor, ColumnFloor) else ColumnFloor(error=floor)
            for name, floor in named.items()
        }
        set_field(self, "entries", tuple(sorted(column_floors.items())))
        set_field(self, "unpublished", unpublished_names)
        set_field(self, "unit", unit)
        set_field(self, "neighbors", neighbors)
        # A floor is about its own columns, unless the caller names others.
        set_field(self, "covers", tuple(sorted(column_floors)) if covers is None else covers)
        set_field(self, "assumes", assumes)
        set_field(self, "arithmetic", arithmetic)
        set_field(self, "total_variation", total_variation)
        self._check_common()

    @property
    def columns(self) -> dict[str, ColumnFloor]:
        """The floors by column."""
        return dict(self.entries)

    def __getitem__(self, column: str) -> ColumnFloor:
        return dict(self.entries)[column]

    def _extend_to_group(self, m: int) -> Self:
        return dataclasses.replace(
            self, entries=tuple((name, floor.compose(m)) for name, floor in self.entries)
        )

    def sentence(self) -> str:
        """Say the promise in plain language, one sentence per column."""
        lines = [_floor_sentence(name, floor, self.unit) for name, floor in self.entries]
        lines += [f"{', '.join(self.unpublished)}: not published."] if self.unpublished else []
        return " ".join(lines) + self._about()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, from which :func:`promise_from_dict` makes an equal promise."""
        values = Promise.to_dict(self)
        del values["entries"]
        # Left out where it is empty, as in most statements.
        if not self.unpublished:
            del values["unpublished"]
        values["columns"] = {name: dataclasses.asdict(floor) for name, floor in self.entries}
        return values

    def __str__(self) -> str:
        listed = ", ".join(f"{name} {_format_error(floor)}" for name, floor in self.entries)
        return f"error of any guess at least: {listed}"

    def __repr__(self) -> str:
        listed = ", ".join(f"{name!r}: {floor.error!r}" for name, floor in self.entries)
        return f"ErrorFloor({{{listed}}})"


def _format_error(floor: ColumnFloor) -> str:
    return plain_number(floor.error, rounding="down") + (f" {floor.measure}" if floor.measure else "")


def _floor_sentence(name: str, floor: ColumnFloor, unit: str) -> str:
    """Return the floor of one column as a sentence for statements."""
    whose = "a person" if unit == "person" else f"one {unit}"
    if floor.prior == "uniform":
        prior = "could equally well be anything in its declared range"
    elif floor.prior.startswith("uniform "):
        prior = f"could equally well be anything {floor.prior.removeprefix('uniform ')}"
    else:
        prior = f"followed the public prior '{floor.prior}'"
    return (
        f"Whoever knows more about {whose}, such as how {name} goes with the other columns, may guess {name} "
        f"better than this: if it {prior}, no method can guess it from this file with a {floor.statistic} "
        f"below {_format_error(floor)}."
    )


def beyond_ceiling_error(
    function: str, error: float, ceiling: float, what: str, column: str | None
) -> PromiseError:
    """Return the error for a floor that lies at or above the error of a blind guess, `ceiling`."""
    column_text = "" if column is None else f" for column {column!r}"
    return PromiseError(
        f"The parameter error of {function}{column_text} must be below {ceiling:.9g}, and was {error:.9g}: "
        f"{what} can be guessed that well without any file, so no noise can prove more. Ask for less, "
        "declare a wider domain if the column really has one, or leave the column out."
    )
