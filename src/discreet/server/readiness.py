"""Whether an engine is there: looked up now and then, by one thread, for everybody who wants to know."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from discreet.errors import EngineFailed

if TYPE_CHECKING:
    from collections.abc import Callable

WITHIN = 5.0
"""Seconds after which an engine that has not answered is taken for gone."""

_EVERY = 1.0  # seconds for which what was found is told again: anybody may ask, and a look is a pass


class Readiness:
    """Asks an engine something, at most once in a second and never twice at the same time.

    Parameters
    ----------
    look : callable
        Asks it; raises if it fails.

    Privacy
    -------
    Tells whether there was an answer, never what it was or when it came.
    """

    def __init__(self, look: Callable[[], object]) -> None:
        self._look = look
        self._mutex = threading.Lock()
        self._last: _Look | None = None

    def check(self) -> None:
        """Wait for an answer.

        Raises
        ------
        EngineFailed
            There was none, or not within :data:`WITHIN` seconds.
        """
        with self._mutex:
            last = self._last
            if last is None or (last.ended.is_set() and time.monotonic() - last.began >= _EVERY):
                last = self._last = _Look(self._look)
        if not last.ended.wait(WITHIN) or last.failed:
            raise EngineFailed


class _Look:
    def __init__(self, look: Callable[[], object]) -> None:
        self.began = time.monotonic()
        self.ended = threading.Event()
        self.failed = True
        self._look = look
        # A daemon: an engine that never answers must not keep the process from ending.
        threading.Thread(target=self._run, name="look", daemon=True).start()

    def _run(self) -> None:
        # Whatever an engine says when it fails may quote rows, and is told to nobody.
        with contextlib.suppress(Exception):
            self._look()
            self.failed = False
        self.ended.set()
