"""An invariant release keeps one model: train it on true and on published rows, and show that it is one.

What masked rows are worth: the one classifier that they carry, on true rows. Internal, all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from discreet.errors import DiscreetError
from discreet.evaluation._models import PredictionTask, fit_linear, fit_majority
from discreet.evaluation.scores import Tested, Trained, by_subgroup, score, worth
from discreet.learn.logistic.problem import minimize, problem_for
from discreet.release.invariant.plan import matrix
from discreet.release.masked.plan import MaskedPlan
from discreet.report.findings import Learning

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from discreet._types import AnyArray, Floats
    from discreet.evaluation._models import Model
    from discreet.noise import Stream
    from discreet.release import ReleasePlan
    from discreet.release.invariant.plan import InvariantPlan
    from discreet.schema import Schema

SAME = 1e-4
"""Models whose weights differ by less than this share of the largest one are called the same.

Solvers on 50,000 rows were 1e-6 apart at most, models of a part of the rows half of the largest weight.
"""


def check_invariant_model(
    schema: Schema, rows: Mapping[str, AnyArray], published: Mapping[str, AnyArray], plan: InvariantPlan
) -> Learning:
    """Train the learner that a release keeps on all rows, before and after.

    No row is held back, because the model is the same on the whole table alone; the scores are therefore
    those on the rows that were trained on, and the note says so.

    Parameters
    ----------
    schema : Schema
        Of the published table, with a target.
    rows, published : mapping of str to array
        True and published rows, encoded as the release encodes them.
    plan : InvariantPlan
        Whose learner is trained.

    Privacy
    -------
    Measured on true rows: internal. That the model is the same is no promise to anybody in the table.

    Reference
    ---------
    docs/explanation/theorems/fisher-invariant.md
    """
    assert schema.target is not None
    column = schema.column(schema.target)
    wants_number = plan.learner is not None and plan.learner.wants == "number"
    question = PredictionTask.from_column(column, as_number=wants_number)
    sides: dict[Tested, Mapping[str, AnyArray]] = {"original": rows, "release": published}
    X = {name: matrix(side, schema) for name, side in sides.items()}
    y = question.answers(rows)
    name = "least squares" if plan.learner is None else repr(plan.learner)
    n = len(y)
    try:
        models = {side: fit_linear(plan.learner, X[side], y, question) for side in sides}
    except (DiscreetError, np.linalg.LinAlgError):
        # The release itself is refused where this happens on the whole table.
        return Learning(
            target=column.name,
            task=question.task,
            model=name,
            train_rows=n,
            test_rows=0,
            scores=[],
            note="The learner has no solution on these rows, such as when a class has none.",
        )
    trained: dict[Trained, Model] = {
        "original": models["original"],
        "release": models["release"],
        "majority": fit_majority(y, question),
    }
    distance = models["original"].distance(models["release"])
    same = distance <= SAME
    return Learning(
        target=column.name,
        task=question.task,
        model=name,
        train_rows=n,
        test_rows=n,
        scores=[
            score(
                model.predict(X[tested_on]),
                y,
                question,
                trained_on=trained_on,
                tested_on=tested_on,
                chances=model.chances and trained_on != "majority",
            )
            for tested_on in sides
            for trained_on, model in trained.items()
        ],
        equals_share=1.0 if same else None,
        subgroups=by_subgroup(
            schema, rows, {side: models[side].predict(X["original"]) for side in sides}, y, question
        ),
        note=_note(distance, same=same),
    )


def _note(distance: float, *, same: bool) -> str:
    tested = "No row was held back, so the scores are those on the rows trained on."
    if same:
        said = f"The two models are the same: no weight differs by more than {distance:.1e} of the largest."
        return f"{said} {tested}"
    return (
        f"The two models differ, by up to {distance:.1e} of the largest weight: the release keeps the model "
        f"on the whole table with all of its digits, and these are a part of its rows or rounded. {tested}"
    )


_NOTE = (
    "The published rows are nobody's: they carry one classifier, and logistic regression trained on them is "
    "it. Trees, forests and the like find that classifier's rule in them and no other. No row was held back, "
    "so the scores are those on the rows trained on."
)
_TOLERANCE = 1e-8


def check_masked_model(plan: MaskedPlan, rows: Mapping[str, AnyArray], model: Floats) -> Learning:
    """Compare the released classifier with the one that was trained without noise.

    Parameters
    ----------
    plan : MaskedPlan
        What was done.
    rows : mapping of str to array
        True rows, encoded as declared.
    model : array
        The released weights.

    Privacy
    -------
    Measured on true rows: internal.
    """
    question = PredictionTask.from_column(plan.target)
    y = question.answers(rows)
    X = plan.encoding.rows(rows)
    guesses = {"release": _chances(X, model)}
    try:
        problem = problem_for(X, y, plan.regularization, question.n_classes)
        guesses["original"] = _chances(X, problem.weights(minimize(problem, _TOLERANCE)))
    except DiscreetError:
        guesses["original"] = np.zeros_like(guesses["release"])
    guesses["majority"] = fit_majority(y, question).predict(X)
    sides: tuple[Trained, ...] = ("original", "release", "majority")
    return Learning(
        target=plan.target.name,
        task=question.task,
        model=f"logistic regression with a penalty of {plan.regularization:.4g}",
        train_rows=len(y),
        test_rows=len(y),
        scores=[
            score(
                guesses[side],
                y,
                question,
                trained_on=side,
                tested_on="original",
                chances=side != "majority",
            )
            for side in sides
        ],
        subgroups=by_subgroup(plan.encoding.schema, rows, guesses, y, question),
        note=_NOTE,
    )


def masked_meter(
    rows: Mapping[str, AnyArray], *, stream: Stream
) -> Callable[[ReleasePlan, float], float | None]:
    """Return a function that says how good the classifier of a plan is on true rows.

    All plans draw under the same key, so that they differ by the amount of noise and not by luck.
    """

    def meter(plan: ReleasePlan, factor: float) -> float | None:
        assert isinstance(plan, MaskedPlan)
        question = PredictionTask.from_column(plan.target)
        try:
            weights = plan.train(rows, stream.derive("what if"), sample=True)
        except DiscreetError:
            return None
        return worth(_chances(plan.encoding.rows(rows), weights), question.answers(rows), question)

    return meter


def _chances(X: Floats, weights: Floats) -> Floats:
    """Return the probability of each class."""
    scores = X @ weights.T
    if len(weights) == 1:
        return np.asarray(special.expit(np.hstack([-scores, scores])))
    return np.asarray(special.softmax(scores, axis=1))
