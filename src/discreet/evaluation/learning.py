"""What a release is worth to somebody who trains a model on it, measured on rows that no model has seen."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np

from discreet.evaluation._models import BOOSTING, FeatureMatrix, PredictionTask, fit_boosted, fit_majority
from discreet.evaluation.exact_models import check_invariant_model, masked_meter
from discreet.evaluation.noise_aware import AwareModel, AwareRows
from discreet.evaluation.scores import Tested, Trained, by_subgroup, score, worth
from discreet.noise import permutation
from discreet.noise_law import Clear, ResponseLaw
from discreet.release.coarse import CoarsePlan
from discreet.release.invariant.plan import InvariantPlan
from discreet.release.masked.plan import MaskedPlan
from discreet.report.findings import Learning, Score

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from discreet._types import AnyArray, Floats, Ints
    from discreet.evaluation._models import Model
    from discreet.noise import Stream
    from discreet.release import ReleasePlan
    from discreet.schema import Schema

    Rows = Mapping[str, AnyArray]

LEAST_ROWS = 20
TEST_SHARE = 0.3
MOST_WORK = 1_000_000
"""Training rows times columns times trees per round; beyond, fewer rows are trained on."""
SHARES = {0.01: 5, 0.02: 5, 0.05: 3, 0.1: 2, 0.2: 1, 0.5: 1}
"""Of the true training rows, and how often each is tried, on other people each time."""
_LEAST_TRAINED = 10


class LearningRun:
    """True rows, split once into people to train on and people to test on.

    Parameters
    ----------
    schema : Schema
        Of the published table, with a target and features.
    rows : mapping of str to array
        True rows, encoded; at least two of them.
    stream : Stream
        Decides who is on which side. Streams of one key split the same rows alike.

    Attributes
    ----------
    train, test : array of int
        Places of the rows, in random order; nobody is in both.
    others : array of int
        Everybody who is not tested on: those of ``train``, then those for whom the model would take too long.
        A noise-aware learner adds up sums in one pass and takes all.

    Privacy
    -------
    Everything measured here is about true rows: for the curator alone.
    """

    def __init__(self, schema: Schema, rows: Rows, stream: Stream) -> None:
        assert schema.target is not None
        self.question = PredictionTask.from_column(schema.column(schema.target))
        self._features = FeatureMatrix(schema)
        n = len(rows[schema.target])
        order = permutation(n, stream.derive("train or test"))
        n_test = max(1, round(TEST_SHARE * n))
        trees = self.question.n_classes if self.question.n_classes > 2 else 1
        most = max(LEAST_ROWS, MOST_WORK // (self._features.unordered.size * trees))
        self.test: Ints = order[:n_test]
        self.others: Ints = order[n_test:]
        self.train: Ints = self.others[:most]
        self._seed = int(stream.derive("model").words(1)[0] >> np.uint64(33))

    def part(self, rows: Rows, places: Ints) -> tuple[Floats, AnyArray]:
        """Return features and answers of those rows whose answer is not missing."""
        some = {name: values[places] for name, values in rows.items()}
        answers = self.question.answers(some)
        known = self.question.known(answers)
        return self._features.matrix(some)[known], answers[known]

    def tested(self, model: AwareModel, rows: Rows) -> Floats:
        """Return what a noise-aware model says of the people to test on, as :meth:`part` has them."""
        some = {name: values[self.test] for name, values in rows.items()}
        return np.asarray(model.predict(some)[self.question.known(self.question.answers(some))])

    def fit(self, rows: Rows, places: Ints | None = None) -> Model:
        """Train on rows at some places, by default on all that are for training."""
        X, y = self.part(rows, self.train if places is None else places)
        return fit_boosted(X, y, self.question, self._features, self._seed)


def measure_learning(
    schema: Schema,
    rows: Rows,
    published: Rows,
    *,
    plan: ReleasePlan,
    stream: Stream,
    beside: AwareRows | None = None,
    seconds: float = 8.0,
    progress: Callable[[float], None] | None = None,
) -> Learning | None:
    """Train the same model on true and on published rows, and test both on people whom neither has seen.

    Beside them, where the noise law allows it, a learner that corrects for the noise is trained: on all
    published rows but those of the people to test on.

    Parameters
    ----------
    schema : Schema
        Of the published table, as ``Plan.schema``.
    rows, published : mapping of str to array
        True and published rows of the same people, in one order, as :class:`~discreet.evaluation.samples.PairedSample`
        keeps them.
    plan : Plan
        What was done; an invariant release is tried with the learner that it keeps.
    stream : Stream
        Decides who is trained on. It must not be the stream of the noise.
    beside : AwareRows, optional
        The published rows of everybody who is not in `published`, added up.
    seconds : float
        When the learning curve stops growing; the two models themselves are always trained.
    progress : callable, optional
        Told the share that is done, from 0 to 1.

    Returns
    -------
    Learning or None
        None without a target. Where nothing can be learned, ``note`` says why.

    Privacy
    -------
    Measured on true rows and paid for by nobody: internal, and no part of a statement.
    """
    tell = progress or (lambda done: None)
    if schema.target is None:
        return None
    n = len(rows[schema.target])
    question = PredictionTask.from_column(schema.column(schema.target))
    if reason := _hopeless(schema, n):
        return _nothing(question, n, reason)
    if isinstance(plan, InvariantPlan) and (plan.learner is None or plan.learner.unique):
        return check_invariant_model(schema, rows, published, plan)
    until = time.monotonic() + seconds
    trial = LearningRun(schema, rows, stream)
    models = {"original": trial.fit(rows), "release": trial.fit(published)}
    tell(0.4)
    scores = _scores(trial, models, rows, published)
    X, y = trial.part(rows, trial.test)
    everybody = AwareRows(plan, n, stream.derive("aware")) if beside is None else beside
    everybody.see({name: values[trial.others] for name, values in published.items()})
    aware = everybody.fit()
    corrected, said = None, ""
    if isinstance(aware, str):
        said = aware
    else:
        found = trial.tested(aware, rows)
        corrected, said = worth(found, y, question), aware.note
        knows = score(
            found,
            y,
            question,
            trained_on="aware",
            tested_on="original",
            chances=aware.chances,
            train_rows=everybody.n_rows,
        )
        scores.insert(2, knows)
    guesses = {name: model.predict(X) for name, model in models.items()}
    whole, released = (worth(guesses[name], y, question) for name in ("original", "release"))
    curve = _curve(trial, rows, whole, until, lambda done: tell(0.4 + 0.5 * done))
    best = max((value for value in (released, corrected) if value is not None), default=None)
    share, reason = _equal_share(curve, best, _doubt(question, whole, len(y)))
    known = question.known(question.answers({question.column.name: rows[question.column.name][trial.test]}))
    groups = by_subgroup(
        schema, {name: values[trial.test[known]] for name, values in rows.items()}, guesses, y, question
    )
    tell(1.0)
    return Learning(
        target=question.column.name,
        task=question.task,
        model=BOOSTING,
        train_rows=len(trial.train),
        test_rows=len(trial.test),
        scores=scores,
        equals_share=share,
        curve=curve,
        subgroups=groups,
        note=" ".join(filter(None, (*_notes(trial, schema, rows, published, plan), said, reason))),
    )


def accuracy_meter(
    schema: Schema, rows: Rows, *, stream: Stream, published: Rows | None = None, seconds: float = 6.0
) -> Callable[[ReleasePlan, float], float | None]:
    """Return a function that says how good the model gets under a plan, for :func:`~discreet.evaluation.what_if`.

    Parameters
    ----------
    schema, rows, stream
        As of :func:`measure_learning`; under the same stream the people trained on are the same.
    published : mapping of str to array, optional
        What was published, which is what factor 1 stands for.
    seconds : float
        After so long spent on training, the function returns None.

    Returns
    -------
    callable
        Takes a plan and its factor; returns accuracy, or R2, on true rows held back. All plans draw under
        the same key, so that they differ by the amount of noise and not by luck.
    """
    if schema.target is None or _hopeless(schema, len(rows[schema.target])):
        return lambda plan, factor: None
    trial = LearningRun(schema, rows, stream)
    X, y = trial.part(rows, trial.test)
    some = {name: values[trial.others] for name, values in rows.items()}
    everyone = np.arange(len(trial.others))
    kept: list[float | None] = []
    spent = 0.0

    def meter(plan: ReleasePlan, factor: float) -> float | None:
        nonlocal spent
        if isinstance(plan, InvariantPlan):
            # The model does not depend on the amount of noise: one fit says all.
            if not kept:
                kept.append(_kept_worth(schema, rows, plan))
            return kept[0]
        if spent > seconds:
            return None
        start = time.monotonic()
        noised, places = published, trial.others
        if factor != 1 or noised is None:
            noised, places = plan.noise(some, stream.derive("what if")), everyone
        found = worth(trial.fit(noised, places[: len(trial.train)]).predict(X), y, trial.question)
        if isinstance(plan, CoarsePlan):
            # Most cells are not shown: what is learned without the law says little about the release.
            everybody = AwareRows(plan, len(places), stream.derive("aware"))
            everybody.see({name: values[places] for name, values in noised.items()})
            aware = everybody.fit()
            if isinstance(aware, AwareModel):
                found = worth(trial.tested(aware, rows), y, trial.question)
        spent += time.monotonic() - start
        return found

    return meter


def meter_for(
    plan: ReleasePlan, rows: Rows, *, stream: Stream, published: Rows | None = None, seconds: float = 6.0
) -> Callable[[ReleasePlan, float], float | None]:
    """Return :func:`accuracy_meter`, or its like for a release whose published rows are nobody's."""
    if isinstance(plan, MaskedPlan):
        return masked_meter(rows, stream=stream)
    return accuracy_meter(plan.schema, rows, stream=stream, published=published, seconds=seconds)


