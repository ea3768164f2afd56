"""Ways to publish a table, each tried on the same rows: what a recipient can do, and what attackers gain."""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from discreet.audit import max_success_probability, measure_risk
from discreet.errors import DiscreetError, DiscreetWarning, ParameterError
from discreet.evaluation._models import PredictionTask
from discreet.evaluation.compared_rows import as_file, noisy_means, noisy_tables
from discreet.evaluation.noise_aware import AwareModel, AwareRows
from discreet.evaluation.what_if import plan_epsilon
from discreet.noise_law import ResponseLaw, SampledLaw
from discreet.privacy import ApproxDP, ErrorFloor, PureDP
from discreet.query import Database
from discreet.query.engines.base import kernel_engine_for
from discreet.release import CoarseRelease, GaussianRelease, SyntheticRelease
from discreet.release.base import check_publishable
from discreet.release.coarse import CoarsePlan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from discreet._types import AnyArray, Floats, Ints
    from discreet.audit import PublicPrior
    from discreet.evaluation.compared_rows import ComparedRows
    from discreet.noise_law import Law
    from discreet.release import ReleaseMethod, ReleasePlan
    from discreet.schema import Column, Schema

    Rows = Mapping[str, AnyArray]

WayName = Literal["synthetic", "coarse", "gaussian", "masked", "model", "questions"]
TITLES: dict[WayName, str] = {
    "synthetic": "synthetic table",
    "coarse": "coarse table",
    "gaussian": "rows with noise",
    "masked": "masked data",
    "model": "a model",
    "questions": "questions",
}
"""Ways in the order in which they are listed, with their names for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to publish a table: its promise, what a recipient can do with it, and what attackers gain.

    Attributes
    ----------
    name : str
        Name of the way, a key of :data:`TITLES`.
    epsilon, delta : float or None
        Promise about all protected columns together; None where there is no such promise.
    trust : {"central", "local"}
        "central": noise is added to sums over all rows. "local": noise is added to every row by itself.
    accuracy : float or None
        Share of unseen rows whose class a recipient's model gets right, or R2 of a number; None where no
        model can be made.
    table_error : float or None
        Mean distance in total variation of the two-way tables from the true ones, from 0 to 1.
    mean_error : float or None
        Mean error of the means of numbers, as a share of the declared range.
    membership : float or None
        Largest chance, by the promise, that anyone tells which of two rows a person has, from 0.5 on; None
        where no promise bounds it.
    why_not : str
        Reason why the way is impossible, from public facts alone; "" where it is possible.
    risk : dict or None
        Attacks on made-up people in such a release, and whether it may be published, as
        :class:`~discreet.audit.Risk` writes them; None where no table is published.
    """

    name: WayName
    epsilon: float | None
    delta: float | None
    trust: Literal["central", "local"]
    accuracy: float | None = None
    table_error: float | None = None
    mean_error: float | None = None
    membership: float | None = None
    why_not: str = ""
    risk: dict[str, Any] | None = None

    @property
    def title(self) -> str:
        """Name of the way for people."""
        return TITLES[self.name]

    @property
    def stops(self) -> bool:
        """Whether a release would stop before its charge, because attacks on made-up people gain too much."""
        return self.risk is not None and self.risk["verdict"] == "no"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**dataclasses.asdict(self), "title": self.title}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a recipient of one publication can do; None where it says nothing about it."""

    accuracy: float | None = None
    table_error: float | None = None
    mean_error: float | None = None


def measure_ways(
    schema: Schema,
    rows: ComparedRows,
    n_rows: int,
    *,
    privacy: PureDP | ApproxDP,
    floors: Mapping[str, float],
    progress: Callable[[float], None] | None = None,
) -> list[Way]:
    """Try every way to publish on the same rows, under the same promise.

    Parameters
    ----------
    schema : Schema
        Declaration of the table.
    rows : ComparedRows
        Rows that are published, and unseen rows to test models on.
    n_rows : int
        Public number of rows of the table, which decides whether a way is possible.
    privacy : PureDP or ApproxDP
        Promise of every way but rows with noise by error floors.
    floors : mapping of str to float
        Error floors that set the noise of the rows with noise; empty: the promise sets it.
    progress : callable, optional
        Function called with the share that is done, from 0 to 1.

    Returns
    -------
    list of Way
        One for each of :data:`TITLES`, in that order.

    Privacy
    -------
    As private as `rows` are: on made-up ones, nothing private is read.
    """
    tried = []
    for done, name in enumerate(TITLES):
        with warnings.catch_warnings():
            # They are about one publication; here all are compared, and their figures tell the same.
            warnings.simplefilter("ignore", DiscreetWarning)
            tried.append(_try_way(name, schema, rows, n_rows, privacy, floors))
        if progress is not None:
            progress((done + 1) / len(TITLES))
    return tried


def _try_way(
    name: WayName,
    schema: Schema,
    rows: ComparedRows,
    n_rows: int,
    privacy: PureDP | ApproxDP,
    floors: Mapping[str, float],
) -> Way:
    """Return one way with its outcome, or with the reason why it is impossible."""
    delta = privacy.delta if isinstance(privacy, ApproxDP) else 0.0
    way = Way(
        name=name,
        epsilon=privacy.epsilon,
        delta=0.0 if name == "coarse" else delta,
        trust="local" if name in ("coarse", "gaussian") else "central",
        membership=max_success_probability(
            PureDP(epsilon=privacy.epsilon) if name == "coarse" else privacy, [0.5, 0.5]
        ),
    )
    try:
        if name in ("coarse", "gaussian", "masked"):
            check_publishable(schema, f"A release by the method {name}")
        if name == "gaussian" and floors:
            way = _by_floors(way, schema, n_rows, floors, delta or 1e-6)
            floor = ErrorFloor(floors)
            outcome = _publish_noised_rows(GaussianRelease(privacy=floor, schema=schema), rows, n_rows)
        else:
            outcome = _TRIALS[name](rows, n_rows, privacy)
    except DiscreetError as problem:
        return dataclasses.replace(way, why_not=_first_sentence(str(problem)), membership=None)
    return dataclasses.replace(way, **dataclasses.asdict(outcome))


def _by_floors(way: Way, schema: Schema, n_rows: int, floors: Mapping[str, float], delta: float) -> Way:
    """Return the way of rows with noise by floors with the epsilon that they come to, if there is one."""
    plan = GaussianRelease(privacy=ErrorFloor(floors), schema=schema).plan(schema, n_rows)
    epsilon = plan_epsilon(plan, delta)
    bound = None
    if epsilon is not None:
        bound = max_success_probability(ApproxDP(epsilon=epsilon, delta=delta), [0.5, 0.5])
    return dataclasses.replace(
        way, epsilon=epsilon, delta=None if epsilon is None else delta, membership=bound
    )


def add_risks(
    ways: Sequence[Way],
    schema: Schema,
    n_rows: int,
    *,
    privacy: PureDP | ApproxDP,
    floors: Mapping[str, float],
    prior: PublicPrior | None = None,
) -> list[Way]:
    """Return the ways with the attacks that a release of each would be tested by before it is charged.

    Parameters
    ----------
    ways : sequence of Way
        Ways as :func:`measure_ways` returns them.
    schema, n_rows, privacy, floors
        As for :func:`measure_ways`.
    prior : PublicPrior, optional
        Law of public rows that attackers may know.

    Privacy
    -------
    Follows from the schema, the promise and the public number of rows.
    """
    found = []
    for way in ways:
        if not way.why_not and way.name in ("synthetic", "coarse", "gaussian", "masked"):
            method = _make_method(way.name, schema, privacy, floors)
            public = schema.neighbors == "replace-one" and schema.row_count == "public"
            size: Any = n_rows if public else None
            risk = measure_risk(method, method.plan(schema, size), size, prior=prior)
            way = dataclasses.replace(way, risk=risk.to_dict())
        found.append(way)
    return found


def _make_method(
    name: WayName, schema: Schema, privacy: PureDP | ApproxDP, floors: Mapping[str, float]
) -> ReleaseMethod:
    """Return the release method of a way that publishes a table."""
    if name == "synthetic":
        return SyntheticRelease(privacy, schema=schema)
    if name == "coarse":
        promise = PureDP(epsilon=privacy.epsilon, unit=privacy.unit, neighbors=privacy.neighbors)
        return CoarseRelease(privacy=promise, schema=schema)
    if name == "masked":
        from discreet.release import MaskedRelease  # loaded here, with the learners that it masks

        return MaskedRelease(privacy=privacy, schema=schema)
    if floors:
        return GaussianRelease(privacy=ErrorFloor(floors), schema=schema)
    assert isinstance(privacy, ApproxDP)
    return GaussianRelease(privacy=privacy, schema=schema)


def _first_sentence(text: str) -> str:
    """Return the first sentence of an error, which says what is missing."""
    head = text.split("\n")[0]
    end = head.find(". ")
    return head if end < 0 else head[: end + 1]


def _publish_synthetic(rows: ComparedRows, n_rows: int, privacy: PureDP | ApproxDP) -> Outcome:
    """Return what can be done with a synthetic table."""
    method = SyntheticRelease(privacy, schema=rows.schema, random_state=rows.seed)
    public = rows.schema.neighbors == "replace-one" and rows.schema.row_count == "public"
    method.plan(rows.schema, n_rows if public else None)
    made = SyntheticRelease(privacy, schema=rows.schema, anyway=True, random_state=rows.seed).release(
        rows.as_table()
    )
    codes = rows.find_cells(made.columns)
    return Outcome(
        accuracy=rows.boosted_accuracy(rows.schema, made.columns, rows.test),
        table_error=rows.table_error([rows.count(codes, pair) for pair in rows.pairs]),
        mean_error=rows.mean_error({c.name: rows.mean(c, made.columns[c.name]) for c in rows.numbers}),
    )


def _publish_gaussian(rows: ComparedRows, n_rows: int, privacy: PureDP | ApproxDP) -> Outcome:
    """Return what can be done with rows with Gaussian noise under a local promise."""
    if isinstance(privacy, PureDP):
        raise ParameterError("Gaussian noise has no epsilon without a delta. Give --delta too.")
    return _publish_noised_rows(GaussianRelease(privacy=privacy, schema=rows.schema), rows, n_rows)


def _publish_coarse(rows: ComparedRows, n_rows: int, privacy: PureDP | ApproxDP) -> Outcome:
    """Return what can be done with few values of each column, randomized."""
    promise = PureDP(epsilon=privacy.epsilon, unit=privacy.unit, neighbors=privacy.neighbors)
    return _publish_noised_rows(CoarseRelease(privacy=promise, schema=rows.schema), rows, n_rows)


def _publish_noised_rows(method: GaussianRelease | CoarseRelease, rows: ComparedRows, n_rows: int) -> Outcome:
    """Return what can be done with rows that have noise of their own, corrected for it where that works."""
    plan = method.plan(rows.schema, n_rows)
    published = plan.draw(rows.train, rows.stream.derive(f"noise of {method.name}"))
    laws = {done.column: done.law for done in plan.columns}
    codes = _shown_cells(plan, published) if isinstance(plan, CoarsePlan) else rows.find_cells(published)
    channels = {c.name: _Channel.from_law(laws.get(c.name), rows.sizes[c.name]) for c in rows.columns}
    shares = {name: channels[name].correct(codes[name]) for name in rows.sizes}
    means = {}
    for column in rows.numbers:
        if isinstance(plan, CoarsePlan):
            means[column.name] = _mean_of_cells(rows, column, shares[column.name])
        else:
            means[column.name] = rows.mean(column, published[column.name])
    return Outcome(
        accuracy=_noised_accuracy(plan, published, rows),
        table_error=rows.table_error(
            [_correct_pair(codes, channels, shares, first, second) for first, second in rows.pairs]
        ),
        mean_error=rows.mean_error(means),
    )


def _shown_cells(plan: CoarsePlan, published: Rows) -> dict[str, Ints]:
    """Return the places of the cells of a coarse release, -1 where a row does not show the column."""
    codes = {}
    for done in plan.columns:
        values = published[done.column].astype(np.int64)
        if isinstance(done.law, SampledLaw):
            hidden = plan.schema.column(done.column).levels.index(done.law.unpublished)
            # "Missing" comes after it.
            values = np.where(values == hidden, -1, values - (values > hidden))
        codes[done.column] = values
    return codes


@dataclass(frozen=True, slots=True, eq=False)
class _Channel:
    """Law of a published cell given the true one, as a matrix; numbers are taken as they are published.

    Attributes
    ----------
    matrix : array of shape (cells, cells) or None
        Chance of each published cell, given each true one by column; None: as the true one.
    size : int
        Number of cells; a code below 0 is of a row that does not show its cell.
    """

    matrix: Floats | None
    size: int

    @classmethod
    def from_law(cls, law: Law | None, size: int) -> _Channel:
        """Return the channel of randomized response; every other law is taken as it is published."""
        if isinstance(law, SampledLaw):
            law = law.law
        if not isinstance(law, ResponseLaw) or law.levels != size:
            return cls(None, size)
        other = (1 - law.keep) / max(1, size - 1)
        return cls(np.full((size, size), other) + (law.keep - other) * np.eye(size), size)

    def correct(self, codes: Ints) -> Floats:
        """Return unbiased shares of the true cells, moved into the range of shares."""
        counts = np.bincount(codes[codes >= 0], minlength=self.size).astype(float)
        return _as_shares(counts if self.matrix is None else np.linalg.solve(self.matrix, counts))


def _correct_pair(
    codes: Rows, channels: Mapping[str, _Channel], shares: Mapping[str, Floats], first: str, second: str
) -> Floats:
    """Return the two-way table of published rows, corrected for randomized response.

    Where no row shows both columns, they are taken to be independent.
    """
    one, two = channels[first], channels[second]
    both = (codes[first] >= 0) & (codes[second] >= 0)
    if not both.any():
        return np.outer(shares[first], shares[second])
    joint = codes[first][both] * two.size + codes[second][both]
    table = np.bincount(joint, minlength=one.size * two.size).reshape(one.size, two.size).astype(float)
    if one.matrix is not None:
        table = np.linalg.solve(one.matrix, table)
    if two.matrix is not None:
        table = np.linalg.solve(two.matrix, table.T).T
    return _as_shares(table)


def _as_shares(counts: Floats) -> Floats:
    """Return counts without negative ones, divided by their sum; equal shares where nothing is left."""
    positive = np.maximum(counts, 0.0)
    total = float(positive.sum())
    return positive / total if total > 0 else np.full(counts.shape, 1 / counts.size)


def _mean_of_cells(rows: ComparedRows, column: Column, shares: Floats) -> float:
    """Return the mean of a number by the shares of its cells, each at its middle, as a share of its range."""
    grid = np.linspace(*column.range, 4096)
    if column.type != "number":
        grid = np.rint(grid)
    # The other columns are not looked at.
    blank = {c.name: np.zeros(len(grid), np.int64) for c in rows.columns}
    codes = rows.find_cells({**blank, column.name: grid})[column.name]
    counts = np.bincount(codes, minlength=len(shares))
    middles = np.bincount(codes, weights=grid, minlength=len(shares)) / np.maximum(counts, 1)
    # No point of the grid is in the cell of missing numbers.
    known = _as_shares(np.where(counts > 0, shares, 0.0))
    return float((known @ middles - column.range[0]) / column.width)


def _noised_accuracy(plan: ReleasePlan, published: Rows, rows: ComparedRows) -> float | None:
    """Return the accuracy of a noise-aware model, or of boosted trees where it refuses the rows."""
    if rows.task is None:
        return None
    published_target = PredictionTask.from_column(plan.schema.column(rows.task.column.name))
    if published_target.n_classes != rows.task.n_classes:
        return None  # a number is published as a few values
    moments = AwareRows(plan, rows.n_rows, rows.stream.derive("aware"))
    moments.see(published)
    model, test = moments.fit(), plan.truth(rows.test)
    if isinstance(model, AwareModel):
        return rows.score(model.predict(test))
    return rows.boosted_accuracy(plan.schema, published, test)


def _publish_masked(rows: ComparedRows, n_rows: int, privacy: PureDP | ApproxDP) -> Outcome:
    """Return the accuracy of the classifier that masked rows lead to."""
    if rows.schema.target is None:
        raise ParameterError("Masked rows are made for a classifier, and no target is declared.")
    from discreet.evaluation.exact_models import score_masked
    from discreet.release import MaskedRelease  # as above

    plan = MaskedRelease(privacy=privacy, schema=rows.schema).plan(rows.schema, n_rows)
    weights = plan.train(rows.train, rows.stream.derive("masked"), sample=True)
    return Outcome(accuracy=rows.score(score_masked(plan, weights, rows.test)))


def _publish_model(rows: ComparedRows, n_rows: int, privacy: PureDP | ApproxDP) -> Outcome:
    """Return the accuracy of the classifier that needs no choices."""
    if rows.schema.target is None:
        raise ParameterError("A model predicts a target, and none is declared.")
    if rows.task is None or not rows.task.n_classes:
        raise ParameterError(
            f"The default model predicts classes, and {rows.schema.target} is a number. Try `discreet learn "
            "--model ridge`."
        )
    from discreet.learn import PrivateClassifier  # loaded here, since it loads scikit-learn

    model = PrivateClassifier(privacy=privacy, schema=rows.schema, paid_score=False, random_state=rows.seed)
    with Database(rows.as_table(), schema=rows.schema, random_state=rows.seed) as database:
        model.fit_database(database)
    X: Any = {c.name: as_file(c, rows.test[c.name]) for c in rows.schema.features}
    if model.layout_.plain:
        X = np.column_stack(list(X.values()))
    with warnings.catch_warnings():
        # A matrix has no names of columns, which scikit-learn warns about.
        warnings.simplefilter("ignore", UserWarning)
        predicted = np.asarray(model.predict(X)).tolist()
    places = {level: place for place, level in enumerate(rows.task.column.levels)}
    named = np.array([places[level] for level in predicted])
    return Outcome(accuracy=rows.score(np.eye(len(rows.task.column.levels))[named]))


def _ask_questions(rows: ComparedRows, n_rows: int, privacy: PureDP | ApproxDP) -> Outcome:
    """Return the errors of means, and of two-way tables, if the whole promise pays for these alone."""
    table = rows.as_table()
    with Database(
        table, schema=rows.schema, engine=kernel_engine_for(table), random_state=rows.seed
    ) as database:
        stream = rows.stream.derive("questions")
        tables = noisy_tables(database, rows.pairs, rows.tables, rows.n_rows, privacy, stream)
        means = noisy_means(database, rows.means, rows.n_rows, privacy, stream)
    return Outcome(
        table_error=rows.table_error([_as_shares(table) for table in tables]) if tables else None,
        mean_error=rows.mean_error(means),
    )


_TRIALS: dict[WayName, Callable[[ComparedRows, int, PureDP | ApproxDP], Outcome]] = {
    "synthetic": _publish_synthetic,
    "coarse": _publish_coarse,
    "gaussian": _publish_gaussian,
    "masked": _publish_masked,
    "model": _publish_model,
    "questions": _ask_questions,
}
