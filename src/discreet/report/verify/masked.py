"""A masked table against the classifier published with it: the gradient must vanish there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from discreet.release.masked.construct import LARGEST_GRADIENT
from discreet.release.masked.existence import residuals
from discreet.release.masked.plan import MaskedPlan
from discreet.release.masked.prior import blocks
from discreet.report.classifier import Classifier
from discreet.report.folder import CLASSIFIER, DATA, read_bytes
from discreet.report.verify.rows import published_batches

if TYPE_CHECKING:
    from pathlib import Path

    from discreet.release import Plan
    from discreet.report.verify.result import Checks

ALLOWED = 2 * LARGEST_GRADIENT
"""The construction's own limit, and as much again for sums in another order."""
_BLOCK = 1 << 10


def check_classifier(folder: Path, plan: Plan, checks: Checks) -> None:
    """Check that a masked table and its classifier belong together; that no other release has one.

    The gradient of the published problem, computed again from every published cell, has to vanish at the
    published weights. A cell that is changed by ``t`` moves it by about ``t`` over the number of rows, so
    that what can be changed unnoticed is as small as rounding.

    Privacy
    -------
    Reads published files alone. Whoever changes rows and classifier together so that they fit again has made
    another masked table, which only the key can tell from the first.

    Reference
    ---------
    docs/explanation/theorems/masked-existence.md
    """
    there = (folder / CLASSIFIER).exists()
    if not isinstance(plan, MaskedPlan):
        if there:
            checks.add("classifier", "failed", f"{CLASSIFIER} is no file of a release by this method.")
        return
    if not there:
        checks.add("classifier", "failed", f"{CLASSIFIER} is missing: a masked table is published with it.")
        return
    with checks.guarded("classifier"):
        content = read_bytes(folder / CLASSIFIER)
        found = Classifier.from_json(content)
        n_classes = len(plan.target.levels)
        wrong = []
        if found.to_json().encode("utf-8") != content:
            wrong.append(f"{CLASSIFIER} is not written the way classifiers are: it was edited.")
        elif found.columns != plan.encoding.names or len(found.weights) != (
            1 if n_classes == 2 else n_classes
        ):
            wrong.append(f"{CLASSIFIER} is for other columns or classes than the table's.")
        elif found.regularization != plan.regularization:
            wrong.append(f"The regularization in {CLASSIFIER} is not the one that the method has.")
        if wrong:
            checks.settle("classifier", wrong, "")
            return
        gradient = gradient_norm(folder, plan, found)
        if plan.construction != "direct":
            checks.add(
                "classifier",
                "not checkable",
                f"The gradient at the published classifier is {gradient:.2g}. Points made one by one come "
                "only near zero, so that this shows nothing.",
            )
            return
        if not gradient <= ALLOWED:
            wrong.append(
                f"The gradient at the published classifier is {gradient:.2g}, and must be below "
                f"{ALLOWED:.0g}: rows, labels or classifier were changed."
            )
        checks.settle(
            "classifier",
            wrong,
            f"Trained on the rows, logistic regression finds the published classifier: the gradient there is "
            f"{gradient:.1g}.",
        )


def gradient_norm(folder: Path, plan: MaskedPlan, found: Classifier) -> float:
    """Return the norm of the gradient of the mean loss and the penalty, from the published cells."""
    total, n = np.zeros_like(found.weights), 0
    for batch in published_batches(folder / DATA, plan.schema):
        points = np.column_stack([batch[name] for name in found.columns])
        codes = np.asarray(batch[plan.target.name], np.int64)
        for block in blocks(len(codes), _BLOCK):
            total += residuals(found.weights, points[block], codes[block]).T @ points[block]
        n += len(codes)
    return float(np.linalg.norm(found.regularization * found.weights - total / max(n, 1)))
