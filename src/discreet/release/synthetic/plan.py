"""Plan of a release: cells, target, shares of the promise, and what public facts say about its quality."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from discreet import formatting
from discreet.errors import DataError, ParameterError
from discreet.noise_law import Clear, SyntheticLaw
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, PureDP, gaussian_mu
from discreet.release.publication import ColumnSummary, ReleasePlan
from discreet.release.synthetic.arithmetic import add_up
from discreet.release.synthetic.cells import make_cells
from discreet.release.synthetic.public import check_public
from discreet.release.synthetic.selection import HALF_DEVIATION, LEAST_SIGMAS, NoiseBudget
from discreet.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from discreet._types import AnyArray
    from discreet.noise import Stream
    from discreet.privacy import Promise
    from discreet.release.publication import Encoded
    from discreet.release.synthetic.cells import ColumnCells
    from discreet.schema import Column, Level

SHARES = {
    "fine": 0.05,
    "one": 0.15,
    "scores": 0.05,
    "tables": 0.45,
    "scores again": 0.05,
    "more tables": 0.30,
}
"""Share of the promise that each question gets, before they are scaled to the questions that are asked."""
_SHARE_OF_CUTS = 0.10  # for fine counts by which cells are cut as well
ONE_ROUND, WARNED, REFUSED, ADVISED = 0.03, 0.25, 1.0, 0.1
"""Expected errors from which no second round is made, a warning is given, the release is refused; and the
error that is advised."""
LEAST_ROWS = 50
"""Smallest number of rows of which a table is made."""
_MOST_CLASSES = 16
_MOST_CUT_CLASSES = 4


@dataclass(frozen=True)
class SyntheticPlan:
    """What a release will ask, from public facts alone.

    Attributes
    ----------
    cells : tuple of ColumnCells
        Cells of every released column; those of some numbers are still to be cut.
    target : str or None
        Column given which the others are modelled; None without one.
    n_rows : int or None
        Number of rows where it is public; None where it is estimated from the answers.
    shares : dict of str to float
        Share of the promise of each question that is asked; they add up to 1.
    error : float or None
        Mean distance in total variation of a column's counts by class, if the whole promise went into them;
        None where the number of rows is not public.
    count_sd : float
        Standard deviation of a count by class, if the whole promise went into these counts; in rows.
    score_sd : float or None
        Standard deviation of the scores of dependence, in rows; None where none are asked for.
    notes : tuple of str
        Sentences about what the release will not do, and why.
    public : tuple of str
        Names of the columns whose rows are kept as they are.
    """

    cells: tuple[ColumnCells, ...]
    target: str | None
    n_rows: int | None
    shares: dict[str, float]
    error: float | None
    count_sd: float
    score_sd: float | None
    notes: tuple[str, ...]
    public: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without the cells."""
        return {
            "target": self.target,
            "rows": self.n_rows,
            "shares": self.shares,
            "error": self.error,
            "count_sd": self.count_sd,
            "score_sd": self.score_sd,
            "notes": list(self.notes),
            **({"public": list(self.public)} if self.public else {}),
        }


