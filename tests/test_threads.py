"""Small products run on one thread, and the others are given back."""

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits  # type: ignore[import-untyped]

from discreet import ApproxDP, Column, GaussianRelease, Schema, audit, threads
from discreet._types import AnyArray, Ints
from discreet.learn import PrivateKMeans, PrivateLogisticRegression
from discreet.learn.perturbation import mean_loss
from discreet.noise import Stream
from discreet.query.curation import Curation
from discreet.query.engines._duckdb import DuckDBEngine
from discreet.release import ReleasePlan
from discreet.threads import one_thread


def _numbers() -> set[int]:
    return {library["num_threads"] for library in ThreadpoolController().info()}


def test_contexts_overlap_and_the_last_one_gives_the_threads_back() -> None:
    with threadpool_limits(2):
        before = _numbers()
        first, second = one_thread(), one_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert _numbers() == {1}
        second.__exit__(None, None, None)
        assert _numbers() == before


def test_library_that_is_loaded_later_is_limited_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with threadpool_limits(2):
        before = _numbers()
        monkeypatch.setattr(threads, "_LIBRARIES", ("numpy",))
        with one_thread():
            monkeypatch.setattr(threads, "_LIBRARIES", ("numpy", "scipy.linalg"))
            # As a library does that comes with its own number of threads.
            ThreadpoolController().limit(limits=2)
            with one_thread():
                assert _numbers() == {1}
        assert _numbers() == before


@pytest.mark.parametrize("name", ["PrivateLogisticRegression", "PrivateKMeans"])
def test_fit_uses_one_thread(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    seen: list[set[int]] = []

    def watch(owner: type, method: str) -> None:
        inner = getattr(owner, method)

        def watched(*arguments: object, **options: object) -> object:
            seen.append(_numbers())
            return inner(*arguments, **options)

        monkeypatch.setattr(owner, method, watched)

    X, y = np.linspace(-1, 1, 40).reshape(20, 2), np.arange(20) % 2
    privacy = ApproxDP(epsilon=1, delta=1e-6)
    with threadpool_limits(2):
        if name == "PrivateKMeans":
            watch(PrivateKMeans, "_learn")
            PrivateKMeans(privacy=privacy, bounds=(-1, 1), n_clusters=2, random_state=1).fit(X)
        else:
            watch(mean_loss.MeanLossProblem, "gradient")
            PrivateLogisticRegression(privacy=privacy, bounds=(-1, 1), classes=(0, 1), random_state=1).fit(
                X, y
            )
    assert seen
    assert set().union(*seen) == {1}


def test_passes_over_rows_use_one_thread() -> None:
    seen: list[set[int]] = []

    class Watch:
        columns, size = ("c0",), 1

        def __call__(self, arrays: Sequence[AnyArray]) -> Ints:
            seen.append(_numbers())
            return np.array([len(arrays[0])])

    curation = Curation.from_schema(Schema(columns=[Column("x", lower=0, upper=1)]))
    with threadpool_limits(2), contextlib.closing(DuckDBEngine()) as engine:
        engine.register({"x": np.zeros(9)}, curation)
        assert engine.reduce(Watch()) == [9]
    assert seen == [{1}]


@pytest.mark.parametrize("name", ["attack_claims", "attack_prior"])
def test_attacks_use_one_thread(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    seen: list[set[int]] = []
    schema = Schema(columns=[Column(name, lower=0, upper=1) for name in "xy"])
    privacy = ApproxDP(epsilon=1, delta=1e-6)
    plan = GaussianRelease(privacy=privacy, schema=schema).plan(schema, 200)
    draw = ReleasePlan.noise

    def watched(*arguments: Any) -> dict[str, Any]:
        seen.append(_numbers())
        return draw(*arguments)

    monkeypatch.setattr(ReleasePlan, "noise", watched)
    options: dict[str, Any] = {"n": 200} if name == "attack_prior" else {}
    with threadpool_limits(2):
        getattr(audit, name)(plan, stream=Stream.from_seed(1), **options)
    assert seen
    assert set().union(*seen) == {1}
