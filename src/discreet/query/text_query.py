"""Text queries: run one, or say in advance what it costs and how noisy its result would be."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

import numpy as np

from discreet.batching import in_parts, run_one
from discreet.errors import ParameterError
from discreet.query.costs import CostModel, budget_share, least_charge
from discreet.query.intervals import LEVEL, ResultInterval, interval_width, mean_intervals
from discreet.query.language._statistic import SPREADS
from discreet.query.previews import ExpectedMargin, LawOption, Preview
from discreet.query.result_cells import ResultCell, ResultColumn
from discreet.query.results import QueryResult
from discreet.query.statistics import AggregatePlan, counted_groups, plan_query

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from discreet.batching import QueryTask
    from discreet.ledger import Account
    from discreet.privacy import Promise
    from discreet.query.aggregates.base import Aggregate, BoundAggregate
    from discreet.query.answers import Answer, RefinableSums
    from discreet.query.calibration import Law, QueryNoise
    from discreet.query.database import Database
    from discreet.query.language.query import Query
    from discreet.query.statistics import StatisticValues
    from discreet.schema import Schema


_SMALLEST_SD = 1e-150  # its square is still a number
_LARGEST_SD = 1e100


def requested_variance(query: Query, privacy: Promise | None, sd: float | None) -> float | None:
    """Return the variance of an sd, None for a promise; refuses neither or both, and the sd of a mean.

    Parameters
    ----------
    query : Query
        Parsed query that is asked.
    privacy : Promise or None
        Promise of the whole result; None where `sd` is given.
    sd : float or None
        Standard deviation of a count or a sum, in its unit; None where `privacy` is given.
    """
    if (privacy is None) == (sd is None):
        raise ParameterError(
            "A query needs exactly one of a promise and a noise, and was given "
            f"{'neither' if sd is None else 'both'}. Give an epsilon, with a delta for Gaussian noise, or "
            "a mu or a rho, or the sd of a count or a sum; asking for the price first is free."
        )
    if sd is None:
        return None
    if len(query.statistics) > 1 or query.statistics[0].kind not in ("count", "distinct", "sum"):
        asked = "several statistics were" if len(query.statistics) > 1 else f"{query.names[0]} was"
        raise ParameterError(
            f"sd must be of one count or sum, and {asked} asked for, whose noise depends on how many rows "
            "there are. Give an epsilon, a mu or a rho."
        )
    if not (math.isfinite(sd) and _SMALLEST_SD <= sd <= _LARGEST_SD):
        raise ParameterError(
            f"sd of a question must be from {_SMALLEST_SD:g} to {_LARGEST_SD:g}, was {sd!r}. Give it in "
            "the unit of the answer."
        )
    return float(sd) ** 2


def run_query(
    db: RefinableSums,
    query: Query,
    *,
    privacy: Promise | None = None,
    sd: float | None = None,
    owner: str | None = None,
    refines: Sequence[str] = (),
    request: str | None = None,
    plan: Sequence[Promise] = (),
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
    plan : sequence of Promise
        Promises that will be asked for after this query: refused unless all of them fit too.

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
    One charge for all statistics of the query.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> from discreet.query.language.query import parse_query
    >>> schema = Schema(columns=[Column("age", lower=0, upper=99)])
    >>> with Database({"age": [20, 80] * 500}, schema=schema, random_state=1) as db:
    ...     run_query(db, parse_query("count where age > 50", schema), privacy=GaussianDP(1)).law
    'gaussian'
    """
    return run_one(
        query_task(
            db, query, privacy=privacy, sd=sd, owner=owner, refines=refines, request=request, plan=plan
        )
    )


class TextQueryOptions(TypedDict, total=False):
    """Keyword arguments of :func:`run_query`."""

    privacy: Promise | None
    sd: float | None
    owner: str | None
    refines: Sequence[str]
    request: str | None
    plan: Sequence[Promise]


