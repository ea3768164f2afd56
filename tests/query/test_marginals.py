"""Many tables in one question, and their distances to public ones: exact, and charged for what moves."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest

from discreet import Database, GaussianDP, PureDP
from discreet.errors import ParameterError
from discreet.noise import Stream
from discreet.query.aggregates import MOST_CELLS, Dependence, Histogram, Marginals, _dependence, _marginals
from discreet.query.aggregates import aggregate_from_dict as from_dict
from discreet.query.calibration import QueryNoise
from discreet.query.costs import CostModel
from discreet.query.curation import Curation
from discreet.query.engines._duckdb import DuckDBEngine
from discreet.query.engines.tasks import KernelTotals, Tables
from discreet.query.features import Band
from discreet.query.passes import MarginalsPass
from discreet.schema import Column, Schema
from discreet.schema.schema import Neighbors
from tests.query.people import people, people_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from discreet._types import AnyArray
    from discreet.query.aggregates import Aggregate, BoundAggregate

    Row = tuple[Any, ...]
    Sizes = tuple[int, int]

NEIGHBORS: tuple[Neighbors, ...] = get_args(Neighbors)
# A closed list, one with "other", and a number in two cells that may be missing.
SCHEMA = Schema(
    columns=[
        Column("a", values=("p", "q"), closed=True),
        Column("b", values=("u",)),
        Column("x", lower=0, upper=1, required=False),
    ]
)
CURATION = Curation.from_schema(SCHEMA)
EDGES = {"x": [0.5]}
NAMES = SCHEMA.names
ROWS: list[Row] = list(itertools.product(("p", "q"), ("u", "unlisted"), (0.25, 0.75, None)))
PAIRS = list(itertools.combinations(NAMES, 2))
GIVEN = {"a": [2, 0, 0, 1], "b": [0, 1, 2, 0], "x": [1, 0, 1, 1, 0, 0]}  # with a
ALL = [*((name,) for name in NAMES), *PAIRS, NAMES]


def edges_for(tables: Iterable[Sequence[str]]) -> dict[str, list[float]]:
    """The edges of the columns that some tables have."""
    return {name: cuts for name, cuts in EDGES.items() if any(name in table for table in tables)}


@cache
def _opened(row: Row) -> DuckDBEngine:
    engine = DuckDBEngine()
    engine.register({name: [value] for name, value in zip(NAMES, row, strict=True)}, CURATION)
    return engine


class SmallTables:
    """The entries of an aggregate on every table of up to three rows; counts add up over rows."""

    def __init__(self, bound: BoundAggregate) -> None:
        self._bound = bound
        self._added = {row: bound.wanted.run_tasks(_opened(row), [bound.wanted])[0] for row in ROWS}
        self._known: dict[tuple[Row, ...], list[int]] = {}

    def entries(self, rows: Sequence[Row]) -> list[int]:
        """The exact integers of the aggregate on some rows."""
        key = tuple(sorted(rows, key=ROWS.index))
        if key not in self._known:
            counts = np.zeros(self._bound.wanted.size, np.int64)
            for row in rows:
                counts += self._added[row]
            self._known[key] = self._bound.finish(counts.tolist(), len(rows))
        return self._known[key]

    def largest_changes(self, neighbors: Neighbors, most: int = 1, others: int = 1) -> Sizes:
        """The largest weighted squares and absolute changes over neighbors whose unit has `most` rows."""
        units = list(itertools.combinations_with_replacement(ROWS, most))
        pairs: list[tuple[tuple[Row, ...], tuple[Row, ...]]]
        if neighbors == "add-remove":
            pairs = [(unit, ()) for unit in units]
        else:
            pairs = list(itertools.combinations(units, 2))
        squared = absolute = 0
        for size in range(others + 1):
            for rest in itertools.combinations_with_replacement(ROWS, size):
                for before, after in pairs:
                    u, v = self.entries((*rest, *before)), self.entries((*rest, *after))
                    moved = [abs(p - q) for p, q in zip(u, v, strict=True)]
                    bound = self._bound
                    squared = max(
                        squared, sum(p * c * c for p, c in zip(bound.precision, moved, strict=True))
                    )
                    absolute = max(absolute, sum(w * c for w, c in zip(bound.weight, moved, strict=True)))
        return squared, absolute


ASKED = [
    Marginals([("a",)]),
    Marginals(PAIRS, EDGES),
    Marginals([("a",), ("b",), ("x",)], EDGES, [1, 4, 9]),
    Marginals(ALL, EDGES, [1, 2, 3, 5, 8, 13, 4096]),
    Marginals([("b", "a"), ("x", "b", "a")], EDGES, [7, 1]),
    Marginals([("a",), ("b", "x"), ("b",)], EDGES, [1, 2, 4], {"b": (0, 0)}),
]


@pytest.mark.parametrize("neighbors", NEIGHBORS)
@pytest.mark.parametrize("question", ASKED, ids=lambda question: str(question.precisions))
def test_one_row_moves_all_tables_as_far_as_is_charged_and_no_further(
    question: Marginals, neighbors: Neighbors
) -> None:
    bound = question.bind(CURATION, neighbors)
    found = SmallTables(bound).largest_changes(neighbors)
    assert found == (bound.squared, bound.absolute)
    assert not bound.by_unit


def public_references() -> list[dict[str, Any]]:
    """Tables and margins of made-up rows, which do not depend on the rows of anybody."""
    made: list[dict[str, Any]] = []
    tables = SmallTables(Marginals(PAIRS, EDGES).bind(CURATION, "replace-one"))
    sizes = [4, 6, 6]
    for row in ROWS[::3]:
        values = tables.entries([row, row])
        ends = [0, *itertools.accumulate(sizes)]
        cut = [values[start:end] for start, end in itertools.pairwise(ends)]
        made.append({"kind": "tables", "values": cut})
    made.append({"kind": "tables", "values": [[-1] * size for size in sizes]})
    made.append({"kind": "given", "margins": {"a": [2, 0], "b": [0, 2], "x": [2, 0, 0]}, "by": None})
    made.append({"kind": "given", "margins": GIVEN, "by": "a"})
    return made


@pytest.mark.parametrize("neighbors", NEIGHBORS)
@pytest.mark.parametrize("n_pairs", [1, 3])
def test_one_row_moves_all_scores_as_far_as_is_charged_and_no_further(
    n_pairs: int, neighbors: Neighbors
) -> None:
    pairs = PAIRS[:n_pairs]
    worst: Sizes = (0, 0)
    for reference in public_references():
        if reference["kind"] == "tables":
            reference = {**reference, "values": reference["values"][:n_pairs]}
        edges = edges_for(pairs)
        bound = Dependence(pairs, edges, reference).bind(CURATION, neighbors)
        found = SmallTables(bound).largest_changes(neighbors)
        assert found[0] <= bound.squared
        assert found[1] <= bound.absolute
        worst = max(worst, found)
    step = 2 if neighbors == "replace-one" else 1
    assert worst == (bound.squared, bound.absolute) == (step**2 * n_pairs, step * n_pairs)


def test_a_charge_of_one_cell_or_of_one_pair_is_caught() -> None:
    question = Marginals(ALL, EDGES, [1, 2, 3, 5, 8, 13, 4096])
    tables = SmallTables(question.bind(CURATION, "replace-one"))
    # A replaced row counts twice in every table: it leaves one cell for another.
    assert tables.largest_changes("replace-one", others=0)[0] > sum(question.precisions or ())
    scores = SmallTables(Dependence(PAIRS, EDGES, public_references()[0]).bind(CURATION, "replace-one"))
    # One row moves the scores of all pairs.
    assert scores.largest_changes("replace-one", others=0)[0] > 4


def _exact_margin_score(rows: Sequence[tuple[int, ...]]) -> int:
    """The score of a pair against the margins of the very rows: a reference that must not be used."""
    table, n = Counter(rows), len(rows)
    first, second = Counter(row[0] for row in rows), Counter(row[1] for row in rows)
    cells = itertools.product(first, second)
    return sum(abs(table[i, j] - (2 * first[i] * second[j] + n) // (2 * n)) for i, j in cells)


def test_a_reference_of_exact_margins_moves_further_than_is_charged_and_is_caught() -> None:
    worst = 0
    cells = list(itertools.product(range(3), repeat=2))
    for rest in itertools.combinations_with_replacement(cells, 5):
        scores = [_exact_margin_score((*rest, row)) for row in cells]
        worst = max(worst, max(scores) - min(scores))
    # Two by the table, and two by each of the margins, where two are charged.
    assert worst == 6


@pytest.mark.parametrize("neighbors", NEIGHBORS)
def test_a_person_with_two_rows_moves_twice_as_much_and_is_charged_for_it(neighbors: Neighbors) -> None:
    columns = [Column("who", role="id"), *SCHEMA.columns]
    schemas = [
        Schema(columns=columns, id_column="who", max_rows_per_unit=most, neighbors=neighbors)
        for most in (1, 2)
    ]
    reference = next(iter(public_references()))
    for question in (Marginals(PAIRS, EDGES, [1, 2, 3]), Dependence(PAIRS, EDGES, reference)):
        bound = question.bind(CURATION, neighbors)
        found = SmallTables(bound).largest_changes(neighbors, most=2, others=0)
        assert found <= (4 * bound.squared, 2 * bound.absolute)
        if isinstance(question, Marginals):
            assert found == (4 * bound.squared, 2 * bound.absolute)
        one, two = (
            QueryNoise.calibrate(bound, schema, privacy=GaussianDP(mu=1, neighbors=neighbors))
            for schema in schemas
        )
        assert two.scale == pytest.approx(2 * one.scale)


def test_a_table_with_one_cell_counts_public_rows_and_costs_nothing_under_replace_one() -> None:
    # No schema declares such a column, but a layout can have one.
    first, *others = CURATION.columns
    curation = replace(CURATION, columns=(replace(first, levels=("p",), top=0), *others))
    for question, replaced, added in (
        (Marginals([("a",), ("a", "b")], precisions=[5, 3]), 2 * 3, 5 + 3),
        (Marginals([("a",)]), 0, 1),
        (Dependence([("a", "b")], reference={"kind": "tables", "values": [[1, 1]]}), 4, 1),
    ):
        bounds = [question.bind(curation, neighbors) for neighbors in ("replace-one", "add-remove")]
        assert [bound.squared for bound in bounds] == [replaced, added]


def test_the_parts_of_a_question_cost_what_the_whole_costs() -> None:
    whole = Dependence(PAIRS, EDGES, public_references()[0])
    parts = whole.split(2)
    assert [len(part.pairs) for part in parts] == [2, 1]
    assert list(itertools.chain.from_iterable(part.pairs for part in parts)) == PAIRS
    given = Dependence(PAIRS, EDGES, public_references()[-1])
    engine = _opened(ROWS[4])
    for question in (whole, given):
        bounds = [part.bind(CURATION, "replace-one") for part in question.split(1)]
        bound = question.bind(CURATION, "replace-one")
        assert sum(part.squared for part in bounds) == bound.squared
        assert [score for part in bounds for score in part.exact(engine)] == bound.exact(engine)
    assert given.split(1)[1].reference["margins"].keys() == {"a", "x"}
    with pytest.raises(ParameterError, match=r"n of Dependence\.split"):
        whole.split(0)
    # One by one, or all at once: the tables of a question cost the same too.
    tables = Marginals(ALL, EDGES).bind(CURATION, "replace-one")
    alone = [Histogram(table, edges_for([table])).bind(CURATION, "replace-one") for table in ALL]
    assert sum(bound.squared for bound in alone) == tables.squared


def test_noise_on_a_table_follows_its_precision_under_either_law() -> None:
    costs = CostModel(SCHEMA)
    question = Marginals([("a",), ("b",), ("a", "b")], {}, [1, 2, 4096])
    for privacy, squares in ((GaussianDP(mu=1), 2 * 4099), (PureDP(epsilon=1), None)):
        sd = question.split(np.asarray(costs.expected_sd(question, privacy=privacy)), CURATION)
        assert [one.shape for one in sd] == [(2,), (2,), (2, 2)]
        ratios = [float(sd[0][0] / one.flat[0]) for one in sd]
        assert ratios == pytest.approx([1, 2**0.5, 64], rel=0.005)
        if squares is not None:
            assert sd[0][0] == pytest.approx(squares**0.5)
    # Squares have whole roots, so that a variance may be had by either law.
    squares_only = Marginals([("a",), ("b",)], {}, [1, 9]).bind(CURATION, "replace-one")
    assert squares_only.weight == (1, 1, 3, 3)
    assert float(np.asarray(costs.expected_sd(question, variance=9.0))[0]) == pytest.approx(3.0)


def _reference_by_fractions(first: Any, second: Any) -> list[list[int]]:
    rows = []
    for own in first:
        row = []
        for other in second:
            total = Fraction(1, 2)
            for k in range(len(own)):
                both = sum(cell[k] for cell in first) + sum(cell[k] for cell in second)
                total += Fraction(2 * own[k] * other[k], both) if both else 0
            row.append(total.numerator // total.denominator)
        rows.append(row)
    return rows


def test_the_table_of_independent_columns_is_rounded_from_the_exact_quotient() -> None:
    stream = Stream.from_seed(5)
    for classes, top in itertools.product((1, 2, 5), (2, 7, 2**32)):
        words = (stream.words(7 * classes) % np.uint64(top)).astype(object).reshape(7, classes)
        words[:, 0] *= top > 2  # an empty class now and then
        first, second = words[:3], words[3:]
        found = _dependence._independent_table(first, second)
        assert found.tolist() == _reference_by_fractions(first.tolist(), second.tolist())
    # Thirds and sixths that add up to a half are rounded up, as the formula says.
    thirds, sixths = np.array([[1, 1], [2, 5]], object), np.array([[1, 1], [2, 5]], object)
    assert _dependence._independent_table(thirds, sixths)[0, 0] == 1
    same = np.array([[3, 1], [1, 3]], object)
    assert _dependence._independent_table(same, same).tolist() == [[3, 2], [2, 3]]


def test_scores_are_distances_in_rows_and_large_where_columns_depend_on_each_other() -> None:
    n = 1000
    rows = {"a": ["p", "q"] * 500, "b": ["u", "w"] * 500, "x": [0.1] * 500 + [0.9] * 500}
    margins = {"a": [500, 500], "b": [500, 500], "x": [500, 500, 0]}
    question = Dependence(PAIRS, EDGES, {"kind": "given", "margins": margins, "by": None})
    with Database(rows, schema=SCHEMA, random_state=3) as database:
        answer = database.ask(question, privacy=GaussianDP(mu=2))
        again = database.ask(from_dict(json.loads(json.dumps(question.to_dict()))), privacy=GaussianDP(mu=2))
    sd = np.asarray(answer.sd)
    assert np.abs(answer.value - np.array([n / 2, 0, 0])).max() < 8 * sd[0]
    assert sd.tolist() == pytest.approx([0.5 * (4 * 3) ** 0.5 / 2] * 3)
    assert again.cached
    assert np.array_equal(again.value, answer.value)


def test_both_plans_count_the_same_and_which_is_taken_follows_from_the_question_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    curation = Curation.from_schema(people_schema())
    names = people_schema().names
    edges = {"income": [0.2, 0.5], "height": [i / 40 for i in range(80)], "age": [30.0, 50.5]}
    tables = [t for k in (1, 2, 3) for t in itertools.combinations(names, k)]
    engine = DuckDBEngine()
    engine.register(people(1200), curation)
    by_rows = Marginals(tables, edges).bind(curation, "replace-one")
    assert isinstance(by_rows.wanted, KernelTotals)
    few = Marginals(tables[3:5]).bind(curation, "replace-one")
    assert isinstance(few.wanted, Tables)
    monkeypatch.setattr(_marginals, "_MOST_GROUPED", 100)
    grouped = Marginals(tables, edges).bind(curation, "replace-one")
    assert isinstance(grouped.wanted, Tables)
    assert by_rows.exact(engine) == grouped.exact(engine)
    assert by_rows.canonical == grouped.canonical
    counts = Marginals(tables, edges).split(np.array(by_rows.exact(engine)), curation)
    assert {int(table.sum()) for table in counts} == {1200}
    assert [table.shape for table in counts[:5]] == [(4,), (81,), (3,), (5,), (2,)]
    engine.close()


def test_every_row_is_in_one_cell_of_each_table_whatever_was_written_into_the_engine() -> None:
    count = MarginalsPass(("c0", "v1"), (Band(0, None, None, 2), Band(1, (0.5,), None)), ((0,), (0, 1)))
    found = count([np.array([-7, 1, 9], np.int32), np.array([0.1, np.inf, np.nan])])
    assert found.tolist() == [1, 1, 1, 1, 0, 0, 1, 1, 0]


@pytest.mark.parametrize(
    "starts", [(1, 2, 3), (2, 3), (3,), (0, 1), (1, 1, 3), (1, 3), (1.0, 2.5), (2, 3, 2**31)]
)
@pytest.mark.parametrize("kind", [np.int32, np.int64, np.float64])
def test_the_cell_of_a_number_is_how_many_starts_it_reaches(starts: tuple[float, ...], kind: type) -> None:
    values: AnyArray = np.array([-(2**31), -1, 0, 1, 2, 3, 4, 2**31 - 1], kind)
    expected = [sum(value >= start for start in starts) for value in values.tolist()]
    assert Band(0, starts, None).clipped_codes([values]).tolist() == expected


def test_all_pairs_of_sixty_columns_are_one_question() -> None:
    n, names = 2000, [f"c{i}" for i in range(60)]
    schema = Schema(columns=[Column(name, type="integer", lower=0, upper=4) for name in names])
    cells = {name: np.arange(n) * (i + 1) // 7 % 5 for i, name in enumerate(names)}
    pairs = list(itertools.combinations(names, 2))
    margins = {name: np.bincount(values, minlength=5).tolist() for name, values in cells.items()}
    question = Dependence(pairs, {}, {"kind": "given", "margins": margins, "by": None})
    with Database(cells, schema=schema, random_state=1) as database:
        answer = database.ask(question, privacy=GaussianDP(mu=100))
    scores, sd = np.asarray(answer.value), np.asarray(answer.sd)
    assert scores.shape == (1770,)
    table = np.zeros((5, 5), np.int64)
    np.add.at(table, (cells["c0"], cells["c1"]), 1)
    expected = _dependence._independent_table(
        *(np.array(margins[name], object).reshape(-1, 1) for name in ("c0", "c1"))
    )
    assert abs(scores[0] - np.abs(table - expected).sum() / 2) < 8 * sd[0]


MANY = Schema(columns=[Column("code", values=tuple(range(10_000))), Column("a", values=(0, 1), closed=True)])


def test_a_column_of_ten_thousand_levels_has_a_table_of_its_own_but_none_with_others() -> None:
    curation = Curation.from_schema(MANY)
    assert Marginals([("code",), ("a",)]).bind(curation, "replace-one").size == 10_002
    with pytest.raises(ParameterError, match="at most 4096 cells along a column, and 'code' has 10000"):
        Marginals([("code", "a")]).bind(curation, "replace-one")


def _bound(question: Callable[[], Aggregate]) -> Callable[[], Any]:
    return lambda: question().bind(CURATION, "replace-one")


TABLES = {"kind": "tables", "values": [[0] * 4]}
WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: Marginals([]), "tables of Marginals must be 1 to 8192, and are 0"),
    (lambda: Marginals([()]), "1 to 3 columns each"),
    (lambda: Marginals([("a", "b", "x", "y")]), "1 to 3 columns each"),
    (lambda: Marginals([("a", "a")]), "each once"),
    (lambda: Marginals([(1,)]), "must name columns"),  # type: ignore[list-item]
    (lambda: Marginals([("a", "b"), ("b", "a")]), "there twice"),
    (lambda: Marginals([("a",)], {"x": [0.5]}), "for its own columns, and 'x'"),
    (lambda: Marginals([("a",)], {}, [0]), "from 1 to 4096, was 0"),
    (lambda: Marginals([("a",)], {}, [4097]), "from 1 to 4096, was 4097"),
    (lambda: Marginals([("a",)], {}, [1.5]), "was 1.5"),  # type: ignore[list-item]
    (lambda: Marginals([("a",)], {}, [1, 2]), "one for each of the 1 tables"),
    (_bound(lambda: Marginals([("aa",)])), "Did you mean 'a'"),
    (_bound(lambda: Marginals([("x",)])), "must be given for the number 'x'"),
    (_bound(lambda: Marginals([("x",)], {"x": [2, 1]})), "rising numbers"),
    (_bound(lambda: Marginals([("a",)], {"a": [2]})), "is a category"),
    (lambda: Dependence([("a",)], {}, TABLES), "must have 2 columns each"),  # type: ignore[list-item]
    (lambda: Dependence([("a", "b")]), "reference of Dependence must be"),
    (lambda: Dependence([("a", "b")], {}, {"kind": "exact"}), "was of the kind 'exact'"),
    (lambda: Dependence([("a", "b"), ("a", "x")], EDGES, TABLES), "a table for each of the 2 pairs"),
    (lambda: Dependence([("a", "b")], {}, {"kind": "tables", "values": [[0.5] * 4]}), "has 0.5"),
    (lambda: Dependence([("a", "b")], {}, {"kind": "tables", "values": [[2**33] * 4]}), "has 8589934592"),
    (
        lambda: Dependence([("a", "b")], {}, {"kind": "given", "margins": {"a": [1, 2]}, "by": None}),
        "'b' is not there",
    ),
    (
        lambda: Dependence([("a", "b")], {}, {"kind": "given", "margins": {"a": [-1], "b": [1]}, "by": None}),
        "negative margins as 0",
    ),
    (
        lambda: Dependence([("a", "b")], {}, {"kind": "given", "margins": {"a": [1], "b": [1]}, "by": 3}),
        "by of a reference must be a column",
    ),
    (_bound(lambda: Dependence([("a", "x")], EDGES, TABLES)), "has 4 for 6 cells"),
    (
        _bound(
            lambda: Dependence(
                [("a", "b")], {}, {"kind": "given", "margins": {"a": [1, 2], "b": [1, 2]}, "by": "a"}
            )
        ),
        "that of a has 2 for 4 cells",
    ),
    (lambda: from_dict({"kind": "dependence", "pairs": 3}), "what its to_dict"),
]


@pytest.mark.parametrize(("make", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_does_not_fit_is_refused_before_anything_is_charged(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        make()


def test_more_cells_than_make_sense_are_refused_with_the_largest_table() -> None:
    names = [f"x{i}" for i in range(4)]
    schema = Schema(columns=[Column(name, lower=0, upper=1) for name in names])
    edges = {name: [i / 1024 for i in range(1, 1024)] for name in names}
    question = Marginals(list(itertools.combinations(names, 2)), edges)
    with pytest.raises(ParameterError, match=f"at most {MOST_CELLS} cells, and come to 6291456"):
        question.bind(Curation.from_schema(schema), "replace-one")


JSON = [*ASKED, Dependence(PAIRS, EDGES, {"kind": "given", "margins": GIVEN, "by": "a"})]


@pytest.mark.parametrize("question", JSON, ids=lambda question: str(len(str(question))))
def test_questions_travel_as_json(question: Aggregate) -> None:
    again = from_dict(json.loads(json.dumps(question.to_dict())))
    assert again == question
    bound = question.bind(CURATION, "add-remove")
    assert (
        again.bind(CURATION, "add-remove").canonical
        == bound.canonical
        == json.loads(json.dumps(bound.canonical))
    )


def test_levels_that_share_a_cell_are_counted_together() -> None:
    columns = [Column("c", values=tuple("uvwx"), closed=True), Column("d", values=(0, 1))]
    rows = {"c": list("uvwxuvuu"), "d": [0, 1, 1, 1, 0, 1, 0, 1]}
    groups = {"c": (0, 1, 1, 2)}
    question = Marginals([("c",), ("c", "d")], groups=groups)
    reference = {"kind": "tables", "values": [[3, 1, 0, 3, 0, 0]]}
    distance = Dependence([("c", "d")], {}, reference, groups)
    for asked in (question, distance):
        again = from_dict(json.loads(json.dumps(asked.to_dict())))
        assert again == asked
    with Database(rows, schema=Schema(columns=columns), random_state=1) as database:
        answer = database.ask(question, privacy=GaussianDP(mu=1e6))
        alone, both = question.split(np.asarray(answer.value), database.curation)
        score = database.ask(distance, privacy=GaussianDP(mu=1e6))
    assert np.round(alone).tolist() == [4, 3, 1]
    assert np.round(both).tolist() == [[3, 1], [0, 3], [0, 1]]
    assert np.round(score.value, 2).tolist() == [0.5]


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ({"c": (0, 0, 2)}, "without gaps"),
        ({"c": (0, 1)}, "each of the 3 levels"),
        ({"x": (0, 1)}, "Numbers are cut by edges"),
        ({"z": (0, 1)}, "its own columns"),
    ],
)
def test_groups_that_fit_no_category_are_refused(groups: dict[str, tuple[int, ...]], words: str) -> None:
    columns = [Column("c", values=tuple("uvw"), closed=True), Column("x", lower=0, upper=1)]
    curation = Curation.from_schema(Schema(columns=columns))
    with pytest.raises(ParameterError, match=words):
        Marginals([("c", "x")], {"x": [0.5]}, None, groups).bind(curation, "replace-one")
