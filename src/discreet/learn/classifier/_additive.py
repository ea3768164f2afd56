"""The fitted classifier: what it says about rows, and how sure its effects are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from discreet.learn._bins import BinsClassifier
from discreet.learn.classifier._weights import LATTICE, line_places
from discreet.query import PredictionCounts
from discreet.query.features import LONGEST_LINE

if TYPE_CHECKING:
    from discreet._types import AnyArray, Floats, Ints
    from discreet.learn.classifier._curves import Curve


class AdditiveModel(BinsClassifier):
    """Classifier whose score of a class is its intercept and what each column adds: a curve and a line.

    Fitting sets the attributes that :class:`~discreet.learn.PrivateClassifier` lists.
    """

    curves_: dict[str, Curve]
    weights_: Floats
    weights_sd_: Floats
    lines_: dict[str, tuple[float, float]]
    slopes_: Floats
    slopes_sd_: Floats
    intercept_: Floats

    def _curves_query(self, target: str) -> dict[str, Any]:
        """Return the model without its lines as keyword arguments of a query."""
        return {
            "target": target,
            "classes": self._levels,
            "intercept": _on_lattice(self.intercept_),
            "curves": {
                name: [_on_lattice(weight * row) for row in curve.values]
                for weight, (name, curve) in zip(self.weights_, self.curves_.items(), strict=True)
            },
            "edges": self.cells_.edges,
        }

    @property
    def _n_parameters(self) -> int:
        # Curves are smoothed, so that about three cells have one parameter.
        cells = sum(len(curve.values) - 1 for curve in self.curves_.values())
        return math.ceil(cells / 3) * (len(self.classes_) - 1)

    def _count_query(self, target: str, *, by_class: bool = False) -> PredictionCounts:
        return PredictionCounts(
            **self._curves_query(target),
            lines=self.lines_,
            slopes=dict(zip(self.lines_, map(_on_lattice, self.slopes_), strict=True)),
            by_class=by_class,
        )

    def predict_joint_log_proba(self, X: Any) -> Floats:
        """Return for each row and class its score: the logarithm of their probability, up to a constant."""
        rows = self._check_new_rows(X, "predict")
        codes = self.cells_.codes(rows)
        scores = np.tile(self.intercept_, (len(codes), 1))
        for column, weight, curve in zip(codes.T, self.weights_, self.curves_.values(), strict=True):
            scores += weight * curve.values[column]
        if self.lines_:
            scores += self._line_values(rows, codes) @ self.slopes_
        return scores

    def _line_values(self, rows: Any, codes: Ints) -> Floats:
        """Return the numbers of rows on their scales, cut as in the queries; 0 for missing ones."""
        places = {name: i for i, (name, _) in enumerate(self.layout_.coordinates)}
        numbers = self.layout_.rows(rows)[:, [places[name] for name in self.lines_]]
        origins, units = np.array(list(self.lines_.values())).T
        values = np.clip((numbers - origins) * units, -LONGEST_LINE, LONGEST_LINE)
        missing = self.cells_.find_missing(codes, list(self.lines_))
        return np.asarray(np.where(missing, 0.0, values))

    def effect_sd(self, name: str) -> Floats:
        """Return the standard deviation of what the cells of a column add to the log-odds or the scores.

        Returns
        -------
        array of shape (n_cells, 1) or (n_cells, n_classes)
            That of the log-odds of two classes, or of the score of each of more; by the noise on curves,
            weights and lines, and by the number of rows.
        """
        curve, at = self.curves_[name], list(self.curves_).index(name)
        two = len(self.classes_) == 2
        # With two classes what speaks for one speaks against the other, so that their errors add up.
        sd = curve.sd.sum(axis=1, keepdims=True) if two else curve.sd
        variance = (self.weights_[at] * sd) ** 2
        # Files from before hold no standard deviations of the second stage.
        if two and hasattr(self, "weights_sd_"):
            # A curve is weighed about its mean over the rows.
            odds = curve.values[:, 1] - curve.values[:, 0]
            variance += ((odds - curve.shares @ odds) * self.weights_sd_[at])[:, None] ** 2
        if name in self.lines_ and hasattr(self, "slopes_sd_"):
            column = next(column for column in self.layout_.schema.columns if column.name == name)
            places = line_places(column, self.cells_.edges[name], self.lines_[name], len(sd))
            variance += (places * self.slopes_sd_[list(self.lines_).index(name)])[:, None] ** 2
        return np.asarray(np.sqrt(variance))

    def decision_function(self, X: Any) -> Floats:
        """Return the score of the second of two classes over the first, or of each class, for each row."""
        scores = self.predict_joint_log_proba(X)
        return np.asarray(scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores)

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class for each row, as the model sees it."""
        return np.asarray(special.softmax(self.predict_joint_log_proba(X), axis=1))

    def predict(self, X: Any) -> AnyArray:
        """Return the most probable class for each row."""
        scores = self.predict_joint_log_proba(X)
        return np.asarray(self.classes_[scores.argmax(axis=1)])


def _on_lattice(values: Floats) -> tuple[float, ...]:
    """Return numbers as multiples of 2**-10, which are short as text and what the query is about."""
    return tuple((np.rint(values * LATTICE) / LATTICE).tolist())
