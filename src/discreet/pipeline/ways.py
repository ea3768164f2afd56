"""The ways to publish a table side by side, tried on made-up, public or true rows; charges nothing."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.errors import ParameterError
from discreet.evaluation.compared_rows import MADE_UP, ComparedRows, related_rows
from discreet.evaluation.way_choice import choose_way
from discreet.evaluation.ways import add_risks, measure_ways
from discreet.formatting import count_noun
from discreet.noise import Stream, permutation
from discreet.pipeline.methods import build_promise, resolve_floors
from discreet.pipeline.plan_basis import PlanBasis, log_tuning, read_prior, read_sample
from discreet.pipeline.sources import LedgerPlace, describe_source, find_schema, resolve_source
from discreet.privacy import ApproxDP, PureDP
from discreet.tables import open_table

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from discreet._types import AnyArray
    from discreet.evaluation.way_choice import Task, WayChoice
    from discreet.evaluation.ways import Way
    from discreet.pipeline._stages import OnProgress
    from discreet.privacy import Promise
    from discreet.schema import Schema

    Rows = Mapping[str, AnyArray]

USUAL_EPSILON, USUAL_DELTA = 1.0, 1e-6
"""Promise under which ways are compared if none is given."""
MOST_ROWS = 50_000
"""Largest number of rows that are made up; of a longer table every way does better than shown."""
TEST_ROWS = 5_000
TEST_SHARE = 0.3
LEAST_ROWS = 20
_SEED = 20_000_101  # made-up rows hold no data, so their seed may be a constant
_NOT_SEEN = "The table answers questions, and its rows are not seen here."


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWays:
    """The ways to publish a table, what each is worth, and the recommended one.

    Attributes
    ----------
    schema : Schema
        Declaration of the table.
    n_rows : int
        Number of rows of the table.
    privacy : PureDP or ApproxDP
        Promise under which the ways were compared.
    floors : dict of str to float
        Error floors of the rows with noise; empty: the promise sets their noise.
    ways : list of Way
        All ways, the possible and the impossible ones.
    baselines : dict of str to float or None
        Accuracy of a model on unprotected rows, and of always the same answer.
    choice : WayChoice
        Recommended way, with its reason.
    measured_on : str
        Rows that the ways were tried on, in words.
    """

    schema: Schema
    n_rows: int
    privacy: PureDP | ApproxDP
    floors: dict[str, float]
    ways: list[Way]
    baselines: dict[str, float | None]
    choice: WayChoice
    measured_on: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "rows": self.n_rows,
            "promise": self.privacy.to_dict(),
            "floors": dict(self.floors),
            "measured_on": self.measured_on,
            "baselines": dict(self.baselines),
            "ways": [way.to_dict() for way in self.ways],
            "recommended": self.choice.to_dict(),
        }


def plan_ways(
    source: Any,
    *,
    schema: Schema | str | os.PathLike[str] | None = None,
    privacy: Promise | None = None,
    protect: Mapping[str, float] | None = None,
    task: Task | None = None,
    ledger: LedgerPlace = None,
    new_ledger: bool = False,
    basis: PlanBasis = PlanBasis(),  # noqa: B008 - frozen
    answers_only: bool = False,
    on_progress: OnProgress | None = None,
) -> PlannedWays:
    """Try every way to publish a table on the same rows, and recommend one.

    Parameters
    ----------
    source, schema, protect, ledger, new_ledger
        As for :func:`discreet.publish`; nothing is charged.
    privacy : PureDP, ApproxDP or None
        Promise under which the ways are compared; None or error floors: epsilon 1 at delta 1e-6.
    task : {"model", "tables", "means"}, optional
        Purpose of the recipient; None: as many purposes as possible.
    basis : PlanBasis
        Number of rows, and the rows that the ways are tried on.
    answers_only : bool
        Whether the table is a service, which answers questions and shows no rows.
    on_progress : callable, optional
        Called with "plan" and the share that is done, from 0 to 1.

    Privacy
    -------
    Reads no cell unless `basis` says so. Choosing by that result is tuning on private data, and the statement
    of every later release under the same ledger says so.
    """
    declared = find_schema(source, schema)
    promise = privacy
    if not isinstance(promise, PureDP | ApproxDP):
        promise = build_promise(declared, epsilon=USUAL_EPSILON, delta=USUAL_DELTA)
    assert isinstance(promise, PureDP | ApproxDP)
    floors = resolve_floors(declared, protect)
    n_rows = basis.n_rows
    if n_rows is None:
        with open_table(resolve_source(source), schema=declared) as table:
            n_rows = max(1, table.count())
    train, test, measured_on = _draw_rows(source, declared, n_rows, ledger, basis, new_ledger=new_ledger)
    rows = ComparedRows(declared, train, test, Stream() if basis.on_rows else Stream.from_seed(_SEED))
    ways = measure_ways(
        declared,
        rows,
        n_rows,
        privacy=promise,
        floors=floors,
        progress=None if on_progress is None else lambda done: on_progress("plan", done),
    )
    if answers_only:
        ways = [way if way.name in ("synthetic", "model", "questions") else _forbid(way) for way in ways]
    prior = read_prior(basis.public_sample, declared)
    ways = add_risks(ways, declared, n_rows, privacy=promise, floors=floors, prior=prior)
    baselines = rows.baselines()
    return PlannedWays(
        schema=declared,
        n_rows=n_rows,
        privacy=promise,
        floors=floors,
        ways=ways,
        baselines=baselines,
        choice=choose_way(ways, baselines, task),
        measured_on=measured_on,
    )


def _forbid(way: Way) -> Way:
    """Return a way that needs rows as an impossible one."""
    return dataclasses.replace(
        way, accuracy=None, table_error=None, mean_error=None, membership=None, why_not=_NOT_SEEN
    )


def _draw_rows(
    source: Any, schema: Schema, n_rows: int, ledger: LedgerPlace, basis: PlanBasis, *, new_ledger: bool
) -> tuple[Rows, Rows, str]:
    """Return the rows that are published, those that models are tested on, and where they come from.

    Parameters
    ----------
    source, schema, ledger, new_ledger
        As for :func:`plan_ways`.
    n_rows : int
        Number of rows of the table.
    basis : PlanBasis
        Which rows to take: true ones, which is logged first, public ones, or made-up ones.
    """
    if basis.on_rows:
        log_tuning(source, schema, ledger, new_ledger=new_ledger)
        train, test = _split(read_sample(resolve_source(source), schema, Stream()), "the table")
        words = (
            f"{count_noun(len(next(iter(train.values()))), 'true row')}, others held back for a test: "
            "internal. The choice of a way by these figures is not covered by its promise, and the statement "
            "of every later release says so."
        )
        return train, test, words
    stream = Stream.from_seed(_SEED)
    if basis.public_sample is not None:
        sample = read_sample(resolve_source(basis.public_sample), schema, stream.derive("sample"))
        train, test = _split(sample, "the public table")
        n = count_noun(len(next(iter(train.values()))), "row")
        return train, test, f"{n} of the public table {describe_source(basis.public_sample)}."
    size = min(n_rows, MOST_ROWS)
    train, test = (
        related_rows(schema, n, stream.derive(part), explained=basis.explained)
        for part, n in (("train", size), ("test", TEST_ROWS))
    )
    target = ""
    if schema.target is not None:
        target = f"; together they explain {basis.explained:.0%} of {schema.target}"
    fewer = f" With {n_rows:,} rows every way does better." if size < n_rows else ""
    return train, test, f"{size:,} {MADE_UP}{target}.{fewer}"


def _split(rows: Rows, what: str) -> tuple[Rows, Rows]:
    """Return most of the rows, and a part that is held back."""
    n = len(next(iter(rows.values())))
    if n < LEAST_ROWS:
        raise ParameterError(
            f"{what} must have at least {LEAST_ROWS} rows to try ways on, and has fewer. Leave it out: the "
            "ways are then compared on made-up rows."
        )
    order = permutation(n, Stream.from_seed(_SEED).derive("split"))
    held = round(TEST_SHARE * n)
    return (
        {name: values[order[held:]] for name, values in rows.items()},
        {name: values[order[:held]] for name, values in rows.items()},
    )