def make_plan(
    schema: Schema,
    n_rows: int | None,
    promise: Promise,
    *,
    requested: Promise | None = None,
    target: str | bool | None = None,
    cells: Mapping[str, Sequence[Any]] | None = None,
    shares: Mapping[str, float] | None = None,
    anyway: bool = False,
    keep_public: bool = True,
) -> SyntheticPlan:
    """Return the plan of a release; refuses one that would be noise, before anything is charged.

    Parameters
    ----------
    schema : Schema
        Declaration of the table.
    n_rows : int or None
        Number of rows where it is public.
    promise : GaussianDP or PureDP
        Promise of all questions together.
    requested : Promise, optional
        Promise as the caller gave it, in which advice is given; None for `promise`.
    target : str, bool or None
        Name of the target; None takes that of the schema, False none.
    cells : mapping of str to sequence, optional
        For numbers and dates, the values at which the second and later cells begin; None cuts all of them.
    shares : mapping of str to float, optional
        Weights of questions that replace those of :data:`SHARES`.
    anyway : bool
        Whether a release is made even if it is expected to be noise.
    keep_public : bool
        Whether the rows of columns declared public are kept as they are.
    """
    notes: list[str] = []
    made = make_cells(schema, cells)
    if n_rows is not None and n_rows < LEAST_ROWS:
        raise DataError(
            f"SyntheticRelease needs at least {LEAST_ROWS} rows, and the table has {n_rows}. Nothing was "
            "charged. Ask for single counts instead."
        )
    public = _choose_public(schema, notes, keep=keep_public)
    _check_cells(made, n_rows, notes, anyway=anyway)
    chosen = _choose_target(schema, made, target, notes)
    budget = NoiseBudget.from_promise(promise, schema.neighbors, schema.max_rows_per_unit)
    modelled = [one for one in made if one.name != chosen and one.expected_size > 1]
    sizes = {one.name: one.expected_size for one in made}
    classes = 1 if chosen is None else sizes[chosen]
    if chosen is None or chosen in public:
        modelled = [one for one in modelled if one.name not in public]
    tables = max(len(modelled), 1)
    sd = budget.count_sd(tables)
    error = None
    if n_rows is not None and modelled:
        error = HALF_DEVIATION * sd * classes * add_up(sizes[one.name] for one in modelled) / tables / n_rows
        _check_error(error, sd, n_rows, modelled, chosen, requested or promise, notes, anyway=anyway)
    private = [one for one in made if one.name not in public]
    given = [one for one in made if one.name in public and one.name != chosen and one.expected_size > 1]
    drawn = len([one for one in private if one.name != chosen and one.expected_size > 1])
    pairs = drawn * (drawn - 1) // 2 + drawn * len(given)
    split, score_sd = _split_promise(budget, private, pairs, n_rows, error, shares, notes)
    counted = {"one": tables, "fine": len([one for one in private if one.has_fine])}
    _note_laplace(requested or promise, budget, split, counted, notes)
    return SyntheticPlan(made, chosen, n_rows, split, error, sd, score_sd, tuple(notes), public)


def _check_cells(cells: Sequence[ColumnCells], n_rows: int | None, notes: list[str], *, anyway: bool) -> None:
    """Refuse declared cells that outnumber the rows, and note lists that do."""
    for one in cells:
        if n_rows is None or one.is_cut or one.size <= n_rows:
            continue
        sizes = f"{one.name!r} has {one.size:,} cells, and the table has {n_rows:,} rows"
        if not one.column.is_category and not anyway:
            raise ParameterError(
                f"cells of SyntheticRelease must be fewer than the rows, and {sizes}: most would be empty. "
                "Nothing was charged. Declare fewer cells, or leave them out; anyway=True (--anyway) goes on."
            )
        notes.append(f"{sizes}: levels that are not seen often enough are drawn alike.")


def _choose_target(
    schema: Schema, cells: Sequence[ColumnCells], target: str | bool | None, notes: list[str]
) -> str | None:
    """Return the column given which the others are modelled; refuses one that is not there."""
    if target is False:
        return None
    name = schema.target if target is None or target is True else target
    if name is None:
        return None
    found = [one for one in cells if one.name == name]
    if not found:
        raise ParameterError(
            f"target of SyntheticRelease must be a released column, was {name!r}. Leave it out to model all "
            "columns alike."
        )
    (one,) = found
    most = _MOST_CLASSES if one.column.is_category or one.edges == one.fine else _MOST_CUT_CLASSES
    if one.is_cut or one.size > most:
        what = "no declared cells" if one.is_cut else f"{one.size} cells"
        notes.append(
            f"The target {name!r} has {what}, so all columns are modelled alike. Classes are at most "
            f"{_MOST_CLASSES} levels, or {_MOST_CUT_CLASSES} declared cells of a number."
        )
        return None
    if one.size < 2:
        raise ParameterError(
            f"target of SyntheticRelease must have at least two classes, and {name!r} has one. Leave it out "
            "with target=False."
        )
    return name


