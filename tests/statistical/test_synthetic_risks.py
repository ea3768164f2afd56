"""Synthetic tables of the census: our own attacks, and Anonymeter as an outside check.

Anonymeter needs other versions of libraries than this project. Install it into an environment of its own, and
name its Python: ``python -m venv /tmp/anonymeter && /tmp/anonymeter/bin/pip install anonymeter``, then
``DISCREET_ANONYMETER=/tmp/anonymeter/bin/python make stats``.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from discreet import ApproxDP, datasets
from discreet.audit import attack_members
from discreet.noise import Stream, permutation
from discreet.release.synthetic import SyntheticRelease
from discreet.tables import open_table

if TYPE_CHECKING:
    from discreet.audit import MemberComparison
    from discreet.schema import Schema

pytestmark = pytest.mark.stats
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "synthetic_risks.json"
EPSILONS = (0.1, 1.0, 4.0, 10.0)
RELEASES, MANY_RELEASES = 20, 100
"""Number of releases that are attacked; many at the smallest epsilon, whose bound is close to a guess."""
SECRET, ATTACKS = "occupation", 500


def census() -> tuple[Schema, dict[str, Any]]:
    """Declare the census, and encode its rows."""
    bundled = datasets.load("census")
    schema = bundled.schema
    with open_table(bundled.path) as table:
        batches = list(table.batches(schema))
    names = [column.name for column in schema.released]
    return schema, {name: np.concatenate([batch[name] for batch in batches]) for name in names}


def record(name: str, found: dict[str, Any]) -> None:
    """Write results down, to be committed."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps({**known, name: found}, indent=2, sort_keys=True) + "\n")


def summarize(results: list[MemberComparison]) -> dict[str, float]:
    """Return the mean over releases with its interval of 95 %, and the bound."""
    values = np.array([result.value for result in results])
    reach = 1.96 * float(values.std(ddof=1)) / len(values) ** 0.5
    mean = float(values.mean())
    found = {"mean": mean, "lower": mean - reach, "upper": mean + reach, "bound": results[0].bound}
    # Without the sign of a zero.
    return {name: round(value, 4) + 0.0 for name, value in found.items()}


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("people", [48_842, 4_000], ids=["all", "few"])
def test_people_in_a_table_can_hardly_be_told_from_others(people: int, epsilon: float) -> None:
    """Seeds are fixed, so this fails for a change of the program and not by chance."""
    schema, rows = census()
    found: dict[str, list[MemberComparison]] = {}
    for i in range(MANY_RELEASES if epsilon < 1 else RELEASES):
        stream = Stream.from_seed(i)
        chosen = permutation(len(rows[SECRET]), stream)[:people]
        some = {name: values[chosen] for name, values in rows.items()}
        method = SyntheticRelease(ApproxDP(epsilon=epsilon, delta=1e-6), schema=schema, anyway=True)
        for result in attack_members(method, some, on="rows", stream=stream.derive("attack")):
            found.setdefault(result.attack, []).append(result)
    means = {attack: summarize(results) for attack, results in found.items()}
    record(f"members of a table of {people // 2} rows, epsilon {epsilon:g}", means)
    for attack in ("shadow models", "nearest row", "likelihood"):
        if people // 2 > 5_000 and epsilon <= 1:
            assert means[attack]["mean"] <= 0.52
    # At the smallest epsilon the bound is closer to a guess than the interval is wide.
    largest = "mean" if epsilon < 1 else "upper"
    assert all(mean[largest] <= mean["bound"] for mean in means.values())


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("people", [48_842, 4_000], ids=["all", "few"])
def test_anonymeter_finds_no_more_risk_than_the_promise_allows(
    tmp_path: Path, people: int, epsilon: float
) -> None:
    python = os.environ.get("DISCREET_ANONYMETER")
    if not python:
        pytest.skip(f"NOT CHECKED: Anonymeter's risks. {__doc__}")
    schema, rows = census()
    order = permutation(len(rows[SECRET]), Stream.from_seed(1))
    half = people // 2
    frame = pd.read_parquet(datasets.load("census").path)[list(rows)]
    original, control = frame.iloc[order[:half]], frame.iloc[order[half : 2 * half]]
    promise = ApproxDP(epsilon=epsilon, delta=1e-6)
    method = SyntheticRelease(promise, schema=schema, anyway=True, random_state=1)
    made = method.release(original)
    synthetic = pd.DataFrame({name: made.decoded(name) for name in rows})
    for name, table in (("original", original), ("control", control), ("synthetic", synthetic)):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    script = Path(__file__).with_name("anonymeter_risks.py")
    command = [python, str(script), str(tmp_path), SECRET, str(ATTACKS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (kept,) = method.promises_
    for risk in found.values():
        # The risk is the difference of two rates, over what the control rate leaves.
        risk["bound"] = kept.delta_at(0.0) / (1 - risk["control"])
    rounded = {
        name: {what: np.round(value, 4).tolist() for what, value in risk.items()}
        for name, risk in found.items()
    }
    record(f"Anonymeter, a table of {half} rows, epsilon {epsilon:g}", rounded)
    assert all(risk["sure_interval"][0] <= risk["bound"] for risk in found.values())
