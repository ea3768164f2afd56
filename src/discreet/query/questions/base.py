"""A question, and what it comes to on a curated table."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from discreet.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._typing import AnyArray, Floats
    from discreet.query.curation import Curation
    from discreet.query.engines.base import Engine, Wanted
    from discreet.schema.table import Neighbors

MOST_CELLS = 2**22


def _as_found(found: list[int], n_rows: int) -> list[int]:
    return found


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A question laid out on a curated table, for one notion of neighbors.

    Attributes
    ----------
    canonical : dict
        Everything that fixes the exact answer, as JSON.
    squared : int
        Square of the largest ``sqrt(sum precision * change**2)`` that one row can cause: exact.
    absolute : int
        The largest ``sum weight * abs(change)`` that one row can cause.
    precision, weight : tuple of int
        Gaussian noise on an entry has variance ``R / precision``, Laplace noise scale ``b / weight``.
    unit : array
        What one integer of each entry is worth.
    shift : array
        What each row adds to an entry besides, where the number of rows is public.
    places : array of int
        Which entry stands at each place of the answer; one past the last is the number of rows.
    plain_unit : float or None
        The unit of an entry of precision 1, in which a variance is given; None if entries have several.
    wanted : Wanted
        What an engine is asked for.
    finish : callable
        Makes the integers of the entries of what the engine found, and of the number of rows. Private.
    labels : tuple or None
        What stands along each axis of the answer, where that is a list of levels.
    """

    canonical: dict[str, Any]
    squared: int
    absolute: int
    precision: tuple[int, ...]
    weight: tuple[int, ...]
    unit: Floats
    shift: Floats
    places: AnyArray
    plain_unit: float | None
    wanted: Wanted
    finish: Callable[[list[int], int], list[int]] = _as_found
    labels: tuple[tuple[Any, ...], ...] | None = None

    @property
    def size(self) -> int:
        """How many entries get noise of their own."""
        return len(self.precision)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the answer."""
        return self.places.shape

    def exact(self, engine: Engine) -> list[int]:
        """Ask an engine for the integers. Private."""
        (found,) = self.wanted.found(engine, [self.wanted])
        return self.finish(found, engine.count())

    def arrange(self, entries: Floats, n_rows: float) -> Floats:
        """Put entries at their places."""
        arranged: Floats = np.append(entries, n_rows)[self.places]
        return arranged


class Question(ABC):
    """What can be asked of :class:`~discreet.query.sums.NoisySums`; use one of the subclasses."""

    kind: ClassVar[str]

    @abstractmethod
    def bind(self, curation: Curation, neighbors: Neighbors) -> Bound:
        """Lay the question out on a curated table; what does not fit is refused here."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, with the tag ``kind``."""


def check_cells(count: int) -> None:
    """Refuse more cells than anybody could read something off."""
    if count > MOST_CELLS:
        raise ParameterError(
            f"columns of a question must come to at most {MOST_CELLS} cells, and come to {count}. Name fewer "
            "columns or fewer edges: in cells without rows there is nothing but noise."
        )


def root_up(square: int) -> int:
    """Return the least whole number whose square is at least this."""
    root = math.isqrt(square)
    return root + (root * root < square)
