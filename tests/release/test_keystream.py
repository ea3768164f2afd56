"""Noise of a release follows from key, plan, place and rows: what differs never meets the same noise."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet.errors import BudgetExceeded, NoiseError
from discreet.ledger import Ledger
from discreet.noise import Stream
from discreet.privacy import ApproxDP, GaussianDP
from discreet.release import GaussianRelease, LaplaceRelease
from discreet.release.keystream import BatchStreams, rows_digest
from discreet.release.publication import published_schema
from discreet.schema import Column, Schema
from discreet.tables import open_table
from discreet.tables.table import ROWS as BATCH
from tests.contracts.cases import RELEASES, ROWS, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from discreet._types import AnyArray, Floats
    from discreet.release import ReleaseMethod

KEY = bytes(range(100, 132))
LONG = Schema(columns=[Column("x", lower=-1, upper=3), Column("sex", values=("f", "m"))])
Z = 6.5
"""A normal number passes it, in absolute value, less than once in 10**10 times."""

# Rows of a synthetic table follow from noisy answers, whose noise test_synthetic_job.py looks at.
METHODS = sorted(set(RELEASES) - {"synthetic"})
methods = pytest.mark.parametrize("name", METHODS)


def published(
    method: ReleaseMethod, rows: Mapping[str, Any], folder: Path, stream: Stream, *, shuffle: bool = False
) -> dict[str, AnyArray]:
    """Publish into a file and read the cells back, in the order of the file."""
    target = folder / "out.parquet"
    method.publish(rows, target, shuffle=shuffle, replace=True, stream=stream)
    schema = method.plan(method.schema or SCHEMA, len(next(iter(rows.values())))).schema
    with open_table(target) as table:
        batches = list(table.batches(published_schema(schema)))
    return {c.name: np.concatenate([batch[c.name] for batch in batches]) for c in schema.released}


def changed(rows: Mapping[str, Any], place: int) -> dict[str, Any]:
    """Give one person another age: a neighboring table."""
    age = np.array(rows["age"])
    age[place] = 77
    return {**rows, "age": age}


def runs_of_equal_noise(first: Floats, second: Floats, true: Floats, other: Floats) -> float:
    """Return the share of cells whose two noises are the same up to the lattice."""
    difference = (first - second) - (true - other)
    return float(np.mean(np.abs(difference) < 1e-4 * np.std(first - true)))


def long_rows(n: int) -> dict[str, AnyArray]:
    generator = Stream.from_seed(3).generator()
    return {"x": generator.uniform(-1, 3, n), "sex": generator.choice(["f", "m"], n)}


def gaussian(**rest: Any) -> GaussianRelease:
    return GaussianRelease(privacy=ApproxDP(epsilon=2, delta=1e-6), schema=LONG, **rest)


# What the keystream of a batch is


def test_the_streams_of_a_batch_are_those_of_the_written_formula() -> None:
    rows = {"x": np.array([0.5, np.nan]), "job": np.array([1, 0], np.int32)}
    text = b""
    for name, values in (("job", rows["job"]), ("x", rows["x"])):
        for piece in (name.encode(), values.dtype.str.encode(), values.tobytes()):
            text += len(piece).to_bytes(8, "little") + piece
    content = hashlib.sha256(text).hexdigest()
    assert rows_digest(rows) == content
    parts = hmac.new(KEY, b"parts", hashlib.sha256).digest()
    facts = json.dumps(["plan", "schema", 3, 7, content], separators=(",", ":")).encode()
    batch = hmac.new(parts, facts, hashlib.sha256).digest()
    streams = BatchStreams(Stream(KEY).derive("parts"), plan="plan", schema="schema")
    for stream, label in zip(streams.batch(rows, part=3, batch=7), (b"noise", b"order"), strict=True):
        expected = Stream(hmac.new(batch, label, hashlib.sha256).digest())
        assert np.array_equal(stream.words(9), expected.words(9))


@pytest.mark.parametrize(
    "other",
    [
        {"x": np.array([1.0, 2.0, 4.0])},
        {"y": np.array([1.0, 2.0, 3.0])},
        {"x": np.array([1.0, 2.0, 3.0], np.float32)},
        {"x": np.array([1.0, 2.0, 3.0]).view(np.int64)},
        {"x": np.array([1.0, 2.0]), "": np.array([3.0])},
        {"x": np.array([2.0, 1.0, 3.0])},
    ],
)
def test_tables_that_differ_in_any_way_have_other_digests(other: dict[str, AnyArray]) -> None:
    rows = {"x": np.array([1.0, 2.0, 3.0])}
    assert rows_digest(other) != rows_digest(rows) == rows_digest({"x": np.array([1, 9, 2, 9, 3, 9.0])[::2]})


def test_plan_schema_part_and_batch_each_give_another_stream() -> None:
    rows = {"x": np.zeros(3)}

    def first(plan: str = "p", schema: str = "s", part: int = 0, batch: int = 0) -> int:
        streams = BatchStreams(Stream(KEY).derive("parts"), plan=plan, schema=schema)
        return int(streams.batch(rows, part=part, batch=batch)[0].words(1)[0])

    drawn = [first(), first(plan="q"), first(schema="t"), first(part=1), first(batch=1)]
    whole = BatchStreams(Stream(KEY).derive("parts"), plan="p", schema="s").whole(rows)[0].words(1)[0]
    assert len({*drawn, int(whole)}) == 6
    assert first() == drawn[0]


# Neighboring tables under one key


@pytest.mark.parametrize(
    "name",
    [n if n in ("coarse", "gaussian") else pytest.param(n, marks=pytest.mark.slow) for n in METHODS],
)
def test_two_neighboring_tables_under_one_key_share_no_noise(name: str, tmp_path: Path) -> None:
    """Every published number of every row differs, not that of the changed person alone."""
    other = changed(ROWS, 10)
    first, second = (
        published(RELEASES[name](), rows, tmp_path, Stream.for_replay(KEY)) for rows in (ROWS, other)
    )
    again = published(RELEASES[name](), ROWS, tmp_path, Stream.for_replay(KEY))
    clear = {"region", "owner"} if name == "invariant" else {"region"}
    for column, values in first.items():
        assert np.array_equal(values, again[column], equal_nan=True), column
        if column in clear or column.startswith("region"):
            continue
        same = values == second[column]
        if values.dtype.kind == "f" and name != "coarse":
            shown = ~np.isnan(values)
            # A coordinate of a masked table may be a public constant.
            constant = np.ptp(values[shown]) == 0
            assert constant or same[shown].sum() <= 2, column
        else:
            assert not same.all() or len(np.unique(values)) == 1, column


def test_a_twin_whose_key_is_the_place_alone_gives_the_difference_of_the_rows_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check that the next test relies on sees it: y1 - y2 = x1 - x2."""
    rows = long_rows(3_000)
    other = {**rows, "x": np.append(2.5, rows["x"][1:])}
    for careless in (False, True):
        if careless:
            monkeypatch.setattr("discreet.release.keystream.rows_digest", lambda _: "")
        first, second = (
            published(gaussian(), table, tmp_path, Stream.for_replay(KEY)) for table in (rows, other)
        )
        share = runs_of_equal_noise(first["x"], second["x"], rows["x"], other["x"])
        assert share == (1.0 if careless else 0.0)
        assert np.array_equal(first["sex"], second["sex"]) == careless


