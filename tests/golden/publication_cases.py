"""Public folders of every release method and of every model, with clock, versions and randomness fixed.

Compared are the texts of the files. Normalized are only: the SHA-256 of ``data.parquet`` and ``model.npz``
inside other files, because DuckDB writes its version into the one and the last bits of the other depend on
the processor (their contents are compared instead); and ``data.csv.gz``, which is compared unpacked.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import duckdb
import numpy as np

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
RELEASES: dict[str, tuple[str, ...]] = {
    "gaussian": ("--protect", "age=9", "--csv"),
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
    done = command("release", "people.csv", *flags, *FAST, "--out", out, cwd=folder)
    assert done.code == 0, done.err
    return folder / out / "public"


def learn_into(folder: Path, name: str) -> Path:
    """Train a model by the command line, and return the public folder."""
    done = command("learn", "people.csv", "--model", name, *MODELS[name], "--out", name, cwd=folder)
    assert done.code == 0, done.err
    return folder / name / "public"


def public_files(public: Path, *, bits: bool) -> dict[str, Any]:
    """Return a digest of every file of a public folder.

    Parameters
    ----------
    public : Path
        Folder that was published.
    bits : bool
        Whether every bit of it is the same on all processors; otherwise numbers are rounded.
    """
    changing = {
        hashlib.sha256((public / name).read_bytes()).hexdigest(): f"SHA-256 of {name}"
        for name in ("data.parquet", "data.csv.gz", "model.npz", "statement.json")
        if (public / name).exists()
    }
    found: dict[str, Any] = {"files": sorted(path.name for path in public.iterdir())}
    for path in sorted(public.iterdir()):
        match path.suffix:
            case ".parquet":
                found[path.name] = _cells(path) if bits else _columns(path)
            case ".npz":
                with np.load(path) as arrays:
                    found[path.name] = {name: _array(arrays[name]) for name in sorted(arrays.files)}
            case ".gz":
                found[path.name] = of_bytes(gzip.decompress(path.read_bytes())) if bits else "rounded"
            case _:
                text = path.read_text(encoding="utf-8")
                for digest, name in changing.items():
                    text = text.replace(digest, name)
                found[path.name] = _text(path.name, text, bits=bits)
    return found


def _text(name: str, text: str, *, bits: bool) -> str:
    """Return the digest of a text file; of JSON with numbers of several processors, rounded."""
    if bits:
        return of_bytes(text.encode())
    if name == "statement.json":
        return of_json(rounded(json.loads(text), 6))
    # The other files are made from the statement; their digests differ if any number of it does.
    return of_bytes(re.sub(r"-?\d+(\.\d+)?(e[-+]?\d+)?", "#", text).encode())


def _array(values: Any) -> Any:
    """Return the digest of an array of a model: text as it is, numbers on a grid."""
    return of_array(values, step=1e-6)


def _cells(path: Path) -> list[str]:
    """Return the digest of the rows of a Parquet file, and its columns with their types."""
    return [of_json([list(row) for row in duckdb.sql(f"SELECT * FROM '{path}'").fetchall()]), _columns(path)]


def _columns(path: Path) -> str:
    relation = duckdb.sql(f"SELECT * FROM '{path}'")
    return of_json([relation.columns, [str(kind) for kind in relation.types], len(relation)])


def release_folder_cases(names: tuple[str, ...]) -> dict[str, Any]:
    """Return digests of the public folders of some release methods."""
    found: dict[str, Any] = {}
    with workplace(f"release folders {', '.join(names)}") as folder:
        for name in names:
            public = release_into(folder, name)
            for file, digest in public_files(public, bits=name in BIT_EQUAL).items():
                found[f"{name} {file}"] = digest
            found[f"{name} verified"] = command("verify", str(public), cwd=folder).code
        found["ledger"] = command("ledger", "check", "golden-2026.ledger", cwd=folder).code
    return found


def model_folder_cases() -> dict[str, Any]:
    """Return digests of the public folder of every model."""
    found: dict[str, Any] = {}
    with workplace("model folders") as folder:
        for name in MODELS:
            public = learn_into(folder, name)
            for file, digest in public_files(public, bits=False).items():
                found[f"{name} {file}"] = digest
            found[f"{name} verified"] = command("verify", str(public), cwd=folder).code
    return found
