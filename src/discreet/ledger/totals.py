"""What each scope may spend and has spent: read once for each text, written with every charge."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING

from discreet.errors import LedgerTampered
from discreet.ledger._caps import Caps
from discreet.ledger._store import TOTAL, owner_scope
from discreet.ledger._verification import write_caps
from discreet.privacy.compose import Spending
from discreet.privacy.receipt import canonical

if TYPE_CHECKING:
    from discreet.ledger.transaction import Session

_KEPT = 512
"""How many texts of totals are kept beside what they say."""


class Totals:
    """The totals of one ledger.

    Parameters
    ----------
    owner_caps : Caps or None
        For owners who were given none of their own, as fixed in the ledger's first row.
    """

    def __init__(self, owner_caps: Caps | None) -> None:
        self._owner_caps = owner_caps
        # What a text says never changes, so a text found here need not be parsed again: the database
        # stays the only place where totals are kept. Threads share it: each step is one operation.
        self._read: dict[str, Spending] = {}

    def of(self, session: Session, scope: str) -> tuple[Caps | None, Spending]:
        """Return caps and spending of a scope."""
        found = session.total(scope)
        if found is None:
            return self._owner_caps, Spending()
        return self._parsed(scope, *found)

    def left(self, session: Session, owner: str | None) -> dict[str, float] | None:
        """Return what an owner, or everybody, has left in each currency; None without a limit."""
        caps, spent = self.of(session, scope_name(owner))
        return None if caps is None else caps.left(spent)

    def owners(self, session: Session) -> dict[str, Spending]:
        """Return what each owner spent, by name; those who only have a limit have spent nothing."""
        start = owner_scope("")
        return {
            scope.removeprefix(start): self._parsed(scope, *found)[1]
            for scope, found in sorted(session.totals().items())
            if scope.startswith(start)
        }

    def spend(self, session: Session, scope: str, asked: Spending, later: Spending | None) -> None:
        """Charge a scope, or refuse."""
        caps, before = self.of(session, scope)
        name = scope if scope == TOTAL else scope.removeprefix(owner_scope(""))
        after = before + asked if caps is None else caps.admit(before, asked, scope=name, later=later)
        text = canonical(after.to_dict())
        session.put_total(scope, _caps_text(caps), text)
        self._keep(text, after)

    def _parsed(self, scope: str, caps: str | None, spent: str) -> tuple[Caps | None, Spending]:
        try:
            known = self._read.get(spent)
            if known is None:
                known = Spending.from_dict(json.loads(spent))
                self._keep(spent, known)
            return (None if caps is None else _caps(caps)), known
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LedgerTampered(
                f"the total of {scope!r} must be readable, and is not ({error}). "
                "Restore the ledger from a backup that checks."
            ) from error

    def _keep(self, text: str, spent: Spending) -> None:
        if len(self._read) >= _KEPT:
            self._read.clear()
        self._read[text] = spent


@lru_cache(maxsize=_KEPT)
def _caps(text: str) -> Caps:
    return Caps.from_dict(json.loads(text))


@lru_cache(maxsize=_KEPT)
def _caps_text(caps: Caps | None) -> str | None:
    return write_caps(caps)


def scope_name(owner: str | None) -> str:
    """Return the scope of an owner, or of everybody."""
    return TOTAL if owner is None else owner_scope(owner)
