"""Base class of classifiers with a promise to each row."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from discreet.errors import PromiseError
from discreet.learn.arguments import (
    POSITIVE,
    Constraint,
    check_finite,
    declared_classes,
    is_number,
    label_codes,
)
from discreet.learn.base import Learner
from discreet.learn.perturbation.embedding import Embedding
from discreet.noise import Stream
from discreet.privacy import ApproxDP, NoPromise, PureDP, Receipt, promise_from_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from discreet._types import AnyArray, Floats, Ints
    from discreet.learn.perturbation.mechanisms import PerturbedProblem, TrainingPlan
    from discreet.ledger import Ledger
    from discreet.privacy import Promise


PlanT = TypeVar("PlanT")
POSITIVE_OR_NONE = Constraint(
    "None or " + POSITIVE.words, lambda v: v is None or POSITIVE.contains(v), POSITIVE.outside
)


def choice(*words: str) -> Constraint:
    """Return the constraint of a parameter that is one of a few words."""
    return Constraint(
        "one of " + ", ".join(map(repr, words)),
        lambda v: isinstance(v, str) and v in words,
        ("other", None, 1),
    )


class PerturbedClassifier(ClassifierMixin, Learner):
    """A classifier of rows in a declared region with declared labels, under replace-one."""

    common_constraints: ClassVar[Mapping[str, Constraint]] = {
        "privacy": Constraint(
            "a PureDP, an ApproxDP or a NoPromise",
            lambda v: isinstance(v, PureDP | ApproxDP | NoPromise),
            (None, 1.0, "pure"),
        ),
        "norm_bound": Constraint(
            "None or a number from 1e-30 to 1e100",
            lambda v: v is None or (is_number(v) and 1e-30 <= v <= 1e100),
            (0, -1.0, math.inf, 1e-40, 1e101, "1", True),
        ),
        "regularization": POSITIVE_OR_NONE,
        "tolerance": POSITIVE_OR_NONE,
        "random_state": Constraint(
            "None or a whole number",
            lambda v: v is None or (isinstance(v, int | np.integer) and not isinstance(v, bool)),
            (1.5, "1", True),
        ),
    }
    common_saved: ClassVar[tuple[str, ...]] = (
        "classes_", "embedding_", "regularization_", "mechanism_", "promises_", "receipt_",
    )  # fmt: skip
    _decoders: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "privacy": promise_from_dict,
        "bounds": lambda sides: None if sides is None else tuple(sides),
        "embedding_": Embedding.from_dict,
        "promises_": lambda promises: tuple(map(promise_from_dict, promises)),
        "receipt_": Receipt.from_dict,
    }

    privacy: PureDP | ApproxDP | NoPromise
    bounds: Any
    norm_bound: float | None
    classes: Any
    ledger: Ledger | None
    random_state: int | None

    def _read(
        self, X: Any, y: Any, plan: Callable[[int, int, int], PlanT]
    ) -> tuple[Floats, Ints, AnyArray, PlanT]:
        """Return rows, the position of each label in the list of classes, that list, and the plan.

        ``plan`` is given the numbers of rows, columns and classes. It refuses what it refuses before cells
        are looked at.
        """
        name = type(self).__name__
        if self.privacy.neighbors != "replace-one":
            raise PromiseError(
                f"neighbors of the privacy of {name} must be 'replace-one', was "
                f"{self.privacy.neighbors!r}: the number of rows enters the noise. Ask for replace-one."
            )
        promises = not isinstance(self.privacy, NoPromise)
        labels = np.asarray(y)
        # Before validate_data, which refuses NaN in y with scikit-learn's own error.
        if labels.dtype.kind == "f" and labels.ndim == 1:
            check_finite(labels, f"y of {name}.fit")
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_all_finite=False)
        classes = declared_classes(self.classes, y, owner=name, promises=promises)
        # Before the cells are checked: a refusal by the plan must not depend on them.
        planned = plan(len(X), X.shape[1], len(classes))
        check_finite(X, f"X of {name}.fit", getattr(self, "feature_names_in_", None))
        check_classification_targets(y)
        return X, label_codes(y, classes, owner=name), classes, planned

    def _embed_rows(self, X: Any, where: str) -> Floats:
        """Return rows to be judged by a fitted model, mapped to the unit ball."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, ensure_all_finite=False, reset=False)
        check_finite(X, f"X of {type(self).__name__}.{where}", getattr(self, "feature_names_in_", None))
        rows: Floats = self.embedding_.rows(X)
        return rows

    @abstractmethod
    def recompute_promises(self, n_rows: int) -> tuple[Promise, ...] | None:
        """Return the promises of a fitted model, computed anew from the number of rows and its parameters.

        Returns
        -------
        tuple of Promise or None
            None where a part of the promise was spent in another way, which the plan does not have.
        """

    @abstractmethod
    def decision_function(self, X: Any) -> Floats:
        """Return the score of the second of two classes, or of each of more classes, for each row."""

    def predict(self, X: Any) -> AnyArray:
        """Return the class with the largest score for each row, the first of equal ones."""
        scores = self.decision_function(X)
        best = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[best])

    def _train(self, plan: TrainingPlan, problem: PerturbedProblem, what: str) -> tuple[Floats, Receipt]:
        """Return the released vector and the receipt for it; ``what`` names the model on the receipt."""
        if plan.name != "exact":
            what += f" by {plan.name} perturbation"
        receipts: list[Receipt] = []

        def charge() -> Stream:
            receipts.append(self._charge(plan.promises, what))
            return self._stream()

        released = plan.train(problem, charge)
        (receipt,) = receipts
        return released, receipt

    def _charge(self, promises: Iterable[Promise], what: str) -> Receipt:
        seeded = self.random_state is not None
        promises = tuple(promises)
        if self.ledger is None:
            return Receipt.from_promises(promises, what=what, seeded=seeded)
        return self.ledger.charge(promises, what=what, seeded=seeded)

    def _stream(self) -> Stream:
        return Stream() if self.random_state is None else Stream.from_seed(int(self.random_state))

    def _pack(self, name: str, value: Any, arrays: dict[str, Any]) -> Any:
        if name == "ledger":
            return None  # A saved model is paid for: the ledger stays where it is.
        if name == "promises_":
            return [promise.to_dict() for promise in value]
        if name in ("bounds", "classes") and isinstance(value, list | tuple):
            return [np.asarray(part).tolist() for part in value]
        return super()._pack(name, value, arrays)
