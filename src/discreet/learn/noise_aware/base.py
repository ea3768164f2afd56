"""Base class of learners that fit a model of the true rows to a published table and its noise law."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from discreet.errors import DataError, InsufficientInformation, ParameterError
from discreet.learn.arguments import Constraint, check_finite
from discreet.learn.base import Learner
from discreet.learn.noise_aware import estimators, rows
from discreet.learn.noise_aware._coordinates import Coordinates
from discreet.learn.noise_aware._moments import CorrectedMoments, MomentSums, eigenvalue_spread, sum_moments
from discreet.learn.noise_aware.estimators import measure_evidence
from discreet.noise_law import Clear, ColumnLaw, NoiseLaw
from discreet.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from discreet._types import AnyArray, Floats
    from discreet.learn.noise_aware._moments import MomentTotals
    from discreet.learn.noise_aware.estimators import Status
    from discreet.learn.noise_aware.rows import Label

    Parts = list[tuple[CorrectedMoments, CorrectedMoments]]

LAW = Constraint(
    "a NoiseLaw, 'clear' or None",
    lambda v: v is None or isinstance(v, NoiseLaw) or (isinstance(v, str) and v == "clear"),
    ("noisy", 1.0, {}),
)
FOLDS = Constraint(
    "a whole number from 2 to 100",
    lambda v: isinstance(v, int | np.integer) and not isinstance(v, bool) and 2 <= int(v) <= 100,
    (1, 101, 2.5, "10", True),
)


def one_of(*words: str) -> Constraint:
    """Return the constraint of a parameter that is one of a few words."""
    listed = " or ".join((", ".join(map(repr, words[:-1])), repr(words[-1])))
    return Constraint(listed, lambda v: isinstance(v, str) and v in words, ("other", 1, None))


class NoiseAwareLearner(Learner):
    """Base of the noise-aware learners: reads rows, corrects moments, tests for evidence.

    Subclasses encode the label in :meth:`_label` and turn corrected moments into scores in :meth:`_learn`.
    """

    law: Any
    folds: int
    on_weak: str
    law_: NoiseLaw
    status_: Status

    _decoders: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "law": lambda value: NoiseLaw.from_dict(value) if isinstance(value, dict) else value,
        "law_": NoiseLaw.from_dict,
    }

    @abstractmethod
    def _label(self, law: NoiseLaw, y: AnyArray | None) -> Label:
        """Return the encoding of the label; ``y`` has its cells where they are no column of the table."""

    def _cells(self, labels: AnyArray, start: int) -> AnyArray:
        """Return labels given apart as codes or numbers; ``start`` is the number of rows before them."""
        return labels

    @abstractmethod
    def _learn(self, total: CorrectedMoments, parts: Parts, coordinates: Coordinates, label: Label) -> None:
        """Fit the model to corrected moments and set the fitted attributes."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the model to published rows, read once.

        Parameters
        ----------
        X : matrix, frame, path, mapping or release
            Published rows in the units of the release. A matrix has the features of the law in order;
            everything else has them by name. Never true rows.
        y : array, optional
            Published labels; by default the column that the law calls the target.
        """
        self._check_parameters()
        owner = f"{type(self).__name__}.fit"
        X, y, law = self._find_law(X, y, owner)
        coordinates, label = self._build_encoders(law, y)
        with one_thread():
            sums = sum_moments(self._batches(X, y, law, owner), coordinates, label, int(self.folds))
        return self._fit_sums(sums, law, coordinates, label)

    def accumulator(self) -> MomentAccumulator:
        """Return an accumulator of published rows, for tables that are not read from one source.

        ``law`` must be a noise law with a target.
        """
        self._check_parameters()
        law = self.law
        if not isinstance(law, NoiseLaw) or law.label is None:
            raise ParameterError(
                f"law of {type(self).__name__}.accumulator must be a NoiseLaw that has a target, and is not. "
                "Use fit for labels that are given apart."
            )
        self.n_features_in_ = len(law.features)
        self.feature_names_in_ = np.array([column.name for column in law.features], dtype=object)
        return MomentAccumulator(self, law, *self._build_encoders(law, None))

    def _build_encoders(self, law: NoiseLaw, y: AnyArray | None) -> tuple[Coordinates, Label]:
        """Return the encodings of features and label."""
        coordinates = Coordinates(law)
        label = self._label(law, y)
        if not coordinates.size:
            raise ParameterError(
                f"law of {type(self).__name__} must have a feature whose cells say something, and has none. "
                "Ask for a release with a larger epsilon or error."
            )
        return coordinates, label

    def _fit_sums(self, sums: MomentTotals, law: NoiseLaw, coordinates: Coordinates, label: Label) -> Self:
        """Fit the model to sums of raw products: correct them, test for evidence, learn."""
        self._check_rows(sums, label, f"{type(self).__name__}.fit")
        total = CorrectedMoments.from_sums(sums.total, coordinates, label)
        self.law_ = law
        self._check_evidence(total)
        # One center for all folds, so that their moments are about the same point and can be compared.
        center = total.mean, total.level
        total_sums = sums.total
        parts = [
            (
                CorrectedMoments.from_sums(total_sums - fold, coordinates, label, center),
                CorrectedMoments.from_sums(fold, coordinates, label, center),
            )
            for fold in sums.folds
            # Folds of short tables may be empty, or hold all rows; neither leaves two parts to compare.
            if 0 < fold[0, 0] < sums.n_rows
        ]
        with one_thread():
            self._learn(total, parts, coordinates, label)
        return self

    def _check_evidence(self, total: CorrectedMoments) -> None:
        """Set the evidence attributes, and refuse a table without evidence if ``on_weak`` is "raise".

        Notes
        -----
        ``kappa_ = e(p, n) sum(noise) / sum(s)``, the largest error of an eigenvalue of the corrected
        covariance over its mean size.
        """
        evidence = measure_evidence(total)
        self.T2_, self.p_ = evidence.statistic, evidence.rank
        self.reliability_, self.status_ = evidence.reliability, evidence.status
        true = float(np.maximum(np.diagonal(total.covariance), 0.0).sum())
        noise = float(estimators.noise_spread(total).sum())
        self.kappa_ = eigenvalue_spread(max(self.p_, 1), total.n) * noise / max(true, 1e-12 * noise, 1e-300)
        if self.status_ == "refused" and self.on_weak == "raise":
            raise InsufficientInformation(
                f"The release says too little about its label to learn from: the statistic T2 is "
                f"{evidence.statistic:.4g} and must pass {evidence.critical:.4g}, which chance passes once "
                "in a thousand tables. Ask for more rows, fewer columns or a larger epsilon.",
                statistic=evidence.statistic,
                critical=evidence.critical,
            )

    def _check_scale(self, scale: float) -> None:
        """Refuse a table whose folds do not confirm each other, which shows as a score factor of 0."""
        if scale > 0 or self.status_ == "refused":
            return
        self.status_ = "refused"
        if self.on_weak == "raise":
            raise InsufficientInformation(
                "The release says too little about its label to learn from: what most of its rows show, "
                "the rest do not confirm. Ask for more rows, fewer columns or a larger epsilon.",
                statistic=self.T2_,
                critical=self.T2_,
            )

    # Reading rows.

    def _find_law(self, X: Any, y: Any, owner: str) -> tuple[Any, Any, NoiseLaw]:
        """Return rows, labels and the law that the rows were published under."""
        if isinstance(self.law, str):
            if y is not None:
                labels = np.asarray(y)
                if labels.dtype.kind == "f" and labels.ndim == 1:
                    check_finite(labels, f"y of {owner}")
            X, y = validate_data(self, X, y, dtype=np.float64, ensure_all_finite=False)
            check_finite(X, f"X of {owner}", getattr(self, "feature_names_in_", None))
            return X, y, clear_law(X, getattr(self, "feature_names_in_", None))
        release_law = rows.law_of(X)
        law = release_law if self.law is None else self.law
        if law is None:
            raise ParameterError(
                f"law of {type(self).__name__} must be the noise law of the release, was None. Take it from "
                "discreet.load_release(folder).noise_law, or give the loaded release in place of its rows."
            )
        if release_law is not None and release_law != law:
            raise ParameterError(
                f"law of {type(self).__name__} must be that of the release in X or left out, was another."
            )
        self.n_features_in_ = len(law.features)
        if rows.is_matrix(X):
            self.__dict__.pop("feature_names_in_", None)
        else:
            self.feature_names_in_ = np.array([column.name for column in law.features], dtype=object)
        return X, None if y is None else column_or_1d(y, warn=True), law

    def _batches(
        self, X: Any, labels_given: AnyArray | None, law: NoiseLaw, owner: str
    ) -> Iterator[tuple[dict[str, AnyArray], AnyArray]]:
        """Yield features and labels of published rows, a batch at a time."""
        label = law.label
        columns = law.features if labels_given is not None or label is None else (*law.features, label)
        ignored = None if label is None else label.name
        start = 0
        for batch in rows.read_rows(X, columns, owner, beside=ignored):
            n_rows = len(next(iter(batch.values())))
            if start == 0:
                # The first batch is enough to see that cells were rounded after the noise.
                rows.check_unrounded(batch, columns, owner)
            if labels_given is None:
                assert label is not None
                yield batch, batch[label.name]
            else:
                labels = labels_given[start : start + n_rows]
                if len(labels) < n_rows:
                    raise _length_error(owner)
                yield batch, self._cells(labels, start)
            start += n_rows
        if labels_given is not None and start != len(labels_given):
            raise _length_error(owner)

    def _check_rows(self, sums: MomentTotals, label: Label, owner: str) -> None:
        if sums.n_rows < 2:
            raise DataError(
                f"X of {owner} must have at least two rows, had {sums.n_rows} sample(s). There is nothing "
                "to compare."
            )

    def _coordinates(self, X: Any, where: str, *, published: bool = False) -> Floats:
        """Return rows to be judged as coordinates, counted from the mean of the true rows."""
        check_is_fitted(self)
        owner = f"{type(self).__name__}.{where}"
        law = self.law_
        if isinstance(self.law, str):
            X = validate_data(self, X, dtype=np.float64, ensure_all_finite=False, reset=False)
            check_finite(X, f"X of {owner}", getattr(self, "feature_names_in_", None))
        elif not rows.is_matrix(X):
            names = rows.names_of(X) or []
            missing = [column.name for column in law.features if column.name not in names]
            if missing:
                raise ParameterError(
                    f"The feature names of X of {owner} must be those of its law, and {missing[0]!r} is not "
                    "among them. Rename the columns as in the release."
                )
        coordinates = Coordinates(law)
        ignored = None if law.label is None else law.label.name
        parts = []
        for batch in rows.read_rows(X, law.features, owner, published=published, beside=ignored):
            n_rows = len(next(iter(batch.values())))
            if published:
                raw = coordinates.encode(batch, n_rows, 0, np.float64)
                # A cell that is not shown stays 0, and the mean of `shown` is 1: the center is taken off
                # once.
                parts.append(raw @ (coordinates.debias - self.center_[:, None] * coordinates.shown).T)
            else:
                parts.append(coordinates.clean(batch, n_rows) - self.center_)
        return np.concatenate(parts) if parts else np.empty((0, coordinates.size))

    center_: Floats


class MomentAccumulator:
    """Running sums over published rows, for a learner that is fitted after the last of them.

    Made by :meth:`NoiseAwareLearner.accumulator`; memory does not grow with the number of rows. Rows may come
    in any order: consecutive ones fall into different folds, by a hash that follows no period.
    """

    def __init__(
        self, learner: NoiseAwareLearner, law: NoiseLaw, coordinates: Coordinates, label: Label
    ) -> None:
        self._learner, self._law = learner, law
        self._coordinates, self._label = coordinates, label
        self._adder = MomentSums(coordinates, label, int(learner.folds))

    @property
    def n_rows(self) -> int:
        """Number of rows added so far."""
        return self._adder.n_rows

    @property
    def work(self) -> int:
        """Number of products that are summed for each row."""
        return (self._coordinates.n_raw + self._label.n_raw) ** 2

    def see(self, batch: Mapping[str, AnyArray]) -> None:
        """Add some rows to the sums.

        Parameters
        ----------
        batch : mapping of str to array
            Every column of the law by name; a list as positions of its levels, "not published" as the
            position after the last.
        """
        assert self._law.label is not None
        self._adder.add(batch, batch[self._law.label.name])

    def fit(self) -> NoiseAwareLearner:
        """Fit the learner to the rows added so far, and return it."""
        return self._learner._fit_sums(self._adder.sums, self._law, self._coordinates, self._label)


def _length_error(owner: str) -> DataError:
    return DataError(
        f"y of {owner} must have one label for each row of X, and has not. Give both from one file."
    )


def clear_law(X: Floats, names: AnyArray | None) -> NoiseLaw:
    """Return the law of a matrix in the clear; the range of each column serves as its unit."""
    column_names = [f"x{j}" for j in range(X.shape[1])] if names is None else [str(name) for name in names]
    low, high = X.min(axis=0), X.max(axis=0)
    # A column that is constant needs a unit too.
    high = np.where(high > low, high, low + np.maximum(1.0, np.abs(low)))
    columns = [
        ColumnLaw(name=name, lower=float(a), upper=float(b), law=Clear())
        for name, a, b in zip(column_names, low, high, strict=True)
    ]
    return NoiseLaw(columns=tuple(columns))
