"""Models trained on true and on published rows, compared on rows that no model has seen; internal."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np

from discreet.evaluation._models import (
    BOOSTING,
    FeatureMatrix,
    PredictionTask,
    Tested,
    Trained,
    accuracy_or_r2,
    fit_boosted,
    fit_majority,
    score,
    score_subgroups,
)
from discreet.evaluation.exact_models import check_invariant_model, masked_meter
from discreet.evaluation.noise_aware import AwareModel, AwareRows
from discreet.noise import permutation
from discreet.noise_law import Clear, ResponseLaw
from discreet.release.kinds import is_coarse_plan, is_invariant_plan, is_masked_plan
from discreet.report.findings import Learning, Score

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from discreet._types import AnyArray, Floats, Ints
    from discreet.evaluation._models import Model
    from discreet.noise import Stream
    from discreet.release import ReleasePlan
    from discreet.release.invariant.plan import InvariantPlan
    from discreet.schema import Schema

    Rows = Mapping[str, AnyArray]

LEAST_ROWS = 20
TEST_SHARE = 0.3
MOST_WORK = 1_000_000
"""Largest product of training rows, columns and trees per round; with more, fewer rows are trained on."""
SHARES = {0.01: 5, 0.02: 5, 0.05: 3, 0.1: 2, 0.2: 1, 0.5: 1}
"""Shares of the true training rows in the learning curve, and the number of disjoint samples of each."""
_LEAST_TRAINED = 10


class LearningRun:
    """A split of rows into training and test rows, with the model that is trained on them.

    Parameters
    ----------
    schema : Schema
        Schema of the published table, with a target and features.
    rows : mapping of str to array
        True rows, encoded; at least two of them.
    stream : Stream
        Source of the split. Streams of one key split the same rows in the same way.

    Attributes
    ----------
    train, test : array of int
        Indices of training and of test rows, disjoint and in random order.
    others : array of int
        Indices of all rows that are not test rows: ``train``, then those beyond the time limit of the model.
        A noise-aware learner needs one pass and uses all of them.

    Privacy
    -------
    All results are about true rows: for the curator only.
    """

    def __init__(self, schema: Schema, rows: Rows, stream: Stream) -> None:
        """Split the rows, and limit the training rows by :data:`MOST_WORK`."""
        assert schema.target is not None
        self.task = PredictionTask.from_column(schema.column(schema.target))
        self._features = FeatureMatrix(schema)
        n = len(rows[schema.target])
        order = permutation(n, stream.derive("train or test"))
        n_test = max(1, round(TEST_SHARE * n))
        trees = self.task.n_classes if self.task.n_classes > 2 else 1
        most = max(LEAST_ROWS, MOST_WORK // (self._features.unordered.size * trees))
        self.test: Ints = order[:n_test]
        self.others: Ints = order[n_test:]
        self.train: Ints = self.others[:most]
        # 31 bits: scikit-learn takes seeds below 2**32.
        self._seed = int(stream.derive("model").words(1)[0] >> np.uint64(33))

    def select(self, rows: Rows, places: Ints) -> tuple[Floats, AnyArray]:
        """Return features and targets of those rows at some indices whose target is not missing."""
        subset = {name: values[places] for name, values in rows.items()}
        targets = self.task.targets(subset)
        present = self.task.is_present(targets)
        return self._features.matrix(subset)[present], targets[present]

    def predict_test(self, model: AwareModel, rows: Rows) -> Floats:
        """Return the predictions of a noise-aware model for the test rows whose target is not missing."""
        subset = {name: values[self.test] for name, values in rows.items()}
        return np.asarray(model.predict(subset)[self.task.is_present(self.task.targets(subset))])

    def fit(self, rows: Rows, places: Ints | None = None) -> Model:
        """Train on the rows at some indices, by default on all training rows."""
        X, y = self.select(rows, self.train if places is None else places)
        return fit_boosted(X, y, self.task, self._features, self._seed)


def measure_learning(
    schema: Schema,
    rows: Rows,
    published: Rows,
    *,
    plan: ReleasePlan,
    stream: Stream,
    other_rows: AwareRows | None = None,
    seconds: float = 8.0,
    progress: Callable[[float], None] | None = None,
) -> Learning | None:
    """Train the same model on true and on published rows, and test both on rows that neither has seen.

    Where the noise law allows it, a learner that corrects for the noise is trained too, on all published rows
    except the test rows.

    Parameters
    ----------
    schema : Schema
        Schema of the published table, as ``ReleasePlan.schema``.
    rows, published : mapping of str to array
        True and published rows of the same people, in the same order, as
        :class:`~discreet.evaluation.tallies.PairedSample` keeps them.
    plan : ReleasePlan
        Plan of the release; an invariant release is evaluated with the learner that it preserves.
    stream : Stream
        Source of the split into training and test rows. It must not be the stream of the noise.
    other_rows : AwareRows, optional
        Moments of the published rows that are not in ``published``; None if these are all rows.
    seconds : float
        Time limit of the learning curve, in seconds; the two models themselves are always trained.
    progress : callable, optional
        Function called with the share that is done, from 0 to 1.

    Returns
    -------
    Learning or None
        None without a target. Where nothing can be learned, ``note`` says why.

    Privacy
    -------
    Measured on true rows without a charge: internal, and no part of a statement.
    """
    report = progress or (lambda done: None)
    if schema.target is None:
        return None
    n = len(rows[schema.target])
    task = PredictionTask.from_column(schema.column(schema.target))
    if reason := _obstacle(schema, n):
        return _empty_result(task, reason)
    if is_invariant_plan(plan) and (plan.learner is None or plan.learner.unique):
        return check_invariant_model(schema, rows, published, plan)
    deadline = time.monotonic() + seconds
    run = LearningRun(schema, rows, stream)
    models = {"original": run.fit(rows), "release": run.fit(published)}
    report(0.4)
    scores = _scores(run, models, rows, published)
    X, y = run.select(rows, run.test)
    moments = AwareRows(plan, n, stream.derive("aware")) if other_rows is None else other_rows
    # Without the test rows, whose published labels would be trained on.
    moments.see({name: values[run.others] for name, values in published.items()})
    aware = moments.fit()
    corrected, aware_note = None, ""
    if isinstance(aware, str):
        aware_note = aware
    else:
        predicted = run.predict_test(aware, rows)
        corrected, aware_note = accuracy_or_r2(predicted, y, task), aware.note
        aware_score = score(
            predicted,
            y,
            task,
            trained_on="aware",
            tested_on="original",
            chances=aware.chances,
            train_rows=moments.n_rows,
        )
        scores.insert(2, aware_score)
    guesses = {name: model.predict(X) for name, model in models.items()}
    whole, released = (accuracy_or_r2(guesses[name], y, task) for name in ("original", "release"))
    curve = _curve(run, rows, whole, deadline, lambda done: report(0.4 + 0.5 * done))
    best = max((value for value in (released, corrected) if value is not None), default=None)
    share, reason = _equal_share(curve, best, _tolerance(task, whole, len(y)))
    name = task.column.name
    present = task.is_present(task.targets({name: rows[name][run.test]}))
    groups = score_subgroups(
        schema, {name: values[run.test[present]] for name, values in rows.items()}, guesses, y, task
    )
    report(1.0)
    return Learning(
        target=task.column.name,
        task=task.kind,
        model=BOOSTING,
        train_rows=len(run.train),
        test_rows=len(run.test),
        scores=scores,
        equals_share=share,
        curve=curve,
        subgroups=groups,
        note=" ".join(filter(None, (*_notes(run, schema, rows, published, plan), aware_note, reason))),
    )


def accuracy_meter(
    schema: Schema, rows: Rows, *, stream: Stream, published: Rows | None = None, seconds: float = 6.0
) -> Callable[[ReleasePlan, float], float | None]:
    """Return a function that measures the accuracy under a plan, for the what-if table.

    Parameters
    ----------
    schema, rows, stream
        As for :func:`measure_learning`; the same stream gives the same split.
    published : mapping of str to array, optional
        Published rows, which are used for factor 1; None to draw that noise too.
    seconds : float
        Time in seconds spent on training after which the function returns None.

    Returns
    -------
    callable
        Function from a plan and its factor to accuracy, or R2, on true test rows. All plans draw under the
        same key, so that they differ by the amount of noise only.
    """
    if schema.target is None or _obstacle(schema, len(rows[schema.target])):
        return lambda plan, factor: None
    run = LearningRun(schema, rows, stream)
    X, y = run.select(rows, run.test)
    true_rows = {name: values[run.others] for name, values in rows.items()}
    all_places = np.arange(len(run.others))
    exact: list[float | None] = []
    spent = 0.0

    def meter(plan: ReleasePlan, factor: float) -> float | None:
        nonlocal spent
        if is_invariant_plan(plan):
            # The model does not depend on the amount of noise, so it is fitted once.
            if not exact:
                exact.append(_invariant_score(schema, rows, plan))
            return exact[0]
        if spent > seconds:
            return None
        start = time.monotonic()
        noised, places = published, run.others
        if factor != 1 or noised is None:
            noised, places = plan.noise(true_rows, stream.derive("what if")), all_places
        value = accuracy_or_r2(run.fit(noised, places[: len(run.train)]).predict(X), y, run.task)
        if is_coarse_plan(plan):
            # Most cells are not shown, so a model that ignores the law says little about the release.
            moments = AwareRows(plan, len(places), stream.derive("aware"))
            moments.see({name: values[places] for name, values in noised.items()})
            aware = moments.fit()
            if isinstance(aware, AwareModel):
                value = accuracy_or_r2(run.predict_test(aware, rows), y, run.task)
        spent += time.monotonic() - start
        return value

    return meter


def choose_meter(
    plan: ReleasePlan, rows: Rows, *, stream: Stream, published: Rows | None = None, seconds: float = 6.0
) -> Callable[[ReleasePlan, float], float | None]:
    """Return :func:`accuracy_meter`, or :func:`masked_meter` for a masked release."""
    if is_masked_plan(plan):
        return masked_meter(rows, stream=stream)
    return accuracy_meter(plan.schema, rows, stream=stream, published=published, seconds=seconds)


def _invariant_score(schema: Schema, rows: Rows, plan: InvariantPlan) -> float | None:
    """Return accuracy, or R2, of the model that an invariant release preserves; None if it is not unique."""
    if plan.learner is not None and not plan.learner.unique:
        return None
    first = check_invariant_model(schema, rows, rows, plan).scores[:1]
    return next((s.r2 if s.accuracy is None else s.accuracy for s in first), None)


def _obstacle(schema: Schema, n: int) -> str:
    """Return the reason why nothing can be learned whatever the rows are, or ""."""
    if not schema.features:
        return "There is no column to predict the target from."
    if n < LEAST_ROWS:
        return f"Too few rows ({n}) to hold some back for a test; at least {LEAST_ROWS} are needed."
    return ""


def _empty_result(task: PredictionTask, reason: str) -> Learning:
    """Return a result without scores that states the reason."""
    return Learning(
        target=task.column.name,
        task=task.kind,
        model=BOOSTING,
        train_rows=0,
        test_rows=0,
        scores=[],
        note=reason,
    )


def _scores(run: LearningRun, models: Mapping[str, Model], rows: Rows, published: Rows) -> list[Score]:
    """Return the scores of both models, and of the best constant, on true and on published test rows."""
    sides: dict[Tested, Rows] = {"original": rows, "release": published}
    scores = []
    for tested_on, side in sides.items():
        X, y = run.select(side, run.test)
        # The best constant of the same side: what a model must beat there.
        majority = fit_majority(run.select(side, run.train)[1], run.task)
        trained: dict[Trained, Model] = {
            "original": models["original"],
            "release": models["release"],
            "majority": majority,
        }
        scores += [
            score(
                model.predict(X),
                y,
                run.task,
                trained_on=name,
                tested_on=tested_on,
                chances=model.chances and name != "majority",
                train_rows=len(run.train),
            )
            for name, model in trained.items()
        ]
    return scores


def _curve(
    run: LearningRun, rows: Rows, whole: float | None, deadline: float, report: Callable[[float], None]
) -> list[tuple[float, float]]:
    """Return the learning curve: pairs of a share of the true training rows and the score of its model.

    Parameters
    ----------
    run : LearningRun
        Split of the rows, with its model.
    rows : mapping of str to array
        True rows of the table, encoded.
    whole : float or None
        Score of the model trained on all training rows; None where it cannot be scored.
    deadline : float
        Monotonic clock, in seconds, after which no further model is trained.
    report : callable
        Function called with the share that is done, from 0 to 1.
    """
    if whole is None:
        return []
    X, y = run.select(rows, run.test)
    n = len(run.train)
    shares = [share for share in SHARES if round(share * n) >= _LEAST_TRAINED]
    scores: dict[float, list[float]] = {share: [] for share in shares}
    # Every share once first: where time is short, a rough curve is better than half of a fine one.
    turns = sorted((repeat, share) for share in shares for repeat in range(SHARES[share]))
    for done, (repeat, share) in enumerate(turns):
        if time.monotonic() > deadline:
            break
        size = round(share * n)
        # Disjoint parts of the training rows, so that the scores of one share are nearly independent.
        places = run.train[repeat * size : (repeat + 1) * size]
        value = accuracy_or_r2(run.fit(rows, places).predict(X), y, run.task)
        scores[share] += [] if value is None else [value]
        report((done + 1) / len(turns))
    return [*((share, float(np.mean(values))) for share, values in scores.items() if values), (1.0, whole)]


def _tolerance(task: PredictionTask, whole: float | None, n: int) -> float:
    """Return how far the scores of two models may differ by chance on ``n`` rows: two standard errors.

    Notes
    -----
    The variance of one row is ``a (1 - a)`` for an accuracy a, and about ``2 (1 - R2)**2`` for R2.
    """
    if whole is None or not n:
        return 0.0
    spread = whole * (1 - whole) if task.n_classes else 2 * max(0.0, 1 - whole) ** 2
    return 2 * math.sqrt(spread / n)


def _equal_share(
    curve: list[tuple[float, float]], released: float | None, tolerance: float
) -> tuple[float | None, str]:
    """Return the share of true rows with the score of the release, or None and the reason.

    Notes
    -----
    The curve is made monotone by isotonic regression and interpolated linearly in the logarithm of the share.
    """
    if released is None or len(curve) < 3:
        return None, ""
    from sklearn.isotonic import isotonic_regression

    shares = np.array([share for share, _ in curve])
    # More rows do not make a model worse, so a falling part of the curve is chance.
    rising = isotonic_regression(np.array([value for _, value in curve]))
    if rising[-1] - rising[0] <= tolerance:
        return None, "More rows hardly make the model better, so no share of them can be named."
    # Pooling may have raised the last point above the score that all rows reached.
    if released >= min(rising[-1], curve[-1][1]):
        return 1.0, ""
    if released < rising[0]:
        return None, f"Even {shares[0]:.0%} of the true rows teach more than the release does."
    after = int(np.searchsorted(rising, released))
    if after == 0:
        return float(shares[0]), ""
    low, high = rising[after - 1], rising[after]
    part = (released - low) / (high - low)
    return float(math.exp(np.interp(part, [0, 1], np.log(shares[after - 1 : after + 1])))), ""


def _notes(run: LearningRun, schema: Schema, rows: Rows, published: Rows, plan: ReleasePlan) -> list[str]:
    """Return the limits of the comparison that the reader must know, in sentences."""
    name, notes = run.task.column.name, []
    for side, values in (("true", rows), ("published", published)):
        _, y = run.select(values, run.train)
        if not len(y):
            notes.append(f"The target is missing in all {side} training rows.")
        elif (y == y[0]).all():
            count = "one class" if run.task.n_classes else "one value"
            notes.append(f"The target has {count} in the {side} training rows: there is nothing to learn.")
    law = next((s.law for s in plan.columns if s.column == name), Clear())
    if isinstance(law, ResponseLaw):
        notes.append(
            f"The released target was kept in {law.keep:.0%} of the rows, so a model trained on it is less "
            "sure of every class than it should be; its law is in datapackage.json, to correct for."
        )
    if not plan.row_level:
        notes.append(
            "The release was made from all rows, those that models are tested on included; its promise "
            "bounds what that adds to a score."
        )
    if (schema.max_rows_per_unit or 1) > 1:
        notes.append(
            f"A {schema.unit} may have rows on both sides of the split, which flatters every model here."
        )
    return notes