def _kept_worth(schema: Schema, rows: Rows, plan: InvariantPlan) -> float | None:
    if plan.learner is not None and not plan.learner.unique:
        return None
    first = check_invariant_model(schema, rows, rows, plan).scores[:1]
    return next((s.r2 if s.accuracy is None else s.accuracy for s in first), None)


def _hopeless(schema: Schema, n: int) -> str:
    """Say why nothing can be learned, whatever the rows say; empty if it can."""
    if not schema.features:
        return "There is no column to predict the target from."
    if n < LEAST_ROWS:
        return f"Too few rows ({n}) to hold some back for a test; at least {LEAST_ROWS} are needed."
    return ""


def _nothing(question: PredictionTask, n: int, why: str) -> Learning:
    return Learning(
        target=question.column.name,
        task=question.task,
        model=BOOSTING,
        train_rows=0,
        test_rows=0,
        scores=[],
        note=why,
    )


def _scores(trial: LearningRun, models: Mapping[str, Model], rows: Rows, published: Rows) -> list[Score]:
    """Test both models, and the best guess without a row, on true and on published rows."""
    sides: dict[Tested, Rows] = {"original": rows, "release": published}
    found = []
    for tested_on, side in sides.items():
        X, y = trial.part(side, trial.test)
        majority = fit_majority(trial.part(side, trial.train)[1], trial.question)
        trained: dict[Trained, Model] = {
            "original": models["original"],
            "release": models["release"],
            "majority": majority,
        }
        found += [
            score(
                model.predict(X),
                y,
                trial.question,
                trained_on=name,
                tested_on=tested_on,
                chances=model.chances and name != "majority",
                train_rows=len(trial.train),
            )
            for name, model in trained.items()
        ]
    return found


