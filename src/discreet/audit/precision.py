"""The low-order-bits attack: what floating point lets through beneath the noise.

A float can be no finer than its own last place, and a sum no finer than the coarser of its terms. So
``value + noise``, computed in floats, lies on a grid that depends on ``value``: an output finer than that
grid excludes the input, whatever epsilon was promised. The attack looks at each output's magnitude and at
the finest bit that it uses, and at nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.audit.distinguish import try_events
from discreet.audit.events import MOST_COORDINATES, likelier_cells
from discreet.audit.subject import Mechanism, Trial

if TYPE_CHECKING:
    from discreet._typing import AnyArray, Ints
    from discreet.audit.events import Event
    from discreet.audit.result import AuditResult
    from discreet.noise.stream import Stream
    from discreet.privacy.promises import Promise

# Exponents of 64-bit floats run from -1074 to 1024; magnitudes far below any grid in use are one cell.
_LEAST, _MOST = -160, 160
_SPAN = _MOST - _LEAST + 1


def finest_bit(x: AnyArray) -> Ints:
    """Return for each float the largest ``k`` such that it is a multiple of ``2**k``.

    Zero and what is not finite are multiples of everything: they get the largest exponent in use.
    """
    mantissa, exponent = np.frexp(np.where(np.isfinite(x), x, 0.0))
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    lowest = whole & -whole
    # frexp of a power of two is exact: its exponent counts the trailing zeros.
    zeros = np.frexp(lowest.astype(np.float64))[1] - 1
    return np.where(whole == 0, _MOST, exponent - 53 + zeros).astype(np.int64)


def low_bits(train_a: AnyArray, train_b: AnyArray) -> list[Event]:
    """Propose sets of (magnitude, finest bit) that one input reaches and the other does not."""
    events: list[Event] = []
    for j in range(min(train_a.shape[1], MOST_COORDINATES)):
        events += likelier_cells(f"magnitude and finest bit of output[{j}]", _cells(j), train_a, train_b)
    return events


def _cells(j: int) -> Any:
    def place(x: AnyArray) -> Ints:
        column = x[:, j].astype(np.float64)
        magnitude = np.frexp(np.where(np.isfinite(column), column, 0.0))[1]
        low, high = (
            np.clip(value, _LEAST, _MOST).astype(np.int64) - _LEAST
            for value in (magnitude, finest_bit(column))
        )
        return np.asarray(low * _SPAN + high)

    return place


def precision(
    mechanism: Mechanism,
    a: Any,
    b: Any,
    claim: Promise,
    *,
    n: int = 100_000,
    failure_probability: float = 1e-6,
    stream: Stream | None = None,
) -> AuditResult:
    """Tell two neighbors apart by the finest bits of what was published.

    Parameters
    ----------
    mechanism, a, b, claim, n, failure_probability, stream
        As in :func:`discreet.audit.distinguish`; outputs are floats.

    Returns
    -------
    AuditResult

    Privacy
    -------
    Noise on a lattice, added to values on the same lattice, passes with any inputs. Noise computed and
    added in floats does not: the loss is infinite on an event of a few percent.

    Reference
    ---------
    Mironov (2012); Haney, Desfontaines, Hartman, Shrestha and Hay (2022).

    Examples
    --------
    >>> from discreet.audit import precision
    >>> from discreet.noise import Stream
    >>> from discreet.privacy.promises import GaussianDP
    >>> def in_floats(value, stream):
    ...     return value + stream.generator().standard_normal(10_000)
    >>> precision(in_floats, 0.0, 1.0, GaussianDP(mu=1.0), n=20_000, stream=Stream.from_seed(1)).verdict
    'broken'
    """
    trial = Trial(mechanism=mechanism, a=a, b=b, claim=claim, n=n)
    return try_events(trial, "precision", (low_bits,), failure_probability, stream)
