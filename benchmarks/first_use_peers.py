"""First use of ours beside OpenDP, diffprivlib, Tumult Analytics and SmartNoise: draws, a mean, a model.

    python benchmarks/first_use_peers.py

Peers run in the interpreters that ``benchmarks/noise_peers.py`` names. Times are processor seconds of the
process and its children, start of the interpreter included where a whole program is timed; they are compared
with each other, never with a limit. The result is written to ``benchmarks/results/first_use_peers.json``.

*draws*: microseconds for one Laplace deviate of scale 10, an integer (diffprivlib: a floating-point number),
beside ``numpy.random.Generator.laplace`` in the same process. *first mean*: a program that imports the tool
and publishes the mean of 10,000 numbers at epsilon 1. *logistic*: accuracy on every second row of the bundled
census after training on its numbers in the other rows, at epsilon 0.1 and 1, with bounds from the schema; the
mean of ten fits.
*no limit*: how many counts at epsilon 2 each a default session answers one after another, 51 at most.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

NAMES = {
    "discreet": "",
    "opendp": "DISCREET_OPENDP",
    "diffprivlib": "DISCREET_DIFFPRIVLIB",
    "tmlt.analytics": "DISCREET_TUMULT",
    "smartnoise-sql": "DISCREET_SMARTNOISE",
}
RESULTS = Path(__file__).parent / "results" / "first_use_peers.json"
FIRST_MEAN = {
    "discreet": """
from discreet import Column, Database, PureDP, Schema
schema = Schema(columns=[Column("x", lower=0, upper=100)])
with Database({"x": [i % 101 for i in range(10_000)]}, schema=schema) as db:
    db.mean("x", privacy=PureDP(1.0))
""",
    "opendp": """
import opendp.prelude as dp
dp.enable_features("contrib", "honest-but-curious")
rows = [float(i % 101) for i in range(10_000)]
space = dp.vector_domain(dp.atom_domain(bounds=(0.0, 100.0)), size=10_000), dp.symmetric_distance()
mean = space >> dp.t.then_mean() >> dp.m.then_laplace(scale=0.01)
mean(rows)
""",
    "diffprivlib": """
from diffprivlib import tools
tools.mean([i % 101 for i in range(10_000)], epsilon=1.0, bounds=(0, 100))
""",
    "tmlt.analytics": """
import pandas as pd
from pyspark.sql import SparkSession
from tmlt.analytics import AddOneRow, PureDPBudget, QueryBuilder, Session
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.createDataFrame(pd.DataFrame({"x": [i % 101 for i in range(10_000)]}))
session = Session.from_dataframe(PureDPBudget(1), "t", frame, protected_change=AddOneRow())
session.evaluate(QueryBuilder("t").average("x", 0, 100), PureDPBudget(1)).collect()
""",
    "smartnoise-sql": """