def _curve(
    trial: LearningRun, rows: Rows, whole: float | None, until: float, tell: Callable[[float], None]
) -> list[tuple[float, float]]:
    """Train on shares of the true training rows; small shares several times, on other people each time."""
    if whole is None:
        return []
    X, y = trial.part(rows, trial.test)
    n = len(trial.train)
    shares = [share for share in SHARES if round(share * n) >= _LEAST_TRAINED]
    found: dict[float, list[float]] = {share: [] for share in shares}
    # Every share once first: where time is short, a rough curve says more than half of a fine one.
    turns = sorted((repeat, share) for share in shares for repeat in range(SHARES[share]))
    for done, (repeat, share) in enumerate(turns):
        if time.monotonic() > until:
            break
        size = round(share * n)
        places = trial.train[repeat * size : (repeat + 1) * size]
        value = worth(trial.fit(rows, places).predict(X), y, trial.question)
        found[share] += [] if value is None else [value]
        tell((done + 1) / len(turns))
    return [*((share, float(np.mean(values))) for share, values in found.items() if values), (1.0, whole)]


def _doubt(question: PredictionTask, whole: float | None, n: int) -> float:
    """Return how far two models can be apart on ``n`` rows by chance: twice the standard error."""
    if whole is None or not n:
        return 0.0
    spread = whole * (1 - whole) if question.n_classes else 2 * max(0.0, 1 - whole) ** 2
    return 2 * math.sqrt(spread / n)


def _equal_share(
    curve: list[tuple[float, float]], released: float | None, doubt: float
) -> tuple[float | None, str]:
    """Read off the share of true rows that is worth as much as the release, and say why if it cannot be."""
    if released is None or len(curve) < 3:
        return None, ""
    from sklearn.isotonic import isotonic_regression

    shares = np.array([share for share, _ in curve])
    # More rows are not worse: what goes down on the curve is chance, and is evened out.
    rising = isotonic_regression(np.array([value for _, value in curve]))
    if rising[-1] - rising[0] <= doubt:
        return None, "More rows hardly make the model better, so no share of them can be named."
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


def _notes(trial: LearningRun, schema: Schema, rows: Rows, published: Rows, plan: ReleasePlan) -> list[str]:
    """Return what the reader must know about these rows."""
    name, notes = trial.question.column.name, []
    for side, values in (("true", rows), ("published", published)):
        _, y = trial.part(values, trial.train)
        if not len(y):
            notes.append(f"The target is missing in all {side} training rows.")
        elif (y == y[0]).all():
            what = "one class" if trial.question.n_classes else "one value"
            notes.append(f"The target has {what} in the {side} training rows: there is nothing to learn.")
    law = next((s.law for s in plan.columns if s.column == name), Clear())
    if isinstance(law, ResponseLaw):
        notes.append(
            f"The released target was kept in {law.keep:.0%} of the rows, so a model trained on it is less "
            "sure of every class than it should be; its law is in the dictionary, to correct for."
        )
    if (schema.max_rows_per_unit or 1) > 1:
        notes.append(
            f"A {schema.unit} may have rows on both sides of the split, which flatters every model here."
        )
    return notes
