"""Text queries: the aggregates that one needs, their noise, and the result."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

import numpy as np

from discreet.batching import run_one
from discreet.errors import ParameterError
from discreet.privacy import ApproxDP, PureDP
from discreet.privacy.budget_split import BudgetSplit
from discreet.query.aggregates import Histogram, Sums
from discreet.query.calibration import CostModel, budget_share, least_charge
from discreet.query.language._group_by import write_edge
from discreet.query.results import LawOption, Preview, QueryResult, ResultCell, interval_width

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from discreet._types import Floats
    from discreet.batching import QueryTask
    from discreet.ledger import Account
    from discreet.privacy import Promise
    from discreet.query.aggregates import Aggregate, BoundAggregate
    from discreet.query.answers import Answer, RefinableSums
    from discreet.query.calibration import Law, QueryNoise
    from discreet.query.database import Database
    from discreet.query.language.query import Query
    from discreet.schema import Column, Schema


PAIR = ("counts", "sums")
"""Names of the two aggregates of a mean by groups; each gets half of the promise."""
_LEAST_COUNT = 3.0  # standard deviations of its noise that a count must have to be divided by
_SMALLEST_SD = 1e-150  # its square is still a number
_LARGEST_SD = 1e100


@dataclass(frozen=True, slots=True)
class PlannedAggregate:
    """One aggregate of a text query, with its promise or the variance of its noise."""

    aggregate: Aggregate
    privacy: Promise | None
    variance: float | None


def plan_aggregates(
    query: Query,
    sums: Any,
    privacy: Promise | None,
    sd: float | None,
    accounts: Callable[[], Sequence[Account]] = tuple,
) -> list[PlannedAggregate]:
    """Return the aggregates that a query needs: one, and two for a mean by groups.

    Parameters
    ----------
    query : Query
        Parsed query that is planned.
    sums : CostedTable or NoisySums
        Object that knows schema, neighbors and the public number of rows.
    privacy : Promise or None
        Promise of all aggregates together; None where `sd` is given.
    sd : float or None
        Standard deviation of a count or a sum, in its unit; None where `privacy` is given.
    accounts : callable
        Function that returns the budgets that would be charged; only called if they decide something.

    Privacy
    -------
    The two aggregates of a mean by groups get half of the promise each, rounded down. For an
    :class:`ApproxDP` promise both get noise of one law: Gaussian, whose squares of mu add up, or Laplace,
    whose epsilons add up.

    Reference
    ---------
    docs/explanation/theorems/composition.md.
    """
    variance = _variance(query, privacy, sd)
    if not (query.verb == "mean" and query.by):
        return [PlannedAggregate(_single_aggregate(query, sums.n_rows), privacy, variance)]
    if not isinstance(privacy, ApproxDP):
        return _plan_pair(query, sums, privacy)
    options = _options(query, CostModel(sums.schema, sums.n_rows), privacy, sd)
    return options[least_charge([option.noises for option in options], accounts())].planned


def _plan_pair(query: Query, sums: Any, privacy: Promise | None) -> list[PlannedAggregate]:
    """Return the counts and sums of a mean by groups, with half of the promise each."""
    halves = dict.fromkeys(PAIR, 1.0)
    shares = BudgetSplit(privacy, halves, unit=sums.schema.unit, neighbors=sums.neighbors)  # type: ignore[arg-type]
    pair = (_grouped(query, query.where), _grouped(query, _displacement(query)))
    return [PlannedAggregate(one, shares[name], None) for name, one in zip(PAIR, pair, strict=True)]


class _Option(NamedTuple):
    """Aggregates of a query, each bound to the table with its noise, by one law."""

    planned: list[PlannedAggregate]
    fits: list[tuple[BoundAggregate, QueryNoise]]

    @property
    def noises(self) -> list[QueryNoise]:
        return [noise for _, noise in self.fits]

    @property
    def first_sd(self) -> float:
        """Standard deviation of the first number; all groups have the same noise."""
        bound, noise = self.fits[0]
        return float(np.ravel(bound.arrange(noise.sd(bound), 0.0))[0])


def _options(query: Query, costs: CostModel, privacy: Promise | None, sd: float | None) -> list[_Option]:
    """Return the plan of a query by each law that the request leaves open, first that without a limit."""
    variance = _variance(query, privacy, sd)
    if not (query.verb == "mean" and query.by):
        one = PlannedAggregate(_single_aggregate(query, costs.n_rows), privacy, variance)
        bound, candidates = costs.candidates(one.aggregate, privacy=privacy, variance=variance)
        return [_Option([one], [(bound, noise)]) for noise in candidates]
    wholes = [privacy]
    if isinstance(privacy, ApproxDP):
        wholes.append(PureDP(epsilon=privacy.epsilon, unit=privacy.unit, neighbors=privacy.neighbors))
    plans = [_plan_pair(query, costs, whole) for whole in wholes]
    options = [
        _Option(plan, [costs.calibrate(one.aggregate, privacy=one.privacy) for one in plan]) for plan in plans
    ]
    return sorted(options, key=lambda option: sum(noise.log_sd() for noise in option.noises))


def _variance(query: Query, privacy: Promise | None, sd: float | None) -> float | None:
    """Return the variance of an sd, None for a promise; refuses neither or both, and the sd of a mean."""
    if (privacy is None) == (sd is None):
        raise ParameterError(
            "A question must be told how much to protect, by exactly one of a promise and a noise, and was "
            f"given {'neither' if sd is None else 'both'}. Give an epsilon, with a delta for Gaussian noise, "
            "or a mu or a rho, or else the sd of a count or a sum; the price can be asked first, free."
        )
    if sd is None:
        return None
    if query.verb == "mean":
        raise ParameterError(
            "sd must be of a count or a sum, and a mean was asked for, whose noise depends on how many rows "
            "there are. Give an epsilon, a mu or a rho."
        )
    if not (math.isfinite(sd) and _SMALLEST_SD <= sd <= _LARGEST_SD):
        raise ParameterError(
            f"sd of a question must be from {_SMALLEST_SD:g} to {_LARGEST_SD:g}, was {sd!r}. Give it in "
            "the unit of the answer."
        )
    return float(sd) ** 2


def _single_aggregate(query: Query, n_rows: int | None) -> Aggregate:
    """Return the one aggregate of a query that needs no second one."""
    if query.by:
        return _grouped(query, None if query.expression is None and query.where is None else _scalar(query))
    if query.verb == "mean" and not _plain_mean(query, n_rows):
        return Sums((_displacement(query), query.where or "TRUE"))
    return Sums((_scalar(query),))


def _grouped(query: Query, expression: Any) -> Histogram:
    """Return the histogram of a query's groups, counting rows or summing an expression."""
    edges = {axis.column: axis.edges for axis in query.by if axis.edges}
    return Histogram([axis.column for axis in query.by], edges, expression)


