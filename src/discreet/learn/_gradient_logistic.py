"""Logistic regression by noisy gradients, with one noisy Gram matrix as a bound of the curvature."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy import special

from discreet.learn._bins import BINS, EDGES, Bins, plain_edges
from discreet.learn._centering import Centering, check_not_clipping, spectral_edge
from discreet.learn._sums_base import SumsClassifier
from discreet.learn.arguments import POSITIVE, Constraint, is_number
from discreet.query import GradientSums, Gram

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from discreet._types import AnyArray, Floats
    from discreet.learn.budget_schedule import BudgetSchedule
    from discreet.learn.feature_map import FeatureMap
    from discreet.ledger import Ledger
    from discreet.privacy.budget_split import Privacy
    from discreet.query import NoisySums, PredictionCounts
    from discreet.schema import Schema

GRAM_SHARE = 0.25
"""Share of the promise that the Gram matrix gets; the gradients get the rest in equal parts."""
LARGEST_WEIGHT = 2.0**10
"""Bound on a weight: beyond it a probability is 0 or 1, and the weight would not fit the query's grid."""


class PrivateGradientLogistic(SumsClassifier):
    """Logistic regression by noisy gradients, for tables that answer sums and show no rows.

    A few rounds of Newton's method: each queries the noisy gradient of the likelihood at the current weights,
    and all use one noisy Gram matrix as an upper bound of the curvature. It needs nothing but
    :class:`~discreet.query.NoisySums`, so it runs on a database, takes categories and missing values from the
    schema, and is the more accurate learner under Gaussian promises where rows are many.
    :class:`~discreet.learn.PrivateLogisticRegression` solves the problem to the end on rows in memory, adds
    noise once, and is better under pure promises.

    Parameters
    ----------
    privacy : ApproxDP, ZCDP, GaussianDP, PureDP or NoPromise
        Promise of the fitted model. Only :class:`NoPromise` has no noise.
    bounds, schema
        Declared ranges of the columns of a matrix, or else a schema of the table; one of the two.
    classes : sequence of labels, optional
        Declared labels; by default the levels of the schema's target. With more than two classes, each has a
        model against the rest.
    edges : mapping of str to sequence of float, optional
        Points at which the cells of a number begin, if numbers are read as cells; by default those in the
        schema.
    n_bins : int, "auto" or None
        Number of public cells into which numbers are cut (:func:`~discreet.learn._bins.public_edges`), each
        with a weight of its own: a step function in place of a line. "auto" is up to ten cells, of which one
        is for the bound (:func:`~discreet.learn._bins.public_grid`). None leaves numbers as they are; with
        ``edges`` it is "auto" for the other numbers.
    rounds : int
        Number of gradients that are queried for each model.
    regularization : float
        Penalty on the squared weights, in rows; a penalty for the noise is added to it.
    radius : float, optional
        Length to which rows are clipped, as a fraction of declared ranges; by default none is. It cannot be
        had together with a paid score.
    paid_score : bool or "table"
        Whether a tenth of the promise pays for the accuracy of the model on its rows, which may then be
        published; half of it counts the rows that are right, half the rows of each class. "table" asks for
        rows by class and named class instead of right ones, with more noise. It is left out where there are
        too few rows for it, which is known before anything is charged if their number is public.
    ledger : Ledger, optional
        Ledger that is charged before any noise is drawn; by default only the receipts record it.
    random_state : int, optional
        A seed, for tests only: noise from a known seed protects no one.

    Attributes
    ----------
    weights_ : array of shape (1, dimension) or (n_classes, dimension)
        Weights of the centered coordinates, averaged over the second half of the rounds.
    coef_ : array of shape (1, n_coordinates) or (n_classes, n_coordinates)
        Weights in the columns' own units: one for each number and one for each level of a category, or cell.
    intercept_ : array of shape (1,) or (n_classes,)
        Intercept of each model, in the columns' own units.
    score_ : ModelScore or None
        Paid accuracy with its interval and verdict; None where it was not asked.
    classes_ : array
        The declared classes, sorted.
    layout_ : FeatureMap
        Columns that the model reads, and their coordinates.
    cells_ : Bins or None
        Public cells of numbers; None if numbers are read as they are.
    answers_ : dict of str to Answer
        The noisy matrix and gradients, with the standard deviations of their noise.
    promises_ : tuple of Promise
        Promises that hold for all queries together.
    receipts_ : tuple of Receipt
        Receipts of the charges, one for each query.
    split_ : dict of str to float
        Share of the promise that each query got: a quarter of the model's for the matrix, equal parts of the
        rest for the gradients.

    Privacy
    -------
    With ``B`` the length of a row (a quarter for each number and one for each category or number in cells,
    squared), the matrix changes by at most ``sqrt(2) B**2`` and a gradient by at most ``2 B`` under
    replace-one; by ``B**2`` and ``B`` under add-remove. Step lengths follow from the noisy matrix and from
    the public deviations of the noise; the number of rounds is fixed beforehand.

    Reference
    ---------
    Section 4.5 of Blum, Dwork, McSherry and Nissim (2005): docs/explanation/theorems/sulq-3.md,
    sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet import ApproxDP
    >>> X = np.column_stack([np.arange(8000) % 50, np.arange(8000) % 7])
    >>> y = np.where(X[:, 0] > 25, "old", "young")
    >>> model = PrivateGradientLogistic(privacy=ApproxDP(epsilon=1.0, delta=1e-6), bounds=([0, 0], [50, 7]),
    ...                                 classes=["old", "young"], random_state=1)
    >>> model.fit(X, y).score(X, y) > 0.9
    True
    """

    name: ClassVar[str] = "gradient-logistic"
    theorems: ClassVar[tuple[str, ...]] = ("sulq-3", "sulq-sensitivity")
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **SumsClassifier.common_constraints,
        "edges": EDGES,
        "n_bins": Constraint(
            f"None, 'auto' or {BINS.words}",
            lambda v: v is None or (isinstance(v, str) and v == "auto") or BINS.contains(v),
            (1, 0, 2.5, "some", True, 2000),
        ),
        "rounds": Constraint(
            "a whole number from 1 to 1000",
            lambda v: isinstance(v, int | np.integer) and not isinstance(v, bool) and 1 <= int(v) <= 1000,
            (0, 1.5, "2", True, 2000),
        ),
        "regularization": POSITIVE,
        "radius": Constraint(
            "None or a number of at least 0.001",
            lambda v: v is None or (is_number(v) and v >= 0.001),
            (0, -1.0, math.nan, "1", True),
        ),
    }
    _saved_attributes: ClassVar[tuple[str, ...]] = (
        *SumsClassifier.common_saved, "weights_", "coef_", "intercept_", "cells_",
    )  # fmt: skip
    _decoders: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        **SumsClassifier._decoders,
        "cells_": lambda content: None if content is None else Bins.from_dict(content),
    }

    cells_: Bins | None

    def __init__(
        self,
        *,
        privacy: Privacy,
        bounds: Any = None,
        schema: Schema | None = None,
        classes: Any = None,
        edges: Mapping[str, Sequence[float]] | None = None,
        n_bins: int | str | None = None,
        rounds: int = 6,
        regularization: float = 1.0,
        radius: float | None = None,
        paid_score: bool | str = False,
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        """Store the parameters; they are checked in :meth:`fit`."""
        self.privacy = privacy
        self.bounds = bounds
        self.schema = schema
        self.classes = classes
        self.edges = edges
        self.n_bins = n_bins
        self.rounds = rounds
        self.regularization = regularization
        self.radius = radius
        self.paid_score = paid_score
        self.ledger = ledger
        self.random_state = random_state

    def _learn(
        self, sums: NoisySums, layout: FeatureMap, target: str | None, owner: str | None
    ) -> BudgetSchedule:
        """Query the Gram matrix, then descend by noisy gradients, one model for each positive class.

        Notes
        -----
        With ``G = V diag(l) V'`` the noisy Gram matrix and ``e`` the edge of its noise, the Hessian of the
        likelihood is at most ``V diag((max(l, 0) + e) / 4) V'``: the curvature that every step divides by.
        """
        assert target is not None
        # Two classes need one model, for the second; more need one each, against the rest.
        positives = list(self._levels[1:] if len(self._levels) == 2 else self._levels)
        self.cells_ = self._choose_bins(layout)
        centering = self._make_centering(layout)
        check_not_clipping(centering, self)
        schedule = self._make_schedule(sums, self._shares(len(positives)), target, owner)
        answer = schedule.ask("products", Gram(**centering.query_arguments, with_sums=centering.intercept))
        products = np.asarray(answer.value)
        if centering.intercept:
            # The constant coordinate comes first in the Gram matrix and last in the gradients.
            products = np.roll(products, -1, axis=(0, 1))
        values, vectors = np.linalg.eigh(centering.zero_level_products(products))
        # p (1 - p) <= 1/4, and noise lowers no eigenvalue by more than the spectral edge.
        curvature = (np.maximum(values, 0.0) + spectral_edge(np.asarray(answer.sd))) / 4
        self.weights_ = np.array(
            [self._descend(schedule, centering, target, i, level, curvature, vectors)
             for i, level in enumerate(positives)]
        )  # fmt: skip
        self.coef_, self.intercept_ = centering.coefficients(self.weights_)
        self._pay_score(schedule, target)
        return schedule

    @property
    def _n_parameters(self) -> int:
        return int(self.weights_.shape[-1]) * (len(self.classes_) - 1)

    def _count_query(self, target: str, *, by_class: bool = False) -> PredictionCounts:
        centering = self._make_centering(self.layout_)
        return centering.count_query(target, self._levels, self.weights_, by_class=by_class)

    def _choose_bins(self, layout: FeatureMap) -> Bins | None:
        """Return the cells into which numbers are cut, by public facts alone; None if they are not."""
        if self.n_bins is None and self.edges is None:
            return None
        n_bins = int(self.n_bins) if isinstance(self.n_bins, int | np.integer) else None
        # On a finer grid the rounds are too few to fit all weights.
        return Bins.from_features(layout, self.edges, n_bins, level=1)

    def _make_centering(self, layout: FeatureMap) -> Centering:
        return Centering(layout, None if self.radius is None else float(self.radius), self.cells_)

    def _shares(self, n_models: int) -> dict[str, float]:
        gradients = [_pass_name(i, r) for i in range(n_models) for r in range(self.rounds)]
        return {"products": GRAM_SHARE, **dict.fromkeys(gradients, (1 - GRAM_SHARE) / len(gradients))}

    def _descend(
        self,
        schedule: BudgetSchedule,
        centering: Centering,
        target: str,
        model: int,
        positive: Any,
        curvature: Floats,
        vectors: Floats,
    ) -> Floats:
        """Return the weights of one class against the rest: the mean over the second half of the rounds.

        Notes
        -----
        ``w <- w + V ((V'g - p V'w) / (c + p))`` with ``g`` the noisy gradient, ``c`` upper bounds of the
        Hessian's eigenvalues, ``V`` the eigenvectors in columns and ``p`` the regularization plus
        :func:`noise_penalty`. Averaging over rounds takes noise out of the result.
        """
        regularization = float(self.regularization)
        weights = np.zeros(centering.size)
        visited = []
        for r in range(self.rounds):
            answer = schedule.ask(_pass_name(model, r), _gradient_query(centering, target, positive, weights))
            # Noise that remains in the mean of all rounds, for which the penalty is chosen.
            sd = float(np.max(answer.sd)) / math.sqrt(self.rounds)
            penalty = regularization + noise_penalty(curvature + regularization, sd)
            # In the eigenvectors of the Gram matrix the Newton step is a division.
            gradient = vectors.T @ np.asarray(answer.value) - penalty * (vectors.T @ weights)
            weights = weights + vectors @ (gradient / (curvature + penalty))
            # Noise may push weights of empty cells without bound.
            weights = np.clip(weights, -LARGEST_WEIGHT, LARGEST_WEIGHT)
            visited.append(weights)
        return np.asarray(np.mean(visited[self.rounds // 2 :], axis=0))

    def decision_function(self, X: Any) -> Floats:
        """Return the score of the second of two classes, or of each of more classes, for each row."""
        rows = self._check_new_rows(X, "decision_function")
        coordinates = self.layout_.rows(rows) if self.cells_ is None else self.cells_.coordinates(rows)
        scores = self._make_centering(self.layout_).rows(coordinates) @ self.weights_.T
        return np.asarray(scores[:, 0] if len(self.classes_) == 2 else scores)

    def predict(self, X: Any) -> AnyArray:
        """Return the class with the largest score for each row."""
        scores = self.decision_function(X)
        best = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class for each row, as the model sees it."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([special.expit(-scores), special.expit(scores)])
        # One-against-rest scores are normalized over the classes.
        return np.asarray(special.softmax(special.log_expit(scores), axis=1))

    def _pack(self, name: str, value: Any, arrays: dict[str, Any]) -> Any:
        if name == "edges":
            return plain_edges(value)
        return super()._pack(name, value, arrays)


def noise_penalty(curvature: Floats, sd: float) -> Floats:
    """Return the penalty with the least mean squared error, for each direction of a curvature.

    Notes
    -----
    With noise of deviation ``sd`` on the gradient and weights of about 1, an estimate ``gradient / (c + p)``
    of ``gradient = c w + noise`` is off by ``(p**2 + sd**2) / (c + p)**2`` on average of squares, which is
    least at ``p = sd**2 / c``.
    """
    return np.asarray(sd**2 / curvature)


def _gradient_query(centering: Centering, target: str, positive: Any, weights: Floats) -> GradientSums:
    """Return the query for the gradient of the log-likelihood at some weights."""
    return GradientSums(
        **centering.query_arguments,
        target=target,
        positive=positive,
        weights=tuple(weights.tolist()),
        intercept=centering.intercept,
    )


def _pass_name(model: int, r: int) -> str:
    """Return the name of one round of one model, under which its share is listed."""
    return f"gradient {r + 1}" if model == 0 else f"gradient {r + 1} of class {model + 1}"
