"""Public tables as rows of codes and numbers, for the benchmarks of noise-aware learners and their tests.

They are looked for in the folder that ``DISCREET_DATA`` names, by default ``shared/data`` beside the
repository, and left out, loudly, if they are not there. Bins and ranges of the smaller ones are read off
these public files, which a curator must not do.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from discreet.noise import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(os.environ.get("DISCREET_DATA") or Path(__file__).parents[2] / "shared" / "data")
TARGETS = {
    "australian_credit": "class",
    "blood_transfusion": "donated_march_2007",
    "breast_cancer_wisconsin": "class",
    "german_credit": "class",
    "heart_cleveland": "num",
    "heart_statlog": "class",
    "mammographic_masses": "severity",
    "pima_diabetes": "class",
    "segment": "class",
    "splice": "class",
    "waveform": "class",
    "wdbc": "diagnosis",
}
"""The smaller tables, and what is predicted."""
_NO_FEATURES = ["id", "split", "instance", "region_pixel_count"]
_MADE_UP = (0.24, 0.15, 0.35, 0.5, 0.24, 0.24)
"""How frequent the rarer class is in each made-up table."""


def found(name: str) -> pd.DataFrame | None:
    """Read a table, or say that it is not there."""
    path = FOLDER / f"{name}.parquet"
    if not path.exists():
        print(f"{name} is left out: {path.name} is not in DISCREET_DATA.")
        return None
    return pd.read_parquet(path)


def adult_codes(frame: pd.DataFrame) -> tuple[Any, list[int]]:
    """Code Adult as full12: every column but the weight, numbers at round public cut points."""
    education = frame["education-num"] if "education-num" in frame else frame["education_num"]
    named = {str(column).replace("-", "_"): frame[column] for column in frame}

    def cut(values: Any, *edges: float) -> Any:
        return np.digitize(values.to_numpy(float), edges)

    def listed(name: str) -> Any:
        return pd.factorize(named[name].astype(object).fillna("?"), sort=True)[0]

    codes = [
        cut(named["age"], 25, 35, 45, 55, 65),
        cut(education, 9, 10, 13, 14),
        listed("marital_status"),
        listed("relationship"),
        listed("occupation"),
        listed("sex"),
        cut(named["hours_per_week"], 35, 41, 50),
        cut(named["capital_gain"], 1, 5000),
        cut(named["capital_loss"], 1),
        listed("workclass"),
        listed("race"),
        (named["native_country"] == "United-States").to_numpy().astype(int),
    ]
    return np.column_stack(codes).astype(np.int64), [6, 5, 7, 6, 15, 2, 4, 3, 2, 9, 5, 2]


def loans() -> tuple[Any, Any] | None:
    """Return fifteen facts known before a loan was granted, as shares of round ranges, and its rate."""
    frame = found("lending_club_2007_2011")
    if frame is None:
        return None

    def share(name: str, upper: float) -> Any:
        return frame[name].fillna(0).astype(float).clip(0, upper) / upper

    since = 2012 - frame["earliest_cr_line"].fillna("1997").str[:4].astype(float)
    years = frame["emp_length"].astype(object).fillna("0").astype(str).str.extract(r"(\d+)")[0].astype(float)
    columns = [
        *(
            share(n, u)
            for n, u in (("loan_amnt", 35e3), ("annual_inc", 250e3), ("dti", 30), ("delinq_2yrs", 5))
        ),
        *(
            share(n, u)
            for n, u in (("inq_last_6mths", 8), ("open_acc", 40), ("pub_rec", 2), ("revol_bal", 1e5))
        ),
        *(share(n, u) for n, u in (("revol_util", 100), ("total_acc", 80))),
        (frame["term"].astype(float) - 36) / 24,
        years.fillna(0).clip(0, 10) / 10,
        since.clip(0, 40) / 40,
        (frame["verification_status"] != "Not Verified").astype(float),
        (frame["home_ownership"] != "RENT").astype(float),
    ]
    return np.column_stack([c.to_numpy(float) for c in columns]), frame["int_rate"].to_numpy(float) / 30


def small(name: str) -> tuple[Any, Any, list[int], Any] | None:
    """Return a smaller table as shares of ranges, as codes of few bins with their levels, and its classes."""
    frame = found(name)
    if frame is None:
        return None
    y = frame.pop(TARGETS[name])
    labels = pd.factorize(y > 0 if name == "heart_cleveland" else y, sort=True)[0]
    numbers, codes = [], []
    for column in frame.columns.difference(_NO_FEATURES):
        cells = frame[column]
        if pd.api.types.is_numeric_dtype(cells):
            values = cells.astype(float).fillna(cells.astype(float).median()).to_numpy()
            code = np.digitize(values, np.unique(np.quantile(values, (0.25, 0.5, 0.75))))
        else:
            code = np.minimum(pd.factorize(cells.astype(object).fillna("?"), sort=True)[0], 7)
            values = code.astype(float)
        if code.max() > 0:
            numbers.append((values - values.min()) / np.ptp(values))
            codes.append(code)
    table = np.column_stack(codes).astype(np.int64)
    return np.column_stack(numbers), table, (table.max(axis=0) + 1).tolist(), labels


def populations() -> Iterator[tuple[str, Any, Any]]:
    """Yield tables with two classes, as codes and labels: smaller ones, digits, made-up ones; never Adult."""
    for name in TARGETS:
        table = small(name)
        if table is not None and table[1].shape[1] <= 30:
            labels = table[3]
            rarest = np.argsort(np.bincount(labels), kind="stable")[: max(1, (labels.max() + 1) // 3)]
            yield name, table[1], np.isin(labels, rarest).astype(np.int64)
    frame = found("mnist_train")
    if frame is not None:
        images = np.frombuffer(b"".join(frame["image"]), np.uint8).reshape(-1, 28, 28)[:, 2:26, 2:26] / 255
        ink = images.reshape(-1, 4, 6, 3, 8).mean(axis=(2, 4)).reshape(len(images), -1)
        codes = np.digitize(ink, (0.05, 0.2, 0.4)).astype(np.int64)
        digits = frame["label"].to_numpy()
        for some in ((2, 4), (3, 5, 8), (9,)):
            yield f"digits {some}", codes, np.isin(digits, some).astype(np.int64)
    for seed, share in enumerate(_MADE_UP):
        yield f"made up {seed}", *made_up(seed, share)


def made_up(seed: int, share: float, n: int = 40_000, d: int = 12) -> tuple[Any, Any]:
    """Return correlated lists of 2 to 14 levels, some rare, and a label that is not linear in them."""
    g = Stream.from_seed(seed).generator()
    levels = g.choice([2, 3, 4, 5, 6, 7, 9, 14], d)
    loads = g.normal(size=(d, 3)) * g.uniform(0.3, 1.2)
    x = g.normal(size=(n, 3)) @ loads.T + g.normal(size=(n, d))
    weights = g.normal(size=d) * (g.random(d) < 0.6)
    score = x @ weights / d**0.5 + 0.5 * np.sin(2 * x[:, 0]) + 0.13 * x[:, 1] * x[:, 2]
    score += 0.35 * score.std() * g.logistic(size=n)
    codes = []
    for j, k in enumerate(levels):
        cuts = np.clip(g.dirichlet(np.full(k, 0.8)).cumsum()[:-1], 0.004, 0.996)
        code = np.digitize(x[:, j], np.unique(np.quantile(x[:, j], np.sort(cuts))))
        codes.append(g.permutation(code.max() + 1)[code] if k > 4 else code)
    table = np.column_stack([code for code in codes if code.max() > 0]).astype(np.int64)
    return table, (score > np.quantile(score, 1 - share)).astype(np.int64)
