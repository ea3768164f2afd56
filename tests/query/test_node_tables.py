"""A level of a tree with many nodes: each row in the first node that it fits, in little time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from discreet.query import Database, NodeTables, TreeNode
from discreet.schema import Column, Schema
from tests.effort import function_calls

NAMES = ("a", "b", "c")
SCHEMA = Schema(
    columns=[
        *(Column(name, values=(0, 1, 2), closed=True) for name in NAMES),
        Column("x", lower=0, upper=1, required=False),
        Column("y", values=(0, 1), role="target"),
    ]
)
EDGES = {"x": [0.25, 0.5]}


def rows() -> dict[str, np.ndarray]:
    cells = np.array(list(itertools.product(range(3), range(3), range(3), range(4), range(2))))
    made = {name: cells[:, i] for i, name in enumerate(NAMES)}
    made["x"] = np.array([0.1, 0.3, 0.9, np.nan])[cells[:, 3]]
    made["y"] = cells[:, 4]
    return made


def cell_of(name: str, row: dict[str, float]) -> int:
    if name != "x":
        return int(row[name])
    return 3 if np.isnan(row["x"]) else int(np.searchsorted(EDGES["x"], row["x"], side="right"))


def reference(nodes: list[TreeNode]) -> list[int]:
    """Count by going through rows and nodes one by one."""
    table = rows()
    inside: list[int | None] = []
    each = [{name: float(table[name][i]) for name in table} for i in range(len(table["y"]))]
    for row in each:
        fits = (k for k, node in enumerate(nodes) if all(cell_of(n, row) == code for n, code in node.path))
        inside.append(next(fits, None))
    counted = []
    for k, node in enumerate(nodes):
        for attribute in node.attributes:
            size = 4 if attribute == "x" else 3
            for value, label in itertools.product(range(size), range(2)):
                counted.append(
                    sum(
                        where == k and cell_of(attribute, row) == value and row["y"] == label
                        for where, row in zip(inside, each, strict=True)
                    )
                )
    return counted


CASES = {
    "a tree whose branches split by other columns": [
        TreeNode([("a", 0), ("b", 1)], ["c"]),
        TreeNode([("a", 0), ("b", 2)], ["c", "x"]),
        TreeNode([("a", 1), ("x", 3)], ["b"]),
        TreeNode([("c", 1), ("a", 2)], ["b"]),
    ],
    "nodes that overlap: the first wins": [
        TreeNode([("a", 1)], ["b"]),
        TreeNode([("a", 1), ("b", 1)], ["c"]),
        TreeNode([("b", 1)], ["c"]),
    ],
    "a node for all the rest": [
        TreeNode([("a", 1), ("b", 0)], ["c"]),
        TreeNode([], ["c"]),
        TreeNode([("a", 0)], ["c"]),
    ],
    "the root": [TreeNode([], ["a", "b", "c", "x"])],
    "a path that no row fits": [TreeNode([("a", 1), ("a", 2)], ["b"]), TreeNode([("a", 1)], ["b"])],
    "nothing but such paths": [TreeNode([("a", 1), ("a", 2)], ["b"])],
    "steps in another order": [TreeNode([("x", 0), ("a", 1)], ["b"]), TreeNode([("a", 1), ("x", 2)], ["b"])],
}


@pytest.mark.parametrize("name", CASES)
def test_a_row_is_counted_in_the_first_node_whose_path_it_fits(name: str) -> None:
    nodes = CASES[name]
    named = {n for node in nodes for n in (*node.attributes, *(step for step, _ in node.path))}
    edges = EDGES if "x" in named else {}
    with Database(rows(), schema=SCHEMA) as sums:
        bound = NodeTables("y", nodes, edges).bind(sums.curation, "replace-one")
        found = bound.exact(sums._engine)
    assert found == reference(nodes)


def test_the_work_of_six_hundred_nodes_is_linear_in_their_number() -> None:
    names = [f"a{i}" for i in range(5)]
    schema = Schema(
        columns=[*(Column(n, values=tuple(range(5)), closed=True) for n in names), Column("y", values=(0, 1))]
    )
    i = np.arange(5000)
    table = {name: i // 5**k % 5 for k, name in enumerate(names)} | {"y": i % 2}
    nodes = [TreeNode([(names[k], j // 5**k % 5) for k in range(4)], ["a4"]) for j in range(625)]
    with Database(table, schema=schema) as sums:
        found: list[int] = []

        def ask(nodes: list[TreeNode]) -> None:
            found[:] = NodeTables("y", nodes).bind(sums.curation, "replace-one").exact(sums._engine)

        fifth = function_calls(lambda: ask(nodes[:125]))
        whole = function_calls(lambda: ask(nodes))
    # One CASE of 625 branches, each copied with all before it, is quadratic: 25 times the work.
    assert whole < 8 * fifth
    assert sum(found) == 5000
