"""Tables on which the learners on noisy sums are measured, each with bounds that are known without its rows.

Census, clinic and digits come with the product or with scikit-learn. The others are read from the folder
named by ``DISCREET_DATA`` (by default ``shared/data`` beside the repository) and left out, loudly, if it has
none.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits

from discreet import Column, Ledger, Schema, datasets
from discreet.learn._centering import Centering
from discreet.learn.feature_map import FeatureMap
from discreet.noise import Stream
from discreet.query.curation import Curation
from discreet.query.engines._duckdb import DuckDBEngine
from discreet.query.execution import QueryExecutor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FOLDER = Path(os.environ.get("DISCREET_DATA") or Path(__file__).parents[2] / "shared" / "data")
CENSUS_TRAINING = 32_561
"""Rows of ``adult.data``; those of ``adult.test`` follow."""


@dataclass(frozen=True)
class Table:
    """Rows, what is declared about them, and how they are parted.

    Attributes
    ----------
    training : int or None
        How many rows come first and are trained on; None draws four fifths anew for each seed.
    """

    name: str
    rows: Any
    schema: Schema
    training: int | None = None

    @property
    def target(self) -> str:
        """Which column holds the labels."""
        assert self.schema.target is not None
        return self.schema.target

    @property
    def layout(self) -> FeatureMap:
        """The features as coordinates from 0 to 1."""
        return FeatureMap.from_schema(self.schema)

    def split(self, seed: int) -> tuple[Any, Any]:
        """Return the rows to train on and those to test on."""
        if self.training is not None:
            return self.rows.iloc[: self.training], self.rows.iloc[self.training :]
        order = Stream.from_seed(seed).generator().permutation(len(self.rows))
        cut = len(self.rows) * 4 // 5
        return self.rows.iloc[order[:cut]], self.rows.iloc[order[cut:]]

    def coordinates(self) -> Any:
        """Return all rows as coordinates from 0 to 1."""
        return self.layout.rows(self.rows)

    def vectors(self, rows: Any) -> tuple[Any, Any, float]:
        """Return rows as a matrix for those who know no schema, its lower bounds, and how long a row can be.

        Numbers are counted from the middle of their range, which makes rows short; each column spans 1.
        """
        frame = Centering(self.layout)
        X = frame.rows(self.layout.rows(rows))[:, : self.layout.size]
        return X, -np.array(frame.center), frame.reach


class Registered:
    """Rows that were put into an engine once, to be asked with the noise of many seeds."""

    def __init__(self, rows: Any, schema: Schema) -> None:
        self._curation = Curation.from_schema(schema)
        self._engine = DuckDBEngine()
        self._engine.register(rows, self._curation)

    def sums(self, seed: int) -> QueryExecutor:
        """Return them with a ledger of their own, so that no answer is repeated, and a seed's noise."""
        return QueryExecutor(self._engine, self._curation, ledger=Ledger.open(":memory:"), random_state=seed)

    def close(self) -> None:
        """Let go of the engine."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def census() -> Table:
    """1994 census, parted as those who published it did."""
    found = datasets.load("census")
    return Table("census", pd.read_parquet(found.path), found.schema, CENSUS_TRAINING)


def clinic() -> Table:
    """569 biopsies, one for each patient."""
    found = datasets.load("clinic")
    schema = found.schema
    columns = [column for column in schema.columns if column.name != schema.id_column]
    bare = Schema(columns=columns, target=schema.target)
    return Table("clinic", pd.read_parquet(found.path)[list(bare.names)], bare)


def digits() -> Table:
    """1,797 scans of 8 by 8 pixels, each from 0 to 16."""
    found = load_digits()
    return _numbers("digits", found.data, [(0.0, 16.0)] * 64, found.target)


def waveform() -> Table:
    """5,000 sums of two of three triangles of height 6, and standard normal noise: from -5 to 11."""
    frame = _read("waveform")
    labels = frame.pop("class").to_numpy()
    return _numbers("waveform", frame.to_numpy(np.float64), [(-5.0, 11.0)] * frame.shape[1], labels)


def segment() -> Table:
    """2,310 patches of photographs: gray values to 255, and what follows for the other features."""
    frame = _read("segment").drop(columns=["split", "region_pixel_count"])
    labels = frame.pop("class").astype(str).to_numpy()
    bounds = {"short_line": (0.0, 1.0), "ex": (-510.0, 510.0), "saturation": (0.0, 1.0),
              "hue": (-math.pi, math.pi)}  # fmt: skip

    def declared(name: str) -> tuple[float, float]:
        return next((pair for start, pair in bounds.items() if name.startswith(start)), (0.0, 255.0))

    return _numbers("segment", frame.to_numpy(np.float64), [declared(name) for name in frame], labels)


def mnist() -> Table:
    """10,000 handwritten digits, their middle 20 by 20 pixels averaged over 4 by 4: 25 gray values to 255."""
    frame = _read("mnist_test")
    images = np.frombuffer(b"".join(frame["image"]), np.uint8).reshape(-1, 28, 28)[:, 4:24, 4:24]
    means = images.reshape(-1, 5, 4, 5, 4).mean(axis=(2, 4)).reshape(-1, 25)
    return _numbers("mnist-25", means, [(0.0, 255.0)] * 25, frame["label"].to_numpy())


def made(named: Mapping[str, Callable[[], Table]]) -> dict[str, Table]:
    """Make tables; say which files are not there."""
    found = {}
    for name, make in named.items():
        try:
            found[name] = make()
        except FileNotFoundError as problem:
            print(f"{name} is left out: {Path(str(problem.filename)).name} is not in DISCREET_DATA.")
    return found


def quartiles(values: list[float]) -> dict[str, float]:
    """Return median and quartiles, rounded."""
    lower, median, upper = (round(float(value), 4) for value in np.quantile(values, (0.25, 0.5, 0.75)))
    return {"median": median, "lower": lower, "upper": upper}


def _read(name: str) -> Any:
    path = FOLDER / f"{name}.parquet"
    if not path.is_file():
        raise FileNotFoundError(2, "not there", str(path))
    return pd.read_parquet(path)


def _numbers(name: str, X: Any, bounds: list[tuple[float, float]], labels: Any) -> Table:
    columns = [Column(f"x{i}", lower=low, upper=high) for i, (low, high) in enumerate(bounds)]
    values = tuple(sorted({label.item() if hasattr(label, "item") else label for label in labels}))
    rows = pd.DataFrame(X, columns=[column.name for column in columns])
    rows["label"] = labels
    return Table(name, rows, Schema(columns=[*columns, Column("label", values=values, role="target")]))
