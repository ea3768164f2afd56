"""Weighted sample of a model: rows drawn along its tree, with weights fitted to all tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from discreet.query.joint_tables import count_tables
from discreet.release.synthetic.arithmetic import add_along, add_up, divide
from discreet.release.synthetic.hidden_classes import HIDDEN_CLASSES, MOST_FITTED, fit_hidden_classes
from discreet.release.synthetic.public import number_patterns
from discreet.release.synthetic.sampling import apportion, draw_levels, fit_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import Floats, Ints
    from discreet.noise import Stream
    from discreet.release.synthetic.public import PublicRows
    from discreet.release.synthetic.selection import Pair
    from discreet.release.synthetic.synthesis import Synthesis
    from discreet.release.synthetic.tree import OneWay

SAMPLE_FACTOR, MOST_SAMPLED = 4, 2**20
ROUNDS, _FEW_ROUNDS, _MANY = 6, 3, 2**26
"""Rounds of fitting; the few are for trials, and for more rows times tables than the number after them."""
_CLASS_ROUNDS = 20
_TRIED = 2**17
"""Number of rows of a large sample in which weights are tried."""
LEAST_SHARE = 1 / 8
"""Effective share of the sample below which few rows stand for many: with four sampled rows for each row of
the table, they are worth less than half of them."""


def draw_sample(made: Synthesis, stream: Stream) -> None:
    """Draw rows along the tree, several for each row of the table."""
    if made.public is not None:
        _draw_given(made, made.public, stream)
        return
    size = max(min(SAMPLE_FACTOR * round(made.n), MOST_SAMPLED), 1)
    classes = made.tree.one_way.classes
    counts = apportion(np.array([size]), classes[None], stream.words(len(classes)))[0]
    made.classes = np.repeat(np.arange(len(classes), dtype=np.uint16), counts)
    made.sample = [codes.astype(np.uint16) for codes in made.tree.draw(made.classes, stream)]


def _draw_given(made: Synthesis, public: PublicRows, stream: Stream) -> None:
    """Draw several rows for each kept one, with its public cells: first classes, then along the tree."""
    target, one_way = made.plan.target, made.tree.one_way
    given = {i: public.find_cells(made.cells[n]) for i, n in enumerate(made.names) if n in made.plan.public}
    known = list(given.values())
    if target in made.plan.public:
        known.append(public.find_cells(made.cells[target]))
    made.kept = number_patterns(known, public.n)
    times = max(1, min(SAMPLE_FACTOR, MOST_SAMPLED // public.n))
    made.patterns = np.repeat(made.kept, times)
    if target in made.plan.public:
        classes = np.repeat(known[-1], times)
    else:
        shares = _fit_classes(made.kept, given, one_way)
        classes = draw_levels(made.patterns, shares, stream)
    drawn = made.tree.draw(classes, stream, {i: np.repeat(codes, times) for i, codes in given.items()})
    made.sample = [codes.astype(np.uint16) for codes in drawn]
    made.classes = classes.astype(np.uint16)


def _fit_classes(kept: Ints, given: dict[int, Ints], one_way: OneWay) -> Floats:
    """Return the expected rows of every class for each combination of public cells.

    Of all that have the counts of each public column by class, these are nearest to classes that do not
    depend on public columns: those of a logistic model without interactions.
    """
    rows = np.bincount(kept)
    depth = len(one_way.classes)
    one_row = np.empty(len(rows), np.int64)
    one_row[kept] = np.arange(len(kept))
    pattern = np.repeat(np.arange(len(rows)), depth)
    label = np.tile(np.arange(depth), len(rows))
    codes = [np.repeat(cells[one_row], depth) for cells in given.values()]
    wanted: list[tuple[tuple[int, ...], Floats]] = [((len(codes),), rows.astype(np.float64))]
    wanted += [((i, len(codes) + 1), one_way.columns[column].T) for i, column in enumerate(given)]
    start: Floats = np.take(rows, pattern).astype(np.float64) * np.take(
        divide(one_way.classes, one_way.n), label
    )
    weights = fit_weights([*codes, pattern, label], [*wanted[1:], wanted[0]], start, _CLASS_ROUNDS)
    return weights.reshape(len(rows), depth)


def count_pairs(made: Synthesis, pairs: Sequence[Pair]) -> dict[Pair, Floats]:
    """Return the tables of pairs of columns in the sample, scaled to the number of rows."""
    sizes = [counts.shape[1] for counts in made.tree.one_way.columns]
    counted = zip(pairs, count_tables(made.sample, sizes, pairs), strict=True)
    scale = len(made.classes)
    return {p: (counts * made.n / scale).reshape(sizes[p[0]], sizes[p[1]]) for p, counts in counted}


def weigh_sample(made: Synthesis, stream: Stream) -> None:
    """Fit the weights of the sampled rows to all tables that are known.

    Where many tables contradict the tree, as where all columns follow something that is not among them, a few
    rows would stand for all. The sample is then drawn from hidden classes that have these tables. Where a few
    rows would still stand for all, the tables contradict each other by their noise, and weights are fitted
    to those of the tree alone.

    Parameters
    ----------
    made : Synthesis
        Model with its sample, which is replaced where weights alone would not do.
    stream : Stream
        Source of the random words of another sample.
    """
    wanted = _list_tables(made)
    weights, share = _try_weights(made, wanted)
    cells = add_up(counts.shape[1] for counts in made.tree.one_way.columns)
    if made.pairs and made.public is None and share < LEAST_SHARE and cells <= MOST_FITTED:
        _draw_hidden(made, stream)
        weights, share = _fit(made, wanted, 1)
        if share < LEAST_SHARE:
            weights, share = _fit(made, wanted[len(made.pairs) :], 1)
    if weights is None:
        weights, share = _fit(made, wanted, 1)
    made.weights, made.details["effective_share"] = weights, share


def _list_tables(made: Synthesis) -> list[tuple[tuple[int, ...], Floats]]:
    """Return the tables that the sample shall have, further ones first; the class comes after all columns."""
    one_way, last = made.tree.one_way, len(made.sample)
    wanted: list[tuple[tuple[int, ...], Floats]] = list(made.pairs.items())
    # Without further tables the tree already has all the others, up to rounding.
    wanted += [((column, last), counts.T) for column, counts in enumerate(one_way.columns)]
    wanted += [((*pair, last), np.moveaxis(table, 0, -1)) for pair, table in made.tree.edges.items()]
    if not made.sample:
        wanted = [((last,), one_way.classes)]
    if made.public is not None:
        wanted.append(((last + 1,), np.bincount(made.kept).astype(np.float64)))
    return wanted


def _try_weights(
    made: Synthesis, wanted: Sequence[tuple[tuple[int, ...], Floats]]
) -> tuple[Floats | None, float]:
    """Return fitted weights and their effective share; of a large sample only the share, in a part of it."""
    size = len(made.classes)
    if size <= 2 * _TRIED:
        return _fit(made, wanted, 1)
    return None, _fit(made, wanted, -(-size // _TRIED))[1] if made.pairs else 1.0


def _fit(
    made: Synthesis, wanted: Sequence[tuple[tuple[int, ...], Floats]], step: int
) -> tuple[Floats, float]:
    """Return weights of every so many-th row of the sample, and how many equal ones they are worth.

    Parameters
    ----------
    made : Synthesis
        Model with its sample.
    wanted : sequence of (tuple of int, array)
        Tables that the rows shall have.
    step : int
        1 for all rows, 2 for every other one, and so on.
    """
    columns = [*made.sample, made.classes, *([] if made.public is None else [made.patterns])]
    codes = [np.ascontiguousarray(one[::step]) for one in columns]
    size = len(codes[0])
    rounds = ROUNDS if step == 1 and size * len(wanted) <= _MANY else _FEW_ROUNDS
    weights = fit_weights(codes, wanted, made.n / size, rounds)
    total, squares = add_up(weights), add_up(weights * weights)
    return weights, total * total / (squares * size) if squares > 0 else 0.0


def _draw_hidden(made: Synthesis, stream: Stream) -> None:
    """Draw the sample again, from hidden classes that have the tables of two columns that are known."""
    one_way, last = made.tree.one_way, len(made.sample)
    tables = {(column, last): counts.T for column, counts in enumerate(one_way.columns)}
    tables |= {pair: add_along(table, 0) for pair, table in made.tree.edges.items()} | made.pairs
    sizes = [*(counts.shape[1] for counts in one_way.columns), len(one_way.classes)]
    made.hidden = fit_hidden_classes(tables, sizes, stream)
    made.details["hidden_classes"] = HIDDEN_CLASSES
    *sample, classes = made.hidden.draw(len(made.classes), stream)
    made.sample, made.classes = [codes.astype(np.uint16) for codes in sample], classes.astype(np.uint16)
