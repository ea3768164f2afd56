from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from scipy import special

from discreet import datasets
from discreet.errors import ParameterError
from discreet.learn import PrivateID3Classifier
from discreet.learn._bins import Bins, public_edges
from discreet.learn._stopping_rule import StoppingRule, count_error, information, information_error
from discreet.learn.budget_schedule import NoiselessSums
from discreet.learn.feature_map import FeatureMap
from discreet.ledger import Ledger
from discreet.noise import Stream
from discreet.privacy import ApproxDP, GaussianDP, NoPromise, PureDP
from discreet.query import Database, Histogram
from discreet.schema import Column, Schema
from tests.learn.noisy_sums import (
    fitted_in_memory_and_in_an_engine,
    fitted_on_answers_alone,
    spent,
    townsfolk,
    townsfolk_schema,
)
from tests.query.people import people, people_schema

if TYPE_CHECKING:
    from pathlib import Path

    from discreet._types import Floats
    from discreet.learn._id3 import Tree

EXACT = NoPromise("the rows are made up")


def printed_score(table: Floats) -> float:
    """The score as printed: the rows times the entropy, to be maximized."""
    return -information(table, 0.0)


def test_the_score_is_the_one_of_the_specification() -> None:
    assert information(np.array([[30.0, 10.0], [5.0, 55.0]]), 0.0) == pytest.approx(-39.7036, abs=5e-5)


def test_the_largest_score_is_the_best_split_and_the_printed_sign_takes_the_worst() -> None:
    perfect = np.array([[50.0, 0.0], [0.0, 50.0]])
    useless = np.array([[25.0, 25.0], [25.0, 25.0]])
    assert information(perfect, 0.0) == 0.0 > information(useless, 0.0)
    assert max((perfect, useless), key=printed_score) is useless


def test_cells_within_the_noise_are_charged_the_largest_entropy() -> None:
    table = np.array([[100.0, 0.0], [15.0, 0.0]])
    assert information(table, 0.0) == 0.0
    assert information(table, 20.0) == pytest.approx(-15 * math.log(2))
    assert information(-table, 20.0) == 0.0


def test_a_count_is_within_its_error_and_the_printed_one_is_not() -> None:
    failure = 1e-6

    def beyond(bound: float) -> float:
        return float(2 * special.ndtr(-bound))

    printed = math.sqrt(math.log(1 / failure))
    assert 1.9e-4 < beyond(printed) < 2.1e-4
    assert 6.5e-8 < beyond(count_error(1.0, failure)) < 7.5e-8 < failure
    # Laplace noise of variance 1 has scale sqrt(1/2).
    assert math.exp(-count_error(1.0, failure, "laplace") * math.sqrt(2)) == pytest.approx(failure)


def uncharged(table: Floats, least: float) -> float:
    """V_A over cells above ``least``, as the paper has it: nothing is charged for cells that are left out."""
    return information(np.where(table > least, table, 0.0), 0.0)


def worst_error(table: Floats, error: float, least: float = 0.0) -> float:
    """The largest error of V_A when every cell is off by up to ``error``, found on corners and in between."""
    exact, worst = information(table, 0.0), 0.0
    steps = (-1.0, -0.5, 0.0, 0.5, 1.0) if table.size == 4 else (-1.0, 0.0, 1.0)
    for moves in itertools.product(steps, repeat=table.size):
        noisy = np.maximum(table + error * np.reshape(moves, table.shape), 0.0)
        worst = max(worst, abs(uncharged(noisy, least) - exact))
    return worst


@pytest.mark.parametrize("gamma", [50.0, 100.0])
def test_the_error_of_the_score_has_a_logarithm_that_the_printed_one_has_not(gamma: float) -> None:
    count, t = 1000.0, 2
    error = count / gamma
    tables = [np.array(cells).reshape(2, 2) * count for cells in ([0.5, 0.0, 0.0, 0.5], [1.0, 0, 0, 0])]
    worst = max(worst_error(table, error) for table in tables)
    printed = t**2 / gamma * count
    assert printed < worst <= count * information_error(count, error, (t, t))


