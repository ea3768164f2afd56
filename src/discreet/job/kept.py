"""An invariant release keeps one model: train it on true and on published rows, and show that it is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import DiscreetError
from discreet.job.models import fit_linear, fit_majority
from discreet.job.questions import Question
from discreet.job.scoring import Tested, Trained, score
from discreet.job.subgroups import by_subgroup
from discreet.release.invariant.encoding import matrix
from discreet.report.findings import Learning

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._typing import AnyArray
    from discreet.job.models import Model
    from discreet.release.invariant.plan import InvariantPlan
    from discreet.schema import Schema

SAME = 1e-4
"""Models whose weights differ by less than this share of the largest one are called the same.

Solvers on 50,000 rows were 1e-6 apart at most, models of a part of the rows half of the largest weight.
"""


def measure_kept(
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
    question = Question.of(column, as_number=wants_number)
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
