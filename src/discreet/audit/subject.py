"""What can be attacked: a mechanism on two neighboring inputs, two exact laws, a sampler, a clock.

Every attack takes one of these. A release, a learner or a database becomes a :class:`Trial` by a short
function that runs it on one of two inputs; nothing here knows what kind of thing it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from discreet.errors import ParameterError
from discreet.noise.stream import Stream, stream_or_fresh

if TYPE_CHECKING:
    from discreet._typing import AnyArray
    from discreet.privacy.promises import Promise

Mechanism: TypeAlias = Callable[[Any, Stream], "AnyArray"]
"""``mechanism(input, stream)``: one or more independent outputs of one input, along the first axis."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A mechanism and two inputs that its claim calls neighbors.

    Parameters
    ----------
    mechanism : callable
        ``mechanism(input, stream)`` returns an array whose first axis counts **independent** runs: one
        run per call is fine, a thousand is faster. A row-wise release can be given a thousand copies of
        one row, if it draws fresh noise for each.
    a, b : object
        Two inputs one step apart (one row replaced, added or removed).
    claim : Promise
        What the mechanism promises about them.
    n : int
        How many outputs to collect under each input.
    name : str
        For messages.

    Privacy
    -------
    Inputs are made up for the purpose. Real rows may be given in the curator's own process; what comes
    out is then internal.

    Reference
    ---------
    The form of the game is that of every auditor: a generator of neighbors, a mechanism, a test.
    """

    mechanism: Mechanism
    a: Any
    b: Any
    claim: Promise
    n: int = 100_000
    name: str = "mechanism"

    def __post_init__(self) -> None:
        if self.n < 4:
            raise ParameterError(
                f"n of Trial must be at least 4, was {self.n}. Half of the outputs choose the events, "
                "the other half test them."
            )

    def collect(self, given: Any, stream: Stream | None = None) -> AnyArray:
        """Run the mechanism until there are ``n`` outputs; each is one row of the result."""
        stream = stream_or_fresh(stream)
        parts: list[AnyArray] = []
        have = 0
        while have < self.n:
            part = np.atleast_1d(np.asarray(self.mechanism(given, stream)))
            if part.shape[0] == 0 or (parts and part.shape[1:] != parts[0].shape[1:]):
                raise ParameterError(
                    f"mechanism of Trial must return at least one output along the first axis, all of one "
                    f"shape, and returned shape {part.shape}. Wrap a single run as output[np.newaxis]."
                )
            parts.append(part)
            have += part.shape[0]
        outputs = np.concatenate(parts)[: self.n]
        return outputs.reshape(self.n, -1)


@dataclass(frozen=True, kw_only=True)
class Draws:
    """A sampler and a promise that rests on it.

    Parameters
    ----------
    draw : callable
        ``draw(stream)`` returns one vector of draws that should all have one law: independent, or such
        that every order of them is equally likely.
    claim : Promise
        What is promised to whoever is hidden by these draws.
    calls : int
        How many vectors to look at.
    name : str
        For messages.

    Privacy
    -------
    Draws made for a test hide nobody.

    Reference
    ---------
    See :func:`discreet.audit.position`.
    """

    draw: Callable[[Stream], AnyArray]
    claim: Promise
    calls: int = 100
    name: str = "sampler"


@dataclass(frozen=True, kw_only=True)
class SingleDraws:
    """A source of single numbers whose time somebody can measure.

    Parameters
    ----------
    draw : callable
        ``draw()`` returns one number.
    claim : Promise
        What is promised to whoever is hidden by it.
    calls : int
        How many draws to time.
    name : str
        For messages.

    Privacy
    -------
    Draws made for a test hide nobody.

    Reference
    ---------
    See :func:`discreet.audit.timing`.
    """

    draw: Callable[[], Any]
    claim: Promise
    calls: int = 20_000
    name: str = "source"
