"""Answers sent at public times, so that response times reveal nothing finer than a slot.

The time of an engine depends on rows: a branch that no row takes is skipped, and one person more in a block
of rows can change the time of a count by a third. :class:`Slots` round that time up.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from discreet.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Slots:
    """Lengths of time to whose multiples the time of work on private rows is rounded up.

    Parameters
    ----------
    lengths : float, mapping of str to float, or None
        Seconds: the same for all aggregates, or one for each ``kind`` of aggregate, where a kind that is not
        named gets the longest. None for no rounding.

    Privacy
    -------
    Of the time that an answer took, only the number of slots can be seen. It is the same for all tables on
    which the work takes less than one slot, so choose them several times as long as the work usually takes.
    A slot begins before the wait for other callers, which takes as long as their work, and no caller waits
    for the rest of another's slot. What remains visible: a table that is so slow that one slot more is
    needed, and the load of the machine.

    Reference
    ---------
    docs/explanation/theorems/lattice-sampler.md, "Timing".

    Examples
    --------
    >>> Slots({"sums": 1.0, "gram": 8.0}).length("node tables")
    8.0
    """

    def __init__(self, lengths: float | Mapping[str, float] | None) -> None:
        """Check the lengths, and keep one for each kind of aggregate."""
        named: Mapping[str, Any] = lengths if isinstance(lengths, Mapping) else {"": lengths}
        for kind, length in named.items():
            fits = isinstance(length, int | float) and math.isfinite(length) and length > 0
            if not fits and (lengths is not None or kind):
                raise ParameterError(
                    "slots of a Database must be seconds above 0, the same or one for each kind of question, "
                    f"or None, was {lengths!r}. Take several times what a question usually takes."
                )
        if not named:
            raise ParameterError("slots of a Database must name at least one kind of question, was empty.")
        self._lengths = {kind: float(length) for kind, length in named.items() if length is not None}

    @property
    def longest(self) -> float:
        """Seconds of the longest slot; 0 if there are no slots."""
        return max(self._lengths.values(), default=0.0)

    def length(self, kind: str) -> float | None:
        """Return the seconds of a slot for one kind of aggregate; None if there are no slots."""
        if not self._lengths:
            return None
        return self._lengths.get(kind, self.longest)

    @contextlib.contextmanager
    def slot(self, *kinds: str) -> Iterator[None]:
        """Leave the ``with`` block at the end of a slot, also after an error; the longest slot of several."""
        lengths = [self.length(kind) for kind in kinds]
        length = max((seconds for seconds in lengths if seconds is not None), default=None)
        start = monotonic()
        try:
            yield
        finally:
            if length is not None:
                passed = monotonic() - start
                # Counted from the start and not by the clock: when a query was sent is no secret.
                sleep(max(0.0, math.floor(passed / length + 1) * length - passed))
