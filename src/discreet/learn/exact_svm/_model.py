"""The support vector machine whose solution is unique: exact, certified, and not private."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from discreet.errors import DataError, DiscreetWarning, ParameterError
from discreet.json_record import JsonRecord
from discreet.learn.arguments import POSITIVE, Constraint, check_finite
from discreet.learn.base import Learner
from discreet.learn.exact_svm._solver import SvmProblem, solve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from discreet._types import AnyArray, Floats


LARGEST_RATIO = 1e10
"""theta / rho beyond which double precision may not fix the intercept."""
LARGEST_CELL = 1e75
"""Size of a cell whose square, times every weight of the solver, is still a number."""
RESIDUAL, RELATIVE_GAP = 1e-9, 1e-6
"""Largest residual, and gap relative to the objective, of a converged solution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate(JsonRecord):
    """Bounds on the distance of a computed solution from the unique minimizer.

    Attributes
    ----------
    gap : float
        Objective minus dual objective, at least 0. Computed without subtracting the two.
    residual : float
        Largest violation of the optimality conditions by a multiplier, in units of theta.
    coef_error, intercept_error : float
        Bounds on the distance to the true coefficients and intercept: ``sqrt(2 gap)`` and
        ``sqrt(2 gap / rho)``.
    converged : bool
        Residual at most 1e-9 and gap at most 1e-6 of the objective, or of the size that rounding alone
        gives it. The invariant release requires it.

    Privacy
    -------
    A function of the private rows, as the model is.

    Reference
    ---------
    docs/explanation/theorems/fisher-svm.md

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import RegularizedSVM
    >>> model = RegularizedSVM().fit(np.array([[-1.0], [1.0]]), np.array([-1, 1]))
    >>> model.certificate_.converged
    True
    """

    kind: ClassVar[str] = "svm-certificate"

    gap: float
    residual: float
    coef_error: float
    intercept_error: float
    converged: bool

    @classmethod
    def from_solution(cls, problem: SvmProblem, z: Floats, omega: Floats) -> Self:
        """Return the certificate of a point ``z`` with multipliers ``omega``."""
        gap = problem.gap(z, omega)
        residual = problem.residual(omega, 1 - problem.forward(z))
        allowed = RELATIVE_GAP * problem.objective(z) + problem.rounding_gap(z, omega)
        return cls(
            gap=gap,
            residual=residual,
            coef_error=math.sqrt(2 * gap),
            intercept_error=math.sqrt(2 * gap / problem.rho),
            converged=residual <= RESIDUAL and gap <= allowed,
        )


