"""The file of a model, read without trusting it: plain arrays and a header, and nothing beside them."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import SourceError
from discreet.report._json import read_json
from discreet.report.folder import read_bytes

if TYPE_CHECKING:
    from pathlib import Path

LARGEST = 1 << 28
"""Bytes of a model's file, packed or not."""
_MOST_ENTRIES = 1000
_KEYS = {"kind", "format", "learner", "parameters", "fitted"}
# Said elsewhere in a statement, or not part of what was learned.
_ELSEWHERE = ("schema", "ledger", "random_state")


@dataclass(frozen=True, slots=True)
class Archive:
    """What a model's file holds.

    Attributes
    ----------
    learner : str
        The name of the learner.
    parameters, fitted : dict
        As the header has them; an array is named.
    arrays : dict of str to array
        By name.
    """

    learner: str
    parameters: dict[str, Any]
    fitted: dict[str, Any]
    arrays: dict[str, Any]

    @property
    def told(self) -> dict[str, Any]:
        """What the learner was told, as plain JSON values; what was left out is left out."""
        return {
            name: self.arrays[value["array"]].tolist() if _is_array(value) else value
            for name, value in sorted(self.parameters.items())
            if value is not None and name not in _ELSEWHERE
        }

    @property
    def unnamed(self) -> list[str]:
        """Arrays that neither a parameter nor a fitted attribute refers to."""
        named = {
            value["array"] for value in (*self.parameters.values(), *self.fitted.values()) if _is_array(value)
        }
        return sorted(set(self.arrays) - named)


def read_archive(path: Path) -> Archive:
    """Read the file of a model.

    Raises
    ------
    SourceError
        If it is anything else; nothing in it is executed.
    """
    content = read_bytes(path, LARGEST)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            entries = packed.infolist()
        names = [entry.filename for entry in entries]
        if len(names) > _MOST_ENTRIES or sum(entry.file_size for entry in entries) > LARGEST:
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


def parameters_in(path: Path) -> dict[str, Any]:
    """Return what the learner in a file was told, as plain JSON values."""
    return read_archive(path).told


def _is_array(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"array"}
