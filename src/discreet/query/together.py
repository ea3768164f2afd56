"""Questions that go through the same stages, taken through them together.

What a question goes through is written as a flow: a generator that yields what it wishes for, a charge or
some sums, and is sent what came of it. One flow alone is carried out wish by wish. Many flows are carried out
side by side, and all wishes for the same desk are granted at once: one transaction, one pass over the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")


class Wish(NamedTuple):
    """What a flow waits for.

    Attributes
    ----------
    desk : callable
        Grants a list of wishes, with a list of results in which an Exception stands for one that was refused.
    what : object
        Given to the desk.
    """

    desk: Callable[[Sequence[Any]], Sequence[Any]]
    what: Any


Flow: TypeAlias = Generator[Wish, Any, T]


def alone(flow: Flow[T]) -> T:
    """Carry out one flow, and return what it returns."""
    outcome: Any = None
    try:
        while True:
            wish = flow.throw(outcome) if isinstance(outcome, Exception) else flow.send(outcome)
            (outcome,) = wish.desk([wish.what])
    except StopIteration as end:
        found: T = end.value
        return found
    finally:
        del outcome  # an error holds this frame: no circle is left behind


def together(flows: Iterable[Flow[Any]], tell: Callable[[list[tuple[int, Any]]], None]) -> None:
    """Carry out flows side by side.

    Parameters
    ----------
    flows : iterable of Flow
        What one of them raises ends that one alone.
    tell : callable
        Gets the number and the result, or the Exception, of those that have ended, as soon as they have.

    Privacy
    -------
    A wish that is refused or fails is thrown into its own flow and into no other.
    """
    ended: list[tuple[int, Any]] = []
    going: list[tuple[int, Flow[Any], Wish]] = []
    for number, flow in enumerate(flows):
        _advance(number, flow, None, going, ended)
    while going or ended:
        if ended:
            tell(ended)
            ended = []
        desks: dict[Callable[[Sequence[Any]], Sequence[Any]], list[tuple[int, Flow[Any], Wish]]] = {}
        for one in going:
            desks.setdefault(one[2].desk, []).append(one)
        going = []
        for desk, those in desks.items():
            for (number, flow, _), outcome in zip(those, _granted(desk, those), strict=True):
                _advance(number, flow, outcome, going, ended)


def _granted(desk: Any, those: list[tuple[int, Flow[Any], Wish]]) -> Sequence[Any]:
    try:
        found: Sequence[Any] = desk([wish.what for _, _, wish in those])
    except Exception as error:
        # The desk as a whole: everybody is told, each with an error of their own.
        return [error, *(copy(error) for _ in those[1:])]
    return found


def _advance(
    number: int,
    flow: Flow[Any],
    outcome: Any,
    going: list[tuple[int, Flow[Any], Wish]],
    ended: list[tuple[int, Any]],
) -> None:
    """Go on with a flow until it wishes for something again, or ends."""
    try:
        wish = flow.throw(outcome) if isinstance(outcome, Exception) else flow.send(outcome)
    except StopIteration as end:
        ended.append((number, end.value))
    except Exception as error:
        ended.append((number, error))
    else:
        going.append((number, flow, wish))