@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (2, 3)])
@pytest.mark.parametrize(("gamma", "least"), [(10.0, 0.0), (40.0, 1.0)])
def test_the_error_of_the_score_covers_cells_that_are_left_out(
    shape: tuple[int, int], gamma: float, least: float
) -> None:
    count, error = 1000.0, 1000.0 / gamma
    tables = [
        np.eye(*shape),
        np.ones(shape),
        np.full(shape, 1e-6) + np.eye(1, math.prod(shape)).reshape(shape),
    ]
    # Cells of which the true count is almost twice the error: noise may hide them below it.
    tables += [table + 1.9 * error / count * table.sum() * (table == 0) for table in tables[:1]]
    for table in tables:
        rows = count * table / table.sum()
        allowed = count * information_error(count, error * (1 + least), shape)
        assert worst_error(rows, error, least * error) <= allowed


def test_a_node_too_small_for_the_lemma_has_no_bound() -> None:
    assert information_error(10.0, 2.0, (2, 2)) == math.inf
    assert information_error(0.0, 1.0, (2, 2)) == math.inf
    assert information_error(10.0, 0.0, (2, 2)) == 0.0


def true_gain_loss(tables: list[Floats], chosen: int) -> float:
    """How much more gain a row would have by the best column than by the chosen one."""
    scores = [information(table, 0.0) for table in tables]
    return (max(scores) - scores[chosen]) / float(tables[0].sum())


@pytest.mark.parametrize("skip", [0.0, 2.0])
def test_no_split_loses_more_gain_than_is_stated(skip: float) -> None:
    rule = StoppingRule(stop=3.0, skip=skip, gain_loss=None, failure=0.05)
    draws, sd = Stream.from_seed(7).generator(), 5.0
    stated, lost = [], []
    for _ in range(200):
        true = [draws.multinomial(20_000, draws.dirichlet(np.ones(2 * t))).reshape(t, 2) for t in (2, 3, 4)]
        # Uniform within the error: the case that the statement is about, and not its failure.
        noisy = [table + draws.uniform(-sd, sd, table.shape) for table in true]
        chosen = int(np.argmax([information(table, skip * sd) for table in noisy]))
        stated.append(rule.bound_gain_loss(noisy, sd, sd))
        lost.append(true_gain_loss([table.astype(float) for table in true], chosen))
        assert lost[-1] <= stated[-1]
    assert max(stated) < 0.5
    assert any(loss > 0 for loss in lost)


@pytest.mark.slow
def test_the_rule_of_the_paper_splits_only_what_is_certain() -> None:
    rows, schema = townsfolk(30_000), townsfolk_schema()
    trees = {
        gain_loss: PrivateID3Classifier(
            privacy=GaussianDP(mu=8.0),
            schema=schema,
            max_depth=3,
            skip=0.0,
            gain_loss=gain_loss,
            random_state=1,
        ).fit(rows, rows["owner"])
        for gain_loss in (None, 1.0, 0.2, 1e-6)
    }
    sizes = {gain_loss: len(model.tree_.nodes) for gain_loss, model in trees.items()}
    assert sizes[None] > sizes[1.0] > sizes[0.2] > sizes[1e-6] == 1
    for gain_loss, model in trees.items():
        assert len(model.gain_losses_) == sum(node.attribute is not None for node in model.tree_.nodes)
        assert gain_loss is None or (model.gain_losses_ <= gain_loss).all()
    # A smaller probability of failure makes the same splits less certain.
    strict = PrivateID3Classifier(
        privacy=GaussianDP(mu=8.0),
        schema=schema,
        max_depth=3,
        skip=0.0,
        failure_probability=1e-9,
        random_state=1,
    ).fit(rows, rows["owner"])
    assert strict.tree_ == trees[None].tree_
    assert strict.gain_losses_[0] > trees[None].gain_losses_[0] > 0
    exact = PrivateID3Classifier(privacy=EXACT, schema=schema, max_depth=3, gain_loss=1e-9)
    assert not exact.fit(rows, rows["owner"]).gain_losses_.any()


