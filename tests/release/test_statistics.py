"""Statistics from published tables: which tables hold what, and what the rest is bounded by."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from discreet import ApproxDP, PureDP
from discreet.errors import ParameterError
from discreet.release.statistics import TableStatistics
from discreet.release.synthetic import SyntheticRelease
from discreet.schema import Column, Schema
from tests.release.redrawn_tables import covered, redraw, true_rows
from tests.release.synthetic_tables import mixed_rows, mixed_schema

PRIVACY = ApproxDP(epsilon=4, delta=1e-6)
CONDITIONS: dict[str, Any] = {
    "ill = 1": lambda r: r["ill"] == 1,
    "age >= 40": lambda r: r["age"] >= 40,
    "age > 39 AND ill = 0": lambda r: (r["age"] > 39) & (r["ill"] == 0),
    "age BETWEEN 20 AND 59": lambda r: (r["age"] >= 20) & (r["age"] <= 59),
    "NOT (age < 20 OR ill = 1)": lambda r: (r["age"] >= 20) & (r["ill"] == 0),
    "town IN ('east', 'other')": lambda r: np.isin(r["town"].astype(str), ["east", "north"]),
    "town IS NULL": lambda r: r["town"] == None,  # noqa: E711, of each element
    "town <> 'east'": lambda r: np.isin(r["town"].astype(str), ["west", "north"]),
    "pay IS NULL": lambda r: np.isnan(r["pay"]),
    "pay >= 300 OR pay IS NULL": lambda r: ~(r["pay"] < 300),
    "NOT pay < 100": lambda r: r["pay"] >= 100,
    "size = 2 AND age < 20": lambda r: (r["size"] == 2) & (r["age"] < 20),
    "age >= 65": lambda r: r["age"] >= 65,  # on the edges of fine cells alone
    "age < 20 AND town = 'west' AND ill = 0": lambda r: (
        (r["age"] < 20) & (r["town"] == "west") & (r["ill"] == 0)
    ),
}


@pytest.mark.parametrize("where", CONDITIONS)
def test_counts_without_noise_are_those_of_the_rows(where: str) -> None:
    result = TableStatistics(redraw(PRIVACY, None)).count(where)
    assert result.basis == "tables"
    assert result.value == pytest.approx(int(np.sum(CONDITIONS[where](true_rows()))))
    assert result.cost == ()
    assert "Cost: nothing" in str(result)


def test_several_tables_are_weighted_by_their_precision() -> None:
    document = redraw(PRIVACY, 1)
    counted = TableStatistics(document).count("age >= 40 AND ill = 1", by="town")
    values, weights = [], []
    for asked in document["questions"]:
        for table in asked.get("tables", ()):
            if not {"age", "ill", "town"} <= set(table["columns"]):
                continue
            cells = asked["values"][table["first"] : table["first"] + table["size"]]
            shaped = np.reshape(cells, [len(asked["cells"][name]) for name in table["columns"]])
            k, size = 2, shaped.size
            values.append(shaped[2:, 0, 1].sum() + k / size * (2000 - shaped.sum()))
            weights.append(1 / (table["sd"] ** 2 * k * (1 - k / size)))
    assert counted.cells[0].value == pytest.approx(np.average(values, weights=weights))
    assert counted.cells[0].sd == pytest.approx(sum(weights) ** -0.5)


def test_groups_have_the_cells_of_the_tables_or_coarser_ones() -> None:
    statistics, rows = TableStatistics(redraw(PRIVACY, None)), true_rows()
    by_cells = statistics.count(by="age")
    assert [cell.key[0] for cell in by_cells.cells] == [
        "below 20",
        "20 to below 40",
        "40 to below 60",
        "60 or more",
    ]
    coarse = statistics.count("ill = 1", by="age (40), size")
    assert coarse.group_by == ("age", "size")
    assert [cell.key[1] for cell in coarse.cells[:4]] == ["0", "1", "2", "3"]
    exact = [
        np.sum((rows["ill"] == 1) & ((rows["age"] >= 40) == old) & (rows["size"] == size))
        for old, size in itertools.product((False, True), range(4))
    ]
    assert [cell.value for cell in coarse.cells] == pytest.approx(exact)
    assert len(statistics.crosstab("town", "ill").to_pandas()) == 8


def test_results_are_shown_like_those_of_queries() -> None:
    result = TableStatistics(redraw(PRIVACY, 2)).crosstab("age", "ill")
    assert list(result.to_pandas().columns) == ["age", "ill", "value", "sd", "lower", "upper"]
    assert result.to_csv().count("\n") == 9
    assert "<svg" in result.plot()
    assert "60 or more" in result._repr_html_()
    assert (
        sum(cell.value or 0 for cell in result.consistent().adjusted.numbers(result.table.columns[0])) == 2000
    )
    assert repr(result) == "StatisticResult('count by age (20, 40, 60), ill': 8 groups)"
    assert result.to_dict()["cost"] == []


def test_means_lie_between_the_ends_of_their_cells() -> None:
    statistics, rows = TableStatistics(redraw(PRIVACY, None)), true_rows()
    age = statistics.mean("age")
    assert covered(age, rows["age"].mean()) == [True]
    assert age.interval().upper - age.interval().lower < 5  # fine cells are 2 to 5 wide
    by_ill = statistics.mean("age", by="ill")
    assert covered(by_ill, [rows["age"][rows["ill"] == ill].mean() for ill in (0, 1)]) == [True, True]
    assert covered(statistics.mean("pay", where="age < 20"), np.nanmean(rows["pay"][rows["age"] < 20])) == [
        True
    ]
    # One value in each cell: nothing is unknown but the noise.
    exact = statistics.mean("size", where="ill = 1")
    assert exact.value == pytest.approx(rows["size"][rows["ill"] == 1].mean())


def test_proportions_and_correlations_without_noise_are_those_of_the_rows() -> None:
    statistics, rows = TableStatistics(redraw(PRIVACY, None)), true_rows()
    assert statistics.proportion("ill = 1").value == pytest.approx(rows["ill"].mean())
    shares = statistics.proportion("ill = 1", where="age >= 40", by="size")
    old = [(rows["age"] >= 40) & (rows["size"] == size) for size in range(4)]
    exact = [rows["ill"][one].mean() for one in old]
    assert [cell.value for cell in shares.cells[:3]] == pytest.approx(exact[:3])
    assert all(covered(shares, exact))  # the last has too few rows for their noise
    found = statistics.correlation("size", "ill")
    assert found.value == pytest.approx(np.corrcoef(rows["size"], rows["ill"])[0, 1])
    wide = statistics.correlation("age", "size").interval()
    assert wide.lower < np.corrcoef(rows["age"], rows["size"])[0, 1] < wide.upper


def test_what_tables_do_not_hold_is_bounded_and_says_so() -> None:
    rows = true_rows()
    document = redraw(PRIVACY, None)
    made = {
        "age": np.full(4, 30.0),
        "pay": np.zeros(4),
        "town": np.zeros(4, int),
        "size": np.zeros(4),
        "ill": np.ones(4, int),
    }
    statistics = TableStatistics(document, rows=lambda: made)
    apart = statistics.crosstab("town", "size")
    exact = [
        np.sum(
            (np.array([{"east": 0, "west": 1, "north": 2, None: 3}[t] for t in rows["town"]]) == town)
            & (rows["size"] == size)
        )
        for town, size in itertools.product(range(4), range(4))
    ]
    assert apart.basis == "bounds"
    assert all(covered(apart, exact))
    assert "town and size were not counted together" in str(apart)
    assert "Asked as a query for epsilon 0.1" in str(apart)
    cut = statistics.count("age >= 41")
    assert cut.basis == "bounds"
    assert covered(cut, np.sum(rows["age"] >= 41)) == [True]
    assert "A condition cuts cells" in str(cut)
    places = np.array([{"east": 0, "west": 1, "north": 2, None: 3}[t] for t in rows["town"]])
    size = [rows["size"][places == place] for place in range(4)]
    means, shares = statistics.mean("size", by="town"), statistics.proportion("size = 0", by="town")
    assert means.basis == shares.basis == "bounds"
    assert all(covered(means, [one.mean() for one in size]))
    assert all(covered(shares, [np.mean(one == 0) for one in size]))
    assert means.cells[0].upper - means.cells[0].lower < 2
    model = statistics.mean("size", where="town = 'east' AND pay < 100")
    assert (model.basis, model.value, model.interval()) == ("model", 0.0, (0.0, 3.0))
    assert "nothing bounds its error" in str(model)
    with pytest.raises(ParameterError, match="town and size were not counted together"):
        TableStatistics(document).mean("size", by="town")


@pytest.mark.parametrize("privacy", [PRIVACY, PureDP(epsilon=40)])
def test_a_private_number_of_rows_is_estimated_from_all_tables(privacy: Any) -> None:
    document = redraw(privacy.__class__(**{**_numbers(privacy), "neighbors": "add-remove"}), 4, "add-remove")
    whole = TableStatistics(document).count()
    assert whole.sd is not None
    assert 0 < whole.sd < 30
    assert whole.interval().lower < 2000 < whole.interval().upper
    assert whole.law == ("laplace" if isinstance(privacy, PureDP) else "gaussian")
    assert whole.interval(0.5).lower > whole.interval(0.99).lower


def _numbers(promise: Any) -> dict[str, float]:
    return {key: value for key, value in promise.to_dict().items() if key in ("epsilon", "delta")}


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda s: s.count("age * 2 > 40"), "compare columns with constants"),
        (lambda s: s.count("age > size"), "compare columns with constants"),
        (lambda s: s.mean("town"), "must hold numbers, and 'town' is a category"),
        (lambda s: s.proportion("age"), "must be a condition"),
        (lambda s: s.count(by="age / 10"), "must name columns"),
        (lambda s: s.correlation("age", "age"), "was given twice"),
        (lambda s: s.count("heights > 3"), "heights"),
        (lambda s: s.count("age < 20 AND size = 1 AND town = 'west' AND pay < 100"), "not counted together"),
    ],
)
def test_wrong_questions_are_refused_with_a_reason(ask: Any, words: str) -> None:
    with pytest.raises(Exception, match=words):
        ask(TableStatistics(redraw(PRIVACY, 1)))


def test_every_kind_of_column_is_counted() -> None:
    method = SyntheticRelease(ApproxDP(epsilon=10, delta=1e-6), schema=mixed_schema(), random_state=2)
    made = method.release(mixed_rows())
    statistics = TableStatistics(method.tables_, rows=lambda: made.columns)
    rows = mixed_rows()
    day = statistics.mean("day")
    exact = (rows["day"] - np.datetime64("2001-01-01")).astype(float).mean()
    assert day.interval().lower <= exact <= day.interval().upper
    assert "2006" in str(day)
    owner = statistics.count("owner = TRUE")
    assert abs((owner.value or 0) - rows["owner"].sum()) < 6 * (owner.sd or 0)
    assert statistics.count(by="income").basis == "tables"
    late = statistics.count("day >= DATE '2006-01-01' AND ill = 1")
    assert late.interval().lower <= np.sum((rows["day"] >= np.datetime64("2006-01-01")) & (rows["ill"] == 1))


def test_rare_levels_share_a_cell() -> None:
    names = tuple(f"n{i}" for i in range(100))
    schema = Schema(
        columns=[Column("name", values=names, closed=True), Column("ill", values=(0, 1), role="target")]
    )
    rows = {"name": np.array(names, object)[np.minimum(np.arange(4000) % 200, 5)], "ill": np.arange(4000) % 2}
    method = SyntheticRelease(ApproxDP(epsilon=2, delta=1e-6), schema=schema, random_state=2)
    method.release(rows)
    statistics = TableStatistics(method.tables_)
    by_ill = statistics.crosstab("name", "ill")
    assert any("rare levels" in cell.key[0] for cell in by_ill.cells)
    assert len(statistics.count(by="name").cells) == 100  # alone, each level was counted
