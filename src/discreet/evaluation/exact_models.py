"""Checks of releases that carry one model: an invariant release preserves it, a masked one publishes it.

The model of an invariant release is trained on true and on published rows and compared. The classifier of a
masked release is scored on true rows. All results are internal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy

from discreet.errors import DiscreetError
from discreet.evaluation._models import (
    PredictionTask,
    Tested,
    Trained,
    accuracy_or_r2,
    fit_linear,
    fit_majority,
    score,
    score_subgroups,
)
from discreet.learn.perturbation.mean_loss import minimize
from discreet.release.invariant.plan import feature_matrix
from discreet.release.kinds import is_masked_plan
from discreet.report.findings import Learning

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from discreet._types import AnyArray, Floats
    from discreet.evaluation._models import Model
    from discreet.noise import Stream
    from discreet.release import ReleasePlan
    from discreet.release.invariant.plan import InvariantPlan
    from discreet.release.masked.plan import MaskedPlan
    from discreet.schema import Schema

SAME = 1e-4
"""Largest difference of weights, relative to the largest weight, of models that are called the same.

Solvers on 50,000 rows were at most 1e-6 apart, and models of a part of the rows half of the largest weight.
"""
_NOTE = (
    "The published rows belong to no real person: they encode one classifier, and {learner} "
    "trained on them reproduces it. Trees, forests and other models can learn only that classifier from "
    "them. No rows were held out, so the scores are training scores."
)
_TOLERANCE = 1e-8


def check_invariant_model(
    schema: Schema, rows: Mapping[str, AnyArray], published: Mapping[str, AnyArray], plan: InvariantPlan
) -> Learning:
    """Check that an invariant release preserves its model: train on true and on published rows and compare.

    No row is held out, because only the models of the whole table are equal; the scores are those on the
    training rows, and the note says so.

    Parameters
    ----------
    schema : Schema
        Schema of the published table, with a target.
    rows, published : mapping of str to array
        True and published rows, encoded as the release encodes them.
    plan : InvariantPlan
        Plan of the release, with the learner that is trained.

    Privacy
    -------
    Measured on true rows: internal. That the model is the same is no promise about anyone in the table.

    Reference
    ---------
    docs/explanation/theorems/fisher-invariant.md
    """
    assert schema.target is not None
    column = schema.column(schema.target)
    wants_number = plan.learner is not None and plan.learner.wants == "number"
    task = PredictionTask.from_column(column, as_number=wants_number)
    sides: dict[Tested, Mapping[str, AnyArray]] = {"original": rows, "release": published}
    X = {name: feature_matrix(side, schema) for name, side in sides.items()}
    y = task.targets(rows)
    name = "least squares" if plan.learner is None else repr(plan.learner)
    n = len(y)
    try:
        models = {side: fit_linear(plan.learner, X[side], y, task) for side in sides}
    except (DiscreetError, np.linalg.LinAlgError):
        # On the whole table this makes the release itself fail.
        return Learning(
            target=column.name,
            task=task.kind,
            model=name,
            train_rows=n,
            test_rows=0,
            scores=[],
            note="The learner has no solution on these rows, such as when a class has none.",
        )
    trained: dict[Trained, Model] = {
        "original": models["original"],
        "release": models["release"],
        "majority": fit_majority(y, task),
    }
    distance = models["original"].distance(models["release"])
    same = distance <= SAME
    return Learning(
        target=column.name,
        task=task.kind,
        model=name,
        train_rows=n,
        test_rows=n,
        scores=[
            score(
                model.predict(X[tested_on]),
                y,
                task,
                trained_on=trained_on,
                tested_on=tested_on,
                chances=model.chances and trained_on != "majority",
            )
            for tested_on in sides
            for trained_on, model in trained.items()
        ],
        equals_share=1.0 if same else None,
        subgroups=score_subgroups(
            schema, rows, {side: models[side].predict(X["original"]) for side in sides}, y, task
        ),
        note=_note(distance, same=same),
    )


def _note(distance: float, *, same: bool) -> str:
    """Return the note on whether the two models are the same, and on which rows they were scored."""
    tested = "No row was held back, so the scores are those on the rows trained on."
    if same:
        result = f"The two models are the same: no weight differs by more than {distance:.1e} of the largest."
        return f"{result} {tested}"
    return (
        f"The two models differ, by up to {distance:.1e} of the largest weight: the release keeps the model "
        f"on the whole table with all of its digits, and these are a part of its rows or rounded. {tested}"
    )


def check_masked_model(plan: MaskedPlan, rows: Mapping[str, AnyArray], model: Floats) -> Learning:
    """Compare the released classifier with the one that is trained without noise, on true rows.

    Parameters
    ----------
    plan : MaskedPlan
        Plan of the release, with its target, encoding and penalty.
    rows : mapping of str to array
        True rows, encoded as declared.
    model : array of shape (n_outputs, n_columns)
        Weights of the released classifier.

    Privacy
    -------
    Measured on true rows: internal.
    """
    task = PredictionTask.from_column(plan.target)
    y = task.targets(rows)
    X = plan.encoding.rows(rows)
    guesses = {"release": _chances(X, model)}
    try:
        problem = plan.loss.problem(X, y, plan.regularization, task.n_classes)
        guesses["original"] = _chances(X, problem.weights(minimize(problem, _TOLERANCE)))
    except DiscreetError:
        # Without a minimizer there is no model to compare with: every row is given the first class.
        guesses["original"] = np.zeros_like(guesses["release"])
    guesses["majority"] = fit_majority(y, task).predict(X)
    sides: tuple[Trained, ...] = ("original", "release", "majority")
    return Learning(
        target=plan.target.name,
        task=task.kind,
        model=f"{plan.loss.words} with a penalty of {plan.regularization:.4g}",
        train_rows=len(y),
        test_rows=len(y),
        scores=[
            score(
                guesses[side],
                y,
                task,
                trained_on=side,
                tested_on="original",
                chances=side != "majority" and plan.loss.has_probabilities,
            )
            for side in sides
        ],
        subgroups=score_subgroups(plan.encoding.schema, rows, guesses, y, task),
        note=_NOTE.format(learner=plan.loss.words),
    )


def masked_meter(
    rows: Mapping[str, AnyArray], *, stream: Stream
) -> Callable[[ReleasePlan, float], float | None]:
    """Return a function from a plan and its factor to the accuracy of its classifier on true rows.

    All plans draw under the same key, so that they differ by the amount of noise only.
    """

    def meter(plan: ReleasePlan, factor: float) -> float | None:
        assert is_masked_plan(plan)
        task = PredictionTask.from_column(plan.target)
        try:
            weights = plan.train(rows, stream.derive("what if"), sample=True)
        except DiscreetError:
            return None
        return accuracy_or_r2(score_masked(plan, weights, rows), task.targets(rows), task)

    return meter


def score_masked(plan: MaskedPlan, weights: Floats, rows: Mapping[str, AnyArray]) -> Floats:
    """Return the scores of classes that the classifier of a masked release gives to encoded rows."""
    return _chances(plan.encoding.rows(rows), weights)


def _chances(X: Floats, weights: Floats) -> Floats:
    """Return the probability of each class, of shape (n, n_classes), or what rises with its score."""
    scores = X @ weights.T
    if len(weights) == 1:
        return np.asarray(scipy.special.expit(np.hstack([-scores, scores])))
    return np.asarray(scipy.special.softmax(scores, axis=1))
