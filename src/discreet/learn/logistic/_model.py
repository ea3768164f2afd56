"""Private logistic regression, as scikit-learn's users know it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy import special

from discreet.learn.logistic.problem import LogisticConstants, Sensitivity, problem_for
from discreet.learn.perturbation.base import choice
from discreet.learn.perturbation.linear import LinearClassifier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import Floats, Ints
    from discreet.learn.arguments import Constraint
    from discreet.learn.logistic.problem import LogisticProblem
    from discreet.learn.perturbation.embedding import Embedding
    from discreet.learn.perturbation.mean_loss_constants import LinearMechanism
    from discreet.ledger import Ledger
    from discreet.privacy import ApproxDP, NoPromise, PureDP


class PrivateLogisticRegression(LinearClassifier):
    """Logistic regression for two classes or more, with a promise to everybody whose row it is trained on.

    It minimizes the mean logistic loss plus ``regularization / 2`` times the squared norm of all weights, the
    intercept's among them, over rows that a public map carries into the unit ball.

    Parameters
    ----------
    privacy : PureDP, ApproxDP or NoPromise
        Promise of the trained model. Pure promises are kept by noise with density ``exp(-c |x|)``,
        approximate ones by Gaussian noise; for few weights ``mechanism="auto"`` keeps an approximate promise
        by a pure one of the same epsilon, which then takes less noise.
    bounds : (lower, upper), optional
        Declared range of each column: a pair of numbers, two vectors, or ``schema.bounds``. Rows are
        clipped to it and mapped to [-1, 1].
    norm_bound : float, optional
        Declared largest norm of a row, after ``bounds`` were mapped; longer rows are shortened. By default
        the root of the number of columns; needed where no bounds are given.
    classes : sequence of labels
        Declared list. A class that no row has stays in it. Only :class:`NoPromise` takes it from ``y``.
    regularization : float, optional
        By default it follows from the number of rows, columns and classes and from the promise.
    mechanism : {"auto", "output", "objective"}
        Noise on the trained weights, or on the objective that is trained (and a little on the weights, to
        hide the solver's error). By default the one that puts less noise on the weights.
    sensitivity : {"tight", "worst-case"}
        Constant of output perturbation: the one for this regularization, or the one for every
        regularization.
    fit_intercept : bool
        Whether there is an intercept.
    intercept_scale : float, optional
        The constant coordinate that the intercept is a weight of, between 0 and 1. By default
        ``1 / sqrt(n_features + 1)``.
    tolerance : float, optional
        Norm of the gradient at which the solver stops; what it leaves is part of the sensitivity. By
        default what floating point lets it reach, about 1e-11. One that is not certain to be
        reached for every table of its shape is refused, before a cell is looked at.
    paid_score : bool
        Whether a tenth of epsilon pays for the accuracy of the model on its rows, which may then be
        published: half of it counts the rows that are right, half the rows of each class. It is left out
        where there are too few rows for it, which is known before anything is charged.
    ledger : Ledger, optional
        Ledger that is charged before any noise is drawn; by default only the receipts record it.
    random_state : int, optional
        A seed, for tests only: noise from a known seed protects no one. It is marked on the receipt.

    Attributes
    ----------
    coef_ : array of shape (1, n_features) or (n_classes, n_features)
        Coefficients in the columns' own units.
    intercept_ : array of shape (1,) or (n_classes,)
        Intercepts in the columns' own units.
    weights_ : array of shape (1, dimension) or (n_classes, dimension)
        Released weights, of embedded rows; the coefficients are computed from them.
    embedding_ : Embedding
        The public map of rows.
    score_ : ModelScore or None
        Paid accuracy with its interval and verdict; None where it was not asked.
    classes_ : array
        The declared classes, sorted.
    regularization_ : float
        Regularization that was used; objective perturbation may raise it.
    mechanism_ : str
        "output", "objective" or "exact".
    promises_ : tuple of Promise
        Promises that hold for every unit whose row was trained on.
    receipt_ : Receipt
        Receipt of the charge for the training.

    Privacy
    -------
    Replace-one, for a whole row with its label; the number of rows, bounds and classes are public. The
    noise and all sums that it is added to are on a lattice, and the solver's error is in the sensitivity,
    so that the promise is about what the program computes. Spherical noise is promised as a point event
    whose delta is about ``exp(epsilon)`` times 2**-64, and cannot be had above an epsilon of 30. The
    regularization, the bounds and every other parameter must not have been chosen by looking at the rows,
    and how long the training takes must not be shown to others. Whether the solver reaches its tolerance does
    not depend on the rows: one that it might miss is refused.

    Reference
    ---------
    Pham et al., *Masked data generation*, sections on differential privacy, corrected in
    docs/explanation/theorems/masked-sensitivity.md, masked-noise.md, masked-objective.md, masked-gradient.md.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PureDP
    >>> from discreet.learn import PrivateLogisticRegression
    >>> X = np.linspace(-1, 1, 2000).reshape(-1, 1)
    >>> y = np.where(X[:, 0] > 0, "yes", "no")
    >>> model = PrivateLogisticRegression(
    ...     privacy=PureDP(epsilon=1.0), bounds=(-1, 1), classes=["no", "yes"], random_state=1
    ... ).fit(X, y)
    >>> bool(model.score(X, y) > 0.9), model.receipt_.seeded
    (True, True)
    """

    name: ClassVar[str] = "logistic"
    theorems: ClassVar[tuple[str, ...]] = (
        "masked-sensitivity",
        "masked-noise",
        "masked-objective",
        "masked-gradient",
    )
    model_name: ClassVar[str] = "logistic regression"
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **LinearClassifier.linear_constraints,
        "sensitivity": choice("tight", "worst-case"),
    }

    def __init__(
        self,
        *,
        privacy: PureDP | ApproxDP | NoPromise,
        bounds: Any = None,
        norm_bound: float | None = None,
        classes: Any = None,
        regularization: float | None = None,
        mechanism: LinearMechanism = "auto",
        sensitivity: Sensitivity = "tight",
        fit_intercept: bool = True,
        intercept_scale: float | None = None,
        tolerance: float | None = None,
        paid_score: bool = False,
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        """Store the parameters; they are checked in :meth:`fit`."""
        self.privacy = privacy
        self.bounds = bounds
        self.norm_bound = norm_bound
        self.classes = classes
        self.regularization = regularization
        self.mechanism = mechanism
        self.sensitivity = sensitivity
        self.fit_intercept = fit_intercept
        self.intercept_scale = intercept_scale
        self.tolerance = tolerance
        self.paid_score = paid_score
        self.ledger = ledger
        self.random_state = random_state

    def _problem(self, rows: Floats, codes: Ints, regularization: float, n_classes: int) -> LogisticProblem:
        return problem_for(rows, codes, regularization, n_classes)

    def _constants(self, n_rows: int, n_classes: int, embedding: Embedding) -> LogisticConstants:
        return LogisticConstants(
            n_rows=n_rows,
            n_classes=n_classes,
            dimension=embedding.dimension,
            tolerance=None if self.tolerance is None else float(self.tolerance),
            tight=self.sensitivity == "tight",
        )

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class for each row, as the model sees it."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([special.expit(-scores), special.expit(scores)])
        return np.asarray(special.softmax(scores, axis=1))