def _plain_mean(query: Query, n_rows: int | None) -> bool:
    """Return whether a query is a mean over all rows, whose number is public."""
    return query.verb == "mean" and not query.by and query.where is None and bool(n_rows)


def _scalar(query: Query) -> Any:
    """Return the expression whose sum over all rows answers a count or a sum."""
    if query.expression is None:
        return query.where or "TRUE"
    if query.where is None:
        return query.expression
    if query.expression.is_condition:
        return f"({query.where.canonical}) AND ({query.expression.canonical})"
    return _among(query, query.expression.canonical)


def _among(query: Query, text: str) -> str:
    """Return the text of an expression that is 0 outside the rows of WHERE."""
    return text if query.where is None else f"CASE WHEN {query.where.canonical} THEN {text} ELSE 0 END"


def _middle(query: Query) -> float:
    """Return the middle of the averaged expression's range: about it, one row moves a sum the least."""
    assert query.expression is not None
    return query.expression.lower / 2 + query.expression.upper / 2


def _displacement(query: Query) -> str:
    """Return the text of the averaged expression, less the middle of its range, 0 outside WHERE."""
    assert query.expression is not None
    middle = _middle(query)
    text = query.expression.canonical
    if query.expression.is_condition:
        text = f"CASE WHEN {text} THEN 1 ELSE 0 END"
    return _among(query, f"({text}) - ({middle!r})" if middle else text)