def query_task(
    db: RefinableSums, query: Query, **options: Unpack[TextQueryOptions]
) -> QueryTask[QueryResult]:
    """Return the task of a query, whose steps are run in one batch with those of other callers.

    Parameters
    ----------
    db, query, **options
        As for :func:`run_query`. A `db` without tasks of its own, such as the client of a service, answers
        at once.

    Privacy
    -------
    As for :func:`run_query`.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """
    owner, refines = options.get("owner"), options.get("refines", ())
    privacy = options.get("privacy")
    variance = requested_variance(query, privacy, options.get("sd"))
    planned, said = plan_query(query, db.n_rows), str(query)
    how: dict[str, Any] = {
        "privacy": privacy,
        "variance": variance,
        "owner": owner,
        "plan": list(options.get("plan", ())),
        "refines": _single_receipt(refines),
        "request": options.get("request"),
        "said": said,
    }
    make_task = getattr(db, "ask_task", None)
    if make_task is None:
        answer: Answer = db.ask(planned.aggregate, **how)
    else:
        answer = yield from make_task(planned.aggregate, **how)
    return _build_result(planned, answer, said)


def _single_receipt(refines: Sequence[str]) -> str | None:
    """Return the receipt to refine; refuses several, for one charge answers a whole query."""
    if len(refines) > 1:
        raise ParameterError(
            f"refines must name one receipt, that of the earlier answer, and named {len(refines)}."
        )
    return refines[0] if refines else None


def _build_result(plan: AggregatePlan, answer: Answer, text: str) -> QueryResult:
    """Return the result of a query, whose canonical text is given, from the answer to its aggregate."""
    query, paid = plan.query, bool(answer.cost)
    combined = plan.combine(np.asarray(answer.value), np.asarray(answer.sd), answer.law)
    return QueryResult(
        question=text,
        columns=_columns(plan),
        group_by=tuple(key.name for key in query.by),
        cells=_cells(plan, combined),
        law=answer.law,
        cost=tuple(answer.receipt.promises) if paid else (),
        unreadable_below=_unreadable_below(plan, np.asarray(answer.sd), answer.law),
        sums=plan.sums,
        simultaneous=plan.simultaneous,
        cached=paid and answer.cached,
        receipts=(answer.receipt.id,) if paid else (),
        charges=(answer.receipt,) if paid else (),
        charged=tuple(answer.receipt.promises) if paid and not answer.cached else (),
        parts=(answer.parts,) if paid else (),
    )


def _columns(plan: AggregatePlan) -> tuple[ResultColumn, ...]:
    """Return the columns of a result, one for each statistic."""
    return tuple(
        ResultColumn(
            name=name,
            measure=_plural(plan.query.schema.unit) if statistic.kind == "distinct" else statistic.measure,
            bounds=plan.possible_values(statistic),
            first_day=statistic.first_day,
        )
        for name, statistic in zip(plan.query.names, plan.query.statistics, strict=True)
    )


