"""Public folders of every release method and of every model, with clock, versions and randomness fixed.

Each file is compared twice. Its bytes are compared as they are where processor kernel and libraries are those
of the record, which the name of the case says in brackets: the last bits of some numbers depend on them, and
DuckDB writes its version into ``data.parquet``. Everywhere else the contents are compared: cells and arrays;
JSON with numbers rounded; other texts without their numbers; digests left out.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import duckdb
import numpy as np
import scipy
import sklearn
import threadpoolctl  # type: ignore[import-untyped]

from tests.golden._entry_points import command
from tests.golden.digests import of_array, of_bytes, of_json, rounded
from tests.golden.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = "person,age,hours,sex,owner\n" + "".join(
    f"p{i},{17 + 7 * i % 73},{13 * i % 100},{'fm'[i % 2]},{'yes' if 7 * i % 73 > 35 else 'no'}\n"
    for i in range(60)
)
DECLARED = """\
title: Made-up people
privacy: {dataset: golden-2026}
fields:
  - {name: person, type: string, privacy: {role: drop}}
  - name: age
    type: integer
    constraints: {minimum: 17, maximum: 90, required: true}
    privacy: {measure: years}
  - {name: hours, type: number, constraints: {minimum: 0, maximum: 100, required: true}}
  - {name: sex, type: string, constraints: {enum: [f, m], required: true}, privacy: {closed: true}}
  - name: owner
    type: string
    constraints: {enum: ['no', 'yes'], required: true}
    privacy: {closed: true, role: target}
