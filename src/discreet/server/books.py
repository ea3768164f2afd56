"""What was paid, told for people: budgets, history, spending over time, the live attack."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from discreet.errors import ParameterError
from discreet.job.costs import affordable
from discreet.privacy import Spending

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from discreet.ledger import Entry
    from discreet.privacy import Promise, Receipt
    from discreet.server.access import Caller
    from discreet.server.office import Office

MOST_VALUES = 4096
"""Numbers of an answer that a history tells."""

MOST_BYTES = 2**23
"""After which a page of a history ends."""

_COLLUSION = (
    "An analyst's own limit assumes that analysts do not pool what they learn; the limit of the whole data "
    "set holds even if all of them do."
)


class Books:
    """The ledger of an office, read for people.

    Parameters
    ----------
    office : Office
        Whose.

    Privacy
    -------
    Everything follows from the ledger, which holds no row. The attack compares with rows, and is for the
    curator alone.
    """

    collusion = _COLLUSION

    def __init__(self, office: Office) -> None:
        self._office = office
        self._pooled = office.config.limit.rho is not None or office.config.limit.queries is not None

    def remaining(
        self, who: Caller, cost: tuple[Promise, ...], receipts: Sequence[Receipt] = ()
    ) -> dict[str, Any]:
        """Return what is left for somebody and for all, and how many more like this that pays for.

        Parameters
        ----------
        who : Caller
            Somebody.
        cost : tuple of Promise
            Of this.
        receipts : sequence of Receipt
            Of what was just charged for it: what its last left need not be read again.
        """
        left = receipts[-1].left if receipts else None
        own, total = self._office.ledger.remaining_of(who.name, None) if left is None else left
        counts = [n for n in (affordable(cost, own), affordable(cost, total)) if n is not None]
        return {"own": own, "total": total, "more": min(counts, default=None)}

    def budget(self, who: Caller) -> dict[str, Any]:
        """Return limit, spending and what is left, for somebody and for all together."""
        return {
            "own": self.account(who.name),
            "total": self.account(None),
            "collusion": _COLLUSION,
        }

    def account(self, owner: str | None) -> dict[str, Any]:
        """Return limit, spending and what is left, of somebody or of all together."""
        ledger = self._office.ledger
        left = ledger.remaining(owner)
        spent = ledger.spent(owner)
        return {
            "limit": None if left is None else ledger.guarantee(owner).to_dict(),
            "spent": amounts(spent, pooled=self._pooled),
            "left": left,
        }

    def history(self, entries: Iterable[Entry]) -> list[dict[str, Any]]:
        """Return charges with what was asked, in their order."""
        return [self._charge(entry) for entry in entries]

    def page(self, entries: Iterable[Entry], *, more: bool) -> tuple[dict[str, Any], list[Receipt]]:
        """Return charges with what was asked and answered, in their order, and which are on the page.

        Answers of very many numbers are left out: asking again is free, and tells them one at a time.

        Parameters
        ----------
        entries : iterable of Entry
            From which the page is filled, as far as it goes.
        more : bool
            Whether there are others after these.
        """
        told: list[dict[str, Any]] = []
        receipts: list[Receipt] = []
        size = 0
        for entry in entries:
            line = {**self._charge(entry), **self._answer(entry)}
            size += len(json.dumps(line))
            if told and size > MOST_BYTES:
                more = True
                break
            told.append(line)
            receipts.append(entry.receipt)
        return {"kind": "history", "entries": told, "more": more}, receipts

    def _charge(self, entry: Entry) -> dict[str, Any]:
        return {
            "receipt": entry.receipt.id,
            "row": entry.receipt.seq,
            "when": entry.receipt.when,
            "who": entry.receipt.owner,
            "what": entry.receipt.what,
            "asked": entry.asked or {},
            "cost": [promise.to_dict() for promise in entry.receipt.promises],
        }

    def _answer(self, entry: Entry) -> dict[str, Any]:
        nothing = {"value": None, "sd": None, "law": None}
        if entry.answer is None or (entry.asked or {}).get("question") is None:
            return nothing
        if entry.answer.count(b",") > MOST_VALUES:
            return nothing
        try:
            told = self._office.database.recall(entry.receipt.id).to_dict()
        except ParameterError:  # answered under an earlier schema
            return nothing
        return {name: told[name] for name in nothing}

    def overview(self) -> dict[str, Any]:
        """Return what the service is, and how it stands."""
        office = self._office
        stopped = office.access.stopped()
        rows, head = office.ledger.head
        return {
            **office.about(),
            "stopped": None if stopped is None else {"who": stopped.who, "since": stopped.since},
            "slots": office.config.slots,
            "workers": office.config.workers,
            "ledger": {"identity": office.ledger.identity, "rows": rows, "head": head},
            "total": self.account(None),
            "analysts": {name: self.account(name) for name in self._names()},
            "tokens": office.tokens(),
        }

    def _names(self) -> list[str]:
        tokens = {token.name for token in self._office.access.tokens()}
        return sorted(tokens | set(self._office.ledger.owners()))

    def spending(self) -> dict[str, Any]:
        """Return what had been spent after each charge, in order."""
        total, steps = Spending(), []
        for receipt in self._office.ledger.history():
            total += Spending.of(receipt.promises)
            steps.append(
                {
                    "row": receipt.seq,
                    "when": receipt.when,
                    "who": receipt.owner,
                    "spent": amounts(total, pooled=self._pooled),
                }
            )
        return {"steps": steps, "total": self.account(None)}

    def attack(self) -> dict[str, Any]:
        """Run the reconstruction attack on all answers so far."""
        from discreet.audit.reconstruction import reconstruct

        return reconstruct(self._office.database, self._office.ledger).to_dict()


def amounts(spent: Spending, *, pooled: bool) -> dict[str, float]:
    """Return what books come to in each currency; `pooled` if pure charges are paid in rho too."""
    rho = spent.pooled if pooled else spent.gaussian + spent.concentrated
    return {
        "rho": float(rho),
        "epsilon": float(spent.linear),
        "delta": float(spent.point_delta),
        "charges": spent.charges,
    }
