from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from discreet.tables.sources import prefetch

if TYPE_CHECKING:
    from collections.abc import Generator


def test_batches_come_in_order_and_all_of_them() -> None:
    assert list(prefetch(i for i in range(100))) == list(range(100))


def test_the_next_batch_is_made_while_one_is_held() -> None:
    made = threading.Event()

    def batches() -> Generator[int, None, None]:
        yield 0
        made.set()
        yield 1

    taken = prefetch(batches())
    assert next(taken) == 0
    assert made.wait(5)  # nobody has asked for the second batch yet
    assert list(taken) == [1]


def test_what_the_generator_raises_is_raised_to_the_taker() -> None:
    def batches() -> Generator[int, None, None]:
        yield 0
        raise KeyError("here")

    taken = prefetch(batches())
    assert next(taken) == 0
    with pytest.raises(KeyError, match="here"):
        next(taken)


def test_a_taker_who_leaves_early_ends_the_thread_and_closes_the_generator() -> None:
    closed = threading.Event()

    def batches() -> Generator[int, None, None]:
        try:
            while True:
                yield 0
        finally:
            closed.set()

    before = threading.active_count()
    taken = prefetch(batches())
    next(taken)
    taken.close()  # type: ignore[attr-defined]
    assert closed.is_set()
    assert threading.active_count() == before