def test_a_twin_whose_key_leaves_out_the_plan_gives_the_rows_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same deviates at two scales: x = (s2 y1 - s1 y2) / (s2 - s1)."""
    schema = Schema(columns=[Column("x", lower=-1, upper=3)])
    rows = {"x": long_rows(2_000)["x"]}
    errors = []
    for careless in (False, True):
        if careless:
            monkeypatch.setattr(GaussianRelease, "plan_digest", lambda self, n_rows: "")
        first, second = (
            published(GaussianRelease(scale=s, schema=schema), rows, tmp_path, Stream.for_replay(KEY))["x"]
            for s in (4.0, 8.0)
        )
        errors.append(float(np.std(2 * first - second - rows["x"])))
    assert errors[0] > 8
    assert errors[1] < 1e-3


@pytest.mark.parametrize("release", [gaussian, lambda: LaplaceRelease(scale=2.0, schema=LONG)])
def test_only_the_batches_that_changed_are_drawn_anew_and_then_independently(
    release: Any, tmp_path: Path
) -> None:
    n = 2 * BATCH + 5_000
    rows = long_rows(n)
    other = {**rows, "x": rows["x"].copy()}
    other["x"][BATCH + 17] = 2.5
    first, second = (published(release(), table, tmp_path, Stream.for_replay(KEY)) for table in (rows, other))
    middle = slice(BATCH, 2 * BATCH)
    for column in ("x", "sex"):
        same = first[column] == second[column]
        assert same[:BATCH].all()
        assert same[2 * BATCH :].all()
        assert not same[middle].all()
    noise = [values["x"][middle] - table["x"][middle] for values, table in ((first, rows), (second, other))]
    assert runs_of_equal_noise(noise[0], noise[1], np.zeros(BATCH), np.zeros(BATCH)) < 1e-3
    assert abs(np.corrcoef(noise[0], noise[1])[0, 1]) * np.sqrt(BATCH) < Z
    # Signs and sizes too: a stream that is shifted or mirrored would show here.
    assert abs(np.corrcoef(np.abs(noise[0]), np.abs(noise[1]))[0, 1]) * np.sqrt(BATCH) < Z
    assert abs(np.corrcoef(noise[0][1:], noise[1][:-1])[0, 1]) * np.sqrt(BATCH) < Z
    true = rows["sex"][middle] == "m"
    flipped = [np.asarray(values["sex"][middle] != true, float) for values in (first, second)]
    assert abs(np.corrcoef(flipped[0], flipped[1])[0, 1]) * np.sqrt(BATCH) < Z


def test_the_same_rows_in_another_batch_meet_other_noise(tmp_path: Path) -> None:
    rows = {"x": np.tile(long_rows(BATCH)["x"], 2), "sex": np.tile(long_rows(BATCH)["sex"], 2)}
    drawn = published(gaussian(), rows, tmp_path, Stream.for_replay(KEY))["x"]
    assert not (drawn[:BATCH] == drawn[BATCH:]).any()


# The same release again


@methods
def test_memory_and_file_hold_the_same_cells_under_one_key(name: str, tmp_path: Path) -> None:
    release = RELEASES[name](random_state=5).release(ROWS, shuffle=False)
    in_file = published(RELEASES[name](), ROWS, tmp_path, Stream.from_seed(5))
    assert set(release.columns) == set(in_file)
    for column, values in release.columns.items():
        assert np.array_equal(values, in_file[column], equal_nan=True), column


def test_order_in_memory_is_that_of_the_file_over_several_batches(tmp_path: Path) -> None:
    rows = long_rows(BATCH + 1_000)
    release = gaussian(random_state=5).release(rows)
    in_file = published(gaussian(), rows, tmp_path, Stream.from_seed(5), shuffle=True)
    assert np.array_equal(release.columns["x"], in_file["x"])
    kept = gaussian(random_state=5).release(rows, shuffle=False)
    assert sorted(kept.columns["x"]) == sorted(in_file["x"])
    assert not np.array_equal(kept.columns["x"], in_file["x"])


def test_rows_of_a_unit_that_are_left_out_do_not_move_the_batches(tmp_path: Path) -> None:
    """Whole batches may be left out, and memory and file agree on the rest."""
    schema = Schema(
        columns=[Column("id", role="id"), Column("x", lower=-1, upper=3)],
        id_column="id",
        max_rows_per_unit=1,
    )
    n = BATCH + 50
    ids = np.append(np.arange(BATCH), np.zeros(50, int))
    rows = {"id": ids, "x": long_rows(n)["x"]}
    made = [GaussianRelease(scale=1.0, schema=schema, random_state=seed) for seed in (5, None)]
    release = made[0].release(rows, shuffle=False).columns["x"]
    in_file = published(made[1], rows, tmp_path, Stream.from_seed(5))["x"]
    assert len(release) == BATCH
    assert np.array_equal(release, in_file)


@methods
def test_one_stream_object_never_gives_one_plan_the_same_noise_twice(name: str) -> None:
    method = RELEASES[name]()
    schema, rows, _ = method._read(ROWS, None, "")
    plan, stream = method.plan(schema, 100), Stream.from_seed(4)
    first, second = plan.draw(rows, stream), plan.draw(rows, stream)
    clear = {s.column for s in plan.columns if s.law.kind == "clear"}
    moved = [c for c in first if c not in clear and not np.array_equal(first[c], second[c], equal_nan=True)]
    assert moved
    if name != "masked":  # whose labels and constant are public
        assert set(moved) == set(first) - clear


# Spent keys


def test_a_second_release_under_one_stream_is_refused_before_it_is_charged(tmp_path: Path) -> None:
    ledger = Ledger.open(":memory:")
    stream = Stream()
    method = GaussianRelease(privacy=GaussianDP(mu=1.0), schema=NUMBERS, ledger=ledger)
    method.publish({"x": np.ones(5)}, tmp_path / "one.parquet", stream=stream)
    for rows in ({"x": np.ones(5)}, {"x": np.zeros(5)}):
        with pytest.raises(NoiseError, match=r"GaussianRelease\.publish must have a key .* spent"):
            method.publish(rows, tmp_path / "two.parquet", stream=stream)
    assert len(ledger.history()) == 1
    assert not (tmp_path / "two.parquet").exists()


NUMBERS = Schema(columns=[Column("x", lower=-1, upper=3)])


@pytest.mark.parametrize("way", ["object", "key", "derived", "seeded object"])
@pytest.mark.parametrize("name", ["gaussian", "invariant", "masked"])
def test_a_spent_key_is_known_however_it_comes_back(name: str, way: str, tmp_path: Path) -> None:
    stream = Stream.from_seed(8) if way == "seeded object" else Stream()
    streams: Callable[[], Stream] = {
        "object": lambda: stream,
        "key": lambda: Stream(stream._key),
        "derived": lambda: stream.derive("a release"),
        "seeded object": lambda: stream,
    }[way]
    RELEASES[name]().publish(ROWS, tmp_path / "one.parquet", stream=streams())
    with pytest.raises(NoiseError, match=r"Stream\.for_replay\(key\)"):
        RELEASES[name]().publish(ROWS, tmp_path / "two.parquet", stream=streams())


def test_a_spent_key_draws_the_same_release_again_when_that_is_asked_for(tmp_path: Path) -> None:
    key = Stream().words(4).tobytes()
    rows = long_rows(500)
    first = published(gaussian(), rows, tmp_path, Stream(key), shuffle=True)
    for _ in range(2):
        again = published(gaussian(), rows, tmp_path, Stream.for_replay(key), shuffle=True)
        assert all(np.array_equal(first[column], again[column]) for column in first)


def test_a_seed_serves_several_tests_and_is_marked(tmp_path: Path) -> None:
    for _ in range(2):
        done = gaussian().publish(
            long_rows(10), tmp_path / "out.parquet", replace=True, stream=Stream.from_seed(1)
        )
        assert done.receipt.seeded


def test_a_release_that_the_budget_refuses_draws_nothing(tmp_path: Path) -> None:
    ledger = Ledger.open(":memory:", limit=ApproxDP(epsilon=1e-3, delta=1e-9))
    with pytest.raises(BudgetExceeded):
        gaussian(ledger=ledger).publish(long_rows(10), tmp_path / "out.parquet", stream=Stream())
    assert not list(tmp_path.iterdir())


def test_of_threads_that_publish_under_one_stream_one_succeeds(tmp_path: Path) -> None:
    stream, outcomes = Stream(), []
    start = threading.Barrier(6)

    def publish(number: int) -> None:
        method = gaussian()
        start.wait()
        try:
            method.publish(long_rows(100 + number), tmp_path / f"{number}.parquet", stream=stream)
            outcomes.append("published")
        except NoiseError:
            outcomes.append("refused")

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["published"] + ["refused"] * 5