def combine_values(
    query: Query, values: list[Floats], sds: list[Floats], n_rows: int | None
) -> tuple[Floats, Floats, float | None]:
    """Return the numbers of a result, their standard deviations, and that of a count of rows.

    Parameters
    ----------
    query : Query
        Parsed query that the aggregates belong to.
    values, sds : list of array
        Noisy values of each aggregate, and their standard deviations.
    n_rows : int or None
        Number of rows where it is public; None where it is not.

    Returns
    -------
    tuple
        Values and standard deviations, NaN for a mean over too few rows; standard deviation of a count of
        rows, None for a sum and for a mean over a public number of rows.
    """
    if query.verb != "mean":
        count_sd = float(np.ravel(sds[0])[0]) if query.verb == "count" else None
        return values[0], sds[0], count_sd
    if _plain_mean(query, n_rows):
        assert n_rows
        return values[0] / n_rows, sds[0] / n_rows, None
    if query.by:
        (counts, sums), (count_sds, sum_sds) = values, sds
    else:
        sums, counts, sum_sds, count_sds = values[0][:1], values[0][1:], sds[0][:1], sds[0][1:]
    mean, spread = _ratio(query, sums, sum_sds, counts, count_sds)
    return mean, spread, float(np.ravel(count_sds)[0])


def _ratio(
    query: Query, sums: Floats, sum_sd: Floats, counts: Floats, count_sd: Floats
) -> tuple[Floats, Floats]:
    """Return means from sums of displacements and counts, NaN where a count is within its noise.

    Notes
    -----
    With ``d = S / N`` and ``m`` the middle of the range, the mean is ``m + d`` and its standard deviation, to
    first order, ``sqrt(s_S**2 + d**2 s_N**2) / N``.
    """
    enough = counts > _LEAST_COUNT * count_sd
    divisor = np.where(enough, counts, np.nan)
    offset = sums / divisor
    spread = np.hypot(sum_sd, offset * count_sd) / divisor
    return offset + _middle(query), spread


def run_query(
    db: RefinableSums,
    query: Query,
    *,
    privacy: Promise | None = None,
    sd: float | None = None,
    owner: str | None = None,
    refines: Sequence[str] = (),
    request: str | None = None,
) -> QueryResult:
    """Charge and answer a parsed query.

    Parameters
    ----------
    db : RefinableSums
        Database that answers the aggregates, at hand or behind a service.
    query : Query
        Parsed query to answer.
    privacy : PureDP, ApproxDP, ZCDP or GaussianDP
        Promise that the whole result keeps; None where `sd` is given instead.
    sd : float
        Standard deviation of the noise on a count or a sum, in its unit; None where `privacy` is given.
    owner : str, optional
        Name that is charged beside the total; None charges the total alone.
    refines : sequence of str
        Receipt ids of an earlier result of the same query, as in `QueryResult.receipts`: a new draw is
        charged, and merged with it.
    request : str, optional
        Key of this request: sent again under the same key, it is never charged twice.

    Returns
    -------
    QueryResult
        Result without the fields that only a ledger knows.

    Raises
    ------
    BudgetExceeded
        The ledger's limit does not allow it; nothing was charged.

    Privacy
    -------
    A mean by groups is two aggregates, each with half of the promise; the first is refused unless both fit
    what is left.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md, composition.md.
    """
    return run_one(
        query_task(db, query, privacy=privacy, sd=sd, owner=owner, refines=refines, request=request)
    )


class TextQueryOptions(TypedDict, total=False):
    """Keyword arguments of :func:`run_query`."""

    privacy: Promise | None
    sd: float | None
    owner: str | None
    refines: Sequence[str]
    request: str | None