def test_thresholds_close_nodes_and_leave_out_cells() -> None:
    rows, schema = townsfolk(5000), townsfolk_schema()

    def nodes(**rest: Any) -> int:
        model = PrivateID3Classifier(
            privacy=GaussianDP(mu=1.0), schema=schema, max_depth=3, random_state=1, **rest
        )
        return len(model.fit(rows, rows["owner"]).tree_.nodes)

    assert nodes(stop=1.0) > nodes() > nodes(stop=30.0)
    assert nodes(skip=1e6) == 1


def exact_id3(codes: Any, y: Any, sizes: list[int], left: list[int], depth: int, shares: Any) -> Any:
    """ID3 by the book, on rows: what the noiseless twin must grow."""
    best, counts = None, np.bincount(y, minlength=2)
    if depth and left and len(y) and np.count_nonzero(counts) > 1:
        scores = {}
        for a in left:
            scores[a] = 0.0
            for value in range(sizes[a]):
                cell = np.bincount(y[codes[:, a] == value], minlength=2)
                scores[a] += sum(c * math.log(c / cell.sum()) for c in cell if c)
        best = max(left, key=lambda a: scores[a])
    if best is None:
        return tuple(shares)
    children = []
    for value in range(sizes[best]):
        rows = codes[:, best] == value
        cell = np.bincount(y[rows], minlength=2)
        inside = cell / cell.sum() if cell.sum() else shares
        rest = [a for a in left if a != best]
        children.append(exact_id3(codes[rows], y[rows], sizes, rest, depth - 1, inside))
    return best, children


def grown(tree: Tree, place: int = 0) -> Any:
    node = tree.nodes[place]
    if node.attribute is None:
        return node.shares
    return node.attribute, [grown(tree, child) for child in node.children]


def test_without_noise_the_tree_is_the_one_that_the_book_grows() -> None:
    rows, schema = townsfolk(2000), townsfolk_schema()
    model = PrivateID3Classifier(privacy=EXACT, schema=schema, max_depth=3).fit(rows, rows["owner"])
    codes = model.cells_.codes(rows)
    y = (rows["owner"] == "yes").to_numpy().astype(int)
    sizes = list(model.cells_.sizes.values())
    wanted = exact_id3(codes, y, sizes, list(range(5)), 3, np.bincount(y) / len(y))

    def equal(a: Any, b: Any) -> bool:
        if isinstance(a[1], list) != isinstance(b[1], list):
            return False
        if isinstance(a[1], list):
            return a[0] == b[0] and all(equal(x, z) for x, z in zip(a[1], b[1], strict=True))
        return bool(np.allclose(a, b, rtol=0, atol=1e-12))

    assert equal(grown(model.tree_), wanted)
    assert model.tree_.depth == 3


def test_growing_stops_when_labels_agree_not_when_the_first_column_does() -> None:
    # As printed a node is a leaf if all rows agree in A1, and if A1 is all that is left.
    schema = Schema(columns=[Column("a", values=("p", "q"), closed=True), Column("b", values=(0, 1))])
    rows = pd.DataFrame({"a": ["p"] * 100, "b": [0, 1] * 50})
    labeled = Schema(columns=[*schema.columns, Column("y", values=(0, 1), role="target")])
    model = PrivateID3Classifier(privacy=EXACT, schema=labeled).fit(rows, rows["b"])
    assert model.score(rows, rows["b"]) == 1.0
    assert model.tree_.nodes[0].attribute == 1
    alone = Schema(columns=[labeled.columns[1], labeled.columns[2]])
    single = PrivateID3Classifier(privacy=EXACT, schema=alone).fit(rows[["b"]], rows["b"])
    assert single.score(rows[["b"]], rows["b"]) == 1.0
    same = PrivateID3Classifier(privacy=EXACT, schema=alone).fit(rows[["b"]], np.zeros(100, int))
    assert len(same.tree_.nodes) == 1


