"""Answers that were paid for, found again by their receipts: nothing is asked and nothing is charged."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from discreet.errors import DiscreetError, LedgerError, ParameterError
from discreet.job.asking import answered, priced
from discreet.job.sentence import Sentence, read_sentence
from discreet.privacy import ZCDP, GaussianDP, PureDP, promise_from_dict
from discreet.server.answers import answer_wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from discreet.job.reply import Reply
    from discreet.ledger import Entry
    from discreet.privacy import Promise
    from discreet.query import Answer, Question
    from discreet.server.access import Caller
    from discreet.server.office import Office

_NUMBERS = ("epsilon", "delta", "rho", "mu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """An answer of the past.

    Attributes
    ----------
    asked : Sentence
        The question.
    answer : mapping
        As the wire has it.
    earlier : mapping or None
        The answer that it refined.
    request : mapping or None
        By which it is asked again for free, if that can be told.
    when : str
        The moment of its charge.
    receipts : tuple of str
        Of its last draw, one for each noisy question behind it.
    in_all : tuple of mapping
        What all draws that were merged into it have cost.
    """

    asked: Sentence
    answer: Mapping[str, Any]
    earlier: Mapping[str, Any] | None
    request: Mapping[str, Any] | None
    when: str
    receipts: tuple[str, ...]
    in_all: tuple[Mapping[str, Any], ...]


class _Kept:
    """Answers noisy sums with what the ledger has kept of them, in the order in which they were asked."""

    def __init__(self, office: Office, receipts: Sequence[str], owner: str, n_rows: int | None) -> None:
        self._office, self._receipts, self._owner = office, list(receipts), owner
        self.schema, self.neighbors, self.n_rows = office.schema, office.schema.neighbors, n_rows

    def ask(self, question: Question, **_: Any) -> Answer:
        """Return the next of them, if it is to this question."""
        if not self._receipts:
            raise _not_one_answer()
        receipt = self._receipts.pop(0)
        asked = self._office.ledger.entry(receipt).asked or {}
        if asked.get("question") != question.to_dict():
            raise _not_one_answer()
        return self._office.database.recall(receipt, owner=self._owner)


def recalled(office: Office, who: Caller, receipts: tuple[str, ...]) -> Recalled:
    """Find an answer again.

    Parameters
    ----------
    office : Office
        Where it was asked.
    who : Caller
        Who paid for it.
    receipts : tuple of str
        Ids, one for each noisy question behind it.

    Raises
    ------
    LedgerError
        There is no such answer of theirs; somebody else's is not told from one that never was.

    Privacy
    -------
    Shows what was paid for by whoever looks.
    """
    reply = reply_of(office, who.name, receipts)
    entries = [office.ledger.entry(receipt) for receipt in receipts]
    kept = [entry.asked or {} for entry in entries]
    refined = tuple(asked["refines"] for asked in kept if asked["refines"])
    left = office.books.remaining(who, reply.cost)
    price = _price(office, entries)
    request: dict[str, Any] | None = None
    if price is not None:
        request = {"kind": "sentence", "text": kept[0]["said"], **price}
        if refined:
            request["refines"] = list(refined)
    merged = [part for parts in reply.parts for part in parts]
    return Recalled(
        asked=read_sentence(kept[0]["said"], office.schema),
        answer=answer_wire(reply, left),
        earlier=answer_wire(reply_of(office, who.name, refined), left) if refined else None,
        request=request,
        when=entries[0].receipt.when,
        receipts=receipts,
        in_all=tuple(
            promise.to_dict() for part in merged for promise in office.ledger.entry(part).receipt.promises
        ),
    )


@lru_cache(maxsize=1024)
def reply_of(office: Office, owner: str, receipts: tuple[str, ...]) -> Reply:
    """Return the numbers of an answer of the past, which never change.

    Raises
    ------
    LedgerError
        There is no such answer of that owner.
    """
    entries = [office.ledger.entry(receipt) for receipt in receipts]
    said = {(entry.asked or {}).get("said") for entry in entries}
    owners = {entry.receipt.owner for entry in entries}
    words = said.pop() if len(said) == 1 else None
    if owners != {owner} or not words or not all(entry.answer for entry in entries):
        raise _not_one_answer()
    # Whatever follows is remembered, and by then the trail has it.
    office.trail.recalled(owner, [entry.receipt for entry in entries])
    kept: Any = _Kept(office, receipts, owner, _n_rows(entries[0]))
    asked = read_sentence(words, office.schema)
    # Who answers has been paid: the promise only says which law the noise has.
    reply = answered(kept, asked, privacy=entries[0].receipt.promises[0])
    if len(reply.receipts) != len(receipts):
        raise _not_one_answer()
    return reply


def _n_rows(entry: Entry) -> int | None:
    """Return how many rows there were when it was answered, where that is public."""
    stored = json.loads(entry.answer or b"{}")
    n_rows: int | None = stored.get("n_rows")
    return n_rows


def _not_one_answer() -> LedgerError:
    return LedgerError("receipts must be all those of one answer of yours, and are not. See the history.")


def _price(office: Office, entries: Sequence[Entry]) -> dict[str, Any] | None:
    """Return the price as a request names it; only one that would really be charged the same."""
    kept = [entry.asked or {} for entry in entries]
    charged = [entry.receipt.promises[0] for entry in entries]
    asked, n_rows = read_sentence(kept[0]["said"], office.schema), _n_rows(entries[0])
    about: dict[str, Any] = {"unit": office.schema.unit, "neighbors": office.schema.neighbors}
    candidates: Iterable[dict[str, Any]]
    if kept[0].get("variance") is not None:
        root = math.sqrt(kept[0]["variance"])
        near = (root, math.nextafter(root, 0), math.nextafter(root, math.inf))
        candidates = [{"sd": sd} for sd in near if sd**2 == kept[0]["variance"]]
    elif len(kept) == 1:
        candidates = [{"privacy": _plain(kept[0]["privacy"])}]
    else:
        candidates = [{"privacy": _plain(whole.to_dict())} for whole in _wholes(charged, about)]
    for candidate in candidates:
        privacy = candidate.get("privacy")
        promise = None if privacy is None else promise_from_dict({**about, **privacy})
        try:
            quoted = priced(office.schema, n_rows, asked, privacy=promise, sd=candidate.get("sd"))
        except DiscreetError:
            continue
        if quoted.cost == tuple(charged):
            return candidate
    return None


def _wholes(charged: Sequence[Promise], about: Mapping[str, Any]) -> list[Promise]:
    """Return what people may have named that was split into these parts; parts are rounded down."""
    parts: Any = charged
    if all(part.kind == "pure-dp" for part in parts):
        return [PureDP(epsilon=_short(math.fsum(part.epsilon for part in parts)), **about)]
    rho = math.fsum(part.rho if part.kind == "zcdp" else part.mu**2 / 2 for part in parts)
    return [ZCDP(rho=_short(rho), **about), GaussianDP(mu=_short(math.sqrt(2 * rho)), **about)]


def _short(value: float) -> float:
    return float(f"{value:.9g}")


def _plain(promise: Mapping[str, Any]) -> dict[str, Any]:
    """Return a promise as a request names it."""
    return {"kind": promise["kind"], **{name: promise[name] for name in _NUMBERS if promise.get(name)}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Paid:
    """One line of a history: a question, and the receipts of its answer."""

    question: str
    receipts: tuple[str, ...]
    cost: tuple[Mapping[str, Any], ...]
    when: str
    said: bool


def paid_questions(entries: Sequence[Mapping[str, Any]], office: Office) -> list[Paid]:
    """Return what was paid for, the newest first; the two charges of a mean by groups are one question.

    Parameters
    ----------
    entries : sequence of mapping
        As :meth:`Office.history` tells them, oldest first.
    """
    found: list[Paid] = []
    waiting: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        said = entry["asked"].get("said")
        parts = [entry]
        if said and _takes_two(said, office):
            first = waiting.pop(said, None)
            if first is None:
                waiting[said] = entry
                continue
            parts = [first, entry]
        found.append(
            Paid(
                question=said or entry["what"],
                receipts=tuple(part["receipt"] for part in parts),
                cost=tuple(promise for part in parts for promise in part["cost"]),
                when=entry["when"],
                said=bool(said),
            )
        )
    return found[::-1]


def _takes_two(said: str, office: Office) -> bool:
    try:
        asked = read_sentence(said, office.schema)
    except ParameterError:
        return False
    return asked.verb == "mean" and bool(asked.by)