def _check_error(
    error: float,
    sd: float,
    n_rows: int,
    columns: Sequence[ColumnCells],
    target: str | None,
    promise: Promise,
    notes: list[str],
    *,
    anyway: bool,
) -> None:
    """Refuse a release that would be noise, and note one that is close to it."""
    if error <= WARNED:
        return
    widest = max(columns, key=lambda one: one.expected_size)
    by = "" if target is None else f" by `{target}`"
    off = f"every count of `{widest.name}`{by} is off by about {sd:.0f} rows of {n_rows}"
    way = f"Ask for {_advise(promise, error / ADVISED)}, fewer columns, or coarser cells"
    if error > REFUSED and not anyway:
        raise ParameterError(
            f"privacy of SyntheticRelease must allow for a table, and at this promise {off}; the table would "
            f"be noise. Nothing was charged. {way}; anyway=True (--anyway) goes on."
        )
    notes.append(f"At this promise {off}. {way}.")


def _advise(promise: Promise, factor: float) -> str:
    """Return the promise under which noise is smaller by a factor, as words."""
    if isinstance(promise, PureDP):
        return f"epsilon {_up(promise.epsilon * factor)}"
    if isinstance(promise, ZCDP):
        return f"rho {_up(promise.rho * factor * factor)}"
    if isinstance(promise, GaussianDP):
        return f"mu {_up(promise.mu * factor)}"
    assert isinstance(promise, ApproxDP)
    whole = GaussianDP(mu=gaussian_mu(promise.epsilon, promise.delta) * factor)
    return f"epsilon {_up(whole.epsilon_at(promise.delta))}"


def _up(value: float) -> str:
    return formatting.number(value, digits=2, rounding="up")


def _split_promise(
    budget: NoiseBudget,
    cells: Sequence[ColumnCells],
    pairs: int,
    n_rows: int | None,
    error: float | None,
    given: Mapping[str, float] | None,
    notes: list[str],
) -> tuple[dict[str, float], float | None]:
    """Return the share of each question that is asked, and the noise of scores; notes what is left out."""
    shares = {**SHARES, "fine": _SHARE_OF_CUTS if any(one.is_cut for one in cells) else SHARES["fine"]}
    shares.update(_read_shares(given))
    if not any(one.has_fine for one in cells):
        del shares["fine"]
    score_sd = budget.score_sd(pairs, _normalize(shares)["scores"]) if pairs else None
    if score_sd is not None and n_rows is not None and 2 * LEAST_SIGMAS * score_sd > n_rows:
        notes.append(
            f"At this promise a score of dependence is off by about {score_sd:.0f} rows of {n_rows}, so none "
            "is asked for: columns are made independent of each other, given the target if there is one."
        )
        score_sd = None
    if score_sd is None:
        names = ["fine", "one"]
    elif error is not None and error >= ONE_ROUND:
        notes.append("At this promise there is no second round of tables.")
        shares["tables"] += shares["scores again"] + shares["more tables"]
        names = ["fine", "one", "scores", "tables"]
    else:
        names = list(SHARES)
    return _normalize({name: shares[name] for name in names if name in shares}), score_sd


def _note_laplace(
    promise: Promise,
    budget: NoiseBudget,
    shares: Mapping[str, float],
    counted: Mapping[str, int],
    notes: list[str],
) -> None:
    """Note a promise under which Laplace noise would be smaller: that of few tables in one or two questions.

    With ``T`` tables for a share ``s``, Laplace noise has the smaller standard deviation if ``T / s`` is
    below ``(epsilon / mu)**2 / 4`` under replace-one: 4.5 at epsilon 1 and delta 1e-6. It is not chosen
    unasked, because a ledger for Gaussian noise may refuse it.
    """
    if not isinstance(promise, ApproxDP) or not set(shares) <= set(counted):
        return
    pure = replace(budget, law="laplace", amount=promise.epsilon)
    pairs = [
        (pure.count_sd(counted[name], s), budget.count_sd(counted[name], s)) for name, s in shares.items()
    ]
    if all(laplace < gaussian for laplace, gaussian in pairs):
        laplace, gaussian = pairs[-1]
        notes.append(
            f"So few tables are asked for that Laplace noise would be smaller: under PureDP(epsilon="
            f"{promise.epsilon:g}) counts are off by about {laplace:.2g} rows instead of {gaussian:.2g}."
        )