def query_task(
    db: RefinableSums, query: Query, **options: Unpack[TextQueryOptions]
) -> QueryTask[QueryResult]:
    """Return the task of a query, whose steps are run in one batch with those of other callers.

    Parameters
    ----------
    db, query, **options
        As for :func:`run_query`. A `db` without tasks of its own, such as the client of a service, answers
        one aggregate after the other.

    Privacy
    -------
    As for :func:`run_query`.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md, composition.md.
    """
    owner, refines, request = options.get("owner"), options.get("refines", ()), options.get("request")
    planned = _plan_refinable(db, query, options.get("privacy"), options.get("sd"), refines, owner)
    if refines and len(planned) > 1:
        # All of them before the first is charged; a client leaves that to its service.
        check: Any = getattr(db, "check_refines", None)
        for one, receipt in zip(planned, refines, strict=True) if check is not None else ():
            check(one.aggregate, receipt, owner=owner)
    answers: list[Answer] = []
    text, make_task = str(query), getattr(db, "ask_task", None)
    for i, one in enumerate(planned):
        suffix = "" if len(planned) == 1 else f"/{PAIR[i]}"
        how: dict[str, Any] = {
            "privacy": one.privacy,
            "variance": one.variance,
            "owner": owner,
            "plan": [later.privacy for later in planned[i + 1 :] if later.privacy is not None],
            "refines": refines[i] if refines else None,
            "request": None if request is None else request + suffix,
            "said": text,
        }
        if make_task is None:
            answers.append(db.ask(one.aggregate, **how))
        else:
            answers.append((yield from make_task(one.aggregate, **how)))
    values, spreads, count_sd = combine_values(
        query,
        [np.asarray(answer.value) for answer in answers],
        [np.asarray(answer.sd) for answer in answers],
        db.n_rows,
    )
    paid = [answer for answer in answers if answer.cost]
    law = answers[0].law
    return QueryResult(
        question=text,
        measure=query.measure,
        group_by=tuple(axis.column for axis in query.by),
        cells=_cells(query, answers[0].labels, values, spreads, law),
        law=law,
        cost=tuple(promise for answer in paid for promise in answer.receipt.promises),
        unreadable_below=_unreadable_below(query, count_sd, law),
        cached=bool(paid) and all(answer.cached for answer in paid),
        receipts=tuple(answer.receipt.id for answer in paid),
        charges=tuple(answer.receipt for answer in paid),
        parts=tuple(answer.parts for answer in paid),
    )


def is_free(
    db: Database,
    query: Query,
    *,
    privacy: Promise | None = None,
    sd: float | None = None,
    owner: str | None = None,
    refines: Sequence[str] = (),
) -> bool:
    """Return whether :func:`run_query` would charge nothing. Free.

    Parameters
    ----------
    db, query, privacy, sd, owner, refines
        As for :func:`run_query`.

    Privacy
    -------
    Follows from the schema and from what this owner has paid; for a mean by groups, for both aggregates.

    Reference
    ---------
    docs/explanation/theorems/composition.md.
    """
    planned = _plan_refinable(db, query, privacy, sd, refines, owner)
    receipts: Sequence[str | None] = refines or [None] * len(planned)
    return all(
        db.is_free(one.aggregate, privacy=one.privacy, variance=one.variance, owner=owner, refines=receipt)
        for one, receipt in zip(planned, receipts, strict=True)
    )


def _plan_refinable(
    db: RefinableSums,
    query: Query,
    privacy: Promise | None,
    sd: float | None,
    refines: Sequence[str],
    owner: str | None,
) -> list[PlannedAggregate]:
    """Return the planned aggregates; refuses another number of receipts to refine."""
    # Of the budgets behind a service its client knows nothing.
    accounts: Any = getattr(db, "accounts", lambda _: ())
    planned = plan_aggregates(query, db, privacy, sd, partial(accounts, owner))
    if len(refines) not in (0, len(planned)):
        raise ParameterError(
            "refines must name one receipt for each noisy question behind an answer, here "
            f"{len(planned)}, and named {len(refines)}. Give all receipts of the earlier answer, in their "
            "order."
        )
    return planned


