"""Class labels: which there are is declared, and a row holds one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import DataError, ParameterError

if TYPE_CHECKING:
    from discreet._typing import AnyArray, Ints


def declared_classes(classes: Any, y: AnyArray, *, owner: str, promises: bool) -> AnyArray:
    """Return the classes that a learner was told of, sorted.

    Parameters
    ----------
    classes : array-like or None
        As declared. None takes those of the rows, where nothing is promised about them.
    y : array
        The labels of the rows, looked at only in that case.
    owner : str
        Name of the learner, for messages.
    promises : bool
        Whether the learner promises something.

    Privacy
    -------
    Which labels occur among private rows is not for free.

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
        found = np.unique(y)
        if len(found) < 2:
            raise DataError(
                f"y of {owner}.fit must hold two classes, held one class. There is nothing to tell apart; "
                "declare classes to train all the same."
            )
        return found
    declared = np.asarray(classes)
    try:
        found = np.unique(declared)
    except TypeError:
        found = np.zeros(0)
    if declared.ndim != 1 or len(found) < 2 or len(found) != len(declared):
        raise ParameterError(
            f"classes of {owner} must be at least two different labels of one kind, was {classes!r}. List "
            "every label once."
        )
    return found


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
