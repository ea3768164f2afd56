"""The source of randomness: it never repeats itself, and a seed is marked."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from discreet.errors import NoiseError, ParameterError
from discreet.noise import NormalSampler, Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import Floats


def test_words_are_the_aes_256_counter_mode_keystream_of_the_key() -> None:
    key = bytes(range(32))
    expected = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(8 * 30_000))
    stream = Stream(key)
    drawn = np.concatenate([stream.words(n) for n in (1, 7, 20_000, 9_992)])
    assert drawn.tobytes() == expected


def test_two_fresh_streams_differ_and_one_seed_repeats() -> None:
    assert not np.array_equal(Stream().words(4), Stream().words(4))
    assert np.array_equal(Stream.from_seed(5).words(4), Stream.from_seed(5).words(4))
    assert not np.array_equal(Stream.from_seed(5).words(4), Stream.from_seed(6).words(4))


def test_a_seed_marks_the_stream_and_everything_made_from_it() -> None:
    assert not Stream().seeded
    seeded = Stream.from_seed(1)
    assert seeded.seeded
    assert seeded.derive("x").seeded
    assert seeded.spawn().seeded
    assert not Stream().derive("x").seeded


def test_derive_is_the_same_for_a_label_and_spawn_is_another_each_time() -> None:
    stream = Stream.from_seed(1)
    assert np.array_equal(stream.derive("a").words(4), stream.derive("a").words(4))
    assert not np.array_equal(stream.derive("a").words(4), stream.derive("b").words(4))
    assert not np.array_equal(stream.spawn().words(4), stream.spawn().words(4))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_stream_cannot_be_duplicated(duplicate: object) -> None:
    with pytest.raises(NoiseError, match="derive"):
        duplicate(Stream())  # type: ignore[operator]


USES: dict[str, Callable[[Stream], object]] = {
    "words": lambda stream: stream.words(1),
    "fill": lambda stream: stream.fill(np.empty(1, np.uint64)),
    "integer": lambda stream: stream.integer(64),
    "generator": lambda stream: stream.generator(),
    "derive": lambda stream: stream.derive("noise"),
    "spawn": lambda stream: stream.spawn(),
    "spend": lambda stream: stream.spend("a test"),
}


def _outcome_in_child(use: Callable[[Stream], object], stream: Stream) -> bytes:
    read, write = os.pipe()
    if not (child := os.fork()):
        try:
            use(stream)
            os.write(write, b"drew")
        except NoiseError:
            os.write(write, b"refused")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    outcome = os.read(read, 10)
    os.close(read)
    return outcome


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("use", sorted(USES))
def test_a_stream_is_not_usable_on_the_other_side_of_a_fork(use: str) -> None:
    stream = Stream()
    assert _outcome_in_child(USES[use], stream) == b"refused"
    USES[use](stream)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_child_with_its_parents_process_number_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a PID namespace of its own: there the first process has the number 1 on both sides."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert _outcome_in_child(USES["derive"], Stream()) == b"refused"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_pool_of_forked_workers_cannot_share_a_stream() -> None:
    global _shared
    _shared = Stream()
    with multiprocessing.get_context("fork").Pool(2) as workers:
        assert workers.map(_try_to_draw, range(4)) == ["refused"] * 4


_shared: Stream | None = None


def _try_to_draw(_: int) -> str:
    assert _shared is not None
    try:
        _shared.derive("noise").words(1)
    except NoiseError:
        return "refused"
    return "drew"


def test_a_key_is_spent_once_and_a_replay_says_so() -> None:
    stream = Stream()
    stream.spend("the first")
    for again in (stream, Stream(stream._key)):
        with pytest.raises(
            NoiseError, match="stream of the second must have a key that no release was drawn"
        ):
            again.spend("the second")
    for _ in range(2):
        Stream.for_replay(stream._key).spend("a replay")
    assert np.array_equal(Stream.for_replay(stream._key).words(3), Stream(stream._key).words(3))
    Stream().spend("another key")


def test_a_replay_that_comes_first_spends_the_key_too() -> None:
    key = Stream().words(4).tobytes()
    Stream.for_replay(key).spend("a replay")
    with pytest.raises(NoiseError, match="spent"):
        Stream(key).spend("a release")


def test_threads_that_share_a_stream_never_see_the_same_words() -> None:
    stream = Stream()
    seen: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: seen.append(stream.words(5_000))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = np.concatenate(seen)
    assert np.unique(everything).size == everything.size == 80_000


@pytest.mark.parametrize("key", [b"short", "x" * 32, bytearray(32)])
def test_a_key_of_the_wrong_form_is_refused(key: object) -> None:
    with pytest.raises(ParameterError, match="32 bytes"):
        Stream(key)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [-1, 1.5, "7", True])
def test_a_number_of_words_or_bits_that_is_none_is_named(n: Any) -> None:
    stream = Stream.from_seed(1)
    with pytest.raises(ParameterError, match=r"^n of Stream\.words must be a whole number"):
        stream.words(n)
    with pytest.raises(ParameterError, match=r"^bits of Stream\.integer must be a multiple of 64"):
        stream.integer(n)
    for call in (stream.derive, stream.salt):
        if not isinstance(n, str):
            with pytest.raises(ParameterError, match=r"^label of Stream\.\w+ must be a text"):
                call(n)


def test_bits_that_would_be_cut_to_whole_words_are_refused() -> None:
    with pytest.raises(ParameterError, match="multiple of 64, was 100"):
        Stream.from_seed(1).integer(100)


@pytest.mark.parametrize("out", [np.zeros((4, 4), order="F"), np.zeros(8)[::2], np.zeros((3, 4))[:, :2]])
def test_an_array_of_which_only_a_copy_would_be_filled_is_refused(out: Floats) -> None:
    stream = Stream.from_seed(1)
    for fill in (stream.fill, NormalSampler(out.size, stream).fill):
        with pytest.raises(ParameterError, match="must be contiguous in C order"):
            fill(out)
    assert not out.any()


@pytest.mark.parametrize("seed", [1.5, True, "7"])
def test_a_seed_must_be_an_integer(seed: object) -> None:
    with pytest.raises(ParameterError, match="integer"):
        Stream.from_seed(seed)  # type: ignore[arg-type]


def test_the_commitment_tells_keys_apart_without_showing_them() -> None:
    key = bytes(range(32))
    assert Stream(key).commitment == Stream(key).commitment != Stream().commitment
    assert key.hex() not in Stream(key).commitment