class RegularizedSVM(ClassifierMixin, Learner):
    """The linear support vector machine with exactly one solution.

    It minimizes ``|a|**2 / 2 + rho / 2 (b**2 + |xi|**2) + theta sum(xi)`` subject to
    ``y_i (a'x_i + b) >= 1 - xi_i`` and ``xi >= 0``. With ``rho`` above 0 the minimizer is unique, so that two
    tables can be said to train to the same classifier. It is computed until rounding is all that is left,
    and ``certificate_`` says how close that is.

    Parameters
    ----------
    theta : float
        Weight of the slack: what a row inside the margin costs.
    rho : float
        Weight of what makes the solution unique. The smaller, the closer to the usual soft margin.
    positive : label, optional
        The class whose decision values are above 0. Left out, it is the greater of the two labels, as in
        scikit-learn: +1 of -1 and +1. A release names it.
    feature_map : callable or fitted transformer, optional
        Applied to the rows first: the classifier is linear in what it returns. It is never fitted here. To
        survive scikit-learn's ``clone``, wrap a transformer that was fitted on public rows in
        ``sklearn.frozen.FrozenEstimator``.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
        The coefficient vector ``a``.
    intercept_ : float
        The intercept ``b``, a number.
    dual_coef_ : array of shape (n_rows,)
        ``omega * y``, zero exactly where a row does not count. ``a = X.T @ dual_coef_`` and
        ``b = dual_coef_.sum() / rho``.
    support_ : array of int
        Rows with a multiplier above 0.
    slack_ : array of shape (n_rows,)
        The slack variables ``xi``, not negative.
    objective_, gap_, residual_ : float
        The least value, and how close the solution is to it; see :class:`Certificate`.
    certificate_ : Certificate
        The same numbers as one value, saved with the model.
    n_iter_ : int
        Updates of the multipliers.
    classes_ : array of two labels
        The negative class, then the positive one.

    Privacy
    -------
    None. The classifier is an exact function of the rows, ``dual_coef_`` and ``slack_`` reveal single ones,
    and nothing is charged. It is for the curator's own use, for the invariant release, and for training on a
    table that is released already.

    Reference
    ---------
    Farokhi, *Privacy-Preserving Public Release of Datasets for SVM Classification*, problem (2);
    docs/explanation/theorems/fisher-svm.md.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import RegularizedSVM
    >>> model = RegularizedSVM(theta=0.1, rho=0.01).fit(np.array([[-1.0], [1.0]]), np.array([-1, 1]))
    >>> round(float(model.coef_[0]), 12) == round(2 * 0.11 / 1.02, 12)
    True
    >>> model.certificate_.converged
    True
    """

    name: ClassVar[str] = "svm-exact"
    theorems: ClassVar[tuple[str, ...]] = ("fisher-svm",)
    _constraints: ClassVar[Mapping[str, Constraint]] = {"theta": POSITIVE, "rho": POSITIVE}
    _saved_attributes: ClassVar[tuple[str, ...]] = (
        "classes_", "coef_", "intercept_", "objective_", "gap_", "residual_", "n_iter_", "certificate_",
    )  # fmt: skip
    _decoders: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"certificate_": Certificate.from_dict}

    def __init__(
        self,
        theta: float = 1.0,
        rho: float = 0.01,
        *,
        positive: Any = None,
        feature_map: Any = None,
    ) -> None:
        """Store the parameters; they are checked in :meth:`fit`."""
        self.theta = theta
        self.rho = rho
        self.positive = positive
        self.feature_map = feature_map

    def fit(self, X: Any, y: Any) -> Self:
        """Train on rows ``X`` with labels ``y`` of two kinds."""
        self._check_parameters()
        if self.theta / self.rho > LARGEST_RATIO:
            warnings.warn(
                f"theta / rho of RegularizedSVM is {self.theta / self.rho:.2g}, above {LARGEST_RATIO:g}: a "
                "relative gap of only 1e-6 is sure in double precision. Raise rho.",
                DiscreetWarning,
                stacklevel=2,
            )
        labels = np.asarray(y)
        # Before validate_data, which refuses NaN in y with scikit-learn's own error.
        if labels.dtype.kind == "f" and labels.ndim == 1:
            check_finite(labels, "y of RegularizedSVM.fit")
        X, y = validate_data(self, X, y, dtype=np.float64, order="C", ensure_all_finite=False)
        self._check_rows(X, "fit")
        self.classes_ = self._two_classes(y)
        problem = self._problem(X, y)
        solution = solve(problem)
        z, omega = solution.z, solution.omega
        self.coef_, self.intercept_ = z[:-1], float(z[-1])
        self.dual_coef_ = omega * problem.sign
        # Multipliers are exactly 0 for rows that do not touch the margin.
        self.support_ = np.flatnonzero(omega)
        # (omega - theta) / rho is the same number with the digits lost.
        self.slack_ = np.where(omega > problem.theta, np.maximum(1 - problem.forward(z), 0), 0.0)
        self.objective_ = problem.objective(z)
        self.certificate_ = Certificate.from_solution(problem, z, omega)
        self.gap_, self.residual_ = self.certificate_.gap, self.certificate_.residual
        self.n_iter_ = solution.outer
        if not self.certificate_.converged:
            warnings.warn(
                f"RegularizedSVM stopped with residual {self.residual_:.1g} and gap {self.gap_:.1g}. "
                "Scale the features to similar sizes, or raise rho.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def decision_function(self, X: Any) -> Floats:
        """Return ``a'x + b`` for each row."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, order="C", ensure_all_finite=False, reset=False)
        self._check_rows(X, "decision_function")
        return np.asarray(self._map(X) @ self.coef_ + self.intercept_)

    def predict(self, X: Any) -> AnyArray:
        """Return the positive class where the decision value is above 0, the negative one elsewhere."""
        scores = self.decision_function(X)
        return np.asarray(self.classes_[(scores > 0).astype(np.intp)])

    def training_problem(self, X: Any, y: Any) -> tuple[SvmProblem, Floats]:
        """Return the problem that was solved and its multipliers, given the rows it was trained on."""
        check_is_fitted(self)
        X, y = validate_data(self, X, y, dtype=np.float64, order="C", reset=False)
        if len(X) != len(self.dual_coef_):
            raise DataError(
                f"X of RegularizedSVM must be the {len(self.dual_coef_)} rows of its training, had {len(X)}. "
                "Give the same rows in the same order."
            )
        # Multipliers are never negative: the sign of a coefficient is the label.
        return self._problem(X, y), np.abs(self.dual_coef_)

    def _problem(self, X: Floats, y: AnyArray) -> SvmProblem:
        sign = np.where(y == self.classes_[1], 1.0, -1.0)
        return SvmProblem(self._map(X), sign, float(self.theta), float(self.rho))

    def _check_rows(self, X: Floats, method: str) -> None:
        check_finite(X, f"X of RegularizedSVM.{method}", getattr(self, "feature_names_in_", None))
        if X.max(initial=0.0) > LARGEST_CELL or X.min(initial=0.0) < -LARGEST_CELL:
            raise DataError(
                f"X of RegularizedSVM.{method} must stay below {LARGEST_CELL:g} in size: squares overflow. "
                "Use larger units."
            )

    def _two_classes(self, y: AnyArray) -> AnyArray:
        """Return the negative and the positive class."""
        check_classification_targets(y)
        classes = np.unique(y)
        if len(classes) == 1:
            raise DataError(
                "y of RegularizedSVM.fit must hold two classes, held one class. "
                "There is nothing to tell apart."
            )
        if len(classes) > 2:
            # The words that scikit-learn's own binary classifiers use come first.
            raise DataError(
                "Only binary classification is supported. The type of the target is multiclass: y of "
                f"RegularizedSVM.fit held {len(classes)} classes. Train one class against the rest."
            )
        if self.positive is None:
            return classes
        if self.positive not in classes.tolist():
            raise ParameterError(
                f"positive of RegularizedSVM must be one of the two labels in y, was {self.positive!r}. "
                "Write it as it stands in y."
            )
        return np.asarray(classes if classes[1] == self.positive else classes[::-1])

    def _map(self, X: Floats) -> Floats:
        """Return the rows in which the classifier is linear."""
        feature_map = self.feature_map
        if feature_map is None:
            return X
        if hasattr(feature_map, "transform"):
            if hasattr(feature_map, "fit"):
                try:
                    check_is_fitted(feature_map)
                except NotFittedError as error:
                    raise ParameterError(
                        "feature_map of RegularizedSVM must be fitted already, was not: a map that "
                        "depends on the rows would need privacy of its own. Fit it on public rows and "
                        "wrap it in sklearn.frozen.FrozenEstimator, which clone keeps as it is."
                    ) from error
            mapped = feature_map.transform(X)
        elif callable(feature_map):
            mapped = feature_map(X)
        else:
            raise ParameterError(
                "feature_map of RegularizedSVM must be None, a callable or a fitted transformer, was "
                f"{type(feature_map).__name__}."
            )
        if issparse(mapped):
            raise ParameterError(
                "feature_map of RegularizedSVM must return a dense matrix, returned a sparse one. "
                "Ask the transformer for dense output."
            )
        mapped = np.ascontiguousarray(mapped, dtype=np.float64)
        if mapped.ndim != 2 or len(mapped) != len(X):
            raise ParameterError(
                "feature_map of RegularizedSVM must return a matrix with one row for each row it is given, "
                f"returned shape {mapped.shape} for {len(X)} rows."
            )
        check_finite(mapped, "What feature_map of RegularizedSVM returns")
        return mapped

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
