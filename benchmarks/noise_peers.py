"""Noise of ours beside OpenDP, diffprivlib, Tumult Analytics and SmartNoise at epsilon 1 and delta 1e-6.

    python benchmarks/noise_peers.py

Each peer runs in the interpreter that ``DISCREET_OPENDP``, ``DISCREET_DIFFPRIVLIB``, ``DISCREET_TUMULT`` or
``DISCREET_SMARTNOISE`` names, or else in this one; a peer that does not import there is left out. Every
question has the whole promise to itself, and every number is a standard deviation: where the peer says its
scale, that of its law, otherwise measured. The table has 10,000 rows with ``x`` from 0 to 100 (mean 50), five
groups of 2,000 rows and 20 cells. A question that a peer does not answer under a notion of neighbors is
left out. The result is written to ``benchmarks/results/noise_peers.json``.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

N, GROUPS, CELLS, TOP, COUNTS = 10_000, 5, 20, 100, 50
EPSILON, DELTA = 1.0, 1e-6
ROWS = ("count", "sum", "mean", "histogram", "50 counts", "mean by group")
PEERS = {
    "opendp": "DISCREET_OPENDP",
    "diffprivlib": "DISCREET_DIFFPRIVLIB",
    "tmlt.analytics": "DISCREET_TUMULT",
    "smartnoise-sql": "DISCREET_SMARTNOISE",
}
Noise = dict[str, dict[str, float]]


def columns() -> dict[str, list[int]]:
    """Return the rows of the table: a number, a group and a cell."""
    i = range(N)
    return {"x": [k % (TOP + 1) for k in i], "g": [k % GROUPS for k in i], "h": [k % CELLS for k in i]}


def geometric_sd(scale: float) -> float:
    """Return the standard deviation of integer Laplace noise."""
    return 1 / (math.sqrt(2) * math.sinh(1 / (2 * scale)))


def ratio_sd(sum_sd: float, count_sd: float, mean: float, rows: int) -> float:
    """Return the standard deviation, to first order, of a noisy sum over a noisy count."""
    return math.hypot(sum_sd, mean * count_sd) / rows


def of_discreet() -> dict[str, Noise]:
    """Return our noise, as databases without a limit say it."""
    from discreet import ApproxDP, Column, Database, Schema
    from discreet.query import Histogram, Sums
    from discreet.query.intervals import interval_width

    found: dict[str, Noise] = {}
    for neighbors in ("add-remove", "replace-one"):
        schema = Schema(
            columns=[
                Column("x", type="integer", lower=0, upper=TOP),
                Column("g", values=tuple(range(GROUPS))),
                Column("h", values=tuple(range(CELLS))),
            ],
            neighbors=neighbors,  # type: ignore[arg-type]
        )
        privacy = ApproxDP(epsilon=EPSILON, delta=DELTA, neighbors=neighbors)  # type: ignore[arg-type]
        with Database(columns(), schema=schema) as db:
            asked = {
                "count": Sums("x > 50"),
                "sum": Sums("x"),
                "histogram": Histogram("h"),
                "50 counts": Sums([f"x > {i}" for i in range(COUNTS)]),
            }
            noise = {
                name: float(np.ravel(db.expected_sd(q, privacy=privacy))[0]) for name, q in asked.items()
            }
            for name, text in (("mean", "mean(x)"), ("mean by group", "mean(x) by g")):
                result = db.query(text, privacy=privacy)
                # Over a noisy count a mean has no sd: that of a noise with the same interval.
                widths = [cell.upper - cell.lower for cell in result.cells if result.is_readable(cell)]
                noise[name] = float(np.mean(widths)) / 2 / interval_width(result.law)
        found[neighbors] = noise
    return found


def of_opendp() -> dict[str, Noise]:
    """Return the noise of its integer mechanisms, with scales found by its own privacy maps.

    A mean is a sum over a count with half of epsilon each; under replace-one the number of rows is public.
    """
    import opendp.prelude as dp

    dp.enable_features("contrib")
    vector = dp.vector_domain(dp.atom_domain(T=int))

    def laplace(distance: int, epsilon: float = EPSILON) -> float:
        made = vector, dp.l1_distance(T=int)
        scale = dp.binary_search(
            lambda b: dp.m.make_laplace(*made, scale=b).map(distance) <= epsilon, bounds=(1e-2, 1e6)
        )
        return geometric_sd(float(scale))

    def gaussian(distance: float) -> float:
        made = vector, dp.l2_distance(T=float)

        def keeps(scale: float) -> bool:
            curve = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*made, scale=scale)).map(distance)
            return bool(curve.epsilon(DELTA) <= EPSILON)

        return float(dp.binary_search(keeps, bounds=(distance, 1e3 * distance)))

    half, each = EPSILON / 2, N // GROUPS
    many = min(laplace(COUNTS), gaussian(math.sqrt(COUNTS)))
    return {
        "add-remove": {
            "count": laplace(1),
            "sum": laplace(TOP),
            "mean": ratio_sd(laplace(TOP, half), laplace(1, half), TOP / 2, N),
            "histogram": laplace(1),
            "50 counts": many,
            "mean by group": ratio_sd(laplace(TOP, half), laplace(1, half), TOP / 2, each),
        },
        "replace-one": {
            "count": laplace(1),
            "sum": laplace(TOP),
            "mean": laplace(TOP) / N,
            "histogram": laplace(2),
            "50 counts": many,
            "mean by group": ratio_sd(laplace(2 * TOP, half), laplace(2, half), TOP / 2, each),
        },
    }


def of_diffprivlib() -> dict[str, Noise]:
    """Return the noise of its tools, measured; sums and histograms are add-remove, means replace-one."""
    from diffprivlib import BudgetAccountant, tools

    BudgetAccountant().set_default()
    table = {name: np.array(cells) for name, cells in columns().items()}
    x, h = table["x"], table["h"]
    bounds = {"epsilon": EPSILON, "bounds": (0, TOP)}
    share = BudgetAccountant(EPSILON, DELTA, slack=DELTA).remaining(COUNTS)[0]
    count = measured(lambda: tools.count_nonzero(x > 50, epsilon=EPSILON))
    many = measured(lambda: tools.count_nonzero(x > 50, epsilon=share))
    cells = measured(lambda: tools.histogram(h, epsilon=EPSILON, bins=CELLS, range=(0, CELLS))[0], 1000)
    return {
        "add-remove": {
            "count": count,
            "sum": measured(lambda: tools.sum(x, **bounds)),
            "histogram": cells,
            "50 counts": many,
        },
        "replace-one": {
            "count": count,
            "mean": measured(lambda: tools.mean(x, **bounds)),
            "50 counts": many,
        },
    }


def measured(draw: Any, times: int = 8000) -> float:
    """Return the standard deviation of numbers, the root of the mean variance if there are several."""
    drawn = np.array([draw() for _ in range(times)], np.float64)
    return float(np.sqrt(drawn.var(axis=0).mean()))


def of_tumult() -> dict[str, Noise]:
    """Return the noise that its sessions say they will add; they know add-remove alone.

    Fifty counts are Gaussian under the largest rho whose conversion keeps the promise.
    """
    import pandas as pd
    from pyspark.sql import SparkSession
    from tmlt.analytics import (
        AddOneRow,
        ApproxDPBudget,
        KeySet,
        QueryBuilder,
        RhoZCDPBudget,
        Session,
    )

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    frame = spark.createDataFrame(pd.DataFrame(columns()))

    def scales(query: Any, budget: Any) -> list[float]:
        session = Session.from_dataframe(budget, "t", frame, protected_change=AddOneRow())
        return [float(info["noise_parameter"]) for info in session._noise_info(query, budget)]

    whole, t = ApproxDPBudget(EPSILON, DELTA), QueryBuilder("t")
    rho = (math.sqrt(math.log(1 / DELTA) + EPSILON) - math.sqrt(math.log(1 / DELTA))) ** 2
    groups, cells = (
        KeySet.from_dict({name: list(range(size))}) for name, size in (("g", GROUPS), ("h", CELLS))
    )
    # Means are of displacements from the middle, which is their own mean here.
    mean, _ = scales(t.average("x", 0, TOP), whole)
    grouped, _ = scales(t.groupby(groups).average("x", 0, TOP), whole)
    return {
        "add-remove": {
            "count": geometric_sd(scales(t.count(), whole)[0]),
            "sum": geometric_sd(scales(t.sum("x", 0, TOP), whole)[0]),
            "mean": geometric_sd(mean) / N,
            "histogram": geometric_sd(scales(t.groupby(cells).count(), whole)[0]),
            "50 counts": math.sqrt(scales(t.count(), RhoZCDPBudget(rho / COUNTS))[0]),
            "mean by group": geometric_sd(grouped) / (N // GROUPS),
        }
    }


def of_smartnoise() -> dict[str, Noise]:
    """Return the noise of its SQL, measured, with the epsilon of columns set so that all cost the same."""
    import pandas as pd
    import yaml
    from snsql import Privacy, from_df

    number = {"type": "int", "lower": 0, "upper": TOP}
    described = {"row_privacy": True, "rows": N, "x": number, "g": {"type": "int"}, "h": {"type": "int"}}
    frame, noise = pd.DataFrame(columns()), {}
    texts = {
        "count": "SELECT COUNT(*) FROM S.T",
        "sum": "SELECT SUM(x) FROM S.T",
        "mean": "SELECT AVG(x) FROM S.T",
        "histogram": "SELECT h, COUNT(*) FROM S.T GROUP BY h",
        "mean by group": "SELECT g, AVG(x) FROM S.T GROUP BY g",
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.yaml"
        path.write_text(yaml.safe_dump({"": {"S": {"T": described}}}), encoding="utf-8")
        for name, text in texts.items():
            asked = from_df(frame, privacy=Privacy(epsilon=EPSILON, delta=DELTA), metadata=str(path))
            share = EPSILON**2 / float(asked.get_privacy_cost(text)[0])
            reader = from_df(frame, privacy=Privacy(epsilon=share, delta=DELTA), metadata=str(path))
            noise[name] = measured(lambda: [row[-1] for row in reader.execute(text)[1:]], 150)  # noqa: B023
    return {"add-remove": noise}


CHILDREN = {
    "opendp": of_opendp,
    "diffprivlib": of_diffprivlib,
    "tmlt.analytics": of_tumult,
    "smartnoise-sql": of_smartnoise,
}


def run_peer(name: str) -> dict[str, Any] | None:
    """Return the version and the noise of a peer, computed in its interpreter; None if it is not there."""
    python = os.environ.get(PEERS[name], sys.executable)
    done = subprocess.run([python, __file__, name], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name} is left out: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
        return None
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    """Print the table and write the result, or print the noise of the one peer that is named."""
    if len(sys.argv) > 1:
        name = sys.argv[1]
        print(json.dumps({"version": importlib.metadata.version(name), "noise": CHILDREN[name]()}))
        return
    found = {"discreet": {"version": importlib.metadata.version("discreet"), "noise": of_discreet()}}
    found |= {name: one for name in PEERS if (one := run_peer(name)) is not None}
    print(
        "| neighbors | question |", " | ".join(f"{name} {one['version']}" for name, one in found.items()), "|"
    )
    print("|---|---|" + "---:|" * len(found))
    for neighbors in ("add-remove", "replace-one"):
        for row in ROWS:
            sds = [one["noise"].get(neighbors, {}).get(row) for one in found.values()]
            print(
                f"| {neighbors} | {row} |", " | ".join("" if sd is None else f"{sd:.3g}" for sd in sds), "|"
            )
    path = Path(__file__).parent / "results" / "noise_peers.json"
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