def test_cells_that_no_row_is_in_are_counted_and_have_a_branch() -> None:
    model = PrivateID3Classifier(privacy=GaussianDP(mu=3.0), max_depth=2, random_state=1)
    with Database(townsfolk(2000), schema=townsfolk_schema(), random_state=1) as sums:
        model.fit_database(sums)
    (root, *_), jobs = model.tree_.nodes, model.cells_.sizes["job"]
    assert root.attribute is not None
    assert len(root.children) == list(model.cells_.sizes.values())[root.attribute]
    first = model.answers_["level 1"]
    assert jobs == 4
    assert np.size(first.value) == 2 * sum(model.cells_.sizes.values())
    divers = townsfolk(10).assign(job="diver").drop(columns="owner")
    assert set(model.predict(divers)) <= {"no", "yes"}


def test_cells_of_rows_in_hand_are_those_that_an_engine_counts() -> None:
    schema, rows = people_schema(), people(500)
    layout = FeatureMap.from_schema(schema)
    cells = Bins.from_features(layout, {"age": [30.5, 60.0], "height": [0.0]}, 5)
    codes = cells.codes({name: rows[name] for name in layout.names})
    with NoiselessSums(rows, schema=schema) as sums:
        for i, name in enumerate(layout.names):
            counted = sums.ask(Histogram(name, cells.edges_of([name])), privacy=EXACT).value
            assert (
                np.bincount(codes[:, i], minlength=cells.sizes[name]).tolist() == np.asarray(counted).tolist()
            )


def test_public_cells_are_equal_or_grow_where_a_column_is_an_amount() -> None:
    assert public_edges(Column("x", lower=0, upper=1), 4) == (0.25, 0.5, 0.75)
    assert public_edges(Column("n", type="integer", lower=1, upper=3), 4) == (2.0, 3.0)
    assert public_edges(Column("gain", type="integer", lower=0, upper=4096), 4) == (1.0, 256.0, 1024.0)
    many = public_edges(Column("gain", type="integer", lower=0, upper=4096), 32)
    assert len(many) == 31
    assert min(many[1:]) == pytest.approx(4.0)


def test_the_same_keystream_gives_the_same_tree_on_rows_and_in_an_engine() -> None:
    first, second = fitted_in_memory_and_in_an_engine(
        lambda: PrivateID3Classifier(privacy=GaussianDP(mu=1.0)), townsfolk_schema()
    )
    assert first.tree_ == second.tree_
    assert len(first.tree_.nodes) > 1


def test_the_tree_is_a_function_of_the_noisy_answers() -> None:
    def make() -> PrivateID3Classifier:
        return PrivateID3Classifier(privacy=GaussianDP(mu=1.0))

    first, second = fitted_on_answers_alone(make(), make(), townsfolk_schema())
    assert first.tree_ == second.tree_
    assert len(first.answers_) >= 2


def test_levels_share_the_promise_and_each_costs_what_one_node_would() -> None:
    ledger = Ledger.open(":memory:", limit=GaussianDP(mu=1.0))
    model = PrivateID3Classifier(
        privacy=GaussianDP(mu=1.0), schema=townsfolk_schema(), max_depth=3, ledger=ledger, random_state=1
    )
    rows = townsfolk(5000)
    model.fit(rows, rows["owner"])
    assert model.split_ == dict.fromkeys(("level 1", "level 2", "level 3"), 1 / 3)
    assert 1 - 1e-9 < spent(model.answers_) <= 1.0
    # A row is in one cell of each column that is left, 5 and then one fewer on each level.
    for left, answer in zip((5, 4, 3), model.answers_.values(), strict=True):
        assert np.max(answer.sd) == pytest.approx(math.sqrt(2 * left * 3), rel=1e-9)
    assert len(model.receipts_) == 3
    assert model.promises_[0].mu == 1.0


