"""Recommendations of ``discreet plan`` beside what every way achieves on public tables.

For each table and epsilon, the ways are tried twice: on made-up rows of the same schema and length, as
``discreet plan`` does, and on the true rows, with a part held back. The recommendation comes from the former,
its worth from the latter. The rule was chosen on the tables of ``CHOSEN_ON``, by looking at these alone.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

import numpy as np
from classifier_tables import (
    abalone,
    adult,
    australian,
    blood,
    breast,
    cleveland,
    german,
    heart,
    lending,
    mammo,
    pima,
    segment,
    splice,
    waveform,
    wdbc,
)  # fmt: skip
from measure import RESULTS, save

from discreet.evaluation.way_choice import TASKS, task_score
from discreet.evaluation.ways import ComparedRows, Way, measure_ways
from discreet.noise import Stream
from discreet.pipeline.plan import PlanBasis
from discreet.pipeline.ways import plan_ways
from discreet.privacy import ApproxDP
from discreet.tables import open_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sulq_tables import Table

    from discreet._types import AnyArray
    from discreet.schema import Schema

CHOSEN_ON: tuple[Callable[[], Table], ...] = (
    abalone, australian, breast, german, lending, pima, splice, wdbc,
)  # fmt: skip
"""Every other table by name; the rule of the recommendation was chosen on these."""
UNSEEN: tuple[Callable[[], Table], ...] = (adult, blood, cleveland, heart, mammo, segment, waveform)
"""The others, which were looked at after the rule was fixed."""
EPSILONS = (0.1, 1.0, 10.0)
DELTA = 1e-6
TEST_SHARE = 0.2
POINT = 0.01
LONG = 20_000
"""Number of rows from which on a table is parted twice and not five times."""
RAW = RESULTS / "plan_ways.jsonl"


def read_rows(table: Table) -> dict[str, AnyArray]:
    """Return all rows of a table, encoded as its schema declares them."""
    with open_table(table.rows) as source:
        batches = list(source.batches(table.schema))
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def run_table(make: Callable[[], Table]) -> None:
    """Append the outcomes of every way on true rows of one table to the raw results."""
    table = make()
    schema, rows = table.schema, read_rows(table)
    n = len(next(iter(rows.values())))
    n_train = n - round(TEST_SHARE * n)
    for seed in range(2 if n >= LONG else 5):
        order = Stream.from_seed(seed).generator().permutation(n)
        train, test = (
            {name: values[places] for name, values in rows.items()}
            for places in (order[:n_train], order[n_train:])
        )
        for epsilon in EPSILONS:
            compared = ComparedRows(schema, train, test, Stream.from_seed(seed).derive("ways"))
            ways = measure_ways(schema, compared, n_train, privacy=_promise(schema, epsilon), floors={})
            found = {
                "table": make.__name__, "seed": seed, "epsilon": epsilon, "rows": n_train,
                "ways": [way.to_dict() for way in ways], "baselines": compared.baselines(),
            }  # fmt: skip
            with RAW.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
        print(make.__name__, seed, flush=True)


def _promise(schema: Schema, epsilon: float) -> ApproxDP:
    return ApproxDP(epsilon=epsilon, delta=DELTA, neighbors=schema.neighbors, unit=schema.unit)


def read_outcomes() -> dict[tuple[str, float], list[Way]]:
    """Return the mean outcome of every way on true rows, by table and epsilon."""
    runs: dict[tuple[str, float], list[Any]] = {}
    for line in RAW.read_text(encoding="utf-8").splitlines():
        found = json.loads(line)
        runs.setdefault((found["table"], found["epsilon"]), []).append(found["ways"])
    return {key: [_mean_way(same) for same in zip(*found, strict=True)] for key, found in runs.items()}


def _mean_way(runs: Sequence[dict[str, Any]]) -> Way:
    """Return one way with the mean outcome of several runs."""
    values = {name: value for name, value in runs[0].items() if name != "title"}
    for name in ("accuracy", "table_error", "mean_error"):
        given = [run[name] for run in runs if run[name] is not None]
        values[name] = float(np.mean(given)) if given else None
    return Way(**values)


def judge(make: Callable[[], Table], outcomes: dict[tuple[str, float], list[Way]]) -> list[dict[str, Any]]:
    """Return for each epsilon and purpose the recommended way, the best one, and what lies between them."""
    table, found = make(), []
    n_train = len(table.rows) - round(TEST_SHARE * len(table.rows))
    for epsilon in EPSILONS:
        planned = plan_ways(
            table.rows, schema=table.schema, privacy=_promise(table.schema, epsilon),
            basis=PlanBasis(n_rows=n_train),
        )  # fmt: skip
        for task in TASKS:
            true = {way.name: task_score(way, task) for way in outcomes[make.__name__, epsilon]}
            scores = {name: score for name, score in true.items() if score is not None}
            if not scores:
                continue
            best = max(scores, key=lambda name: scores[name])
            chosen = planned.choice.by_task.get(task)
            found.append(
                {
                    "table": make.__name__, "rows": n_train, "epsilon": epsilon, "task": task,
                    "recommended": chosen, "overall": planned.choice.way, "best": best,
                    "outcome": scores.get(chosen), "best outcome": scores[best],
                    "outcomes": scores,
                }
            )  # fmt: skip
    return found


def summarize(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how often the recommended way is the best one, or within one point of it."""
    summary: dict[str, Any] = {}
    for half, makes in (("chosen on", CHOSEN_ON), ("unseen", UNSEEN)):
        names = {make.__name__ for make in makes}
        for epsilon in EPSILONS:
            for task in TASKS:
                cases = [
                    case for case in found
                    if case["table"] in names and case["epsilon"] == epsilon and case["task"] == task
                ]  # fmt: skip
                losses = [
                    case["best outcome"] - case["outcome"] for case in cases if case["outcome"] is not None
                ]
                summary[f"{half}, epsilon {epsilon:g}, {task}"] = {
                    "cases": len(cases),
                    "best": sum(loss == 0 for loss in losses),
                    "within a point": sum(loss <= POINT for loss in losses),
                    "mean loss": round(float(np.mean(losses)), 4) if losses else None,
                    "largest loss": round(max(losses), 4) if losses else None,
                }
    return summary


def main() -> None:
    """Measure the tables whose names are given, or those without results, then judge the recommendations."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="*")
    names = parser.parse_args().tables
    done = {name for name, _ in read_outcomes()} if RAW.exists() else set()
    for make in (*CHOSEN_ON, *UNSEEN):
        if make.__name__ in names or (not names and make.__name__ not in done):
            run_table(make)
    if names:
        return
    outcomes = read_outcomes()
    found = [case for make in (*CHOSEN_ON, *UNSEEN) for case in judge(make, outcomes)]
    save("plan_ways", {"cases": found, "summary": summarize(found)})
    for name, line in summarize(found).items():
        print(name, line)


if __name__ == "__main__":
    main()
