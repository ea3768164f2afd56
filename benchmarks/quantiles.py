"""Medians and ninth deciles of ours beside OpenDP and the exponential mechanism, at equal promises.

    python benchmarks/quantiles.py

OpenDP runs in the interpreter that ``DISCREET_OPENDP`` names, or else in this one; it is left out where it
does not import. All methods choose among the same cells, which follow from the declared range. A rank error
is the mean number of rows by which the rank of a value misses the one that was asked for, 0 if the cell of
the value holds it. Ours comes with an interval at 95 %; the exponential mechanism gets one by choosing at two
shifted ranks, each with half of the promise, so far apart that they hold the quantile whatever the rows are.
An interval is as wide as the share of all rows whose values are in it. ``bisection`` is
:func:`~discreet.learn.private_quantiles`, which asks one comparison after the other for one number. The
result is written to ``benchmarks/results/quantiles.json``.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import subprocess
import sys
from statistics import NormalDist
from typing import Any

import numpy as np

EPSILON, RHO, DRAWS, BISECTIONS = 1.0, 0.02, 100, 8
SIZES = (100, 1000, 100_000)
FRACTIONS = (0.5, 0.9)
PROMISES = {"epsilon": EPSILON, "rho": RHO}
Case = dict[str, Any]


def tables(n: int) -> dict[str, Any]:
    """Return three sorted columns: skewed incomes, ages, and normal numbers."""
    normal = np.array([NormalDist().inv_cdf((i + 0.5) / n) for i in range(n)])
    return {
        "income": np.floor(np.exp(10.4 + 0.8 * normal)),
        "age": np.clip(np.floor(40 + 22 * normal), 0, 120),
        "normal": np.clip(normal, -5, 5),
    }


def cases(starts: dict[str, list[float]]) -> list[Case]:
    """Return what every method is asked, with the number of rows in each cell."""
    found = []
    for n in SIZES:
        for name, rows in tables(n).items():
            cells = np.searchsorted(starts[name], rows, side="right") - 1
            counts = np.bincount(cells, minlength=len(starts[name])).tolist()
            for neighbors in ("add-remove", "replace-one"):
                found += [
                    {"table": name, "rows": n, "neighbors": neighbors, "promise": kind, "counts": counts}
                    for kind in PROMISES
                ]
    return found


def rank_error(counts: Any, cells: Any, q: float) -> float:
    """Return the mean number of rows by which the ranks of cells miss a fraction of all rows."""
    ends = np.cumsum(counts)
    target, end = q * ends[-1], ends[cells]
    below = end - np.asarray(counts)[cells]
    return float(np.mean(np.maximum(np.maximum(below - target, target - end), 0)))


def of_discreet(case: Case, schema: Any) -> dict[str, Any]:
    """Return rank errors, widths and coverage of trees of counts, and rank errors of bisection."""
    from discreet import ZCDP, Database, PureDP
    from discreet.learn import private_quantiles
    from discreet.noise import Stream
    from discreet.query.aggregates import HierarchicalHistogram
    from discreet.query.calibration import SeededNoise
    from discreet.query.costs import CostModel
    from discreet.query.quantiles import estimate_quantiles

    about = {"neighbors": case["neighbors"]}
    privacy: Any = (
        PureDP(epsilon=EPSILON, **about) if case["promise"] == "epsilon" else ZCDP(rho=RHO, **about)
    )
    costs = CostModel(schema, case["rows"] if case["neighbors"] == "replace-one" else None)
    question = HierarchicalHistogram(case["table"])
    _, noise = costs.calibrate(question, privacy=privacy)
    bound = question.bind(costs.curation, costs.neighbors)
    counts = np.array(case["counts"])
    exact, draws = bound.tree.add_levels(counts).tolist(), SeededNoise(Stream.from_seed(1))
    noisy = np.array([noise.values(noise.add_noise(exact, draws), bound, costs.n_rows) for _ in range(DRAWS)])
    told = estimate_quantiles(bound, noisy, noise.sd(bound)[0], noise.law, FRACTIONS, n_rows=costs.n_rows)
    starts, ends = bound.cells.starts()[:-1], np.cumsum(counts)
    place = np.searchsorted(starts, told.values, side="right") - 1
    first = np.searchsorted(starts, told.lower, side="right") - 1
    last = np.searchsorted(starts, told.upper, side="right") - 1
    holds = np.searchsorted(ends, np.array(FRACTIONS) * ends[-1] - 1e-9)
    rows = tables(case["rows"])
    bisected = []
    for seed in range(BISECTIONS):
        with Database(rows, schema=schema, random_state=seed) as db:
            got = private_quantiles(db, case["table"], [FRACTIONS[0]], privacy=privacy)
        bisected.append(int(np.searchsorted(starts, got.value[0], side="right")) - 1)
    return {
        "ours": [rank_error(counts, place[:, i], q) for i, q in enumerate(FRACTIONS)],
        "interval": np.median((ends[last] - (ends - counts)[first]) / ends[-1], axis=0).tolist(),
        "held": np.mean((first <= holds) & (holds <= last), axis=0).tolist(),
        "bisection": [rank_error(counts, np.array(bisected), FRACTIONS[0])],
    }


def of_exponential(case: Case) -> dict[str, Any]:
    """Return rank errors of the exponential mechanism, and the rows between its two shifted ranks."""
    from discreet.noise import Stream

    counts, n = np.array(case["counts"]), case["rows"]
    ends, stream = np.cumsum(counts), Stream.from_seed(2)
    whole = EPSILON if case["promise"] == "epsilon" else math.sqrt(8 * RHO)
    half = whole / 2 if case["promise"] == "epsilon" else whole / math.sqrt(2)

    def choose(target: float, epsilon: float, moves: float) -> Any:
        score = -np.maximum(np.maximum(ends - counts - target, target - ends), 0)
        words = (stream.words(DRAWS * len(counts)) >> np.uint64(12)).astype(float).reshape(DRAWS, -1)
        gumbel = -np.log(-np.log((words + 0.5) * 2.0**-52))
        return np.argmax(epsilon * score / (2 * moves) + gumbel, axis=1)

    errors, widths = [], []
    for q in FRACTIONS:
        moves = 1.0 if case["neighbors"] == "replace-one" else max(q, 1 - q)
        errors.append(rank_error(counts, choose(q * n, whole, moves), q))
        shift = 2 * moves / half * math.log(len(counts) / 0.025)
        low = choose(max(q * n - shift, 0), half, moves)
        high = choose(min(q * n + shift, n), half, moves)
        widths.append(float(np.median(np.maximum(ends[high] - (ends - counts)[low], 0) / n)))
    return {"exponential": errors, "exponential interval": widths}


def of_opendp(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the rank errors of OpenDP's private quantile, with scales found by its own privacy maps."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    errors = []
    for case in cases(asked["starts"]):
        n, replaced = case["rows"], case["neighbors"] == "replace-one"
        measure = dp.max_divergence() if case["promise"] == "epsilon" else dp.zero_concentrated_divergence()
        domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), **({"size": n} if replaced else {}))
        rows, candidates = tables(n)[case["table"]].tolist(), asked["middles"][case["table"]]

        def made(scale: float, q: float, given: tuple[Any, ...], candidates: Any) -> Any:
            return dp.m.make_private_quantile(*given, candidates=candidates, alpha=q, scale=scale)

        given = (domain, dp.symmetric_distance(), measure)
        found = []
        for q in FRACTIONS:
            scale = dp.binary_search(
                lambda s, q=q, given=given, candidates=candidates, replaced=replaced, kind=case["promise"]: (
                    made(s, q, given, candidates).map(2 if replaced else 1) <= PROMISES[kind]
                ),
                bounds=(1e-3, 1e9),
            )
            measurement = made(scale, q, given, candidates)
            drawn = [measurement(rows) for _ in range(DRAWS)]
            cells = np.searchsorted(candidates, drawn)
            found.append(rank_error(case["counts"], cells, q))
        errors.append(found)
    return {"version": importlib.metadata.version("opendp"), "errors": errors}


def run_opendp(asked: dict[str, Any]) -> dict[str, Any] | None:
    """Return what OpenDP comes to in its interpreter; None if it is not there."""
    python = os.environ.get("DISCREET_OPENDP", sys.executable)
    done = subprocess.run(
        [python, __file__, "opendp"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        print(f"opendp is left out: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
        return None
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    """Print the table and write the result, or print what OpenDP comes to if it is named."""
    if sys.argv[1:] == ["opendp"]:
        print(json.dumps(of_opendp(json.load(sys.stdin))))
        return
    from measure import save

    from discreet import Column, Schema
    from discreet.query.aggregates import HierarchicalHistogram
    from discreet.query.curation import Curation

    columns = [
        Column("income", type="integer", lower=0, upper=10_000_000),
        Column("age", type="integer", lower=0, upper=120),
        Column("normal", lower=-5, upper=5),
    ]
    schemas = {kind: Schema(columns=columns, neighbors=kind) for kind in ("add-remove", "replace-one")}  # type: ignore[arg-type]
    curation = Curation.from_schema(schemas["replace-one"])
    cells = {
        column.name: HierarchicalHistogram(column.name).bind(curation, "replace-one").cells
        for column in columns
    }
    starts = {name: one.starts()[:-1].tolist() for name, one in cells.items()}
    middles = {name: one.middles().tolist() for name, one in cells.items()}
    peer = run_opendp({"starts": starts, "middles": middles})
    result = []
    print(
        "| neighbors | promise | table | rows | q | rank error: ours | bisection | exponential | OpenDP |",
        end="",
    )
    print(" rows in the interval: ours | held | exponential |")
    print("|---|---|---|---:|---:|" + "---:|" * 7)
    for i, case in enumerate(cases(starts)):
        found = {key: case[key] for key in ("neighbors", "promise", "table", "rows")}
        found |= of_discreet(case, schemas[case["neighbors"]]) | of_exponential(case)
        found["opendp"] = None if peer is None else peer["errors"][i]
        result.append(found)
        for k, q in enumerate(FRACTIONS):
            told = f"{found['bisection'][0]:.1f}" if k == 0 else ""
            other = "" if peer is None else f"{found['opendp'][k]:.1f}"
            print(
                f"| {found['neighbors']} | {found['promise']} {PROMISES[found['promise']]} "
                f"| {found['table']} | {found['rows']} | {q} | {found['ours'][k]:.1f} | {told} "
                f"| {found['exponential'][k]:.1f} | {other} | {found['interval'][k]:.1%} "
                f"| {found['held'][k]:.0%} | {found['exponential interval'][k]:.1%} |"
            )
    versions = {"discreet": importlib.metadata.version("discreet"), "opendp": peer and peer["version"]}
    save("quantiles", {"cases": result, "fractions": FRACTIONS, "promises": PROMISES, "versions": versions})


if __name__ == "__main__":
    main()