def preview_query(
    schema: Schema,
    n_rows: int | None,
    query: Query,
    *,
    privacy: Promise | None = None,
    sd: float | None = None,
    accounts: Sequence[Account] = (),
) -> Preview:
    """Return what a query would cost, and how noisy its result would be. Free.

    Parameters
    ----------
    schema : Schema
        Declared columns, unit and neighbors of the table.
    n_rows : int or None
        Number of rows where it is public; None where it is not, or not known yet.
    query : Query
        Parsed query to preview.
    privacy, sd
        As for :func:`run_query`.
    accounts : sequence of Account
        Budgets that would be charged: the total's, and the owner's where there is one.

    Returns
    -------
    Preview
        Preview with the noise of one group, which is that of all; without a cell where it depends on the
        number of rows of a mean. A mean over chosen rows is at least as noisy as this.

    Privacy
    -------
    Follows from the schema and the public number of rows.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """
    options = _options(query, CostModel(schema, n_rows), privacy, sd)
    chosen = options[least_charge([option.noises for option in options], accounts)]
    fits, law = chosen.fits, chosen.noises[0].law
    one: float | None = chosen.first_sd
    count_sd = None
    if query.verb == "count":
        count_sd = one
    elif query.verb == "mean" and query.by:
        # How many rows a group has is not public, so that the noise of its mean is not either.
        one, count_sd = None, one
    elif query.verb == "mean":
        # With a condition fewer rows are averaged, and the answer is noisier.
        one = chosen.first_sd / n_rows if n_rows else None
    return Preview(
        question=str(query),
        sql=query.sql,
        is_free=all(noise.promise is None for _, noise in fits),
        measure=query.measure,
        group_by=tuple(axis.column for axis in query.by),
        cells=()
        if one is None
        else (ResultCell(key=(), value=None, sd=one, margin=one * interval_width(law)),),
        law=law,
        cost=tuple(noise.promise for _, noise in fits if noise.promise is not None),
        unreadable_below=_unreadable_below(query, count_sd, law),
        laws=_law_options([chosen, *(option for option in options if option is not chosen)], one, accounts),
    )


def _law_options(
    options: list[_Option], sd: float | None, accounts: Sequence[Account]
) -> tuple[LawOption, ...]:
    """Return what each law would cost and how noisy it would be; one that a limit refuses is left out.

    Parameters
    ----------
    options : list of _Option
        Plans of the query by the laws that are left open, first the chosen one.
    sd : float or None
        Standard deviation of the numbers by the chosen law; None if it is not known.
    accounts : sequence of Account
        Budgets that would be charged.
    """
    limited = any(account.caps is not None for account in accounts)
    shares = [budget_share(option.noises, accounts) for option in options]
    return tuple(
        LawOption(
            law=option.noises[0].law,
            sd=sd and sd * (option.first_sd / options[0].first_sd),
            cost=tuple(noise.promise for noise in option.noises if noise.promise is not None),
            share=share if limited else None,
        )
        for option, share in zip(options, shares, strict=True)
        if math.isfinite(share)
    )


def _unreadable_below(query: Query, count_sd: float | None, law: Law) -> int | None:
    """Return the number of rows below which a group cannot be told from an empty one.

    Two margins: that of the group's count, and that of the empty group it is compared with. None without
    groups, for sums, and if counts are exact.
    """
    if not query.by or not count_sd:
        return None
    return math.ceil(2 * (count_sd * interval_width(law)))


def _cells(
    query: Query, labels: tuple[tuple[Any, ...], ...] | None, values: Floats, sds: Floats, law: Law
) -> tuple[ResultCell, ...]:
    """Return the cells of a result: one, or one for each combination of group values."""
    keys: Any = [()]
    if query.by:
        assert labels is not None
        columns = [query.schema.column(axis.column) for axis in query.by]
        named = ([_label(value, of) for value in axis] for axis, of in zip(labels, columns, strict=True))
        keys = itertools.product(*named)
    flat = zip(keys, np.ravel(values).tolist(), np.ravel(sds).tolist(), strict=True)
    return tuple(
        ResultCell(key=key, value=None, sd=None, margin=None)
        if math.isnan(value)
        else ResultCell(key=key, value=value, sd=sd, margin=sd * interval_width(law))
        for key, value, sd in flat
    )


def _label(value: Any, column: Column) -> str:
    """Return a value of a column, or the two ends of a cell, as text."""
    if value is None:
        return "(missing)"
    if isinstance(value, tuple):
        low, high = (write_edge(end, column).strip("'") for end in value)
        if math.isinf(value[0]):
            return f"below {high}"
        return f"{low} or more" if math.isinf(value[1]) else f"{low} to below {high}"
    return write_edge(float(value), column).strip("'") if column.type == "date" else str(value)
