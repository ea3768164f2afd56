"""Trees of counts: their cells, their sensitivity by trying all neighbors, and their travel as JSON."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet.errors import ParameterError
from discreet.query.aggregates import HierarchicalHistogram, aggregate_from_dict
from discreet.query.aggregates._hierarchy import MOST_VALUE_CELLS, CountTree, ValueCells
from discreet.query.curation import Curation
from discreet.schema import Column, Schema
from tests.query.single_rows import SingleRows

if TYPE_CHECKING:
    from discreet.query.aggregates import BoundAggregate
    from discreet.schema.schema import Neighbors

SCHEMA = Schema(
    columns=[
        Column("v", type="integer", lower=0, upper=29, required=False),
        Column("x", type="integer", lower=0, upper=29),
        Column("g", values=("p", "q"), closed=True),
        Column("on", values=(False, True)),
    ]
)
CURATION = Curation.from_schema(SCHEMA)
NEIGHBORS: tuple[Neighbors, ...] = ("replace-one", "add-remove")
# First and last values, two of one node, two of neighboring ones: 30 cells are the leaves of 5 nodes.
ROWS: list[dict[str, Any]] = [
    {"v": v, "x": v or 0, "g": g, "on": on}
    for v, g, on in itertools.product((0, 1, 5, 6, 29, None), ("p", "q"), (False, True))
]
SINGLE = SingleRows(SCHEMA, ROWS)
CASES: list[tuple[HierarchicalHistogram, int, int]] = [
    # Question, counts that move when a row is replaced, and when one is added.
    (HierarchicalHistogram("v"), 4, 2),
    (HierarchicalHistogram("x"), 4, 2),
    (HierarchicalHistogram("v", ("g",)), 4, 2),
    (HierarchicalHistogram("x", ("g", "v"), {"v": [3, 7]}), 4, 2),
    (HierarchicalHistogram("x", where="on"), 4, 2),
    (HierarchicalHistogram("v / 7", "g", where="on AND x < 20"), 8, 4),
    (HierarchicalHistogram("4"), 0, 1),
    (HierarchicalHistogram("4", where="on"), 1, 1),
    (HierarchicalHistogram("4", "g"), 2, 1),
]


def check_charge(bound: BoundAggregate, neighbors: Neighbors) -> None:
    """Fail unless the charge is the largest change between neighbors, whatever their other rows are."""
    changes = SINGLE.changes(bound, neighbors)
    assert (changes**2).sum(axis=1).max() == bound.squared
    assert abs(changes).sum(axis=1).max() == bound.absolute


@pytest.mark.parametrize("neighbors", NEIGHBORS)
@pytest.mark.parametrize(("question", "replaced", "added"), CASES)
def test_the_charge_is_what_one_row_can_move(
    question: HierarchicalHistogram, replaced: int, added: int, neighbors: Neighbors
) -> None:
    bound = question.bind(CURATION, neighbors)
    check_charge(bound, neighbors)
    assert bound.squared == (replaced if neighbors == "replace-one" else added)


@pytest.mark.parametrize("neighbors", NEIGHBORS)
def test_charges_that_forget_a_level_or_one_of_two_counts_are_caught(neighbors: Neighbors) -> None:
    bound = HierarchicalHistogram("v", ("g",)).bind(CURATION, neighbors)
    depth = len(bound.tree.sizes)
    each = 2 if neighbors == "replace-one" else 1
    for wrong in {each * (depth - 1), depth} - {bound.squared}:
        with pytest.raises(AssertionError):
            check_charge(replace(bound, squared=wrong), neighbors)
        with pytest.raises(AssertionError):
            check_charge(replace(bound, absolute=wrong), neighbors)


def test_counts_add_up_over_rows_and_over_levels() -> None:
    bound = HierarchicalHistogram("v", ("g",), where="x < 29").bind(CURATION, "add-remove")
    chosen = [0, 5, 5, 9, 13, 17, 22]
    together = SINGLE.open([ROWS[i] for i in chosen])
    parts = np.array([bound.exact(SINGLE.engines[i]) for i in chosen])
    assert bound.exact(together) == parts.sum(axis=0).tolist()
    together.close()
    top, cells = bound.tree.split_levels(parts.sum(axis=0).reshape(2, -1).astype(float))
    assert top.shape == (2, 5)
    assert cells.shape == (2, 30)
    assert np.array_equal(cells.reshape(2, 5, 6).sum(axis=-1), top)
    # Rows whose value is missing, and those outside the condition, are in no cell.
    assert top.sum() == sum(ROWS[i]["v"] is not None and ROWS[i]["x"] < 29 for i in chosen)


RANGES: list[tuple[float, float, int, bool]] = [
    # Range, exponent of the power of two that values share, and whether all cells must be equally wide.
    (0, 120, 0, False),
    (-7, 4992, 0, False),
    (0, 1e7, 0, False),
    (-1e7, 1e7, -500, False),
    (-1e7, 3, -500, False),
    (0, 1, -500, False),
    (-3, 2, -500, False),
    (1e6, 1_010_000, 0, False),
    (0, 36525, 0, True),
    (4, 4, 0, False),
    (0, 0, 1023, False),
    (0, 1e100, -500, False),
    (0, 1e-120, -500, False),
    (0, 200, 1, False),
    (0.1, 7.5, -52, False),
]


@pytest.mark.parametrize(("lower", "upper", "quantum", "even"), RANGES)
def test_cells_cover_a_range_and_are_as_narrow_as_said(
    lower: float, upper: float, quantum: int, even: bool
) -> None:
    cells = ValueCells.from_range(float(lower), float(upper), quantum, even=even)
    starts, ends, middles = cells.starts(), cells.ends(), cells.middles()
    assert 1 <= cells.size <= MOST_VALUE_CELLS
    assert len(starts) == cells.size + 1
    assert len(ends) == len(middles) == cells.size
    assert (starts[0], starts[-1], ends[-1]) == (lower, upper, upper)
    assert np.all(np.diff(starts[:-1]) > 0)
    assert np.all((starts[:-1] <= middles) & (middles <= ends) & (ends <= starts[1:]))
    widths = np.diff(starts[:-1])
    if quantum >= 0 and (upper - lower) / 2.0**quantum < MOST_VALUE_CELLS:
        assert np.array_equal(starts[:-1], ends)  # each value is a cell
    elif cells.octave is not None:
        # No wider than 1, or than a share of its values.
        assert np.all(widths <= np.maximum(1, np.minimum(*np.abs([starts[:-2], ends[:-1]])) / cells.octave))


def test_an_income_is_resolved_to_less_than_half_a_percent() -> None:
    cells = ValueCells.from_range(0.0, 1e7, 0)
    assert (cells.size, cells.octave) == (4146, 256)


@pytest.mark.parametrize("leaves", [1, 2, 22, 23, 121, 366, 1000, 4146, 5000])
def test_a_tree_has_about_eight_children_at_every_node(leaves: int) -> None:
    tree = CountTree.from_leaves(leaves)
    assert tree.sizes[-1] == leaves
    assert tree.branching ** len(tree.sizes) >= leaves
    assert tree.branching <= 22
    assert leaves == 1 or tree.sizes[0] > 1  # two cells are below two nodes of the top
    assert tree.nodes == len(tree.add_levels(np.ones(leaves, np.int64)))


@pytest.mark.parametrize("question", [case[0] for case in CASES])
def test_questions_travel_as_json_and_bind_to_json(question: HierarchicalHistogram) -> None:
    again = aggregate_from_dict(json.loads(json.dumps(question.to_dict())))
    assert again == question
    bound, twin = (one.bind(CURATION, "replace-one") for one in (question, again))
    assert json.loads(json.dumps(bound.canonical)) == bound.canonical == twin.canonical
    assert bound.labels is not None
    assert tuple(map(len, bound.labels)) == bound.shape


def test_other_questions_have_other_canonical_forms() -> None:
    forms = {json.dumps(question.bind(CURATION, "replace-one").canonical) for question, _, _ in CASES}
    assert len(forms) == len(CASES)
    one, other = (
        HierarchicalHistogram(text, where=where).bind(CURATION, "replace-one").canonical
        for text, where in (("( X )", "5 < x"), ("x", "x > 5"))
    )
    assert one == other


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (lambda: HierarchicalHistogram("v > 3").bind(CURATION, "replace-one"), "is a condition"),
        (lambda: HierarchicalHistogram("v", ("g", "g")), "named once each"),
        (lambda: HierarchicalHistogram("v", ("g",), {"x": [3]}), "its own columns, and 'x'"),
        (lambda: HierarchicalHistogram("v", ("h",)).bind(CURATION, "replace-one"), "It has"),
        (lambda: HierarchicalHistogram("x", ("x", "v")).bind(_wide(), "replace-one"), "at most 4194304"),
    ],
)
def test_questions_that_cannot_be_asked_say_why(question: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        question()


def _wide() -> Curation:
    columns = [Column(name, type="integer", lower=0, upper=4000) for name in ("x", "v")]
    return Curation.from_schema(Schema(columns=columns))
