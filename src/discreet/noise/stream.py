"""Uniform random words: the only module where randomness enters.

A :class:`Stream` is the keystream of AES-256 in counter mode under a key drawn by the operating system.
Everything random, from lattice noise to the order of rows, is a function of such words, so that a curator
who kept the key can replay a release bit for bit, and no one else can.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import threading
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from discreet.errors import NoiseError, ParameterError

if TYPE_CHECKING:
    from discreet._types import AnyArray, Words

KEY_BYTES = 32
_ZEROS = np.zeros(1 << 16, np.uint8)

_forks = 0
_spent_keys: set[str] = set()
"""Commitments of the keys that releases of this process were drawn under."""
_spending = threading.Lock()


def _count_fork() -> None:
    global _forks
    _forks += 1


# A child in a PID namespace of its own may have its parent's number, hence the count beside it.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


def process_mark() -> tuple[int, int]:
    """Return a value that differs on the two sides of every fork: process number and forks so far."""
    return os.getpid(), _forks


class Stream:
    """Endless sequence of uniform 64-bit words under one secret key.

    ``Stream()`` takes its key from the operating system. ``Stream.from_seed(n)`` repeats itself and is
    for tests and examples alone: anyone who knows the seed can subtract the noise.

    Parameters
    ----------
    key : bytes, optional
        Secret key of 32 bytes; None to draw one from the operating system.

    Attributes
    ----------
    seeded : bool
        Whether the key follows from a seed; receipts and reports show it.
    commitment : str
        SHA-256 of the key, which can be published and later proves which key was used.

    Privacy
    -------
    With ideal words every law in :mod:`discreet.noise` holds up to the total variation that its module
    states. AES-256 in counter mode makes that computational: ``N`` blocks of 16 bytes differ from
    uniform by at most ``N**2 / 2**129`` plus the advantage of the best attack on AES-256 itself.
    A stream never repeats a word: it cannot be copied, pickled, or used on both sides of a fork, and
    threads that share it share its words out. Two objects made from one key do repeat each other. A release
    therefore spends the key, and binds its noise to the rows and the plan as well:
    :class:`~discreet.release.keystream.BatchStreams`. Derived streams are independent if HMAC-SHA256 is a
    pseudorandom function.

    Reference
    ---------
    NIST SP 800-38A (counter mode); docs/explanation/theorems/lattice-sampler.md.

    Examples
    --------
    >>> from discreet.noise import Stream
    >>> Stream.from_seed(7).words(3).dtype
    dtype('uint64')
    """

    __slots__ = ("_cipher", "_key", "_lock", "_process", "_replays", "_spent", "seeded")

    def __init__(self, key: bytes | None = None) -> None:
        """Check or draw the key, and start its keystream."""
        if key is None:
            key = os.urandom(KEY_BYTES)
        if not isinstance(key, bytes) or len(key) != KEY_BYTES:
            raise ParameterError(
                f"key of Stream must be {KEY_BYTES} bytes. Leave it out to draw a fresh one."
            )
        self._key = key
        self._cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        self._lock = threading.Lock()
        self._process = process_mark()
        self._replays = False
        self._spent = False
        self.seeded = False

    @classmethod
    def from_seed(cls, seed: int) -> Stream:
        """Return the stream that ``seed`` always gives: for tests and examples, never for real data."""
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise ParameterError(f"seed of Stream.from_seed must be an integer, was {type(seed).__name__}.")
        stream = cls(hashlib.sha256(b"discreet seed %d" % seed).digest())
        stream.seeded = True
        return stream

    @classmethod
    def for_replay(cls, key: bytes) -> Stream:
        """Return the stream of a release whose key was spent, to draw that same release again.

        For a curator who resumes a release that was interrupted, and for an auditor who was given the key.
        The same rows and plan give the same bits; any other rows or plan give independent noise.
        """
        stream = cls(key)
        stream._replays = True
        return stream

    def spend(self, where: str) -> None:
        """Claim the key for one release, before anything is charged or drawn.

        Parameters
        ----------
        where : str
            Name of the call that claims the key, for the error message.

        Raises
        ------
        NoiseError
            If a release of this process has claimed the key before, through this object or another one. A
            stream from a seed, whose noise is public anyway, remembers its own claims alone.
        """
        self._check_process()
        with _spending:
            if not self._replays and (self._spent or self.commitment in _spent_keys):
                raise NoiseError(
                    f"stream of {where} must have a key that no release was drawn under, and this one was "
                    "spent: anyone who compares two releases under one key sees which rows are equal. "
                    "Make a fresh one with Stream(). To draw the same release again, use "
                    "Stream.for_replay(key)."
                )
            self._spent = True
            if not self.seeded:
                _spent_keys.add(self.commitment)

    @property
    def commitment(self) -> str:
        """SHA-256 of the key, in hexadecimal."""
        return hashlib.sha256(self._key).hexdigest()

    def derive(self, label: str) -> Stream:
        """Return the independent stream for one purpose: always the same for one key and label."""
        self._check_process()
        return self._make_child(self.derive_key(label))

    def derive_key(self, label: str) -> bytes:
        """Return the key of :meth:`derive`, for another process that draws its part of one release.

        Whoever has it can repeat everything that is drawn from that stream, and nothing else.
        """
        return hmac.digest(self._key, _encode(label, "derive"), "sha256")

    def salt(self, label: str) -> str:
        """Return a text for a keyed hash: HMAC-SHA256 of the label under the key, in hexadecimal.

        Unlike what :meth:`derive` draws it may become public, so a label must serve one of the two alone.
        """
        return hmac.new(self._key, _encode(label, "salt"), hashlib.sha256).hexdigest()

    def spawn(self) -> Stream:
        """Return an independent stream whose key is drawn from this one: a different one at every call."""
        return self._make_child(self.words(KEY_BYTES // 8).tobytes())

    def _make_child(self, key: bytes) -> Stream:
        child = Stream(key)
        child.seeded = self.seeded
        child._replays = self._replays
        return child

    def fill(self, out: AnyArray) -> None:
        """Overwrite every byte of the contiguous array ``out`` with fresh random bytes."""
        self._check_process()
        raw = flat_view(out, "Stream.fill").view(np.uint8)
        with self._lock:
            # The keystream is the encryption of zeros; a short array of them stays in the cache.
            for start in range(0, raw.size, _ZEROS.size):
                piece = raw[start : start + _ZEROS.size]
                self._cipher.update_into(_ZEROS.data[: piece.size], piece.data)

    def words(self, n: int) -> Words:
        """Return ``n`` uniform 64-bit words."""
        try:
            out = np.empty(n, np.uint64)
        except (TypeError, ValueError):
            raise ParameterError(
                f"n of Stream.words must be a whole number of at least 0, was {n!r}."
            ) from None
        self.fill(out)
        return out

    def integer(self, bits: int) -> int:
        """Return a uniform integer of ``bits`` random bits (a multiple of 64)."""
        if isinstance(bits, bool) or not isinstance(bits, int) or bits < 0 or bits % 64:
            raise ParameterError(f"bits of Stream.integer must be a multiple of 64, was {bits!r}.")
        return int.from_bytes(self.words(bits // 64).tobytes(), "little")

    def generator(self) -> np.random.Generator:
        """Return a numpy generator for simulations that protect no data: attacks, figures, tests."""
        return np.random.Generator(np.random.Philox(key=self.integer(128)))

    def _check_process(self) -> None:
        if process_mark() != self._process:
            raise NoiseError(
                "A Stream was carried over a fork, so two processes would draw the same noise. "
                "Make one with Stream() in each process."
            )

    def _refuse_copy(self, *_: object) -> NoReturn:
        raise NoiseError(
            "A Stream cannot be copied or pickled: a copy would draw the same noise twice. "
            "Use derive(label) for an independent one."
        )

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = _refuse_copy


def _encode(label: str, where: str) -> bytes:
    """Return a label as bytes, or refuse what is no text."""
    if not isinstance(label, str):
        raise ParameterError(f"label of Stream.{where} must be a text, was {label!r}.")
    return label.encode()


def flat_view(out: AnyArray, where: str) -> AnyArray:
    """Return an array as one row that shares its memory, or refuse one that only a copy could flatten."""
    if not out.flags.c_contiguous:
        raise ParameterError(
            f"out of {where} must be contiguous in C order, was not: a copy would be filled, and out would "
            "stay as it was. Fill a new array, and copy it."
        )
    return out.reshape(-1)


def stream_or_fresh(stream: Stream | None) -> Stream:
    """Return ``stream``, or a new one keyed by the operating system."""
    return Stream() if stream is None else stream
