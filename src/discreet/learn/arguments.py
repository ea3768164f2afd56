"""Checks of what learners are given: parameters, finite rows, bounds, declared classes; no scikit-learn."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import DataError, ParameterError
from discreet.schema.column_checks import LARGEST_NUMBER, LEAST_WIDTH

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import AnyArray, Floats, Ints


@dataclass(frozen=True, slots=True)
class Constraint:
    """The set of values that a parameter may have.

    Attributes
    ----------
    words : str
        Description of the set, to follow "must be" in an error message.
    contains : callable
        Predicate that is true for values in the set.
    outside : tuple
        Examples of values outside the set, for the contract tests.
    """

    words: str
    contains: Callable[[Any], bool]
    outside: tuple[Any, ...]


def is_number(value: Any) -> bool:
    """Whether a value is a finite real number; True and False are not."""
    plain = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return plain and math.isfinite(value)


POSITIVE = Constraint(
    "a number above 0", lambda v: is_number(v) and v > 0, (0, -1.0, math.nan, math.inf, "1", True)
)


def two_vectors(bounds: Any, n: int, owner: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return declared bounds, a pair of numbers or of vectors, as a number for each of ``n`` columns."""
    try:
        lower, upper = (np.broadcast_to(np.asarray(side, np.float64), n) for side in bounds)
    except (TypeError, ValueError):
        raise ParameterError(
            f"bounds of {owner} must be a pair of numbers or of vectors of length {n}, one entry for each "
            "column, and were not. Write bounds=(0, 1), two vectors, or schema.bounds."
        ) from None
    with np.errstate(over="ignore", invalid="ignore"):
        # Where the difference overflows, one of the ends is too large.
        good = (upper - lower >= LEAST_WIDTH) & (np.maximum(np.abs(lower), np.abs(upper)) <= LARGEST_NUMBER)
    if not good.all():
        raise ParameterError(
            f"bounds of {owner} must be finite with lower below upper in every column, at most "
            f"{LARGEST_NUMBER:g} and at least {LEAST_WIDTH:g} apart, were not in column "
            f"{int(np.flatnonzero(~good)[0]) + 1}. Declare the range that the column can have, in another "
            "unit if need be."
        )
    return tuple(lower.tolist()), tuple(upper.tolist())


def check_finite(values: Floats, where: str, names: AnyArray | None = None) -> None:
    """Refuse NaN and infinite cells; the message names row and column of the first, never its content."""
    # A finite sum has finite terms only; a sum that overflows is settled by the search below.
    with np.errstate(over="ignore", invalid="ignore"):
        if math.isfinite(float(values.sum())):
            return
    bad = np.argwhere(~np.isfinite(values))
    if not len(bad):
        return
    row = int(bad[0, 0]) + 1
    column = None if values.ndim == 1 else str(bad[0, 1] + 1 if names is None else names[bad[0, 1]])
    place = f"row {row}" if column is None else f"row {row}, column {column}"
    raise DataError(
        f"{where} must be finite, {place} is NaN or infinite. Rows are counted from 1.",
        column=column,
        line=row,
    )


def declared_classes(classes: Any, y: AnyArray, *, owner: str, promises: bool) -> AnyArray:
    """Return the declared classes of a learner, sorted.

    Parameters
    ----------
    classes : array-like or None
        Declared classes; None takes those of the rows, where nothing is promised.
    y : array
        Labels of the rows, read only where ``classes`` is None.
    owner : str
        Name of the estimator, for error messages.
    promises : bool
        Whether the learner makes a privacy promise.

    Privacy
    -------
    The set of labels that occur depends on private rows, so it must be declared where something is promised.

    Reference
    ---------
    docs/explanation/theorems/composition.md.
    """
    if classes is None:
        if promises:
            raise ParameterError(
                f"classes of {owner} must list the labels that a row may have, was None: which labels "
                "occur is not for free. Declare all of them, found in the rows or not."
            )
        labels = np.unique(y)
        if len(labels) < 2:
            raise DataError(
                f"y of {owner}.fit must hold two classes, held one class. There is nothing to tell apart; "
                "declare classes to train all the same."
            )
        return labels
    declared = np.asarray(classes)
    try:
        labels = np.unique(declared)
    except TypeError:
        # Labels of several kinds have no order.
        labels = np.zeros(0)
    if declared.ndim != 1 or len(labels) < 2 or len(labels) != len(declared):
        raise ParameterError(
            f"classes of {owner} must be at least two different labels of one kind, was {classes!r}. List "
            "every label once."
        )
    return labels


def label_codes(y: AnyArray, classes: AnyArray, *, owner: str) -> Ints:
    """Return the position of each label among sorted classes."""
    kinds = {"text" if kind in "OUS" else "number" for kind in (y.dtype.kind, classes.dtype.kind)}
    known = np.isin(y, classes) if len(kinds) == 1 else np.zeros(len(y), bool)
    if not known.all():
        line = int(np.flatnonzero(~known)[0]) + 1
        raise DataError(
            f"y of {owner}.fit must hold declared classes alone, and the label of row {line} is not one. "
            "Rows are counted from 1; add it to classes, as text or number as in y.",
            line=line,
        )
    return np.searchsorted(classes, y)