import pandas as pd
from snsql import Privacy, from_df
x = {"type": "int", "lower": 0, "upper": 100}
about = {"": {"S": {"T": {"row_privacy": True, "rows": 10_000, "x": x}}}}
frame = pd.DataFrame({"x": [i % 101 for i in range(10_000)]})
from_df(frame, privacy=Privacy(epsilon=1.0, delta=1e-6), metadata=about).execute("SELECT AVG(x) FROM S.T")
""",
}


def seconds(draw: Any, times: int = 1) -> float:
    """Return the processor seconds of one call, the least of three rounds."""
    found = []
    for _ in range(3):
        start = time.process_time()
        for _ in range(times):
            draw()
        found.append((time.process_time() - start) / times)
    return min(found)


def draws(name: str) -> dict[str, float] | None:
    """Return microseconds for one Laplace deviate of the tool, and of numpy in the same process."""
    generator = np.random.default_rng()  # noqa: TID251
    numpy_time = seconds(lambda: generator.laplace(0, 10, 1_000_000)) / 1_000_000
    if name == "discreet":
        from discreet.noise import discrete_laplace

        ours = seconds(lambda: discrete_laplace(10.0, 1_000_000)) / 1_000_000
    elif name == "opendp":
        import opendp.prelude as dp

        dp.enable_features("contrib")
        space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
        mechanism, zeros = dp.m.make_laplace(*space, scale=10.0), [0] * 2_000
        ours = seconds(lambda: mechanism(zeros)) / len(zeros)
    elif name == "diffprivlib":
        from diffprivlib.mechanisms import Laplace

        laplace = Laplace(epsilon=0.1, sensitivity=1.0)
        ours = seconds(lambda: laplace.randomise(0.0), 2_000)
    else:
        return None
    return {"tool": ours * 1e6, "numpy": numpy_time * 1e6}


def logistic(name: str, rows: str, epsilon: float) -> float | None:
    """Return the mean accuracy of ten private logistic regressions."""
    import warnings

    warnings.simplefilter("ignore")
    table = np.load(rows)
    X, y, lower, upper = (table[key] for key in ("X", "y", "lower", "upper"))
    X = (2 * X - lower - upper) / (upper - lower)
    train, test = slice(0, None, 2), slice(1, None, 2)
    norm, right = float(np.sqrt(X.shape[1])), []
    for seed in range(10):
        if name == "discreet":
            from discreet import PrivateLogisticRegression, PureDP

            model: Any = PrivateLogisticRegression(
                privacy=PureDP(epsilon), bounds=(-1, 1), classes=[0, 1], random_state=seed
            )
        elif name == "diffprivlib":
            from diffprivlib.models import LogisticRegression

            model = LogisticRegression(epsilon=epsilon, data_norm=norm, random_state=seed)
        else:
            return None
        right.append(float((model.fit(X[train], y[train]).predict(X[test]) == y[test]).mean()))
    return float(np.mean(right))


def without_limit(name: str) -> int | None:
    """Return how many of 51 counts at epsilon 2 a session of epsilon 2 answers."""
    if name == "discreet":
        from discreet import Column, Database, Ledger, PureDP, Schema

        schema = Schema(columns=[Column("x", lower=0, upper=100)])
        with Database(
            {"x": [1.0] * 100}, schema=schema, ledger=Ledger.open(":memory:", limit=PureDP(2))
        ) as db:
            return answered(lambda i: db.count(f"x > {i}", privacy=PureDP(2)))
    if name == "smartnoise-sql":
        import pandas as pd
        from snsql import Privacy, from_df

        number = {"type": "int", "lower": 0, "upper": 100}
        about = {"": {"S": {"T": {"row_privacy": True, "rows": 100, "x": number}}}}
        reader = from_df(pd.DataFrame({"x": [1] * 100}), privacy=Privacy(epsilon=2.0), metadata=about)
        return answered(lambda i: reader.execute(f"SELECT COUNT(*) FROM S.T WHERE x > {i}"))  # noqa: S608
    return None


def answered(ask: Any) -> int:
    """Return how many of 51 questions are answered before the first refusal."""
    for i in range(51):
        try:
            ask(i)
        except Exception:
            return i
    return 51


def run(name: str, rows: Path) -> dict[str, Any] | None:
    """Return what one tool took, measured in its own interpreter; None if it is not there."""
    python = os.environ.get(NAMES[name], sys.executable) if NAMES[name] else sys.executable
    environment = os.environ | {"PYSPARK_PYTHON": python}
    child = subprocess.run([python, __file__, name, str(rows)], capture_output=True, text=True, check=False)
    if child.returncode:
        print(f"{name} is left out: {(child.stderr.strip().splitlines() or ['no reason given'])[-1]}")
        return None
    found: dict[str, Any] = json.loads(child.stdout.strip().splitlines()[-1])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [python, "-c", FIRST_MEAN[name]],
        cwd=rows.parent,  # where Spark leaves its warehouse
        env=environment,
        check=False,
        capture_output=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found["first mean"] = None if done.returncode else spent
    return found


def main() -> None:
    """Measure every tool that is there, or print the figures of the one that is named."""
    if len(sys.argv) > 1:
        name, rows = sys.argv[1:]
        found = {"version": importlib.metadata.version(name), "draws": draws(name)}
        found |= {f"logistic {epsilon}": logistic(name, rows, epsilon) for epsilon in (0.1, 1.0)}
        print(json.dumps(found | {"answered": without_limit(name)}))
        return
    import tempfile

    import pandas as pd

    from discreet import datasets

    census = datasets.load("census")
    frame, schema = pd.read_parquet(census.path), census.schema
    names = [column.name for column in schema.numeric_features]
    lower, upper = schema.bounds
    labels = (frame[schema.target] == ">50K").to_numpy(int)
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.npz"
        np.savez(rows, X=frame[names].to_numpy(float), y=labels, lower=lower, upper=upper)
        results = {name: found for name in NAMES if (found := run(name, rows)) is not None}
    print(json.dumps(results, indent=1))
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
