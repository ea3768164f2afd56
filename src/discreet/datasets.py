"""Three small tables with their schemas, two public and one made up, for documentation, tests and the demo.

Their origin, license and changes are described in ``data/README.md`` beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from discreet.arguments import nearest
from discreet.errors import ParameterError
from discreet.schema import Schema

PREFIX = "demo:"  # distinguishes a bundled table from a path on the command line
_FOLDER = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class BundledDataset:
    """A bundled table.

    Attributes
    ----------
    name : str
        Name of the table, without the prefix.
    title : str
        Title of the table for people.
    path : Path
        Path of the Parquet file with its rows.
    source : str
        Citation of the original data.
    license : str
        License under which it is distributed.
    """

    name: str
    title: str
    source: str
    license: str = "CC BY 4.0"

    @property
    def path(self) -> Path:
        """Path of the Parquet file."""
        return _FOLDER / f"{self.name}.parquet"

    @property
    def schema(self) -> Schema:
        """Schema of the table, read from its ``*.schema.yaml`` each time."""
        return Schema.load(_FOLDER / f"{self.name}.schema.yaml")


_DATASETS = {
    dataset.name: dataset
    for dataset in (
        BundledDataset(
            name="census",
            title="Adult census income",
            source="Becker, B. and Kohavi, R. (1996). Adult. UCI Machine Learning Repository. "
            "https://doi.org/10.24432/C5XW20",
        ),
        BundledDataset(
            name="clinic",
            title="Breast cancer, Wisconsin (diagnostic)",
            source="Wolberg, W., Mangasarian, O., Street, N. and Street, W. (1995). Breast Cancer "
            "Wisconsin (Diagnostic). UCI Machine Learning Repository. "
            "https://doi.org/10.24432/C5DW2B",
        ),
        BundledDataset(
            name="hospital",
            title="Hospital stays, made up",
            source="Drawn from a seed by docs/make_hospital.py",
        ),
    )
}


def names() -> tuple[str, ...]:
    """Return the names of the bundled tables."""
    return tuple(_DATASETS)


def load(name: str) -> BundledDataset:
    """Return a bundled table.

    Parameters
    ----------
    name : str
        Name of the table, ``"census"``, ``"clinic"`` or ``"hospital"``, with or without ``demo:`` before it.

    Examples
    --------
    >>> load("demo:clinic").schema.target
    'diagnosis'
    """
    plain = name.removeprefix(PREFIX)
    if plain not in _DATASETS:
        close = nearest(plain, _DATASETS)
        hint = f"Did you mean {PREFIX}{close}?" if close else "Give a path for a table of your own."
        raise ParameterError(
            f"datasets.load: name must be one of {', '.join(_DATASETS)}, was {name!r}. {hint}"
        )
    return _DATASETS[plain]
