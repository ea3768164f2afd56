"""Linear regression for true rows, fitted to a noised release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin

from discreet.errors import DataError, ParameterError
from discreet.learn.arguments import Constraint, check_finite
from discreet.learn.noise_aware import estimators
from discreet.learn.noise_aware._blocks import additive_noise
from discreet.learn.noise_aware.base import FOLDS, LAW, NoiseAwareLearner, one_of
from discreet.learn.noise_aware.rows import NumberLabel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import AnyArray, Floats
    from discreet.learn.noise_aware._coordinates import Coordinates
    from discreet.learn.noise_aware._moments import CorrectedMoments
    from discreet.learn.noise_aware.base import Parts
    from discreet.learn.noise_aware.rows import Label
    from discreet.noise_law import NoiseLaw


class NoiseAwareRidge(RegressorMixin, NoiseAwareLearner):
    """Least squares on the true rows of a table of which only a noised release is seen.

    Plain least squares on noised columns finds slopes that are right for noised rows and far too small for
    true ones. The law of the noise is public, so the noise can be taken out of every covariance; a ridge as
    wide as the uncertainty that this leaves keeps the slopes finite, and their size is settled by
    cross-fitting on the release.

    Parameters
    ----------
    law : NoiseLaw, "clear" or None
        Law of the published cells given the true ones; None takes that of a loaded release, "clear" stands
        for a table without noise.
    folds : int
        Number of parts among which rows are divided for cross-fitting.
    on_weak : {"raise", "rank", "mean"}
        Behavior for a release that says too little: raise
        :class:`~discreet.errors.InsufficientInformation`, fit all the same for an order of rows alone, or
        predict the mean.

    Attributes
    ----------
    coef_ : array of shape (n_coordinates,)
        Per width of a number's range, and for each level of a list, in the target's unit.
    intercept_ : float
        Prediction for the row at ``center_``, in the target's unit.
    center_ : array of shape (n_coordinates,)
        Mean of the true rows, as estimated from the release.
    tau_ : float
        Mean width of the ridge, in shares of the variance that published coordinates have.
    kappa_ : float
        Uncertainty of the corrected covariance over its size. The further above 1, the more columns are
        treated as uncorrelated.
    scale_ : float
        Factor that cross-fitting gave the slopes.
    T2_ : float
        Rows times the share of the published target's variance that published features explain.
    p_ : int
        Mean of ``T2_`` where features and target are unrelated: the number of directions.
    reliability_ : float
        ``1 - p_ / T2_``: the share of the direction that is signal.
    status_ : {"ok", "ranking-only", "refused"}
        Whether predictions can be relied on, order rows only, or say nothing.
    law_ : NoiseLaw
        The law that was used.

    Privacy
    -------
    Nothing is charged: the model is computed from the release and its public law
    alone, which is post-processing, so every promise of the release holds for it. What the release leaves
    open stays open. A target that is published in the clear has no protection, neither there nor here. A
    model that describes the population better also says more about each person in it.

    Reference
    ---------
    docs/explanation/theorems/noise-aware.md

    Examples
    --------
    >>> from discreet import Column, GaussianRelease, Schema
    >>> x = np.linspace(0, 10, 20000)
    >>> schema = Schema(columns=[Column("x", lower=0, upper=10), Column("y", lower=0, upper=30)], target="y")
    >>> release = GaussianRelease(scale=5.0, label="clear", schema=schema, random_state=1).release(
    ...     {"x": x, "y": 3 * x})
    >>> model = NoiseAwareRidge().fit(release)
    >>> model.status_, bool(abs(model.coef_[0] / 10 - 3) < 0.2)
    ('ok', True)
    """

    name: ClassVar[str] = "noise-aware-ridge"
    theorems: ClassVar[tuple[str, ...]] = ("noise-aware",)
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "law": LAW,
        "folds": FOLDS,
        "on_weak": one_of("raise", "rank", "mean"),
    }
    _saved_attributes: ClassVar[tuple[str, ...]] = (
        "coef_", "intercept_", "center_", "tau_", "kappa_", "scale_", "T2_", "p_", "reliability_", "status_",
        "law_",
    )  # fmt: skip

    def __init__(self, law: NoiseLaw | str | None = None, *, folds: int = 10, on_weak: str = "raise") -> None:
        self.law = law
        self.folds = folds
        self.on_weak = on_weak

    def _label(self, law: NoiseLaw, y: AnyArray | None) -> Label:
        """Return the encoding of the target: in units of its declared range, or of its own spread."""
        column = law.label
        cells = None if y is None else self._cells(y, 0)
        if column is None:
            if cells is None:
                raise ParameterError(
                    "y of NoiseAwareRidge.fit must be given where the law has no target, was None."
                )
            if not len(cells):
                raise DataError("y of NoiseAwareRidge.fit must have at least one row, had none.")
            # Without a declared range the target's own spread serves as its unit.
            middle = float(cells.mean())
            spread = float(np.sqrt(np.mean((cells - middle) ** 2)))
            return NumberLabel(middle, spread or 1.0)
        if column.is_category or column.missing:
            raise ParameterError(
                f"The target {column.name!r} of the law of NoiseAwareRidge must be a number that is never "
                "missing, and is not. Use NoiseAwareClassifier for classes."
            )
        mean, variance = additive_noise(column)
        assert column.lower is not None
        return NumberLabel(
            origin=column.lower,
            width=column.width,
            mean=mean / column.width,
            variance=variance / column.width**2,
            column=column,
        )

    def _cells(self, labels: AnyArray, start: int) -> AnyArray:
        try:
            numbers = labels.astype(np.float64, copy=False)
        except (TypeError, ValueError):
            raise DataError(
                "y of NoiseAwareRidge.fit must hold numbers, and holds something else. Use "
                "NoiseAwareClassifier for classes."
            ) from None
        check_finite(numbers, "y of NoiseAwareRidge.fit")
        return numbers

    def _learn(self, total: CorrectedMoments, parts: Parts, coordinates: Coordinates, label: Label) -> None:
        """Fit the slopes ``a (S + ridge)^-1 c`` and set them, ``a`` the factor of cross-fitting."""
        assert isinstance(label, NumberLabel)
        rank = max(self.p_, 1)

        def joint(moments: CorrectedMoments) -> Floats:
            ridge = estimators.ridge_widths(moments, rank)
            return estimators.solve_ridge(moments.covariance, ridge, moments.spread, moments.cross)

        def separate(moments: CorrectedMoments) -> Floats:
            ridge = estimators.ridge_widths(moments, rank)
            return estimators.diagonal_slopes(moments.covariance, ridge, moments, moments.cross)

        # Where no row shows two columns at once, slopes can only be fitted one by one.
        fit = joint if coordinates.has_products else separate
        measured = estimators.cross_fit(total, parts, [fit], within=False)
        self.scale_ = estimators.score_scale(
            float(measured.square[0]), float(measured.side[0]), float(measured.doubt[0])
        )
        weights = self.scale_ * fit(total)[0]
        self._check_scale(self.scale_)
        if self.status_ == "refused" and self.on_weak == "mean":
            weights = np.zeros(coordinates.size)
        self.coef_ = np.asarray(weights) * label.width
        self.intercept_ = float(total.level[0]) * label.width + label.origin
        self.center_ = total.mean
        spread = np.maximum(total.spread, 1e-300)
        self.tau_ = float((estimators.ridge_widths(total, rank) / spread).mean())

    def predict(self, X: Any) -> Floats:
        """Return what the linear model says of true rows, which may lie outside the declared range."""
        return np.asarray(self._coordinates(X, "predict") @ self.coef_ + self.intercept_)
