"""Private logistic regression, as scikit-learn's users know it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from scipy import special

from discreet.learn.base import Constraint, is_number
from discreet.learn.logistic.constants import (
    LogisticConstants,
    LogisticMechanism,
    Sensitivity,
    make_logistic_plan,
)
from discreet.learn.logistic.problem import problem_for
from discreet.learn.perturbation.base import Embedding, PerturbedClassifier, choice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import Floats
    from discreet.learn.perturbation.mechanisms import TrainingPlan
    from discreet.ledger import Ledger
    from discreet.privacy import ApproxDP, NoPromise, Promise, PureDP


class PrivateLogisticRegression(PerturbedClassifier):
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
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **PerturbedClassifier.common_constraints,
        "mechanism": choice("auto", "output", "objective"),
        "sensitivity": choice("tight", "worst-case"),
        "fit_intercept": Constraint("True or False", lambda v: isinstance(v, bool), (None, 1, "yes")),
        "intercept_scale": Constraint(
            "None or a number above 0 and below 1",
            lambda v: v is None or (is_number(v) and 0 < v < 1),
            (0, 1, -0.5, "1", True),
        ),
    }
    _saved_attributes: ClassVar[tuple[str, ...]] = (
        *PerturbedClassifier.common_saved, "coef_", "intercept_", "weights_",
    )  # fmt: skip

    def __init__(
        self,
        *,
        privacy: PureDP | ApproxDP | NoPromise,
        bounds: Any = None,
        norm_bound: float | None = None,
        classes: Any = None,
        regularization: float | None = None,
        mechanism: LogisticMechanism = "auto",
        sensitivity: Sensitivity = "tight",
        fit_intercept: bool = True,
        intercept_scale: float | None = None,
        tolerance: float | None = None,
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
        self.ledger = ledger
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train on rows ``X`` with labels ``y``, charge the ledger, and release the weights."""
        self._check_parameters()
        X, codes, classes, (embedding, plan) = self._read(X, y, self._plan_training)
        problem = problem_for(embedding.rows(X), codes, plan.regularization, len(classes))
        released, self.receipt_ = self._train(plan, problem, "logistic regression")
        self.classes_ = classes
        self.embedding_ = embedding
        self.weights_ = problem.weights(released)
        self.coef_, self.intercept_ = embedding.coefficients(self.weights_)
        self.regularization_ = plan.regularization
        self.mechanism_ = plan.name
        self.promises_ = plan.promises
        return self

    def _plan_training(self, n_rows: int, n_features: int, n_classes: int) -> tuple[Embedding, TrainingPlan]:
        """Return the public map of rows and the calibrated mechanism for a table of this shape."""
        embedding = Embedding.declare(
            n_features,
            bounds=self.bounds,
            norm_bound=self.norm_bound,
            constant=self.intercept_scale if self.fit_intercept else 0.0,
            owner=type(self).__name__,
        )
        return embedding, self.plan(self._constants(n_rows, n_classes, embedding))

    def _constants(self, n_rows: int, n_classes: int, embedding: Embedding) -> LogisticConstants:
        return LogisticConstants(
            n_rows=n_rows,
            n_classes=n_classes,
            dimension=embedding.dimension,
            tolerance=None if self.tolerance is None else float(self.tolerance),
            tight=self.sensitivity == "tight",
        )

    def recompute_promises(self, n_rows: int) -> tuple[Promise, ...]:
        """Return the promises of a fitted model, computed anew from the number of rows and its parameters."""
        return tuple(self.plan(self._constants(n_rows, len(self.classes_), self.embedding_)).promises)

    def plan(self, constants: LogisticConstants) -> TrainingPlan:
        """Return the mechanism that a table with these public constants will be trained by."""
        return make_logistic_plan(
            constants,
            self.privacy,
            regularization=None if self.regularization is None else float(self.regularization),
            mechanism=self.mechanism,
            owner=type(self).__name__,
        )

    def decision_function(self, X: Any) -> Floats:
        """Return the score of the second of two classes, or of each of more classes, for each row.

        Rows outside the declared bounds or norm are clipped as those of the training were.
        """
        # By the weights of embedded rows: coef_ and intercept_ are the same scores only inside the bounds.
        scores = np.asarray(self._embed_rows(X, "decision_function") @ self.weights_.T)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class for each row, as the model sees it."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([special.expit(-scores), special.expit(scores)])
        return np.asarray(special.softmax(scores, axis=1))
