"""Logistic regression by gradient queries, with one noisy matrix of products to steer by."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy import special

from discreet.learn._bins import BINS, EDGES, Bins, plain_edges
from discreet.learn._centering import Centering, spectral_edge
from discreet.learn._sums_base import SumsClassifier, SumsEstimator
from discreet.learn.base import POSITIVE, Constraint, is_number
from discreet.learn.budget_schedule import BudgetSchedule
from discreet.query import GradientSums, Gram

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from discreet._types import AnyArray, Floats
    from discreet.learn.feature_map import FeatureMap
    from discreet.ledger import Ledger
    from discreet.privacy.budget_split import Privacy
    from discreet.query import NoisySums
    from discreet.schema import Schema

GRAM_SHARE = 0.25
"""Part of the promise that the matrix of products gets."""
FEWEST_BINS, MOST_BINS = 8, 16
"""With fewer cells a number says more as it is; with more, rounds are too few to set all weights."""
PER_ROOT = 0.4
"""Cells of a number over the square root of rows per standard deviation of noise."""
LARGEST_WEIGHT = 2.0**10
"""Beyond it a weight says nothing more, and would not fit the grid of the questions."""


class PrivateGradientLogistic(SumsClassifier):
    """Logistic regression by noisy gradients, for tables that answer sums and show no rows.

    A few rounds of Newton's method: each asks for the noisy gradient of the likelihood at the current
    weights, and all use one noisy matrix of products as an upper bound of the curvature. Beside it
    stands :class:`~discreet.learn.PrivateLogisticRegression`, which solves the problem to the end on rows in
    memory and adds noise once, and keeps pure promises well; this one needs nothing but
    :class:`~discreet.query.NoisySums`, so it runs on a database, takes categories and missing values from
    the schema, and is the more accurate one under Gaussian promises where rows are many.

    Parameters
    ----------
    privacy : ApproxDP, ZCDP, GaussianDP, PureDP or NoPromise
        What the model promises. Only :class:`NoPromise` has no noise.
    bounds, schema
        What is declared about the columns: ranges of a matrix of numbers, or a schema.
    classes : sequence of labels, optional
        Declared list; the schema's target has it otherwise. Of more than two classes each is told from the
        rest.
    edges : mapping of str to sequence of float, optional
        Where the cells of a number begin, if numbers are read as cells.
    n_bins : int, "auto" or None
        Into how many public cells numbers are cut, see :func:`~discreet.learn._bins.public_edges`, each with
        a weight of its own: a curve of steps in place of a line. "auto" is 8 to 16, by the public number of
        rows and the noise: :func:`affordable_bins`. None leaves numbers as they are; with ``edges`` it is
        "auto" for the other numbers.
    rounds : int
        How many gradients are asked for.
    regularization : float
        Penalty on the weights, in rows. What the noise asks for is added to it.
    radius : float, optional
        Length to which rows are cut, as fractions of declared ranges; by default none is.
    ledger : Ledger, optional
        Charged before anything is drawn.
    random_state : int, optional
        A seed, for tests alone.

    Attributes
    ----------
    weights_ : array of shape (1, dimension) or (n_classes, dimension)
        Of the centered coordinates: the mean over the second half of the rounds.
    coef_ : array of shape (1, n_coordinates) or (n_classes, n_coordinates)
        The same in the columns' own units: one for each number and one for each level of a category, or cell.
    intercept_ : array of shape (1,) or (n_classes,)
        Intercepts.
    classes_ : array
        The declared classes, sorted.
    layout_ : Layout
        The columns.
    cells_ : Cells or None
        The public cells of numbers, if they are read as cells.
    answers_ : dict of str to Answer
        The noisy matrix and gradients, with the standard deviations of their noise.
    promises_ : tuple of Promise
        What holds for all questions together.
    receipts_ : tuple of Receipt
        What was charged.
    split_ : dict of str to float
        Which part of the promise each question got: a quarter the matrix, the gradients equal parts.

    Privacy
    -------
    With ``B`` the length of a row (a quarter for each number and one for each category or number in cells,
    squared), the matrix moves by at most ``sqrt(2) B**2`` and a gradient by at most ``2 B`` under
    replace-one; by ``B**2`` and ``B`` under add-remove. How far a step goes follows from the noisy matrix and
    from the public deviations of the noise; the number of rounds is fixed beforehand.

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
        **SumsEstimator.common_domains,
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
        *SumsEstimator.common_saved, "classes_", "weights_", "coef_", "intercept_", "cells_",
    )  # fmt: skip
    _decoders: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        **SumsEstimator._decoders,
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
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        self.privacy = privacy
        self.bounds = bounds
        self.schema = schema
        self.classes = classes
        self.edges = edges
        self.n_bins = n_bins
        self.rounds = rounds
        self.regularization = regularization
        self.radius = radius
        self.ledger = ledger
        self.random_state = random_state

    def _learn(
        self, sums: NoisySums, layout: FeatureMap, target: str | None, owner: str | None
    ) -> BudgetSchedule:
        assert target is not None
        # Of two classes the second is told from the first; of more, each from the rest.
        positives = list(self._levels[1:] if len(self._levels) == 2 else self._levels)
        schedule = BudgetSchedule(sums, self.privacy, self._shares(len(positives)), owner=owner)
        self.cells_ = self._choose_bins(layout, target, positives[0], schedule)
        centering = self._centering(layout)
        answer = schedule.ask("products", Gram(**centering.query_arguments, with_sums=centering.intercept))
        products = np.asarray(answer.value)
        if centering.intercept:
            # The answer has the coordinate that is 1 first, the gradients have it last.
            products = np.roll(products, -1, axis=(0, 1))
        values, vectors = np.linalg.eigh(centering.zero_level_products(products))
        # A logistic likelihood curves by at most a quarter of the matrix of products, and the noisy matrix is
        # below the exact one by at most the edge.
        curvature = (np.maximum(values, 0.0) + spectral_edge(np.asarray(answer.sd))) / 4
        self.weights_ = np.array(
            [self._descend(schedule, centering, target, i, level, curvature, vectors)
             for i, level in enumerate(positives)]
        )  # fmt: skip
        self.coef_, self.intercept_ = centering.coefficients(self.weights_)
        return schedule

    def _choose_bins(
        self, layout: FeatureMap, target: str, positive: Any, schedule: BudgetSchedule
    ) -> Bins | None:
        """Say into which cells numbers are cut, by public facts alone; None if they are not."""
        if self.n_bins is None and self.edges is None:
            return None
        if isinstance(self.n_bins, int | np.integer):
            return Bins.from_features(layout, self.edges, int(self.n_bins))
        coarse = Bins.from_features(layout, self.edges, FEWEST_BINS)
        if schedule.sums.n_rows is None:
            return coarse
        # Neither the noise nor the length of rows depends on how many cells there are.
        centering = Centering(layout, None if self.radius is None else float(self.radius), coarse)
        question = _gradient_query(centering, target, positive, np.zeros(centering.size))
        sd = float(np.max(schedule.expected_sd(_pass_name(0, 0), question))) / math.sqrt(self.rounds)
        return Bins.from_features(layout, self.edges, affordable_bins(schedule.sums.n_rows, sd))

    def _centering(self, layout: FeatureMap) -> Centering:
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
        """Return the weights that tell one level from the rest: the mean of the second half of rounds."""
        regularization = float(self.regularization)
        weights = np.zeros(centering.size)
        visited = []
        for r in range(self.rounds):
            answer = schedule.ask(_pass_name(model, r), _gradient_query(centering, target, positive, weights))
            sd = float(np.max(answer.sd)) / math.sqrt(self.rounds)
            penalty = regularization + noise_penalty(curvature + regularization, sd)
            gradient = vectors.T @ np.asarray(answer.value) - penalty * (vectors.T @ weights)
            weights = weights + vectors @ (gradient / (curvature + penalty))
            weights = np.clip(weights, -LARGEST_WEIGHT, LARGEST_WEIGHT)
            visited.append(weights)
        return np.asarray(np.mean(visited[self.rounds // 2 :], axis=0))

    def decision_function(self, X: Any) -> Floats:
        """Return the score of the second of two classes, or of each of more classes, for each row."""
        rows = self._check_new_rows(X, "decision_function")
        coordinates = self.layout_.rows(rows) if self.cells_ is None else self.cells_.coordinates(rows)
        scores = self._centering(self.layout_).rows(coordinates) @ self.weights_.T
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
        return np.asarray(special.softmax(special.log_expit(scores), axis=1))

    def _pack(self, name: str, value: Any, arrays: dict[str, Any]) -> Any:
        if name == "edges":
            return plain_edges(value)
        return super()._pack(name, value, arrays)


def affordable_bins(n_rows: int, sd: float) -> int:
    """Return into how many cells to cut a number, for noise of deviation ``sd`` on the mean gradient.

    With ``b`` cells a smooth effect is missed by about ``1 / b``, and the weight of a cell of ``n / b`` rows
    is off by about ``sd b / n``. The sum of squares is least at a multiple of ``sqrt(n / sd)``.
    """
    if sd == 0:
        return MOST_BINS
    return min(max(int(PER_ROOT * math.sqrt(n_rows / sd)), FEWEST_BINS), MOST_BINS)


def noise_penalty(curvature: Floats, sd: float) -> Floats:
    """Return the penalty with the least mean squared error along directions of these curvatures.

    With noise of deviation ``sd`` on the gradient and weights of about 1, an estimate ``gradient / (c + p)``
    of ``gradient = c w + noise`` is off by ``(p**2 + sd**2) / (c + p)**2`` on average of squares, which is
    least at ``p = sd**2 / c``.
    """
    return np.asarray(sd**2 / curvature)


def _gradient_query(centering: Centering, target: str, positive: Any, weights: Floats) -> GradientSums:
    return GradientSums(
        **centering.query_arguments,
        target=target,
        positive=positive,
        weights=tuple(weights.tolist()),
        intercept=centering.intercept,
    )


def _pass_name(model: int, r: int) -> str:
    return f"gradient {r + 1}" if model == 0 else f"gradient {r + 1} of class {model + 1}"
