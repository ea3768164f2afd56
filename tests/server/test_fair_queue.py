"""Work is taken so that callers who wait get the same share of it, whatever they send."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.query.curation import Curation
from discreet.query.language.query import parse_query
from discreet.query.statistics import plan_query
from discreet.server import work
from discreet.server.limits import hidden_size
from discreet.server.work import FairQueue, WorkBudget, WorkModel, texts_of
from tests.server.conftest import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.server.conftest import RunningService

WORKS = st.lists(st.integers(1, 50), min_size=1, max_size=30)


class FirstComeQueue:
    """The twin: whoever came first is served first."""

    def __init__(self) -> None:
        self._items: deque[tuple[Any, float]] = deque()

    def push(self, _caller: str, item: Any, seconds: float) -> None:
        self._items.append((item, seconds))

    def pop(self) -> tuple[Any, float]:
        return self._items.popleft()


def largest_gap(queue: Any, works: Mapping[str, Sequence[int]]) -> float:
    """Return by how much the work of two callers who both waited all the time ever differed."""
    for caller, seconds in works.items():
        for one in seconds:
            queue.push(caller, caller, one)
    left = Counter({caller: len(seconds) for caller, seconds in works.items()})
    served: Counter[str] = Counter()
    gap = 0.0
    while all(left.values()):
        caller, seconds = queue.pop()
        served[caller] += int(seconds)
        left[caller] -= 1
        gap = max(gap, *(served[a] - served[b] for a in works for b in works))
    return gap


@given(st.dictionaries(st.sampled_from("abc"), WORKS, min_size=2))
def test_callers_who_wait_get_the_same_work_up_to_one_item_each(works: dict[str, list[int]]) -> None:
    allowed = 2 * max(map(max, works.values()))
    assert largest_gap(FairQueue[str](), works) <= allowed


def test_who_comes_first_is_not_served_first_for_that() -> None:
    works = {"hostile": [50] * 20, "light": [1] * 20}
    assert largest_gap(FirstComeQueue(), works) == 1000
    assert largest_gap(FairQueue[str](), works) <= 100
    queue = FairQueue[str]()
    for _ in range(20):
        queue.push("hostile", "hostile", 50)
    queue.pop()
    queue.push("light", "light", 1)
    assert queue.pop()[0] == "light"


def test_nobody_saves_up_turns_and_nobody_owes_any_after_all_was_served() -> None:
    queue = FairQueue[str]()
    for _ in range(10):
        queue.push("busy", "busy", 5)
        assert queue.pop() == ("busy", 5)
    for _ in range(4):
        queue.push("idle", "idle", 5)
        queue.push("busy", "busy", 5)
    assert Counter(queue.pop()[0] for _ in range(4)) == {"idle": 2, "busy": 2}
    assert len(queue) == len(list(queue)) == 4


# Work and its budget.


def test_work_follows_from_texts_and_declared_sizes() -> None:
    model = WorkModel.for_engine(2e-9, 2000, 1.0)
    assert model.estimate_reading(100) <= model.light
    assert model.estimate_reading(50_000) > model.light
    assert model.estimate_question(sums=64, cells=64) <= model.light
    assert model.estimate_question(sums=1, cells=2**16) > model.light
    slow = WorkModel.for_engine(2e-9, 2000, 3.0)
    assert slow.estimate_reading(50_000) == pytest.approx(3 * model.estimate_reading(50_000), rel=1e-3)


def test_quantiles_count_all_nodes_of_their_trees() -> None:
    model, curation = WorkModel.for_engine(2e-9, 2000, 1.0), Curation.from_schema(SCHEMA)
    nodes = {}
    for text in ("median(income)", "median(income) BY city", "median(income), mean(income) BY age"):
        nodes[text] = hidden_size(parse_query(text, SCHEMA), curation)
    plan = plan_query(parse_query("median(income)", SCHEMA), None)
    assert [nodes[text] / nodes["median(income)"] for text in nodes] == [1, 5, 121]
    assert plan.aggregate.bind(curation, SCHEMA.neighbors).size == nodes["median(income)"]
    assert hidden_size(parse_query("mean(income) BY age", SCHEMA), curation) == 0
    # A quantile and another level of the same values share a tree.
    two = parse_query("median(income), quantile(income, 0.9)", SCHEMA)
    assert hidden_size(two, curation) == nodes["median(income)"]
    assert model.estimate_question(sums=1, cells=121, hidden=max(nodes.values())) > model.light
    assert model.estimate_question(sums=1, cells=121) < model.light


def test_a_median_of_many_groups_is_heavy(service: RunningService) -> None:
    dataset = service.backend.dataset
    assert dataset.query_work(parse_query("median(income) BY age", SCHEMA)) > 5 * dataset.query_work(
        parse_query("mean(income) BY age", SCHEMA)
    )


def test_on_a_large_table_a_count_is_as_light_as_any() -> None:
    for row_seconds in (2e-9, 6e-8):
        model = WorkModel.for_engine(row_seconds, 10**9, 1.0)
        assert model.smallest <= model.light
        assert model.estimate_question(sums=64, cells=64) > model.light


def test_a_number_of_rows_that_is_not_public_changes_nothing() -> None:
    assert WorkModel.for_engine(2e-9, None, 1.0) == WorkModel.for_engine(2e-9, 10**6, 1.0)


def test_the_speed_of_a_machine_is_that_of_reading_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0.01 < work.measure_speed.__wrapped__() < 100
    ticks = iter(range(10_000))
    monkeypatch.setattr(work.time, "thread_time", lambda: float(next(ticks)))  # type: ignore[attr-defined]
    assert work.measure_speed.__wrapped__() > 100


def test_texts_are_found_in_parts_and_whatever_else_is_sent_is_no_matter() -> None:
    parts = [{"expressions": ["b", 3]}, {"parts": [{"expressions": ["c"]}]}, 7]
    assert list(texts_of({"expressions": ["a"], "parts": parts})) == ["a", "b", "c"]
    odd: Any
    for odd in (None, [], {"expressions": "a"}, {"parts": {}}, {"expressions": None}):
        assert list(texts_of(odd)) == []


def test_a_budget_of_work_fills_evenly_and_a_question_larger_than_all_of_it_needs_it_full() -> None:
    budget = WorkBudget(36.0)
    assert budget.take("ana", 30.0, now=0.0) is None
    assert budget.take("ben", 30.0, now=0.0) is None
    assert budget.take("ana", 10.0, now=0.0) == 420
    assert budget.take("ana", 10.0, now=399.0) == 60
    assert budget.take("ana", 10.0, now=401.0) is None
    assert budget.take("ana", 1000.0, now=402.0) is not None
    assert budget.take("ana", 1000.0, now=5000.0) is None
    assert budget.take("ana", 0.01, now=5000.0) == 60