def _plural(noun: str) -> str:
    return "people" if noun == "person" else f"{noun}s"


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
    Follows from the schema and from what this owner has paid.

    Reference
    ---------
    docs/explanation/theorems/composition.md.
    """
    variance = requested_variance(query, privacy, sd)
    aggregate, receipt = plan_query(query, db.n_rows).aggregate, _single_receipt(refines)
    return db.is_free(aggregate, privacy=privacy, variance=variance, owner=owner, refines=receipt)


class _Option(NamedTuple):
    """The aggregate of a query on its table, with its noise by one law."""

    bound: BoundAggregate
    noise: QueryNoise

    @property
    def sds(self) -> Any:
        """Standard deviations of the sums, in the order of the answer."""
        return self.bound.arrange(self.noise.sd(self.bound), 0.0)

    @property
    def first_sd(self) -> float:
        """Standard deviation of the first number; all groups have the same noise."""
        return float(np.ravel(self.sds)[0])


def preview_query(
    schema: Schema,
    n_rows: int | None,
    query: Query,
    *,
    privacy: Promise | None = None,
    sd: float | None = None,
    earlier: Callable[[Aggregate], Answer | None] | None = None,
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
    earlier : callable, optional
        Function that returns an answer to an aggregate that was paid for before, or None. The margins of
        means by groups then follow from the number of rows that each group was counted to have.
    accounts : sequence of Account
        Budgets that would be charged: the total's, and the owner's where there is one.

    Returns
    -------
    Preview
        Preview with the margin of every number. That of a mean is for a mean at the middle of its range,
        over all rows or, by groups, over an equal part of them; a mean over fewer rows is noisier.

    Privacy
    -------
    Follows from the schema, the public number of rows and answers that were paid for.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet import Column, GaussianDP, Schema
    >>> from discreet.query.language.query import parse_query
    >>> schema = Schema(columns=[Column("age", lower=0, upper=99)])
    >>> query = parse_query("count where age > 50", schema)
    >>> preview_query(schema, 1000, query, privacy=GaussianDP(1)).question
    'count where 50 < age'
    """
    plan = plan_query(query, n_rows)
    variance = requested_variance(query, privacy, sd)
    bound, candidates = CostModel(schema, n_rows).candidates(
        plan.aggregate, privacy=privacy, variance=variance
    )
    options = [_Option(bound, noise) for noise in candidates]
    chosen = options[least_charge([[option.noise] for option in options], accounts)]
    noise = chosen.noise
    sds = chosen.sds
    size = None if n_rows is None else n_rows / plan.n_groups
    columns = tuple(
        column._replace(sd=sd, margin=margin, rank_margin=plan.expected_rank_margin(i, sds, noise.law))
        for i, column in enumerate(_columns(plan))
        for sd, margin in (_expected_noise(plan, i, sds, size, noise.law),)
    )
    counts = counted_groups(query)
    counted = None if earlier is None or counts is None else earlier(counts)
    expected: tuple[ExpectedMargin, ...] = ()
    if counted is not None:
        sizes = np.maximum(np.ravel(counted.value), 0.0).tolist()
        bounds = plan.possible_values(query.statistics[0])
        sum_sd, count_sd = (float(one[0]) for one in plan.split(sds)[0])
        margins = [_mean_margin(sum_sd, count_sd, rows, noise.law, bounds) for rows in sizes]
        keyed = zip(_keys(plan), sizes, margins, strict=True)
        expected = tuple(ExpectedMargin(key=key, n_rows=rows, margin=half) for key, rows, half in keyed)
    depends = any(statistic.kind in ("mean", *SPREADS) for statistic in query.statistics)
    return Preview(
        question=str(query),
        sql=query.sql,
        is_free=noise.promise is None,
        columns=columns,
        group_by=tuple(key.name for key in query.by),
        cells=(),
        law=noise.law,
        cost=() if noise.promise is None else (noise.promise,),
        unreadable_below=_unreadable_below(plan, sds, noise.law),
        sums=plan.sums,
        simultaneous=plan.simultaneous,
        n_rows=size if depends else None,
        expected=expected,
        laws=_law_options(
            [chosen, *(option for option in options if option is not chosen)], columns, accounts
        ),
    )


def _expected_noise(
    plan: AggregatePlan, i: int, sds: Any, n_rows: float | None, law: Law
) -> tuple[float | None, float | None]:
    """Return the sd and the margin that the numbers of a statistic would have, over so many rows each.

    Notes
    -----
    A mean is taken to be at the middle of its range, and for a spread values to be spread evenly over it;
    what depends on the data otherwise, as a ratio does, has no margin in advance.
    """
    statistic, (part, *entry) = plan.query.statistics[i], plan.entries[i]
    if plan.parts[part].tree is not None:
        return None, None
    own = [float(plan.split(sds)[part][k][0]) for k in entry]  # alike in all groups
    width = interval_width(law, plan.level)
    if statistic.kind in ("count", "distinct", "sum"):
        return own[0], own[0] * width
    if statistic.kind == "mean" and len(own) == 1:
        assert n_rows
        return own[0] / n_rows, own[0] / n_rows * width
    if n_rows is None or statistic.kind == "ratio":
        return None, None
    if statistic.kind == "mean":
        bounds = plan.possible_values(statistic)
        return None, _mean_margin(own[0], own[1], n_rows, law, bounds, plan.level)
    return None, plan.expected_spread_margin(statistic, own, n_rows, law)


