"""Learners of true rows from noised ones: classes, and numbers by linear regression."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from discreet.errors import DataError, ParameterError
from discreet.learn.arguments import Constraint, check_finite
from discreet.learn.noise_aware import estimators
from discreet.learn.noise_aware._blocks import ResponseLevels, additive_noise
from discreet.learn.noise_aware.base import FOLDS, LAW, NoiseAwareLearner, one_of
from discreet.learn.noise_aware.estimators import LinearFit
from discreet.learn.noise_aware.rows import ClassLabel, NumberLabel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import AnyArray, Floats
    from discreet.learn.noise_aware._coordinates import Coordinates
    from discreet.learn.noise_aware._moments import CorrectedMoments, MomentTotals
    from discreet.learn.noise_aware.base import Parts
    from discreet.learn.noise_aware.rows import Label
    from discreet.noise_law import NoiseLaw


def _has_probabilities(model: Any) -> bool:
    if model.status_ == "ok" or model.model_ == "prior":
        return True
    raise AttributeError(
        f"predict_proba of NoiseAwareClassifier is not there where the status is {model.status_!r}: the "
        "release orders rows, and says too little for probabilities. Use decision_function."
    )


class NoiseAwareClassifier(ClassifierMixin, NoiseAwareLearner):
    """Classify the true rows of a table of which only a noised release is seen.

    A classifier trained on noised columns as if they were true votes for the majority: it is right about
    noised rows and wrong about true ones. Here the public law of the noise is taken out of means and
    covariances first. Two fits follow: linear discriminants with the corrected covariance, under a ridge as
    wide as what remains uncertain in it; and naive Bayes from debiased shares, which needs no covariance
    between columns. What counts is a weighted mean of their scores, each as large as folds of the release
    confirm.

    Parameters
    ----------
    law : NoiseLaw, "clear" or None
        Law of the published cells given the true ones; None takes that of a loaded release, "clear" stands
        for a table without noise.
    model : {"auto", "lda", "nb", "mean"}
        Fit that is used: a mean with more weight on the discriminants, one of the two, or their plain mean.
    rows : {"clean", "noised"}
        Kind of rows to be classified: true ones, or further ones of the same release.
    folds : int
        Number of parts among which rows are divided for cross-fitting.
    on_weak : {"raise", "rank", "majority"}
        Behavior for a release that says too little: raise
        :class:`~discreet.errors.InsufficientInformation`, fit all the same for an order of rows alone, or
        answer with the most frequent class.

    Attributes
    ----------
    classes_ : array
        Classes of the label, in sorted order.
    coef_ : array of shape (n_classes, n_coordinates)
        Slopes of the scores, per width of a number's range and for each level of a list.
    intercept_ : array of shape (n_classes,)
        Scores of the row at ``center_``.
    center_ : array of shape (n_coordinates,)
        Mean of the true rows, as estimated from the release.
    shares_ : array of shape (n_classes,)
        Estimated share of each class among the true rows.
    model_ : str
        "lda", "nb", "mean" or "prior": what was fitted.
    kappa_ : float
        Uncertainty of the corrected covariance over its size.
    scale_ : float
        Factor that cross-fitting gave the scores.
    T2_ : float
        Rows times the share of a published class's variance that published features explain; the largest.
    p_ : int
        Mean of ``T2_`` where features and label are unrelated: the number of directions.
    reliability_ : float
        ``1 - p_ / T2_``: the share of the direction that is signal.
    status_ : {"ok", "ranking-only", "refused"}
        Whether scores are probabilities, order rows only, or say nothing.
    law_ : NoiseLaw
        The law that was used.

    Privacy
    -------
    Nothing is charged: the model is computed from the release and its public law
    alone, which is post-processing, so every promise of the release holds for it. What the release leaves
    open stays open. Labels that are published in the clear have no protection, neither there nor here. A
    model that describes the population better also says more about each person in it.

    Reference
    ---------
    docs/explanation/theorems/noise-aware.md

    Examples
    --------
    >>> from discreet import Column, GaussianRelease, Schema
    >>> x = np.linspace(0, 10, 20000)
    >>> schema = Schema(columns=[Column("x", lower=0, upper=10), Column("y", values=(0, 1))], target="y")
    >>> release = GaussianRelease(scale=10.0, label="clear", schema=schema, random_state=1).release(
    ...     {"x": x, "y": (x > 7).astype(int)})
    >>> model = NoiseAwareClassifier().fit(release)
    >>> model.status_, model.predict(np.array([[2.0], [9.5]])).tolist()
    ('ok', [0, 1])
    """

    name: ClassVar[str] = "noise-aware"
    theorems: ClassVar[tuple[str, ...]] = ("noise-aware",)
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "law": LAW,
        "model": one_of("auto", "lda", "nb", "mean"),
        "rows": one_of("clean", "noised"),
        "folds": FOLDS,
        "on_weak": one_of("raise", "rank", "majority"),
    }
    _saved_attributes: ClassVar[tuple[str, ...]] = (
        "classes_", "coef_", "intercept_", "center_", "shares_", "model_", "kappa_", "scale_", "T2_", "p_",
        "reliability_", "status_", "law_",
    )  # fmt: skip

    def __init__(
        self,
        law: NoiseLaw | str | None = None,
        *,
        model: str = "auto",
        rows: str = "clean",
        folds: int = 10,
        on_weak: str = "raise",
    ) -> None:
        """Store the parameters; they are checked in :meth:`fit`."""
        self.law = law
        self.model = model
        self.rows = rows
        self.folds = folds
        self.on_weak = on_weak

    def _label(self, law: NoiseLaw, y: AnyArray | None) -> Label:
        """Return the encoding of the classes, and set ``classes_`` with the order that sorts them."""
        column = law.label
        if y is not None:
            check_classification_targets(y)
        if column is None:
            if y is None:
                raise ParameterError(
                    "y of NoiseAwareClassifier.fit must be given where the law has no target, was None."
                )
            self.classes_ = np.unique(y)
            if len(self.classes_) < 2:
                raise _one_class_error()
            self._order = np.arange(len(self.classes_))
            return ClassLabel(ResponseLevels(len(self.classes_), 1.0))
        if not column.is_category or column.missing or None in (column.levels or ()):
            raise ParameterError(
                f"The target {column.name!r} of the law of NoiseAwareClassifier must be a list of classes "
                "that is never missing, and is not. Use NoiseAwareRidge for numbers."
            )
        levels = np.array(column.levels)
        answers = ResponseLevels.from_law(column, len(levels))
        # The corrected shares divide by the gap.
        if answers.gap <= 0:
            raise ParameterError(
                f"The target {column.name!r} of the law of NoiseAwareClassifier must depend on the true "
                "class, and does not. Ask for a release with a larger epsilon."
            )
        # Codes are in the order of the law, and classes in rising order, as scikit-learn has them.
        self._order = np.argsort(levels)
        self.classes_ = levels[self._order]
        return ClassLabel(answers)

    def _cells(self, labels: AnyArray, start: int) -> AnyArray:
        """Return labels given apart as positions in the law's list; ``start`` rows came before."""
        classes = self.classes_
        kinds = {"text" if kind in "OUS" else "number" for kind in (labels.dtype.kind, classes.dtype.kind)}
        # Between texts and numbers numpy would compare the numbers as texts.
        known = np.isin(labels, classes) if len(kinds) == 1 else np.zeros(len(labels), bool)
        if not known.all():
            line = start + int(np.argmin(known)) + 1
            raise DataError(
                f"y of NoiseAwareClassifier.fit must hold the classes of its law alone, and row {line} holds "
                "something else. Rows are counted from 1; give labels as they are published.",
                line=line,
            )
        return np.asarray(self._order[np.searchsorted(classes, labels)])

    def _check_rows(self, sums: MomentTotals, label: Label, owner: str) -> None:
        super()._check_rows(sums, label, owner)
        if sums.n_rows < len(self.classes_):
            raise DataError(
                f"X of {owner} must have at least one row for each of {len(self.classes_)} classes, had "
                f"{sums.n_rows}. Take a longer release."
            )
        published = np.diagonal(sums.total)[-label.n_raw :]
        if (published > 0).sum() < 2:
            raise _one_class_error()

    def _learn(self, total: CorrectedMoments, parts: Parts, coordinates: Coordinates, label: Label) -> None:
        """Fit discriminants and naive Bayes, and set the weighted mean of their scores.

        Notes
        -----
        Weights are ``f_1 D + f_2 B``, ``D`` the linear discriminants ``(W + ridge)^-1 (mean_c - mean)`` with
        ``W`` the covariance inside classes and ``B`` naive Bayes; ``f`` are the shares of the two, times the
        factors of :func:`~discreet.learn.noise_aware.estimators.score_scales`.
        """
        rank = max(self.p_, 1)
        self.shares_ = estimators.class_shares(total)[self._order]
        self.center_ = total.mean
        noised = self.rows == "noised"

        def discriminants(moments: CorrectedMoments) -> Floats:
            shifts = estimators.class_shifts(moments)
            if noised:
                # Further noised rows have the observed covariance: there is nothing to correct.
                between = (shifts.T * estimators.class_shares(moments)) @ shifts
                none = np.zeros(coordinates.size)
                return estimators.solve_ridge(moments.observed - between, none, moments.spread, shifts)
            ridge = estimators.ridge_widths(moments, rank)
            within = estimators.within_covariance(moments)
            return estimators.solve_ridge(within, ridge, moments.spread, shifts)

        def bayes(moments: CorrectedMoments) -> Floats:
            return estimators.naive_bayes(moments, coordinates, rank).weights

        if noised:
            # Trained and used on rows of one law, scores need no factor from cross-fitting.
            self.model_, self.scale_ = "lda", 1.0
            fit = _balance_intercepts(discriminants(total), total)
        elif coordinates.joint_block is not None or self.model == "nb":
            # Levels that were randomized together with the label are one list: naive Bayes is exact there.
            self.model_, self.scale_ = "nb", 1.0
            fit = estimators.naive_bayes(total, coordinates, rank)
        else:
            measured = estimators.cross_fit(total, parts, [discriminants, bayes], within=True)
            scales = estimators.score_scales(measured, together=coordinates.has_products)
            self.model_ = "lda" if self.model == "lda" else "mean"
            first = {"auto": estimators.DISCRIMINANT_SHARE, "lda": 1.0, "mean": 0.5}[self.model]
            factors = np.array([first, 1 - first]) * scales
            self.scale_ = float(factors.sum())
            weights = factors[0] * discriminants(total) + factors[1] * bayes(total)
            # Class means are those of folds that had no part in the weights: on the others the classes seem
            # farther apart than they are.
            fit = _balance_intercepts(weights, total, factors @ measured.sides)
        self._check_scale(self.scale_)
        if self.status_ == "refused" and self.on_weak == "majority":
            self.model_ = "prior"
            fit = LinearFit(np.zeros_like(fit.weights), np.log(estimators.class_shares(total)))
        self.coef_, self.intercept_ = fit.weights[self._order], fit.intercepts[self._order]
        del self._order

    def _scores(self, X: Any, where: str) -> Floats:
        rows = self._coordinates(X, where, published=self.rows == "noised")
        return np.asarray(rows @ self.coef_.T + self.intercept_)

    def decision_function(self, X: Any) -> Floats:
        """Return scores of rows: one for each class, or of the second over the first where there are two."""
        scores = self._scores(X, "decision_function")
        return np.asarray(scores[:, 1] - scores[:, 0]) if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> AnyArray:
        """Return the class with the largest score."""
        best = self._scores(X, "predict").argmax(axis=1)
        return np.asarray(self.classes_[best])

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Return how likely each class is; only where the release says enough for that."""
        return np.asarray(softmax(self._scores(X, "predict_proba"), axis=1))


def _balance_intercepts(weights: Floats, moments: CorrectedMoments, sides: Floats | None = None) -> LinearFit:
    """Return scores with intercepts that make two classes equal midway between their means.

    Parameters
    ----------
    weights : array of shape (n_classes, n_coordinates)
        Slopes of the scores, about the mean of all rows.
    moments : CorrectedMoments
        Moments of all rows.
    sides : array of shape (n_classes,), optional
        Mean score of the rows of each class times its share; by default from ``moments``.

    Notes
    -----
    The intercept of class ``c`` is ``log(share_c) - side_c / (2 share_c)``.
    """
    shares = estimators.class_shares(moments)
    sides = (weights * moments.cross).sum(axis=1) if sides is None else sides
    return LinearFit(weights, np.log(shares) - sides / shares / 2)


def _one_class_error() -> DataError:
    return DataError(
        "y of NoiseAwareClassifier.fit must hold two classes, held one class. There is nothing to tell apart."
    )


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
        # A level that is never published has no spread.
        spread = np.maximum(total.spread, 1e-300)
        self.tau_ = float((estimators.ridge_widths(total, rank) / spread).mean())

    def predict(self, X: Any) -> Floats:
        """Return what the linear model says of true rows, which may lie outside the declared range."""
        return np.asarray(self._coordinates(X, "predict") @ self.coef_ + self.intercept_)
