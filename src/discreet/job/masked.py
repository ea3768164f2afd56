"""What masked rows are worth: the one classifier that they carry, on true rows. Internal, all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from discreet.errors import DiscreetError
from discreet.job.models import fit_majority
from discreet.job.questions import Question
from discreet.job.scoring import score, worth
from discreet.job.subgroups import by_subgroup
from discreet.learn.logistic.problem import minimize, problem_for
from discreet.release.masked.plan import MaskedPlan
from discreet.report.findings import Learning

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from discreet._typing import AnyArray, Floats
    from discreet.job.scoring import Trained
    from discreet.noise import Stream
    from discreet.release import Plan

_NOTE = (
    "The published rows are nobody's: they carry one classifier, and logistic regression trained on them is "
    "it. Trees, forests and the like find that classifier's rule in them and no other. No row was held back, "
    "so the scores are those on the rows trained on."
)
_TOLERANCE = 1e-8


def measure_masked(plan: MaskedPlan, rows: Mapping[str, AnyArray], model: Floats) -> Learning:
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
    question = Question.of(plan.target)
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


def masked_meter(rows: Mapping[str, AnyArray], *, stream: Stream) -> Callable[[Plan, float], float | None]:
    """Return a function that says how good the classifier of a plan is on true rows.

    All plans draw under the same key, so that they differ by the amount of noise and not by luck.
    """

    def meter(plan: Plan, factor: float) -> float | None:
        assert isinstance(plan, MaskedPlan)
        question = Question.of(plan.target)
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
