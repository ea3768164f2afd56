"""Release of artificial points on which a linear learner finds one private classifier."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from discreet.errors import DataError, ParameterError, PromiseError, SchemaError
from discreet.learn.perturbation.mean_loss_constants import make_linear_plan
from discreet.learn.svm.loss import DEFAULT_SMOOTHING
from discreet.privacy import ApproxDP, NoPromise, Promise, PureDP
from discreet.release._rows import read_limited
from discreet.release.base import ALWAYS_OPEN, ORDER, ReleaseMethod, collect_parameters
from discreet.release.masked._arguments import (
    check_parameters,
    plain_label,
    read_initial_records,
    read_labeled_matrix,
)
from discreet.release.masked.encoding import Encoding, NoisyCounts
from discreet.release.masked.losses import LOGISTIC, HingeLoss
from discreet.release.masked.plan import FixedRecords, MaskedPlan, PointLabels, PointRules

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from discreet._types import AnyArray, Bools, Floats
    from discreet.learn.logistic.problem import Sensitivity
    from discreet.learn.perturbation.mean_loss_constants import LinearMechanism
    from discreet.ledger import Ledger
    from discreet.noise import Stream
    from discreet.release.base import Watch
    from discreet.release.keystream import BatchStreams
    from discreet.release.masked.construction import Construction, Infeasible, Mask
    from discreet.release.masked.losses import MaskedLoss
    from discreet.release.masked.plan import Labels
    from discreet.release.publication import Encoded, Publication, ReleasePlan
    from discreet.schema import Column, Schema
    from discreet.tables import Table

ROWS_PER_BATCH = 100_000
_CARRIES = (
    "the released classifier, which the points carry exactly; what it says about a group of people is not "
    "hidden"
)
_CARRIES_NO_MORE = (
    "nothing beside that classifier can be learned from the points: they do not look like the true rows, and "
    "a tree or a forest trained on them finds the classifier's rule again and no other"
)


class MaskedRelease(ReleaseMethod):
    """Publish points that belong to no real person and encode one private linear classifier.

    A classifier is trained with a promise to every person in the table; then points and labels are made up at
    which the gradient of its training problem is zero. The same learner trained on them gives that
    classifier, and they hold nothing else about the table.

    Parameters
    ----------
    privacy : PureDP, ApproxDP or NoPromise
        Promise of the classifier, which holds for the points too: they are post-processing.
    learner : {"logistic", "svm"}
        Learner that the points are made for: logistic regression, or the support vector machine with the
        Huberized hinge, for several classes one against the rest. See
        :class:`~discreet.learn.PrivateLogisticRegression` and :class:`~discreet.learn.PrivateSVM`.
    smoothing : float
        Half-width ``h`` of the interval on which the hinge of the support vector machine is quadratic, from
        0.001 to 1. Who trains on the points must use the same one.
    regularization : float, optional
        Weight ``lambda`` of the penalty: the mean loss plus ``lambda / 2`` times the squared norm of all
        weights is minimized, on true rows and on published ones. By default it follows from the number of
        rows, columns and classes and from the promise.
    norm_bound : float, optional
        Declared largest norm of a row; longer ones are shortened, and all are divided by it. By default the
        largest that the declared columns allow. For a bare matrix it stands in place of ``schema`` and
        ``bounds``.
    n_records : int, optional
        Number of points to make; by default as many as there are rows (of the ``sensitive`` class, where one
        is named).
    classes : sequence, optional
        Declared labels, for a bare matrix; -1 and 1 by default. A class that no row has stays.
    labels : {"prior", "noisy_counts", "true"}
        Labels of the points: by public shares; by counts with noise; or the true ones, which are then
        published as they are and covered by no promise.
    proportions : sequence of float, optional
        Public shares of the classes, one number of at least 0 for each. By default equal; with an intercept,
        those that the released classifier goes with.
    count_share : float
        Share of epsilon that is spent on noisy counts; above 0 and below 1.
    fit_intercept : bool, optional
        Whether a constant coordinate is added, whose weight is penalized like any other. By default for
        tables, and not for bare matrices. It is published as the column "intercept".
    mechanism, sensitivity
        As for :class:`~discreet.learn.PrivateLogisticRegression`; the support vector machine has one
        sensitivity only.
    construction : {"direct", "greedy"}
        Construction of the points: in closed form with a gradient of zero, or point by point as in the paper,
        which is slower and reaches zero only nearly.
    infeasible : {"shrink", "lambda", "error"}
        Reaction where noise has made the classifier longer than that of any table, or no points with the
        given labels train to it: move it towards the classifier of points at the origin, which always has
        points, and which is 0 without an intercept and fixed records, so that no decision changes; keep it
        and use another regularization, found as :attr:`regularization_`; or refuse.
    radius : float
        Largest norm of a point; that of true rows is 1.
    sensitive : label, optional
        Class whose rows are masked; None masks all rows. **All other rows are published as they are**, with
        no promise.
    initial : (X, y) or mapping, optional
        Records that are public or made up, published as they are beside the points: a matrix and its labels,
        or columns by name.
    schema, bounds, ledger, random_state
        As for :class:`~discreet.release.base.ReleaseMethod`.

    Attributes
    ----------
    model_ : array of shape (1, dimension) or (n_classes, dimension)
        Private weights that the points are made for, in the coordinates of the published columns; for two
        classes those of the second one.
    regularization_ : float
        Regularization with which ``model_`` is the minimizer on the published points.
    scale_ : float
        Norm of ``model_`` over the norm of the private weights; 1 where they are the same.
    gradient_ : float
        Norm of the gradient on the published points, at ``model_``.

    Privacy
    -------
    Central: the promise is that of the classifier, for a whole row with its label under replace-one; the
    number of rows, the bounds and the classes are public. Points and labels are made from the released
    classifier, public numbers and fresh randomness; noisy counts have a share of their own. With
    ``labels="true"`` the promise covers the features alone; with ``sensitive=`` it covers rows of that class
    replaced by others of that class, and a ``NoPromise`` covers everyone else. Several rows of one unit
    count as the rows that they are. Parameters must not have been chosen by looking at the rows.

    Reference
    ---------
    Pham et al., algorithm 1 and footnote 1, corrected: docs/explanation/theorems/masked-existence.md,
    masked-labels.md, masked-greedy.md, masked-sensitivity.md, svm-existence.md.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from discreet.privacy import PureDP
    >>> from discreet.release import MaskedRelease
    >>> X = np.column_stack([np.sin(np.arange(500)), np.cos(3.0 * np.arange(500))]) / 1.5
    >>> y = np.where(X[:, 0] > 0, 1, -1)
    >>> method = MaskedRelease(
    ...     privacy=PureDP(epsilon=1), regularization=0.1, norm_bound=1.0, n_records=300, random_state=1
    ... )
    >>> masked = method.release(X, y)
    >>> again = LogisticRegression(C=1 / (0.1 * 300), fit_intercept=False, tol=1e-12, max_iter=1000)
    >>> bool(abs(again.fit(masked.data, masked.target).coef_ - method.model_).max() < 1e-6)
    True
    """

    name: ClassVar[str] = "masked"
    accepts: ClassVar[tuple[type[Promise], ...]] = (PureDP, ApproxDP, NoPromise)

    def __init__(
        self,
        *,
        privacy: PureDP | ApproxDP | NoPromise | None = None,
        learner: Literal["logistic", "svm"] = "logistic",
        smoothing: float = DEFAULT_SMOOTHING,
        regularization: float | None = None,
        norm_bound: float | None = None,
        n_records: int | None = None,
        classes: Sequence[Any] | None = None,
        labels: Labels = "prior",
        proportions: Sequence[float] | None = None,
        count_share: float = 0.1,
        fit_intercept: bool | None = None,
        mechanism: LinearMechanism = "auto",
        sensitivity: Sensitivity = "tight",
        construction: Construction = "direct",
        infeasible: Infeasible = "shrink",
        radius: float = 1.0,
        sensitive: Any = None,
        initial: Any = None,
        schema: Schema | None = None,
        bounds: tuple[Any, Any] | None = None,
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        """Store the parameters and check them against each other."""
        bare = schema is None and bounds is None and norm_bound is not None
        # A norm is a declaration too, and the rows of a bare matrix need no other.
        super().__init__(
            schema=schema, bounds=(0, 1) if bare else bounds, ledger=ledger, random_state=random_state
        )
        self.bounds = bounds
        if privacy is None:
            raise ParameterError(
                "privacy of MaskedRelease must be a PureDP, an ApproxDP or a NoPromise, was None: it has no "
                "default. Say what the classifier shall promise."
            )
        self.privacy = privacy
        self.learner = learner
        self.smoothing = smoothing
        self.regularization = regularization
        self.norm_bound = norm_bound
        self.n_records = n_records
        self.classes = None if classes is None else tuple(plain_label(label) for label in classes)
        self.labels = labels
        self.proportions = proportions
        self.count_share = count_share
        self.fit_intercept = fit_intercept
        self.mechanism = mechanism
        self.sensitivity = sensitivity
        self.construction = construction
        self.infeasible = infeasible
        self.radius = radius
        self.sensitive = plain_label(sensitive)
        self.initial = initial
        check_parameters(self)
        self.model_: Floats | None = None
        self.regularization_: float | None = None
        self.scale_: float | None = None
        self.gradient_: float | None = None

    def plan(self, schema: Schema, n_rows: int) -> MaskedPlan:
        """Return the plan of the release, from the schema and the public number of rows."""
        return self.scaled_plan(schema, n_rows, 1.0)

    def scaled_plan(self, schema: Schema, n_rows: int, factor: float) -> MaskedPlan:
        """Return the plan with epsilon divided by ``factor``."""
        where = type(self).__name__
        if n_rows < 1:
            raise DataError(f"{where} needs at least one row, and was given {n_rows}.")
        target = self._target_column(schema)
        encoding = Encoding.from_schema(
            schema,
            norm_bound=self.norm_bound,
            intercept=self.schema is not None if self.fit_intercept is None else self.fit_intercept,
            bounded=self.schema is not None or self.bounds is not None,
            owner=where,
        )
        if encoding.constant >= self.radius:
            raise ParameterError(
                f"radius of {where} must be above {encoding.constant:.4g}, the constant coordinate, was "
                f"{self.radius!r}."
            )
        privacy, counts = self._split_epsilon(factor, len(target.levels), schema)
        rows = schema.max_rows_per_unit or 1
        mechanism = self.mechanism
        if rows > 1:
            if mechanism == "objective":
                raise PromiseError(
                    f"mechanism of {where} must be 'output' where one {schema.unit} has several rows, was "
                    "'objective': what several rows do to the volume is not proven."
                )
            mechanism = "output"
        constants = self.loss.constants(
            # Several rows of a unit move the minimizer as one row of so many times fewer does.
            n_rows=max(1, n_rows // rows),
            n_classes=len(target.levels),
            dimension=encoding.embedding.dimension,
            max_rows_per_unit=rows,
            tight=self.sensitivity == "tight",
        )
        training = make_linear_plan(
            constants,
            privacy,
            regularization=None if self.regularization is None else float(self.regularization),
            mechanism=mechanism,
            owner=where,
        )
        return MaskedPlan(
            encoding=encoding,
            training=training,
            n_rows=n_rows,
            labels=PointLabels(
                source=self.labels, shares=self._class_shares(target, encoding), counts=counts
            ),
            points=PointRules(
                n_records=self._record_count(n_rows),
                radius=float(self.radius),
                construction=self.construction,
                infeasible=self.infeasible,
            ),
            fixed=self._fixed_records(target, encoding),
            loss=self.loss,
            report=self._store_mask,
        )

    @property
    def loss(self) -> MaskedLoss:
        """Loss of the learner that the points are made for."""
        return LOGISTIC if self.learner == "logistic" else HingeLoss(float(self.smoothing))

    def _record_count(self, n_rows: int) -> int | None:
        """Return the number of points to make; None where it follows from the true labels."""
        if self.labels == "true" and self.n_records not in (None, n_rows):
            raise ParameterError(
                f"n_records of {type(self).__name__} must be left out where labels='true': every true label "
                f"gets one point. It was {self.n_records!r}."
            )
        if self.n_records is None:
            return None if self.labels == "true" or self.sensitive is not None else n_rows
        return None if self.labels == "true" else int(self.n_records)

    def _split_epsilon(
        self, factor: float, n_classes: int, schema: Schema
    ) -> tuple[PureDP | ApproxDP | NoPromise, NoisyCounts | None]:
        """Return the promise of the classifier, and the noisy counts with their part of epsilon."""
        privacy = dataclasses.replace(self.privacy, unit=schema.unit)
        if isinstance(privacy, NoPromise):
            return privacy, None
        epsilon = privacy.epsilon / factor
        if self.labels != "noisy_counts":
            return dataclasses.replace(privacy, epsilon=epsilon), None
        part = epsilon * self.count_share
        # The last binary digits are left unused, so that the sum of the two parts stays below epsilon.
        rest = dataclasses.replace(privacy, epsilon=(epsilon - part) * (1 - 2.0**-50))
        return rest, NoisyCounts(epsilon=part, n_classes=n_classes, rows=schema.max_rows_per_unit or 1)

    def _target_column(self, schema: Schema) -> Column:
        """Return the target; raise if it is not a list of classes without missing cells."""
        where = type(self).__name__
        if schema.target is None:
            raise ParameterError(
                f"{where} needs a target, and the table has none: its points carry a classifier. Declare "
                "target= in the schema, or give y."
            )
        column = schema.column(schema.target)
        if not column.is_category or len(column.levels) < 2 or None in column.levels:
            raise SchemaError(
                f"target of {where} must be a list of at least two classes, none of them missing, and "
                f"{column.name!r} is not. Declare values= and required=True, or take another target."
            )
        if self.classes is not None and set(self.classes) != set(column.levels):
            raise ParameterError(
                f"classes of {where} must be those that the schema declares for {column.name!r}, or be left "
                "out."
            )
        return column

    def _class_shares(self, target: Column, encoding: Encoding) -> tuple[float, ...] | None:
        """Return the public shares of the classes; None where labels follow from something else."""
        if self.labels != "prior" or self.sensitive is not None:
            return None
        n = len(target.levels)
        if self.proportions is None:
            return None if encoding.constant > 0 else (1 / n,) * n
        try:
            given = tuple(float(share) for share in self.proportions)
        except (TypeError, ValueError):
            given = ()
        if len(given) != n or not all(math.isfinite(s) and s >= 0 for s in given) or sum(given) <= 0:
            raise ParameterError(
                f"proportions of {type(self).__name__} must be {n} numbers of at least 0, one for each of "
                f"{', '.join(str(level) for level in target.levels)}, and not all 0."
            )
        return given

    def _fixed_records(self, target: Column, encoding: Encoding) -> FixedRecords:
        """Return the given records as points, and the position of the sensitive class."""
        where = type(self).__name__
        sensitive = None
        if self.sensitive is not None:
            if self.sensitive not in target.levels:
                raise ParameterError(
                    f"sensitive of {where} must be one of the classes "
                    f"{', '.join(str(level) for level in target.levels)}, was {self.sensitive!r}."
                )
            sensitive = target.levels.index(self.sensitive)
        if self.initial is None:
            empty = np.zeros((0, encoding.embedding.dimension))
            return FixedRecords(rows=empty, codes=np.zeros(0, np.int64), sensitive=sensitive)
        given, codes = read_initial_records(self.initial, encoding.schema, target)
        return FixedRecords(rows=encoding.rows(given), codes=codes, sensitive=sensitive)

    def not_protected(self, schema: Schema) -> tuple[str, ...]:
        """Return what a release by this method does not protect, as clauses without a full stop."""
        fixed: list[str] = []
        target = schema.target
        if self.labels == "true":
            fixed.append(f"the target {target!r}, which is published as it is")
        if self.sensitive is not None:
            fixed.append(
                f"every row whose {target} is not {self.sensitive}: it is published as it is, and so is how "
                "many rows each class has"
            )
        if self.initial is not None:
            fixed.append("the given initial records, which are published as they are")
        return (*ALWAYS_OPEN, *fixed, _CARRIES, _CARRIES_NO_MORE)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters as plain JSON values; only a support vector machine has a smoothing."""
        return collect_parameters(self, **self._unused_parameters)

    @property
    def _unused_parameters(self) -> dict[str, None]:
        return {} if self.learner == "svm" else {"smoothing": None}

    def _noise_parameters(self) -> dict[str, Any]:
        # Given records are public, get no noise, and may come as a frame.
        return collect_parameters(self, initial=None, **self._unused_parameters)

    @classmethod
    def from_parameters(cls, values: Mapping[str, Any], **common: Any) -> Self:
        """Return the method with the parameters that :meth:`parameters` returned."""
        if not isinstance(values.get("privacy"), Mapping):
            raise ParameterError("privacy of MaskedRelease must be written down with to_dict(), and is not.")
        return super().from_parameters(values, **common)

    def publish(
        self,
        source: Any,
        target: str | Path,
        *,
        shuffle: bool = True,
        replace: bool = False,
        stream: Stream | None = None,
        watch: Watch | None = None,
        rows_salt: str | None = None,
    ) -> Publication:
        """Release a table straight into a file.

        The classifier is trained on the whole table in memory. Published rows belong to no person, so that
        ``watch`` is not called.

        Parameters
        ----------
        source, target, shuffle, replace, stream, watch, rows_salt
            As for :meth:`ReleaseMethod.publish`; ``watch`` is not called.

        Returns
        -------
        Publication
        """
        if self.infeasible == "lambda":
            raise ParameterError(
                "infeasible of MaskedRelease must be 'shrink' or 'error' for a file, was 'lambda': the "
                "regularization would follow from the noise, and a statement is made before it. Use "
                "release(), which leaves it in regularization_."
            )
        return super().publish(
            source,
            target,
            shuffle=shuffle,
            replace=replace,
            stream=stream,
            watch=watch,
            rows_salt=rows_salt,
        )

    def _draw_batches(
        self,
        plan: ReleasePlan,
        table: Table,
        schema: Schema,
        salt: str,
        streams: BatchStreams,
        *,
        shuffle: bool,
        watch: Watch | None,
    ) -> Generator[dict[str, AnyArray], None, None]:
        """Read the whole table, draw all points, and yield them in batches."""
        rows, kept = read_limited(table, schema, salt)
        if kept is not None:
            rows = {name: values[kept] for name, values in rows.items()}
        noise, order = streams.whole(rows)
        columns = plan.draw(rows, noise)
        n = len(next(iter(columns.values())))
        if shuffle:
            columns[ORDER] = order.words(n)
        for start in range(0, n, ROWS_PER_BATCH):
            yield {name: values[start : start + ROWS_PER_BATCH] for name, values in columns.items()}

    def _read(self, X: Any, y: AnyArray | None, salt: str) -> tuple[Schema, Encoded, Bools | None]:
        self.model_ = self.regularization_ = self.scale_ = self.gradient_ = None
        if self.schema is not None:
            return super()._read(X, y, salt)
        schema, rows = read_labeled_matrix(X, y, self.classes, self.bounds, self.norm_bound)
        return schema, rows, None

    def _store_mask(self, mask: Mask) -> None:
        self.model_ = mask.weights
        self.regularization_ = mask.regularization
        self.scale_ = mask.scale
        self.gradient_ = mask.gradient
