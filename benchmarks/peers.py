"""diffprivlib beside ours: in its own interpreter, on the same rows, splits and declared bounds.

It does not import where a current scikit-learn is installed, so it has a virtual environment of its own.
Which interpreter that is says ``DISCREET_DIFFPRIVLIB``, or else one is made inside this environment, once.
Rows travel as ``.npz``; fits that take more than :data:`SECONDS` of processor time are ended, with their
interpreter.

Seeded runs of diffprivlib use its Mersenne Twister. Its known faults are left as they are: k-means and
logistic regression spend more than they say, classes are read off the labels.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import select
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

PINNED = ("diffprivlib==0.6.6", "scikit-learn==1.7.2")
SECONDS = 40.0


def interpreter() -> str:
    """Return a Python that has diffprivlib; make one if none is named."""
    named = os.environ.get("DISCREET_DIFFPRIVLIB")
    if named:
        return named
    folder = Path(sys.prefix) / "peers" / "diffprivlib"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print("making an environment for diffprivlib", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PINNED], check=True)
        (folder / "ready").touch()
    return str(python)


def versions() -> dict[str, str]:
    """Return what ours was measured with."""
    names = ("discreet", "numpy", "scipy", "scikit-learn", "duckdb")
    return {"python": platform.python_version()} | {n: importlib.metadata.version(n) for n in names}


class Peer:
    """One interpreter that fits what it is told to, one model after the other."""

    def __init__(self, python: str | None = None, script: str = __file__) -> None:
        """Start nothing yet; ``script`` reads jobs as lines of JSON and writes what each came to."""
        self._python = python or interpreter()
        self._script = script
        self._folder = tempfile.TemporaryDirectory()
        self._process: subprocess.Popen[str] | None = None
        self._tables: dict[str, Path] = {}
        self.versions = self.fit({"model": "versions"}) or {}

    def table(self, name: str, **arrays: Any) -> str:
        """Hand over a table under a name."""
        if name not in self._tables:
            self._tables[name] = Path(self._folder.name) / f"{len(self._tables)}.npz"
            np.savez(self._tables[name], **arrays)
        return str(self._tables[name])

    def fit(self, job: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what a fit came to; None if it took too long."""
        if self._process is None:
            self._process = subprocess.Popen(
                [self._python, self._script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            )  # fmt: skip
            # Importing is not part of a fit.
            self._asked(self._process, {"model": "versions"}, 10 * SECONDS)
        found = self._asked(self._process, job, SECONDS)
        if found is None:
            self._end()
        return found

    def _asked(
        self, process: subprocess.Popen[str], job: Mapping[str, Any], seconds: float
    ) -> dict[str, Any] | None:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        # Processor time: on a busy machine somebody else's work must not count as slowness.
        most = _processor_seconds(process.pid) + seconds
        while not select.select([process.stdout], [], [], 0.5)[0]:
            if _processor_seconds(process.pid) > most:
                return None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"{self._python} has ended. Does it have the peer that {self._script} imports?"
            )
        found: dict[str, Any] = json.loads(line)
        return found

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._folder.cleanup()


def _processor_seconds(pid: int) -> float:
    """Return what a process has used so far; its name, in parentheses, may hold spaces."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# What follows runs in diffprivlib's own interpreter.


def _fitted(job: dict[str, Any]) -> dict[str, Any]:
    import diffprivlib  # type: ignore[import-not-found,unused-ignore]
    import sklearn
    from diffprivlib import models  # type: ignore[import-not-found,unused-ignore]

    kind = job["model"]
    if kind == "versions":
        return {"diffprivlib": diffprivlib.__version__, "its scikit-learn": sklearn.__version__}
    rows = np.load(job["table"], allow_pickle=False)
    X, bounds = rows["X"], (rows["lower"], rows["upper"])
    common = {"epsilon": job["epsilon"], "random_state": job["seed"]}
    start = time.perf_counter()
    if kind == "pca":
        model = models.PCA(job["k"], centered=False, bounds=bounds, data_norm=job["norm"], **common).fit(X)
        return {"found": model.components_.tolist(), "seconds": time.perf_counter() - start}
    if kind == "k-means":
        model = models.KMeans(job["k"], bounds=bounds, **common).fit(X)
        return {"found": model.cluster_centers_.tolist(), "seconds": time.perf_counter() - start}
    y = rows["y"]
    classes = list(range(int(rows["classes"])))
    makers: dict[str, Any] = {
        "logistic regression": lambda: models.LogisticRegression(data_norm=job["norm"], **common),
        "naive Bayes": lambda: models.GaussianNB(bounds=bounds, **common),
        "tree": lambda: models.DecisionTreeClassifier(max_depth=5, bounds=bounds, classes=classes, **common),
        "forest": lambda: models.RandomForestClassifier(
            10, max_depth=5, bounds=bounds, classes=classes, **common
        ),
    }
    model = makers[kind]().fit(X, y)
    seconds = time.perf_counter() - start
    return {"found": float(np.mean(model.predict(rows["X_test"]) == rows["y_test"])), "seconds": seconds}


def _serve() -> None:
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        print(json.dumps(_fitted(json.loads(line))), flush=True)


if __name__ == "__main__":
    _serve()
