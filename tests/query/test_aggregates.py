"""Sensitivities, by trying all neighbors: never below the truth, and equal to it where that is claimed."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet.errors import ParameterError
from discreet.noise.samplers import LARGEST_SCALE
from discreet.privacy import GaussianDP, PureDP
from discreet.query.aggregates import (
    MOST_CELLS,
    Aggregate,
    ClassGradients,
    ClusterSums,
    GradientSums,
    Gram,
    HalfspaceSums,
    Histogram,
    Moments,
    NodeTables,
    PredictionCounts,
    Sums,
    TreeNode,
    TreePredictions,
    aggregate_from_dict,
)
from discreet.query.calibration import QueryNoise, shift_bits
from discreet.query.curation import Curation
from discreet.query.engines._duckdb import DuckDBEngine
from discreet.schema import Column, Schema
from tests.query.people import Constant, corners, people, people_schema
from tests.query.single_rows import SingleRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import Ints
    from discreet.query.aggregates import BoundAggregate
    from discreet.schema.schema import Neighbors

SCHEMA, ROWS = corners()
CURATION = Curation.from_schema(SCHEMA)
SINGLE = SingleRows(SCHEMA, ROWS)
NEIGHBORS: tuple[Neighbors, ...] = ("replace-one", "add-remove")
NUMBERS = ("x", "a")
CUTS = (10.2, 10.5)
CURVES = {"x": (-0.5, 0.25, 2.0), "job": (1.5, -1.0)}
LINES = {"x": (0.25, 3.5), "a": (0.5, 128.0)}
SLOPES = {"x": (0.0, 0.25), "a": (3.0, -1.0)}
NODES = ((0, 1, 2, 3), (-1, 0), (-1, 1), (1, 4, 5), (-1, 0), (-1, 1))
RULES = {"x": ((1.0, -0.5), (0.0, 0.25), (-1.0, 2.0)), "job": ((0.0, -1.0), (0.5, 1.0))}


class Recorder:
    """Draws no noise."""

    def gaussian(self, s: float, n: int = 1) -> Ints:
        return np.zeros(n, np.int64)

    laplace = gaussian


# Question, and whether the square of the sensitivity is attained, for each notion of neighbors.
CASES: list[tuple[Aggregate, bool, bool]] = [
    (Sums("x"), True, True),
    (Sums("a"), True, True),
    (Sums("a >= 1"), True, True),
    (Sums("x - 10.5"), True, True),
    (Sums(("x", "a", "job = 'p'")), True, True),
    (Sums(("a = 0", "a = 1", "a = 2")), False, False),
    (Sums("7"), True, True),
    (Histogram("job"), True, True),
    (Histogram(("job", "a", "y")), True, True),
    (Histogram("x", {"x": [10.2, 10.5]}), True, True),
    (Histogram("a", expression="x"), True, True),
    (Histogram("a", expression="x - 10.5"), True, True),
    (Histogram(("a >= 1", "ROUND(x)")), True, True),
    (
        Histogram(("CASE WHEN job = 'p' THEN 'one' WHEN a > 1 THEN 'two' END", "a % 2"), expression="x"),
        True,
        True,
    ),
    (Histogram("x * 2 + a", {"x * 2 + a": [20.5, 22]}), True, True),
    (NodeTables("y", [TreeNode([], ["job", "a"])]), True, True),
    (
        NodeTables("y", [TreeNode([("job", 0)], ["a", "x"]), TreeNode([("job", 1)], ["a"])], {"x": [10.5]}),
        True,
        True,
    ),
    (
        # The node with the most attributes decides, wherever it stands.
        NodeTables("y", [TreeNode([("job", 0)], ["a"]), TreeNode([("job", 1)], ["a", "x"])], {"x": [10.5]}),
        True,
        True,
    ),
    (Moments(("a", "y")), True, True),
    (Moments(("job", "a")), True, True),
    (Gram(NUMBERS, with_sums=False), True, True),
    (Gram(NUMBERS), True, True),
    (Gram(NUMBERS, radius=0.5), False, False),
    (Gram(("x", "job"), center=(0, 0, 0), radius=1.2), False, False),
    (ClusterSums(NUMBERS, [(0.5, 0.5), (0.9, 0.9)], radius=0.5), False, True),
    (ClusterSums(NUMBERS, [(0.5, 0.5)], radius=0.5), True, True),
    (ClusterSums(("x", "a", "job"), [(0.5,) * 4, (0.1,) * 4]), False, False),
    (HalfspaceSums(NUMBERS, "y", 1, (0, 0), intercept=False), True, True),
    (HalfspaceSums(NUMBERS, "y", 1, (1, -1, 0.25)), False, False),
    (GradientSums(NUMBERS, "y", 1, (0.1, 50, -1)), False, False),
    (GradientSums(NUMBERS, "y", 1, (900, 0), intercept=False), False, True),
    (Gram(("x", "job"), (0,) * 5, with_sums=False, edges={"x": CUTS}), True, True),
    (Gram(("x", "a"), (0, 0, 0, 0.5), edges={"x": CUTS}), False, True),
    (Gram(("x", "job"), (0.2, 0.3, 0.4, 0.5, 0.5), edges={"x": CUTS}, with_sums=False), False, True),
    (Gram(("x", "job"), (0.2, 0.3, 0.4, 0.5, 0.5), edges={"x": CUTS}, radius=0.5), False, False),
    (
        HalfspaceSums(("x", "a"), "y", 1, (0,) * 5, (0,) * 5, None, False, {"x": [10.2], "a": [1, 2]}),
        True,
        True,
    ),
    (GradientSums(("x", "job"), "y", 1, (9,) * 6, (0,) * 5, edges={"x": CUTS}), False, False),
    (GradientSums(("x",), "y", 1, (900,) * 3, (0,) * 3, intercept=False, edges={"x": CUTS}), False, True),
    (Gram((), with_sums=False, edges={"x": CUTS}, scores=CURVES), False, True),
    (Gram((), with_sums=False, edges={"x": CUTS}, scores=CURVES, lines=LINES), False, False),
    (Gram(("x",), with_sums=False, edges={"x": CUTS}, scores=CURVES, intercept=0.5), False, True),
    (
        Gram(("a",), radius=0.9, with_sums=False, edges={"x": CUTS}, scores=CURVES, intercept=True),
        False,
        False,
    ),
    (Gram((), edges={"x": CUTS}, scores=CURVES), False, False),
    (
        GradientSums((), "y", 1, (900, 0), intercept=False, edges={"x": CUTS}, scores=CURVES),
        False,
        True,
    ),
    (
        GradientSums((), "y", 1, (1, -2, 3, 4, 0.5), None, None, 0.5, {"x": CUTS}, CURVES, LINES),
        False,
        False,
    ),
    (
        GradientSums(("a",), "y", 1, (1, -2, 3, 5), radius=0.5, edges={"x": CUTS}, scores=CURVES),
        False,
        False,
    ),
    (PredictionCounts("y", (0, 1), (0.0, 0.5), RULES, edges={"x": CUTS}), True, True),
    (PredictionCounts("y", (1, 0), (0.2, 0.0), RULES, {"x": CUTS}, LINES, SLOPES), True, True),
    (
        PredictionCounts("y", (0, 1), (0.0, 0.5), RULES, {"x": CUTS}, LINES, SLOPES, by_class=True),
        True,
        True,
    ),
    (TreePredictions("y", (0, 1), ("x", "job"), NODES, {"x": CUTS}), True, True),
    (TreePredictions("y", (1, 0), ("x", "job"), NODES, {"x": CUTS}, by_class=True), True, True),
    (
        ClassGradients(
            "y", (0, 1), (90.0, 0.0), lines=LINES, radius=2.0, constant=0.5, weights=((0.0, 0.0),) * 3
        ),
        False,
        False,
    ),
    (
        ClassGradients(
            "y", (1, 0), (0.0, 0.5), RULES, {"x": CUTS}, LINES, weights=((3.0, -1.0), (0.0, 0.25), (9.0, 0.0))
        ),
        False,
        False,
    ),
    (
        ClassGradients("job", ("p", "q"), (0.0, 0.5), lines={"a": (0.0, 2.0)}, weights=((50.0, 0.0),) * 2),
        False,
        False,
    ),
]


def _id(value: object) -> str:
    return f"{value.kind}-{json.dumps(value.to_dict())[:60]}" if isinstance(value, Aggregate) else str(value)


@pytest.mark.parametrize("neighbors", NEIGHBORS)
@pytest.mark.parametrize(("question", "tight", "tight_alone"), CASES, ids=_id)
def test_no_neighbor_moves_the_sums_further_than_the_charge_says(
    question: Aggregate, tight: bool, tight_alone: bool, neighbors: Neighbors
) -> None:
    bound = question.bind(CURATION, neighbors)
    squared, absolute = SINGLE.distances(bound, neighbors)
    assert squared <= bound.squared
    assert absolute <= bound.absolute
    # A charge one unit lower would be false where it is tight, and one half of it is where it is not.
    if tight if neighbors == "replace-one" else tight_alone:
        assert squared == bound.squared


@pytest.mark.parametrize(("question", "_", "__"), CASES, ids=_id)
def test_sums_add_up_over_rows_so_single_rows_tell_everything(question: Aggregate, _: bool, __: bool) -> None:
    bound = question.bind(CURATION, "add-remove")
    chosen = [0, 5, 5, 17, 35]
    together = SINGLE.open([ROWS[i] for i in chosen])
    parts = [bound.exact(SINGLE.engines[i]) for i in chosen]
    assert bound.exact(together) == [sum(column) for column in zip(*parts, strict=True)]
    together.close()


@pytest.mark.parametrize("d", [2, 4, 6])
def test_the_charges_are_those_of_the_table_in_the_specification(d: int) -> None:
    names = tuple(f"x{i}" for i in range(d))
    label = Column("y", values=(0, 1), role="target")
    schema = Schema(columns=[*(Column(name, lower=0, upper=1) for name in names), label])
    curation = Curation.from_schema(schema)
    grid = 2.0**-16

    def squared(question: Aggregate, neighbors: Neighbors, unit: float) -> float:
        return question.bind(curation, neighbors).squared * unit**2

    assert squared(Gram(names, with_sums=False), "replace-one", grid**2) == d**2 / 8
    assert squared(Gram(names, with_sums=False), "add-remove", grid**2) == d**2 / 16
    assert squared(Gram(names), "replace-one", grid**2) == 4 * d**2 / 8
    assert squared(Gram(names), "add-remove", grid**2) == 4 * d**2 / 16
    assert squared(Gram(names, radius=1), "replace-one", grid**2) == 8 * min(1, d / 4) ** 2
    clusters = ClusterSums(names, [(0.5,) * d] * 3, radius=0.5)
    assert squared(clusters, "replace-one", grid) == 4 * 0.25
    assert squared(clusters, "add-remove", grid) == 2 * 0.25
    halfspace = HalfspaceSums(names, "y", 1, (1,) * d, radius=0.25, intercept=False)
    assert squared(halfspace, "replace-one", grid) == 4 * 0.25**2
    assert squared(halfspace, "add-remove", grid) == 4 * 0.25**2
    gradient = GradientSums(names, "y", 1, (1,) * d, radius=0.25, intercept=False)
    assert squared(gradient, "replace-one", grid * 2.0**-12) == 4 * 0.25**2
    assert squared(gradient, "add-remove", grid * 2.0**-12) == 0.25**2
    assert Sums(names).bind(curation, "replace-one").squared == d * 2**60
    assert Histogram("y").bind(curation, "replace-one").squared == 2
    assert Histogram("y").bind(curation, "add-remove").squared == 1
    levels = NodeTables("y", [TreeNode([("x0", 0)], names)], {name: [0.5] for name in names})
    assert levels.bind(curation, "replace-one").squared == 2 * d
    assert levels.bind(curation, "add-remove").squared == d


def test_random_pairs_in_the_cube_come_close_to_the_gram_charge_and_never_above() -> None:
    schema = Schema(columns=[Column(f"x{i}", lower=0, upper=1) for i in range(4)])
    bound = Gram(schema.names, with_sums=False).bind(Curation.from_schema(schema), "replace-one")
    signs = np.array(list(itertools.product((-1, 1), repeat=4))) * 2**15
    matrices = [np.outer(s, s) for s in signs]
    upper = np.triu_indices(4)
    weights = np.array(bound.precision)
    largest = max(
        int((weights * (a - b)[upper].astype(object) ** 2).sum()) for a in matrices for b in matrices
    )
    assert largest == bound.squared


def test_entries_off_the_diagonal_get_half_the_variance_and_stand_twice() -> None:
    bound = Gram(NUMBERS).bind(CURATION, "add-remove")
    square = 2 * 2**30
    assert bound.precision == (1, 2, 1, 2 * square, 2 * square, square**2)
    assert bound.places.tolist() == [[5, 3, 4], [3, 0, 1], [4, 1, 2]]
    assert Gram(NUMBERS).bind(CURATION, "replace-one").places[0, 0] == 5  # one past the last: public


def test_a_charge_that_forgets_half_of_a_matrix_is_caught() -> None:
    bound = Gram(NUMBERS, with_sums=False).bind(CURATION, "replace-one")
    vectors = SINGLE.vectors(bound)
    # Full variance everywhere on the upper triangle would be another mechanism, with another distance.
    plain = max(
        sum((a - b) ** 2 for a, b in zip(u, v, strict=True)) for u, v in itertools.combinations(vectors, 2)
    )
    assert plain < SINGLE.distances(bound, "replace-one")[0] == bound.squared


@pytest.mark.parametrize("question", [case[0] for case in CASES], ids=_id)
def test_questions_travel_as_json_and_bind_to_json(question: Aggregate) -> None:
    text = json.dumps(question.to_dict())
    assert aggregate_from_dict(json.loads(text)).to_dict() == question.to_dict()
    canonical = question.bind(CURATION, "replace-one").canonical
    assert json.loads(json.dumps(canonical)) == canonical


def test_canonical_forms_tell_questions_apart_and_spellings_do_not() -> None:
    forms = {json.dumps(case[0].bind(CURATION, "replace-one").canonical, sort_keys=True) for case in CASES}
    assert len(forms) == len(CASES)
    spelled, plainly = (
        Sums(text).bind(CURATION, "replace-one").canonical for text in ("( x )>10.5", "x > 10.5")
    )
    assert spelled == plainly


def test_a_number_in_cells_is_answered_like_the_category_of_its_cells() -> None:
    """Cells of a number, a missing one included, give what a table with a column of cells would give."""
    schema = people_schema()
    curation = Curation.from_schema(schema)
    rows = people(300)
    cuts = {"income": [0.25, 0.5], "age": [30.0, 60.0]}
    names = ("income", "height", "age")
    income = np.nan_to_num(np.clip(rows["income"], 0, 1))
    cell = np.where(np.isnan(rows["income"]), 3, np.digitize(np.floor(income * 2**20 + 0.5), [2**18, 2**19]))
    coded = {"income": cell, "height": rows["height"], "age": np.digitize(rows["age"], [30, 60])}
    plain = Schema(
        columns=[
            Column("income", values=(0, 1, 2, 3), closed=True),
            schema.column("height"),
            Column("age", values=(0, 1, 2), closed=True),
            schema.column("owner"),
        ]
    )
    weights = (0.5, -1.0, 2.0, 0.25, 3.0, -0.5, 0.0, 1.0, 0.1)
    center = (0.0,) * 4 + (0.5,) + (0.0,) * 3
    banded, listed = DuckDBEngine(), DuckDBEngine()
    banded.register(rows, curation)
    listed.register({**coded, "owner": rows["owner"]}, Curation.from_schema(plain))
    for cells, codes in (
        (Gram(names, center, edges=cuts), Gram(names, center)),
        (Gram(names, center, 0.75, edges=cuts), Gram(names, center, 0.75)),
        (
            GradientSums(names, "owner", 1, weights, center, edges=cuts),
            GradientSums(names, "owner", 1, weights, center),
        ),
    ):
        one, other = (
            cells.bind(curation, "replace-one"),
            codes.bind(Curation.from_schema(plain), "replace-one"),
        )
        assert one.exact(banded) == other.exact(listed)
        assert (one.squared, one.absolute) == (other.squared, other.absolute)
    # One level of each of two lists and half a range: the longest row has 1 + 1 + 1/4, not one for each cell.
    assert Gram(names, center, with_sums=False, edges=cuts).bind(curation, "add-remove").squared == (
        (9 * 2**32 // 4) ** 2
    )
    banded.close()
    listed.close()


def test_a_charge_that_takes_cells_for_a_single_number_is_caught() -> None:
    bound = Gram(("x",), (0,) * 3, with_sums=False, edges={"x": CUTS}).bind(CURATION, "replace-one")
    as_number = Gram(("x",), with_sums=False).bind(CURATION, "replace-one")
    assert SINGLE.distances(bound, "replace-one")[0] == bound.squared > as_number.squared


def test_a_charge_that_takes_curves_for_cells_is_caught() -> None:
    # Cells are 0 or 1 and a curve goes up to 4: a bound of 1 for each column is too small.
    question = GradientSums((), "y", 1, (900, 0), intercept=False, edges={"x": CUTS}, scores=CURVES)
    bound = question.bind(CURATION, "add-remove")
    squared, _ = SINGLE.distances(bound, "add-remove")
    of_cells = GradientSums(("x", "job"), "y", 1, (0,) * 5, (0,) * 5, intercept=False, edges={"x": CUTS})
    assert of_cells.bind(CURATION, "add-remove").squared < squared <= bound.squared


def test_a_charge_of_one_class_for_all_is_caught() -> None:
    # A row that a model is sure and wrong about moves two classes at once.
    sure = ClassGradients("y", (0, 1), (90.0, 0.0), lines={"a": (0.5, 0.02)}, weights=((0.0, 0.0),) * 2)
    bound = sure.bind(CURATION, "add-remove")
    squared, _ = SINGLE.distances(bound, "add-remove")
    assert bound.squared // 2 < squared <= bound.squared


def test_a_radius_that_is_not_applied_is_caught() -> None:
    def distances(radius: float | None) -> tuple[int, int]:
        question = Gram(
            ("a",), radius=radius, with_sums=False, edges={"x": CUTS}, scores=CURVES, intercept=True
        )
        bound = question.bind(CURATION, "replace-one")
        return SINGLE.distances(bound, "replace-one")[0], bound.squared

    assert distances(0.9)[0] <= distances(0.9)[1] < distances(None)[0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Gram((), edges={"x": CUTS}, scores={"x": (1.0, 2.0)}).bind(CURATION, "replace-one"),
        lambda: Gram((), edges={"x": CUTS}, scores={"x": (1.0, 2.0, 5.0)}).bind(CURATION, "replace-one"),
        lambda: Gram((), scores={"x": (1.0, 2.0)}).bind(CURATION, "replace-one"),
        lambda: Gram((), lines={"x": (0.5,)}),
        lambda: Gram((), lines={"x": (0.5, 200.0)}).bind(CURATION, "replace-one"),
        lambda: Gram((), lines={"x": (1.5, 2.0)}).bind(CURATION, "replace-one"),
        lambda: Gram((), lines={"job": (0.5, 2.0)}).bind(CURATION, "replace-one"),
        lambda: Gram(NUMBERS, intercept=2.0),
        lambda: GradientSums((), "y", 1, (1, 0), scores={"y": (0.0, 1.0)}),
        lambda: PredictionCounts("y", (0, 1), (0.0,)),
        lambda: PredictionCounts("y", (0,), (0.0,)),
        lambda: PredictionCounts("y", (0, 1), (0.0, 1e9)),
        lambda: PredictionCounts("y", (0, 1), (0.0, 0.0), {"y": ((0.0, 0.0),)}),
        lambda: PredictionCounts("y", (0, 2), (0.0, 0.0)).bind(CURATION, "replace-one"),
        lambda: PredictionCounts("y", (0, 1), (0, 0), {"job": ((0, 0),)}).bind(CURATION, "replace-one"),
        lambda: PredictionCounts("y", (0, 1), (0, 0), slopes={"x": (0, 1)}),
        lambda: TreePredictions("y", (0, 1), (), ((-1, 2),)),
        lambda: TreePredictions("y", (0, 1), ("x",), ((0, 0, 0, 0),), {"x": CUTS}),
        lambda: TreePredictions("y", (0, 1), ("x",), ((0, 1, 2),), {"x": CUTS}),
        lambda: TreePredictions("y", (0,), (), ((-1, 0),)),
        lambda: TreePredictions("y", (0, 1), ("y",), ((-1, 0),)),
        lambda: TreePredictions("y", (0, 1), ("x",), ((0, 1, 1), (-1, 0)), {"x": CUTS}).bind(
            CURATION, "replace-one"
        ),
        lambda: TreePredictions("y", (0, 2), (), ((-1, 0),)).bind(CURATION, "replace-one"),
        lambda: ClassGradients("y", (0, 1), (0, 0), lines={"x": (0.5, 2.0)}, weights=((0, 0),)),
        lambda: ClassGradients("y", (0, 1), (0, 0), weights=((0, 0),), constant=0.0),
    ],
)
def test_curves_that_do_not_fit_are_refused(make: Any) -> None:
    with pytest.raises(ParameterError, match=r"of a question .*must"):
        make()


def test_a_constant_counts_rows() -> None:
    count = Sums((Constant(1.0, 1.0),)).bind(CURATION, "add-remove")
    assert (count.squared, count.absolute) == (1, 1)
    assert Sums((Constant(1.0, 1.0),)).bind(CURATION, "replace-one").squared == 0
    three = Sums((Constant(3.0, 3.0),)).bind(CURATION, "add-remove")
    assert (three.squared, three.unit.tolist()) == (1, [3.0])
    nothing = Sums((Constant(0.0, 0.0),)).bind(CURATION, "add-remove")
    assert nothing.squared == 0


WRONG: list[tuple[Any, str]] = [
    (lambda: Histogram("jbo").bind(CURATION, "replace-one"), "Did you mean 'job'"),
    (lambda: Histogram("x").bind(CURATION, "replace-one"), "edges of a question must be given"),
    (lambda: Histogram("x", {"x": [3, 2]}).bind(CURATION, "replace-one"), "rising numbers"),
    (lambda: Histogram("x", {"a": [3]}), "for its own columns, and 'a'"),
    (lambda: Histogram("job", {"job": [3]}).bind(CURATION, "replace-one"), "is a category"),
    (lambda: Gram("x", edges={"x": [3, 2]}).bind(CURATION, "replace-one"), "those for 'x' are not"),
    (lambda: Gram("x", edges={"a": [3]}), "its own columns, and 'a'"),
    (lambda: Gram("job", edges={"job": [3]}).bind(CURATION, "replace-one"), "'job' is a category"),
    (
        lambda: GradientSums("x", "y", 1, (1, 1), edges={"x": [10.5]}).bind(CURATION, "replace-one"),
        "be 3 num",
    ),
    (lambda: Histogram(()), "at least one"),
    (lambda: Histogram(("job", "job")), "each once"),
    (lambda: Sums(()), "1 to 1024"),
    (lambda: Gram(("x", "x")).bind(CURATION, "replace-one"), "each once"),
    (lambda: Gram(("x",), center=(2,)).bind(CURATION, "replace-one"), "1 numbers from 0 to 1"),
    (lambda: Gram(("x",), center=(float("nan"),)).bind(CURATION, "replace-one"), "1 numbers from 0 to 1"),
    (lambda: Gram(("x",), radius=0).bind(CURATION, "replace-one"), "at least 2\\*\\*-16"),
    (lambda: Gram(("x",), radius=float("inf")).bind(CURATION, "replace-one"), "at least 2\\*\\*-16"),
    (lambda: ClusterSums(("x",), []), "at least one"),
    (lambda: ClusterSums(("x",), [(0.1, 0.2)]).bind(CURATION, "replace-one"), "1 numbers from 0 to 1"),
    (lambda: HalfspaceSums(("x",), "y", 2, (1, 1)).bind(CURATION, "replace-one"), "It has 0, 1"),
    (lambda: HalfspaceSums(("x",), "a", 1, (1, 1)).bind(CURATION, "replace-one"), "it is a number"),
    (lambda: HalfspaceSums(("x",), "y", 1, (1,)).bind(CURATION, "replace-one"), "must be 2 numbers"),
    (lambda: GradientSums(("x", "y"), "y", 1, (1,)), "must not hold its target"),
    (lambda: GradientSums(("x",), "y", 1, (float("nan"), 1)).bind(CURATION, "replace-one"), "must be 2"),
    (lambda: NodeTables("y", []), "at least one"),
    (lambda: NodeTables("y", [TreeNode([], ["y"])]), "other than the target"),
    (lambda: NodeTables("y", [TreeNode([("job", 9)], ["a"])]).bind(CURATION, "replace-one"), "has no 9"),
    (lambda: aggregate_from_dict({"kind": "median"}), "kind of a question"),
    (lambda: aggregate_from_dict({"kind": "gram", "cols": 3}), "what its to_dict"),
]


@pytest.mark.parametrize(("make", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_does_not_fit_the_schema_is_refused_before_anything_is_charged(make: Any, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        make()


def test_more_cells_than_make_sense_are_refused() -> None:
    names = ("income", "height", "age", "job", "owner")
    edges = {name: [i / 300 for i in range(1, 300)] for name in ("income", "height")}
    with pytest.raises(ParameterError, match=f"at most {MOST_CELLS} cells"):
        Histogram(names, edges).bind(Curation.from_schema(people_schema()), "replace-one")


def _moments_exceed(bound: BoundAggregate, top: int) -> bool:
    """Whether moving one number between two places changes its sum and square by more than is charged."""
    cells = np.arange(0, top + 1, dtype=object)
    u, v = 2 * cells[:, None] - top, 2 * cells[None, :] - top
    first, second = bound.precision
    moved: int = (first * (u - v) ** 2 + second * (u**2 - v**2) ** 2).max()
    weighted: int = (bound.weight[0] * abs(u - v) + bound.weight[1] * abs(u**2 - v**2)).max()
    return moved > bound.squared or weighted > bound.absolute


def test_squares_come_free_with_sums_and_a_greater_weight_on_them_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    curation = Curation.from_schema(Schema(columns=[Column("x", type="integer", lower=0, upper=256)]))
    bound = Moments("x").bind(curation, "replace-one")
    assert bound.squared == bound.precision[0] * 512**2
    assert not _moments_exceed(bound, 256)
    monkeypatch.setattr("discreet.query.aggregates._moments._FREE", 12)
    assert _moments_exceed(Moments("x").bind(curation, "replace-one"), 256)


def _exact(bound: BoundAggregate, table: list[dict[str, Any]]) -> Sequence[int]:
    engine = SINGLE.open(table)
    found = bound.exact(engine)
    engine.close()
    return found


def _change(bound: BoundAggregate, one: Sequence[int], other: Sequence[int]) -> tuple[int, int]:
    """The weighted square and absolute change between the rounded sums of two tables."""
    change = [a - b for a, b in zip(one, other, strict=True)]
    square = sum(p * c * c for p, c in zip(bound.precision, change, strict=True))
    return square, sum(w * abs(c) for w, c in zip(bound.weight, change, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", NEIGHBORS)
def test_sums_of_squares_that_are_rounded_move_no_further_than_is_charged(neighbors: Neighbors) -> None:
    bound = Moments(("x", "job")).bind(CURATION, neighbors)
    ends = [ROWS[0], ROWS[1], ROWS[7], ROWS[-1]]
    worst = 0
    # What is rounded away depends on the other rows.
    for extra in range(12):
        others = [ROWS[(5 * extra + 7 * i) % len(ROWS)] for i in range(extra)]
        sums = [_exact(bound, [*others, end]) for end in ends]
        without = _exact(bound, others)
        replaced = list(itertools.combinations(sums, 2))
        pairs = replaced if neighbors == "replace-one" else [(one, without) for one in sums]
        for one, another in pairs:
            square, absolute = _change(bound, one, another)
            assert square <= bound.squared
            assert absolute <= bound.absolute
            worst = max(worst, square)
    assert worst > 0.2 * bound.squared


@pytest.mark.parametrize(
    "privacy",
    [
        PureDP(epsilon=1e-4, neighbors="add-remove"),
        GaussianDP(mu=1e-7, neighbors="add-remove"),
        PureDP(epsilon=3, neighbors="add-remove"),
    ],
    ids=str,
)
def test_noise_too_wide_for_the_integers_is_drawn_on_a_coarser_lattice(privacy: Any) -> None:
    columns = [Column("far", lower=1e9 + 0.1, upper=1e9 + 1), Column("x", lower=0, upper=1)]
    schema = Schema(columns=columns, neighbors="add-remove")
    for question in (Sums(("far",)), Moments(("far", "x"))):
        bound = question.bind(Curation.from_schema(schema), "add-remove")
        noise = QueryNoise.calibrate(bound, schema, privacy=privacy)
        assert all(2.0**16 <= scale <= LARGEST_SCALE for scale, _ in noise.groups)
        decoded = noise.values(noise.add_noise([10**15] * bound.size, Recorder()), bound, None) / bound.unit
        assert np.abs(decoded - 1e15).max() <= max(2.0**-bits for _, bits in noise.groups)
    bound = Sums("far").bind(Curation.from_schema(schema), "add-remove")
    noise = QueryNoise.calibrate(bound, schema, privacy=privacy)
    ((scale, bits),) = noise.groups
    assert isinstance(noise.promise, PureDP | GaussianDP)
    charged = noise.promise.epsilon if isinstance(noise.promise, PureDP) else noise.promise.mu
    assert bits < 0
    steps = [
        shift_bits(start + bound.absolute, bits) - shift_bits(start, bits) for start in (0, -1, 2**-bits - 1)
    ]
    assert max(steps) <= Fraction(charged) * Fraction(scale)
    # The twin that rounds the sum for nothing: its noise is what the plain sensitivity asks for.
    assert max(steps) > bound.absolute * Fraction(2) ** bits
