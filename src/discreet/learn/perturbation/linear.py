"""Base class of linear classifiers by a perturbed mean loss."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from discreet.learn.arguments import Constraint, is_number
from discreet.learn.perturbation.base import PerturbedClassifier, choice
from discreet.learn.perturbation.embedding import Embedding
from discreet.learn.perturbation.mean_loss_constants import make_linear_plan
from discreet.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import Floats, Ints
    from discreet.learn.perturbation.mean_loss import MeanLossProblem
    from discreet.learn.perturbation.mean_loss_constants import LinearMechanism, MeanLossConstants
    from discreet.learn.perturbation.mechanisms import TrainingPlan
    from discreet.privacy import Promise


class LinearClassifier(PerturbedClassifier):
    """A classifier by scores that are linear in embedded rows, under replace-one."""

    linear_constraints: ClassVar[Mapping[str, Constraint]] = {
        **PerturbedClassifier.common_constraints,
        "mechanism": choice("auto", "output", "objective"),
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
    model_name: ClassVar[str]
    """Name of the model on receipts."""

    regularization: float | None
    mechanism: LinearMechanism
    fit_intercept: bool
    intercept_scale: float | None
    tolerance: float | None

    def fit(self, X: Any, y: Any) -> Self:
        """Train on rows ``X`` with labels ``y``, charge the ledger, and release the weights."""
        self._check_parameters()
        X, codes, classes, (embedding, plan) = self._read(X, y, self._plan_training)
        with one_thread():
            problem = self._problem(embedding.rows(X), codes, plan.regularization, len(classes))
            released, self.receipt_, stream = self._train(plan, problem, self.model_name)
        self.classes_ = classes
        self.embedding_ = embedding
        self.weights_ = problem.weights(released)
        self.coef_, self.intercept_ = embedding.coefficients(self.weights_)
        self.regularization_ = plan.regularization
        self.mechanism_ = plan.name
        self.promises_ = self._with_score(plan.promises, len(X), len(classes))
        self._count_score(X, codes, stream)
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

    @abstractmethod
    def _problem(self, rows: Floats, codes: Ints, regularization: float, n_classes: int) -> MeanLossProblem:
        """Return the minimized function of embedded rows."""

    @abstractmethod
    def _constants(self, n_rows: int, n_classes: int, embedding: Embedding) -> MeanLossConstants:
        """Return the public constants of a table of this shape."""

    def recompute_promises(self, n_rows: int) -> tuple[Promise, ...]:
        """Return the promises of a fitted model, computed anew from the number of rows and its parameters."""
        n_classes = len(self.classes_)
        plan = self.plan(self._constants(n_rows, n_classes, self.embedding_))
        return self._with_score(plan.promises, n_rows, n_classes)

    def plan(self, constants: MeanLossConstants) -> TrainingPlan:
        """Return the mechanism that a table with these public constants will be trained by."""
        return make_linear_plan(
            constants,
            self._training_privacy(constants.n_rows, constants.n_classes),
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
