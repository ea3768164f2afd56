"""``classifier.json``: the one classifier that a masked table carries, to use it and to check the table."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from discreet.errors import ParameterError
from discreet.release import MaskedRelease
from discreet.report.folder import CLASSIFIER, read_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from discreet._typing import Floats
    from discreet.release import ReleaseMethod
    from discreet.schema import Schema

KIND = "discreet-masked-classifier"


@dataclass(frozen=True, eq=False, kw_only=True)
class Classifier:
    """Weights in the coordinates of the published columns.

    Attributes
    ----------
    columns : tuple of str
        Names of those columns.
    weights : array of shape (1, n_columns) or (n_classes, n_columns)
        For two classes those of the second one.
    regularization : float
        With which they minimize the mean loss on the published rows.

    Privacy
    -------
    What the promise of the release is about: the points are made from it, and it costs nothing beside them.

    Reference
    ---------
    docs/explanation/theorems/masked-existence.md
    """

    columns: tuple[str, ...]
    weights: Floats
    regularization: float

    def to_json(self) -> str:
        """Return the content of the file; numbers are written so that they are read back bit for bit."""
        values = {
            "kind": KIND,
            "columns": list(self.columns),
            "weights": self.weights.tolist(),
            "regularization": self.regularization,
        }
        return json.dumps(values, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """Read what somebody else may have written."""
        try:
            values: Any = json.loads(content)
            if values["kind"] != KIND or set(values) != {"kind", "columns", "weights", "regularization"}:
                raise ValueError
            found = cls(
                columns=tuple(str(name) for name in values["columns"]),
                weights=np.array(values["weights"], np.float64, ndmin=2),
                regularization=float(values["regularization"]),
            )
        except (ValueError, TypeError, KeyError, RecursionError):
            raise ParameterError(
                f"{CLASSIFIER} must hold a kind, columns, weights and a regularization, and is something "
                "else. Ask for the folder again."
            ) from None
        plain = found.weights.ndim == 2 and found.weights.shape[1] == len(found.columns)
        if not (plain and np.isfinite(found.weights).all() and math.isfinite(found.regularization)):
            raise ParameterError(
                f"{CLASSIFIER} must have one finite weight for each column and class, and has others. Ask "
                "for the folder again."
            )
        return found


def write_classifier(folder: Path, method: ReleaseMethod, schema: Schema) -> None:
    """Write the classifier of a masked release beside its data; do nothing for other methods.

    Parameters
    ----------
    folder : Path
        The ``public`` folder, before its hashes are written.
    method : ReleaseMethod
        Which has just published.
    schema : Schema
        Of what it published.

    Privacy
    -------
    Of a masked release the classifier is what was paid for.

    Reference
    ---------
    docs/explanation/theorems/masked-existence.md
    """
    if not isinstance(method, MaskedRelease) or method.model_ is None:
        return
    assert method.regularization_ is not None
    made = Classifier(
        columns=tuple(column.name for column in schema.features),
        weights=method.model_,
        regularization=method.regularization_,
    )
    (folder / CLASSIFIER).write_bytes(made.to_json().encode("utf-8"))


def read_classifier(folder: Path) -> Classifier:
    """Read the classifier of a folder."""
    return Classifier.from_json(read_bytes(folder / CLASSIFIER))