def test_add_remove_costs_half_and_needs_a_public_depth() -> None:
    schema, rows = townsfolk_schema("add-remove"), townsfolk(3000)
    promise = GaussianDP(mu=1.0, neighbors="add-remove")
    with pytest.raises(ParameterError, match="max_depth of PrivateID3Classifier must be given"):
        PrivateID3Classifier(privacy=promise, schema=schema).fit(rows, rows["owner"])
    model = PrivateID3Classifier(privacy=promise, schema=schema, max_depth=1, random_state=1)
    model.fit(rows, rows["owner"])
    assert np.max(model.answers_["level 1"].sd) == pytest.approx(math.sqrt(5), rel=1e-9)


def test_the_depth_follows_from_public_facts() -> None:
    census = datasets.load("census").schema
    rows = pd.DataFrame({column.name: [] for column in census.columns}, dtype=object)

    class Many(Database):
        """A table that is said to have as many rows as the census has for training."""

        n_rows = 32_561

    with Many(rows, schema=census) as sums:
        for epsilon, depth in ((0.1, 2), (1.0, 3), (10.0, 4)):
            model = PrivateID3Classifier(privacy=ApproxDP(epsilon=epsilon, delta=1e-6))
            cells = Bins.from_features(FeatureMap.from_schema(census), None, level=1)
            passes = model._plan_levels(sums, cells, "income", None)
            assert len(passes.split) == depth


def test_nodes_below_the_noise_are_closed() -> None:
    rows = townsfolk(300)
    model = PrivateID3Classifier(
        privacy=GaussianDP(mu=0.01), schema=townsfolk_schema(), max_depth=2, random_state=1
    )
    model.fit(rows, rows["owner"])
    assert model._rule().least_count(float(np.max(model.answers_["level 1"].sd)), 4.0) > 300
    assert model.tree_.depth == 0
    assert list(model.answers_) == ["level 1"]
    assert model.split_ == {"level 1": 0.5, "level 2": 0.5}


def test_pure_promises_grow_a_tree_too() -> None:
    rows = townsfolk(20_000)
    model = PrivateID3Classifier(privacy=PureDP(epsilon=4.0), schema=townsfolk_schema(), random_state=1)
    assert model.fit(rows, rows["owner"]).score(rows, rows["owner"]) > 0.8


def test_edges_for_what_is_no_number_are_refused() -> None:
    rows = townsfolk(50)
    model = PrivateID3Classifier(privacy=EXACT, schema=townsfolk_schema(), edges={"job": [1.0]})
    with pytest.raises(ParameterError, match="'job' is none"):
        model.fit(rows, rows["owner"])


def test_a_tree_survives_its_file(tmp_path: Path) -> None:
    rows = townsfolk(2000)
    model = PrivateID3Classifier(privacy=GaussianDP(mu=2.0), schema=townsfolk_schema(), random_state=1)
    model.fit(rows, rows["owner"]).save(tmp_path / "tree")
    loaded = PrivateID3Classifier.load(tmp_path / "tree")
    assert loaded.tree_ == model.tree_
    assert np.array_equal(loaded.gain_losses_, model.gain_losses_)
    assert np.array_equal(loaded.predict_proba(rows), model.predict_proba(rows))


def test_a_tree_of_the_census_beats_the_majority() -> None:
    census = datasets.load("census")
    rows = pd.read_parquet(census.path)
    train, test = rows.iloc[:32_561], rows.iloc[32_561:]
    model = PrivateID3Classifier(
        privacy=ApproxDP(epsilon=1.0, delta=1e-6), schema=census.schema, random_state=1
    )
    assert model.fit(train, train["income"]).score(test, test["income"]) > 0.805
