"""The third paper's figures: what is kept in the repository, and a short run of what draws it."""

from __future__ import annotations

import csv
import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "figures"
Row = dict[str, str]


def kept(name: str) -> list[Row]:
    with (FIGURES / "large-margin-gaussian" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Import the script as ``make figures`` does, writing elsewhere."""
    monkeypatch.syspath_prepend(str(FIGURES))
    module = importlib.import_module("large_margin")
    monkeypatch.setattr(module, "OUT", tmp_path)
    yield module
    for name in ("foundation", "large_margin"):
        sys.modules.pop(name, None)


def measured() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / "large_margin.json").read_text())
    return found


def test_one_tilt_for_all_classes_decides_as_if_there_were_none() -> None:
    rows = {row["panel"]: row for row in kept("regions")}
    assert float(rows["as printed: one b for all classes"]["same_as_without_noise"]) == 1.0
    assert float(rows["epsilon 1, delta 1e-5"]["accuracy"]) > 0.9
    assert float(rows["semidefinite class by class"]["accuracy"]) < 0.8


def test_the_kept_accuracies_are_those_that_were_measured() -> None:
    tables = measured()["accuracy"]
    for row in kept("accuracy"):
        assert row["table"] in tables
    ours = [row for row in kept("accuracy") if row["learner"] == "ours, delta = 1e-5"]
    for row in ours:
        label = f"objective, delta, epsilon {float(row['epsilon']):g}"
        assert float(row["mean"]) == pytest.approx(tables[row["table"]][label]["mean"])


def test_digits_are_told_apart_as_well_as_was_asked_for() -> None:
    tables = measured()["accuracy"]
    assert tables["digits-8"]["objective, delta, epsilon 3"]["mean"] >= 0.815
    assert tables["digits-8"]["output, delta, epsilon 3"]["mean"] >= 0.763
    assert tables["digits-25"]["objective, pure, epsilon 10"]["mean"] >= 0.727
    assert tables["digits-25"]["output, pure, epsilon 10"]["mean"] >= 0.525
    for name in ("digits-8", "digits-25"):
        for epsilon in (1, 3, 10):
            mean = tables[name][f"objective, delta, epsilon {epsilon}"]["mean"]
            for peer in ("logistic regression", "naive Bayes"):
                assert mean > tables[name][f"diffprivlib {peer}, epsilon {epsilon}"]["mean"]


def test_the_solver_is_three_times_as_fast_as_scs_and_its_cost_is_linear_in_rows() -> None:
    found = measured()
    assert found["speed"]["clinic"]["unconstrained"]["ratio"] >= 3
    assert found["speed"]["clinic"]["constrained"]["ratio"] >= 3
    small, large = (found["rows"][n] for n in ("15000", "60000"))
    by_row = "microseconds_by_row_and_evaluation"
    assert large[by_row] < 1.25 * small[by_row]
    assert large["peak_mb"] < 4096


@pytest.mark.slow
def test_a_short_run_draws_the_same_things(script: Any, tmp_path: Path) -> None:
    script.regions(n=400, cells=20)
    script.accuracy()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"regions.png", "regions.csv", "accuracy.png", "accuracy.csv"}


def test_without_results_the_figure_stays(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "RESULTS", tmp_path / "absent.json")
    script.accuracy()
    assert "left as it is" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
