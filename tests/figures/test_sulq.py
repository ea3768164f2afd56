"""The private database's figures: what is kept in the repository, and a short run of what draws it."""

from __future__ import annotations

import csv
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

FIGURES = Path(__file__).parents[2] / "figures"
RESULTS = FIGURES.parent / "benchmarks" / "results"
LEARNERS = {
    "pca": "sulq_unsupervised",
    "kmeans": "sulq_unsupervised",
    "id3": "sulq_supervised",
    "naive_bayes": "sulq_supervised",
    "logistic": "sulq_supervised",
    "perceptron": "sulq_supervised",
}
Row = dict[str, str]


def kept(name: str) -> list[Row]:
    with (FIGURES / "sulq" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def needs_results_of(name: str) -> None:
    if not (RESULTS / f"{LEARNERS[name]}.json").is_file():
        pytest.skip(f"drawn from {LEARNERS[name]}.json, which benchmarks/{LEARNERS[name]}.py writes")


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(FIGURES))
    before = set(sys.modules)
    module = importlib.import_module("sulq")
    monkeypatch.setattr(module, "OUT", tmp_path)
    yield module
    for name in set(sys.modules) - before:
        if (FIGURES / f"{name}.py").is_file():
            del sys.modules[name]


def test_variances_are_the_reference_values() -> None:
    (row,) = [row for row in kept("variance") if row["epsilon"] == "1" and row["T"] == "100"]
    assert float(row["theorem_1"]) == pytest.approx(271457.18325649, rel=1e-8)
    assert float(row["theorem_4"]) == pytest.approx(232662.02562926, rel=1e-8)
    assert float(row["corrected"]) == pytest.approx(2862.22866635, rel=1e-8)
    assert float(row["dp_exact"]) == pytest.approx(1784.79117179, rel=1e-8)


def test_noise_falls_below_sampling_error_and_measured_noise_is_what_was_asked_for() -> None:
    rows = kept("noise")
    first, last = rows[0], rows[-1]
    assert float(first["exact_T_100"]) > float(first["sampling_error"])
    assert float(last["theorem_1_T_100"]) < float(last["sampling_error"])
    for row in kept("noise_measured"):
        wanted = 1784.79117179**0.5 / float(row["rows"])
        # Of 40 answers the root mean square is within 40 % but for a chance of 1e-5.
        assert float(row["root_mean_square_error_T_100"]) == pytest.approx(wanted, rel=0.4)
    for row in kept("questions"):
        assert float(row["theorem_1"]) < float(row["exact"]) < float(row["rows"])


def test_the_number_of_questions_solves_its_equation(drawn: Any) -> None:
    from discreet.privacy._posterior_odds import dp_variance, theorem_1_variance

    for n in (1e5, 1e7):
        exact = drawn.most_questions(n, printed=False)
        assert dp_variance(1.0, 1e-6, 1) * exact == pytest.approx(n / 4, rel=1e-6)
        printed = int(drawn.most_questions(n, printed=True))
        assert theorem_1_variance(1.0, 1e-6, printed) <= n / 4 < theorem_1_variance(1.0, 1e-6, printed + 1)


def test_pictures_are_drawn_from_results_with_gaps(drawn: Any, tmp_path: Path) -> None:
    quartile = {"lower": 0.6, "median": 0.7, "upper": 0.8}
    found = {f"epsilon {e:g}": {"ours": quartile, "diffprivlib": None} for e in drawn.EPSILONS}
    found["epsilon 0.1"] = {"ours": quartile, "diffprivlib": quartile}
    lines = drawn.lines_of(found, {"ours": "ours", "diffprivlib": "diffprivlib", "absent": "forest"})
    assert set(lines) == {"ours", "diffprivlib"}
    assert list(lines["diffprivlib"]) == [0.1]
    drawn.draw_learner("few", "title", "share", {"a": lines, "b": lines}, {"a": (0.5, "largest class")})
    assert (tmp_path / "few.png").stat().st_size > 5000
    with (tmp_path / "few.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 2 * 4


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_has_a_picture_with_its_numbers(name: str) -> None:
    needs_results_of(name)
    assert (FIGURES / "sulq" / f"{name}.png").is_file()
    rows = kept(name)
    assert {row["line"] for row in rows} >= {"ours", "ours, pure"}
    assert all(float(row["lower"]) <= float(row["median"]) <= float(row["upper"]) for row in rows)


@pytest.mark.parametrize(("name", "better"), [("pca", 1), ("kmeans", -1)])
def test_components_and_clusters_are_ahead_of_diffprivlib_where_it_answers(name: str, better: int) -> None:
    needs_results_of(name)
    rows = {(row["table"], row["line"], row["epsilon"]): float(row["median"]) for row in kept(name)}
    peers = [key for key in rows if key[1] == "diffprivlib"]
    assert peers
    for table, _, epsilon in peers:
        ours, theirs = rows[table, "ours", epsilon], rows[table, "diffprivlib", epsilon]
        assert better * ours > better * theirs