"""
FAST = ("--attack-records", "200")
ACCEPTED = ("--accept-risk", "a test")  # small tables with little noise
RELEASES: dict[str, tuple[str, ...]] = {
    "gaussian": ("--protect", "age=9"),
    "laplace": ("--epsilon", "4"),
    "bounded": ("--method", "bounded", "--epsilon", "4", "--in-range"),
    "bounded additive": ("--method", "bounded", "--support", "age=100,hours=150"),
    "coarse": ("--method", "coarse", "--epsilon", "4"),
    "input-perturbation": ("--method", "input-perturbation", "--epsilon", "4"),
    "masked": ("--method", "masked", "--epsilon", "4", "--regularization", "0.1"),
    "invariant": ("--method", "invariant", "--learner", "svm", "--variance", "0.25"),
}
BIT_EQUAL = ("gaussian", "laplace", "bounded", "bounded additive", "coarse", "input-perturbation")
"""Methods whose published cells do not depend on the processor."""

PRICE = ("--epsilon", "4", "--delta", "1e-6")
MODELS: dict[str, tuple[str, ...]] = {
    "logistic": PRICE,
    "large-margin-gaussian": PRICE,
    "id3": (*PRICE, "--set", "max_depth=2"),
    "naive-bayes": PRICE,
    "ridge": (*PRICE, "--target", "age"),
    "gradient-logistic": (*PRICE, "--set", "rounds=2"),
    "pca": PRICE,
    "kmeans": (*PRICE, "--set", "n_clusters=2"),
    "perceptron": (*PRICE, "--set", "rounds=2"),
}


@functools.cache
def machine() -> str:
    """Return what the last bits of a folder depend on: the BLAS kernel and versions of libraries."""
    kernels = {item.get("architecture") for item in threadpoolctl.threadpool_info()} - {None}
    versions = (f"{package.__name__} {package.__version__}" for package in (np, scipy, sklearn, duckdb))
    return ", ".join([*sorted(map(str, kernels)), *versions])


@contextlib.contextmanager
def workplace(label: str) -> Iterator[Path]:
    """Yield a folder with a table and its declaration, in which the clock stands still."""
    with tempfile.TemporaryDirectory(prefix="golden-") as name, frozen(label):
        folder = Path(name)
        (folder / "state").mkdir()
        (folder / "people.csv").write_text(TABLE, encoding="utf-8")
        (folder / "people.schema.yaml").write_text(DECLARED, encoding="utf-8")
        with mock.patch.dict(os.environ, {"DISCREET_STATE": str(folder / "state")}):
            yield folder


def release_into(folder: Path, name: str) -> Path:
    """Release the table by the command line, and return the public folder."""
    out = name.replace(" ", "-")
    flags = RELEASES[name] if "--method" in RELEASES[name] else ("--method", name, *RELEASES[name])
    done = command("release", "people.csv", *flags, *FAST, *ACCEPTED, "--out", out, cwd=folder)
    assert done.code == 0, done.err
    return folder / out / "public"


def learn_into(folder: Path, name: str) -> Path:
    """Train a model by the command line, and return the public folder."""
    done = command("learn", "people.csv", "--model", name, *MODELS[name], "--out", name, cwd=folder)
    assert done.code == 0, done.err
    return folder / name / "public"


def applies_here(case: str) -> bool:
    """Say whether a recorded case can be compared on this machine."""
    return "[" not in case or case.endswith(f"[{machine()}]")


def public_files(public: Path, *, bits: bool) -> dict[str, Any]:
    """Return digests of every file of a public folder.

    Parameters
    ----------
    public : Path
        Folder that was published.
    bits : bool
        Whether its cells are the same on all processors.
    """
    found: dict[str, Any] = {"files": sorted(path.name for path in public.iterdir())}
    for path in sorted(public.iterdir()):
        found[f"{path.name} bytes [{machine()}]"] = of_bytes(path.read_bytes())
        match path.suffix:
            case ".parquet":
                found[path.name] = _cells(path) if bits else _columns(path)
            case ".npz":
                with np.load(path) as arrays:
                    found[path.name] = {name: _array(arrays[name]) for name in sorted(arrays.files)}
            case ".csv":
                found[path.name] = of_bytes(path.read_bytes()) if bits else "random"
            case ".json":
                found[path.name] = of_json(_portable(json.loads(path.read_text(encoding="utf-8"))))
            case _:
                found[path.name] = of_bytes(_without_numbers(path.read_text(encoding="utf-8")).encode())
    return found


def _portable(value: Any) -> Any:
    """Return JSON values with numbers rounded to 6 digits, also inside of texts, and without digests."""
    match value:
        case dict():
            return {key: _portable(item) for key, item in value.items()}
        case list():
            return [_portable(item) for item in value]
        case float():
            return rounded(value, 6) if abs(value) > 1e-9 else 0.0
        case str():
            return _without_numbers(value)
    return value


def _without_numbers(text: str) -> str:
    """Return a text whose digests and numbers are replaced by signs."""
    return re.sub(r"-?\d+(\.\d+)?(e[-+]?\d+)?", "#", re.sub(r"[0-9a-f]{12,}", "digest", text))


def _array(values: Any) -> Any:
    """Return the digest of an array of a model: numbers on a grid, its header without the last digits."""
    if values.dtype == np.uint8 and values.tobytes()[:1] == b"{":
        return of_json(_portable(json.loads(values.tobytes())))
    return of_array(values, step=1e-6)


def _cells(path: Path) -> list[str]:
    """Return the digest of the rows of a Parquet file, and its columns with their types."""
    cells = [list(row) for row in _relation(path).fetchall()]
    return [of_json(cells), _columns(path)]


def _columns(path: Path) -> str:
    relation = _relation(path)
    return of_json([relation.columns, [str(kind) for kind in relation.types], len(relation)])


def _relation(path: Path) -> duckdb.DuckDBPyRelation:
    relation = duckdb.sql(f"SELECT * FROM '{path}'")
    assert relation is not None
    return relation


def release_folder_cases(names: tuple[str, ...]) -> dict[str, Any]:
    """Return digests of the public folders of some release methods, each with a ledger of its own."""
    found: dict[str, Any] = {}
    for name in names:
        with workplace(f"release {name}") as folder:
            public = release_into(folder, name)
            for file, digest in public_files(public, bits=name in BIT_EQUAL).items():
                found[f"{name} {file}"] = digest
            found[f"{name} verified"] = command("verify", str(public), cwd=folder).code
            found[f"{name} ledger"] = command("ledger", "check", "golden-2026.ledger", cwd=folder).code
    return found


def model_folder_cases() -> dict[str, Any]:
    """Return digests of the public folder of every model, each with a ledger of its own."""
    found: dict[str, Any] = {}
    for name in MODELS:
        with workplace(f"model {name}") as folder:
            public = learn_into(folder, name)
            for file, digest in public_files(public, bits=False).items():
                found[f"{name} {file}"] = digest
            found[f"{name} verified"] = command("verify", str(public), cwd=folder).code
    return found
