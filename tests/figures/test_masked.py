"""The second paper's figures: what is kept in the repository, and a short run of what draws it."""

from __future__ import annotations

import csv
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

FIGURES = Path(__file__).parents[2] / "figures"
SCRIPTS = ("foundation", "fisher", "masked", "masked_tables", "masked_digits", "masked_twelve")
Row = dict[str, str]


def kept(name: str) -> list[Row]:
    with (FIGURES / "masked" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Import figure scripts as ``make figures`` does, writing elsewhere."""
    monkeypatch.syspath_prepend(str(FIGURES))
    with monkeypatch.context() as patch:

        def load(name: str) -> Any:
            module = importlib.import_module(name)
            patch.setattr(importlib.import_module("masked"), "OUT", tmp_path)
            return module

        yield load
    for name in SCRIPTS:
        sys.modules.pop(name, None)


# Figure 2


def test_points_bring_back_the_classifier_that_the_initial_records_lost() -> None:
    rows = {row["trained_on"]: float(row["accuracy"]) for row in kept("fig2") if row["epsilon"] == "none"}
    assert 0.89 < rows["true rows"] < 0.905
    assert rows["initial records alone"] < 0.55
    for name in ("300 points beside the fake class", "100 points, no fake class"):
        assert rows[name] == rows["true rows"]


def test_beside_a_fake_class_the_weights_are_shortened_and_without_one_they_are_not() -> None:
    rows = {
        row["trained_on"]: float(row["weights_shortened_to"])
        for row in kept("fig2")
        if row["epsilon"] == "none"
    }
    assert 0.3 < rows["300 points beside the fake class"] < 0.45
    assert rows["100 points, no fake class"] == 1.0


# Utility bounds


def test_the_corrected_second_proposition_lies_between_the_losses_and_the_printed_one() -> None:
    rows = kept("bounds")
    assert len(rows) == 7
    for row in rows:
        lost, corrected, printed = (
            float(row[name])
            for name in ("output_loss_q95", "proposition_2_corrected", "proposition_2_printed")
        )
        assert lost < corrected < 3 * lost
        assert 47 < printed / corrected < 48
        assert float(row["input_loss_q95"]) < float(row["proposition_5_corrected"])


# Figures 3 and 4


@pytest.mark.parametrize("digits", ["3 behind 6", "4 behind 8"])
def test_masked_digits_carry_the_classifier_of_the_true_ones(digits: str) -> None:
    true, initial, masked = (
        row for row in kept("fig3_fig4") if row["digits"] == digits and row["promise"] == "none"
    )
    assert float(true["accuracy"]) > 0.95
    assert float(initial["accuracy"]) < 0.8
    assert masked["accuracy"] == true["accuracy"]
    assert float(masked["cosine_with_true_classifier"]) == pytest.approx(1, abs=1e-9)


# Figure 5


def means(way: str, n: int, epsilon: float) -> dict[str, float]:
    return {
        row["table"]: float(row["accuracy"])
        for row in kept("fig5")
        if row["way"] == way and float(row["rows"]) == n and float(row["epsilon"]) == epsilon
    }


@pytest.mark.parametrize("n", [100, 200])
@pytest.mark.parametrize("epsilon", [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50])
def test_masked_data_are_worth_exactly_the_noisy_classifier(n: int, epsilon: float) -> None:
    masked = means("masked", n, epsilon)
    assert len(masked) == 12
    assert masked == means("output", n, epsilon)


def test_the_paper_s_comparisons_hold_and_one_of_its_claims_does_not() -> None:
    def mean(way: str, n: int, epsilon: float) -> float:
        return float(np.mean(list(means(way, n, epsilon).values())))

    for epsilon in (0.5, 1, 2, 5):
        assert mean("masked", 200, epsilon) > mean("masked", 100, epsilon) + 0.01
        assert mean("tight", 200, epsilon) >= mean("masked", 200, epsilon)
        assert mean("masked", 200, epsilon) > mean("input", 200, epsilon) + 0.03
    # "Does not change much as N increases", it says of noise on every row.
    assert mean("input", 200, 5) > mean("input", 100, 5) + 0.015
    # And for most of the noisy classifiers no points exist as they are.
    assert float(np.mean(list(means("exists", 100, 0.5).values()))) < 0.3


# The scripts


@pytest.mark.slow
def test_a_short_run_draws_the_plane_and_the_bounds(script: Any, tmp_path: Path) -> None:
    masked = script("masked")
    masked.figure_2(tests=300, repetitions=2)
    masked.ROWS = (60, 120)
    masked.figure_bounds(repetitions=3)
    assert {path.name for path in tmp_path.iterdir()} == {"fig2.png", "fig2.csv", "bounds.png", "bounds.csv"}


@pytest.mark.parametrize("name", ["masked_digits", "masked_twelve"])
def test_without_the_tables_a_script_says_so_aloud_and_leaves_what_is_there(
    script: Any,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DISCREET_DATA", str(tmp_path / "nowhere"))
    script(name).main()
    assert "SKIPPED" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_declared_ranges_map_a_table_into_the_box_and_missing_cells_to_the_middle(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISCREET_DATA", str(tmp_path))
    source = script("masked_tables").SOURCES["mammographic"]
    duckdb.sql(
        "COPY (SELECT * FROM (VALUES (20, 1, 1, 1, 0), (NULL, 4, 2, NULL, 1), (200, 2, 3, 5, 1)) "
        f"t(age, density, shape, margin, severity)) TO '{tmp_path}/mammographic_masses.parquet'"
    )
    X, y = source.read(two_classes=True)
    assert X.shape == (3, 11)
    assert y.tolist() == [0, 1, 1]
    assert X[:, 0].tolist() == [-1, 0, 1]
    # Levels of shape, then those of margin; a missing one is none of them.
    assert X[1, 2:].tolist() == [-1, 1, -1, -1] + [-1] * 5
    wide, _ = source.read(two_classes=True, wide=True)
    assert wide[0, 0] == -1
    assert wide[1, 0] == pytest.approx(-0.5)


def test_a_short_run_on_drawn_rows_gives_a_line_for_each_way(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISCREET_DATA", str(tmp_path))
    twelve = script("masked_twelve")
    duckdb.sql(
        "COPY (SELECT i % 13 AS recency_months, i % 7 AS frequency_times, 250 * (i % 7) AS "
        "monetary_cc_blood, i % 50 AS time_months, CAST(i % 7 > 3 AS INTEGER) AS donated_march_2007 "
        "FROM range(120) r(i)) "
        f"TO '{tmp_path}/blood_transfusion.parquet'"
    )
    lines = twelve.measure("transfusion", 2, sizes=(60,))
    scores = {(line[2], line[3]): line[4] for line in lines}
    assert len(scores) == 1 + 5 * len(twelve.EPSILONS)
    assert all(scores["masked", epsilon] == scores["output", epsilon] for epsilon in twelve.EPSILONS)
    assert scores["tight", 50.0] == pytest.approx(scores["none", 0.0], abs=0.05)