def _mean_margin(
    sum_sd: float, count_sd: float, n_rows: float, law: Law, bounds: ResultInterval, level: float = LEVEL
) -> float:
    """Return half the width of the interval of a mean at the middle of its range, over so many rows."""
    sums, sum_sds, counts, count_sds = np.array([[0.0], [sum_sd], [n_rows], [count_sd]])
    _, lower, upper = mean_intervals(sums, sum_sds, counts, count_sds, interval_width(law, level), bounds)
    return float(upper[0] / 2 - lower[0] / 2)


def _law_options(
    options: list[_Option], columns: Sequence[ResultColumn], accounts: Sequence[Account]
) -> tuple[LawOption, ...]:
    """Return what each law would cost and how noisy it would be; one that a limit refuses is left out.

    Parameters
    ----------
    options : list of _Option
        The query by the laws that are left open, first the chosen one.
    columns : sequence of ResultColumn
        Columns of the result, of which a single one may have an sd by the chosen law.
    accounts : sequence of Account
        Budgets that would be charged.
    """
    limited = any(account.caps is not None for account in accounts)
    shares = [budget_share([option.noise], accounts) for option in options]
    sd = columns[0].sd if len(columns) == 1 else None
    return tuple(
        LawOption(
            law=option.noise.law,
            sd=sd and sd * (option.first_sd / options[0].first_sd),
            cost=() if option.noise.promise is None else (option.noise.promise,),
            share=share if limited else None,
        )
        for option, share in zip(options, shares, strict=True)
        if math.isfinite(share)
    )


def _unreadable_below(plan: AggregatePlan, sds: Any, law: Law) -> int | None:
    """Return the number of rows below which a group cannot be distinguished from an empty one.

    Two margins: that of the group's count, and that of the empty group it is compared with. None without
    groups, for sums, and if counts are exact.
    """
    count_sd = plan.count_sd(sds) if plan.query.by else None
    return math.ceil(2 * (count_sd * interval_width(law))) if count_sd else None


def _cells(plan: AggregatePlan, combined: Sequence[StatisticValues]) -> tuple[ResultCell, ...]:
    """Return the cells of a result, group by group in the order that is asked for, cut to the limit."""
    numbers = [list(zip(*(np.ravel(array).tolist() for array in one), strict=True)) for one in combined]
    keys = _keys(plan)
    chosen = _sort_groups(plan, numbers)[: plan.query.limit]
    return tuple(
        ResultCell(key=keys[group], column=i, value=_known(value), sd=_known(sd), lower=lower, upper=upper)
        for group in in_parts(chosen)
        for i, column in enumerate(numbers)
        for value, sd, lower, upper in (column[group],)
    )


def _sort_groups(plan: AggregatePlan, numbers: Sequence[Sequence[Sequence[float]]]) -> list[int]:
    """Return the groups by index in the order of ORDER BY, those whose number says nothing last."""
    order = list(range(plan.n_groups))
    places = list(itertools.product(*(range(len(axis)) for axis in plan.labels)))
    # The least important key first: sorting is stable.
    for key in reversed(plan.query.order):
        sign = -1 if key.descending else 1
        if not key.is_statistic:
            order.sort(key=lambda group: sign * places[group][key.place])
            continue
        bounds = plan.possible_values(plan.query.statistics[key.place])
        ranks = [
            (math.isnan(value) or (lower < upper and (lower, upper) == bounds), sign * value)
            for value, _, lower, upper in numbers[key.place]
        ]
        order.sort(key=ranks.__getitem__)
    return order


def _keys(plan: AggregatePlan) -> list[tuple[str, ...]]:
    """Return the keys of the groups, in their declared order: one without values if there are no groups."""
    pairs = zip(plan.labels, plan.query.by, strict=True)
    named = ([key.label(value, plan.query.schema) for value in axis] for axis, key in pairs)
    return list(itertools.product(*named))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
