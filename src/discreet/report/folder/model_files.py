"""Files of models in a public folder, read without trusting them: ``classifier.json`` and ``model.npz``."""

from __future__ import annotations

import io
import json
import math
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from discreet.errors import ParameterError, SourceError
from discreet.release.kinds import is_masked, is_synthetic
from discreet.report.folder.folder import CLASSIFIER, DEPENDENCES, PRIOR, TABLES, read_bytes
from discreet.report.statement.documents import read_json

if TYPE_CHECKING:
    from pathlib import Path

    from discreet._types import Floats
    from discreet.audit import PublicPrior
    from discreet.release import ReleaseMethod
    from discreet.schema import Schema

CLASSIFIER_KIND = "discreet-masked-classifier"


@dataclass(frozen=True, eq=False, kw_only=True)
class Classifier:
    """Classifier of a masked release, in the coordinates of the published columns.

    Attributes
    ----------
    columns : tuple of str
        Names of the published columns, in the order of the weights.
    weights : array of shape (1, n_columns) or (n_classes, n_columns)
        Weights of each class; for two classes those of the second one.
    regularization : float
        Weight of the penalty with which they minimize the mean loss on the published rows.

    Privacy
    -------
    The promise of the release covers the classifier: the points are made from it, and it costs nothing beside
    them.

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
            "kind": CLASSIFIER_KIND,
            "columns": list(self.columns),
            "weights": self.weights.tolist(),
            "regularization": self.regularization,
        }
        return json.dumps(values, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """Return the classifier of an untrusted file; raise if it is anything else."""
        try:
            values: Any = json.loads(content)
            if values["kind"] != CLASSIFIER_KIND or set(values) != {
                "kind",
                "columns",
                "weights",
                "regularization",
            }:
                raise ValueError
            classifier = cls(
                columns=tuple(str(name) for name in values["columns"]),
                weights=np.array(values["weights"], np.float64, ndmin=2),
                regularization=float(values["regularization"]),
            )
        except (ValueError, TypeError, KeyError, RecursionError):
            raise ParameterError(
                f"{CLASSIFIER} must hold a kind, columns, weights and a regularization, and is something "
                "else. Ask for the folder again."
            ) from None
        is_matrix = classifier.weights.ndim == 2 and classifier.weights.shape[1] == len(classifier.columns)
        if not (
            is_matrix and np.isfinite(classifier.weights).all() and math.isfinite(classifier.regularization)
        ):
            raise ParameterError(
                f"{CLASSIFIER} must have one finite weight for each column and class, and has others. Ask "
                "for the folder again."
            )
        return classifier


def write_classifier(folder: Path, method: ReleaseMethod, schema: Schema) -> None:
    """Write the classifier of a masked release beside its data; do nothing for other methods.

    Parameters
    ----------
    folder : Path
        Folder ``public``, before its hashes are written.
    method : ReleaseMethod
        Method that has just published the table.
    schema : Schema
        Schema of the published table.

    Privacy
    -------
    The classifier of a masked release is covered by its promise.

    Reference
    ---------
    docs/explanation/theorems/masked-existence.md
    """
    if not is_masked(method) or method.model_ is None:
        return
    assert method.regularization_ is not None
    classifier = Classifier(
        columns=tuple(column.name for column in schema.features),
        weights=method.model_,
        regularization=method.regularization_,
    )
    (folder / CLASSIFIER).write_bytes(classifier.to_json().encode("utf-8"))


def write_answers(folder: Path, method: ReleaseMethod) -> None:
    """Write the noisy answers of a synthetic release and its model; do nothing for other methods.

    Parameters
    ----------
    folder : Path
        Folder ``public``, before its hashes are written.
    method : ReleaseMethod
        Method that has just published the table.

    Privacy
    -------
    Answers that were paid for, and what follows from them.
    """
    if is_synthetic(method):
        for name, content in ((TABLES, method.tables_), (DEPENDENCES, method.model_)):
            (folder / name).write_bytes(write_compact_json(content).encode("utf-8"))


def write_prior(folder: Path, prior: PublicPrior | None) -> None:
    """Write the law of the public rows that attackers were assumed to know; do nothing without any."""
    if prior is not None:
        (folder / PRIOR).write_bytes(write_compact_json(prior.to_dict()).encode("utf-8"))


def write_compact_json(value: Any) -> str:
    """Write sorted JSON with a line for each entry of the outer lists: long vectors stand on one line."""
    return _write_lines(value) + "\n"


def _write_lines(value: Any, depth: int = 0) -> str:
    """Return JSON of which objects and lists of objects are spread over lines."""
    pad, end = "  " * (depth + 1), "  " * depth
    if isinstance(value, dict) and value and depth < _SPREAD:
        parts = [f"{pad}{_json(str(key))}: {_write_lines(value[key], depth + 1)}" for key in sorted(value)]
        return "{\n" + ",\n".join(parts) + f"\n{end}}}"
    if isinstance(value, list) and value and all(isinstance(part, dict) for part in value):
        return "[\n" + ",\n".join(pad + _write_lines(part, depth + 1) for part in value) + f"\n{end}]"
    return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)


_SPREAD = 3  # levels of nesting that are spread over lines


def read_classifier(folder: Path) -> Classifier:
    """Return the classifier of a public folder."""
    return Classifier.from_json(read_bytes(folder / CLASSIFIER))


LARGEST_MODEL = 1 << 28
"""Largest size of the file of a model in bytes, packed or not."""
_MOST_ENTRIES = 1000
_KEYS = {"kind", "format", "learner", "parameters", "fitted"}
# Parameters that stand elsewhere in a statement, or are not part of the model.
_ELSEWHERE = ("schema", "ledger", "random_state")


@dataclass(frozen=True, slots=True)
class Archive:
    """Content of the file of a model.

    Attributes
    ----------
    learner : str
        Name of the learner, as in ``METHODS``.
    parameters, fitted : dict
        Values by name from the header; arrays are given as references to ``arrays``.
    arrays : dict of str to array
        Arrays of the file by name.
    """

    learner: str
    parameters: dict[str, Any]
    fitted: dict[str, Any]
    arrays: dict[str, Any]

    @property
    def plain_parameters(self) -> dict[str, Any]:
        """Parameters that were given to the learner, as plain JSON values; those left out are left out."""
        return {
            name: self.arrays[value["array"]].tolist() if _is_array(value) else value
            for name, value in sorted(self.parameters.items())
            if value is not None and name not in _ELSEWHERE
        }

    @property
    def unreferenced(self) -> list[str]:
        """Arrays that neither a parameter nor a fitted attribute refers to."""
        named = {
            value["array"] for value in (*self.parameters.values(), *self.fitted.values()) if _is_array(value)
        }
        return sorted(set(self.arrays) - named)


def read_archive(path: Path) -> Archive:
    """Return the content of the file of a model, without trusting it.

    Raises
    ------
    SourceError
        If it is anything else; nothing in it is executed.
    """
    content = read_bytes(path, LARGEST_MODEL)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            entries = packed.infolist()
        names = [entry.filename for entry in entries]
        if len(names) > _MOST_ENTRIES or sum(entry.file_size for entry in entries) > LARGEST_MODEL:
            raise SourceError(f"{path.name} must hold a model, and holds far more. Ask for the file again.")
        if len(set(names)) < len(names) or not all(name.endswith(".npy") for name in names):
            raise ValueError
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = read_json(arrays.pop("header").tobytes(), path.name)
        if not isinstance(header, dict) or set(header) != _KEYS:
            raise ValueError
        parameters, fitted = header["parameters"], header["fitted"]
        if not isinstance(parameters, dict) or not isinstance(fitted, dict):
            raise ValueError
    except (ValueError, KeyError, TypeError, EOFError, OSError, AttributeError, zipfile.BadZipFile):
        raise SourceError(
            f"{path.name} must be plain arrays with a header, as a learner's save() writes them, and is not. "
            "Ask for the file again."
        ) from None
    return Archive(str(header["learner"]), parameters, fitted, arrays)


def saved_parameters(path: Path) -> dict[str, Any]:
    """Return the parameters of the learner in a model's file, as plain JSON values."""
    return read_archive(path).plain_parameters


def _is_array(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"array"}