def _read_shares(given: Mapping[str, float] | None) -> dict[str, float]:
    """Return the weights that a caller gave; refuses unknown names and weights that are not above 0."""
    for name, weight in (given or {}).items():
        if name not in SHARES or not 0 < weight < float("inf"):
            raise ParameterError(
                f"shares of SyntheticRelease must be weights above 0 of {', '.join(SHARES)}, was {weight!r} "
                f"of {name!r}."
            )
    return dict(given or {})


def _normalize(shares: dict[str, float]) -> dict[str, float]:
    """Return shares that add up to 1: that of fine counts stays, the others share the rest."""
    fine = shares.get("fine", 0.0)
    others = add_up(weight for name, weight in shares.items() if name != "fine")
    return {
        name: weight if name == "fine" else weight * (1 - fine) / others for name, weight in shares.items()
    }


def _choose_public(schema: Schema, notes: list[str], *, keep: bool) -> tuple[str, ...]:
    """Return the columns whose rows are kept; notes what happens to them, and to rows of one unit."""
    public = tuple(column.name for column in schema.released if column.role == "public")
    if (schema.max_rows_per_unit or 1) > 1:
        notes.append("Published rows are single ones: which rows belong to one unit is lost.")
    if not public:
        return ()
    listed = ", ".join(public)
    if not keep:
        notes.append(f"Columns declared public are made up like the others: {listed}.")
        return ()
    check_public(schema, public)
    notes.append(
        f"Rows of the columns declared public are kept as they are: {listed}. The promise is about all other "
        "cells of a row."
    )
    return public


class SyntheticReleasePlan(ReleasePlan):
    """Promise and schema of a table whose rows come from noisy answers, not from rows.

    Parameters
    ----------
    schema : Schema
        Schema of the published table.
    promise : Promise
        Promise of all questions together.
    plan : SyntheticPlan
        Cells, target and shares of the questions.
    n_records : int or None
        Number of rows that are made; None for as many as the table has.

    Attributes
    ----------
    questions : SyntheticPlan
        Cells, target and shares of the questions, as they were given.
    """

    row_level: ClassVar[bool] = False
    is_row_wise: ClassVar[bool] = False
    typed: ClassVar[bool] = True

    def __init__(self, schema: Schema, promise: Promise, plan: SyntheticPlan, n_records: int | None) -> None:
        self.schema, self.promises, self.questions = schema, (promise,), plan
        self.columns = summarize_columns([c.name for c in schema.released], plan)
        self.notes = plan.notes
        self._n_records = n_records

    def draw(self, rows: Encoded, stream: Stream) -> dict[str, AnyArray]:
        """Refuse: rows of this method follow from answers that were charged one by one."""
        raise ParameterError(
            "Rows of SyntheticRelease must come from noisy answers. Use release or release_database."
        )

    def misfits(self, columns: Encoded) -> dict[str, str]:
        """Return the columns with cells that were not declared, each with the reason."""
        misfits = super().misfits(columns)
        for column in self.schema.released:
            if column.is_category:
                continue
            values = columns[column.name][~np.isnan(columns[column.name])]
            lower, upper = column.range
            if ((values < lower) | (values > upper)).any():
                misfits.setdefault(column.name, "values outside the declared range")
        return misfits

    def length_misfit(self, n_read: int | None, n_published: int) -> str | None:
        """Return what is wrong with the number of published rows; None if nothing is."""
        wanted = n_read if self._n_records is None else self._n_records
        if wanted is not None and n_published != wanted:
            return f"{wanted} rows were to be made, and {n_published} were published."
        return None


def summarize_columns(names: Iterable[str], plan: SyntheticPlan) -> tuple[ColumnSummary, ...]:
    """Return the law of each published column: made up, or kept as it is."""
    return tuple(
        ColumnSummary(column=name, law=Clear() if name in plan.public else SyntheticLaw()) for name in names
    )


def publishable_schema(schema: Schema) -> Schema:
    """Return the schema of the published table: the declared columns, every list closed."""
    columns = [_published_column(column) for column in schema.released]
    return Schema(columns=columns, target=schema.target, dataset=schema.dataset, unit=schema.unit)


def _published_column(column: Column) -> Column:
    if not column.is_category:
        return column
    plain: tuple[Level, ...] = tuple(level for level in column.levels if level is not None)
    return replace(column, values=plain, closed=True)
