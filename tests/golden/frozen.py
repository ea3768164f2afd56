"""A clock, a source of randomness and versions that stand still, whatever the modules are called.

Nothing here names a module of the product. The operating system's random bytes and the versions of packages
are replaced where the standard library keeps them; the time and the process number are replaced in every
module of the product that imported them, by standing in for ``datetime``, ``time`` and ``os``.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import importlib.metadata
import os
import platform
import sys
import threading
import time
import types
from typing import TYPE_CHECKING, Any
from unittest import mock

from discreet.noise import Stream
from tests.golden._entry_points import load_everything, package_version, product_version

if TYPE_CHECKING:
    from collections.abc import Iterator

MOMENT = datetime.datetime(2026, 3, 2, 9, 30, tzinfo=datetime.UTC)
PROCESS = 4242
VERSION = "0.0.1"


class _Moment(datetime.datetime):
    """A date and time whose ``now`` is always the same."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
        return MOMENT.astimezone(tz) if tz is not None else MOMENT.replace(tzinfo=None)


class _StandIn(types.ModuleType):
    """A module with some names replaced."""

    def __init__(self, module: types.ModuleType, **replaced: Any) -> None:
        super().__init__(module.__name__)
        self.__dict__["_module"] = module
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_module"], name)


class _Counter:
    """Random bytes and ticks that follow from a label and from how many were taken."""

    def __init__(self, label: str) -> None:
        self._label, self._taken, self._ticks = label, 0, 0
        self._lock = threading.Lock()

    def urandom(self, n: int) -> bytes:
        """Return the next bytes."""
        with self._lock:
            self._taken += 1
            return hashlib.shake_256(f"{self._label} {self._taken}".encode()).digest(n)

    def monotonic_ns(self) -> int:
        """Return the next tick."""
        with self._lock:
            self._ticks += 1
            return self._ticks


@contextlib.contextmanager
def frozen(label: str) -> Iterator[None]:
    """Stop the clock and fix randomness, process number and versions inside a block.

    Parameters
    ----------
    label : str
        Name from which the random bytes follow; a key may be spent once in a process, so each label is used
        once in a process.
    """
    load_everything()
    counter = _Counter(label)
    stand_ins: dict[int, Any] = {
        id(datetime.datetime): _Moment,
        id(datetime): _StandIn(datetime, datetime=_Moment),
        id(time): _StandIn(time, monotonic_ns=counter.monotonic_ns, time=MOMENT.timestamp),
        id(os): _StandIn(os, getpid=lambda: PROCESS),
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(os, "urandom", counter.urandom))
        stack.enter_context(mock.patch.object(importlib.metadata, "version", return_value=VERSION))
        stack.enter_context(mock.patch.object(platform, "python_version", return_value=VERSION))
        for name, module in list(sys.modules.items()):
            # A stream finds out by the true process number that it was forked.
            if name.partition(".")[0] != "discreet" or name == Stream.__module__:
                continue
            for attribute, value in list(vars(module).items()):
                if (stand_in := stand_ins.get(id(value))) is not None:
                    stack.enter_context(mock.patch.object(module, attribute, stand_in))
        for cached in (product_version, package_version):
            cached.cache_clear()
            stack.callback(cached.cache_clear)
        yield
