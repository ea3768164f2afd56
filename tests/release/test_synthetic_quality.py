"""Synthetic tables of the census are as good as they were when the method was specified."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("DISCREET_DATA") or ROOT.parent / "shared" / "data")
EPSILONS = (0.1, 1.0, 4.0, 10.0)
LEAST_AUC = dict(zip(EPSILONS, (0.865, 0.89, 0.905, 0.905), strict=True))
MOST_DISTANCE = {
    (): dict(zip(EPSILONS, (0.09, 0.030, 0.017, 0.014), strict=True)),
    ("--cut",): dict(zip(EPSILONS, (0.10, 0.033, 0.020, 0.017), strict=True)),
}
"""Mean distance of two-way tables in total variation, with declared cells and with private cuts."""


@pytest.mark.slow
@pytest.mark.parametrize("options", MOST_DISTANCE, ids=("declared", "cut"))
def test_a_learner_and_two_way_tables_are_as_good_as_specified(options: tuple[str, ...]) -> None:
    if not (FOLDER / "adult.parquet").exists():
        pytest.skip("adult.parquet is not in the folder that DISCREET_DATA names")
    environment = {**os.environ, "DISCREET_DATA": str(FOLDER), "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "benchmarks/synthetic.py", "adult",
         "--no-record", "--seeds", "1", "2", "3", *options],
        cwd=ROOT, env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) == len(EPSILONS)
    for epsilon, line in zip(EPSILONS, lines, strict=True):
        figures = dict(part.rsplit(" ", 1) for part in line.split(": ", 1)[1].split(", "))
        # The seeds are fixed, and so are the figures: no alarm is false.
        if not options:
            assert float(figures["auc"]) >= LEAST_AUC[epsilon], line
        assert float(figures["tv2"]) <= MOST_DISTANCE[options][epsilon], line
