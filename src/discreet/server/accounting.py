"""Summaries of a ledger for display: budgets, history, spending over time."""

from __future__ import annotations

import json
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

from discreet.errors import ParameterError
from discreet.ledger.records import dataset_scope, group_scope, owner_scope
from discreet.privacy import Spending
from discreet.query.costs import remaining_amounts
from discreet.query.frames import spent_amounts
from discreet.query.past_results import past_numbers, recall_results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from discreet.ledger import Account, Entry, Ledger
    from discreet.privacy import Promise, Receipt
    from discreet.query import Answer, Database
    from discreet.server.callers import Caller

MAX_VALUES = 4096
"""Maximum number of numbers of an answer that a history contains."""

MAX_BYTES = 2**23
"""Maximum size of one page of a history, in bytes of JSON."""

_COLLUSION = (
    "Limits of analysts and groups are allocations, which a curator may change. The limit of the whole data "
    "set is the promise: it stays as it is, and holds even if all analysts pool what they learn."
)

_ALONE = (
    "The limit counts questions to this data set alone. If other data sets are about the same people, what "
    "is learned from them comes on top of it."
)
_SHARED = (
    "All data sets of this service about {} share one limit: a question to any of them counts against it, "
    "and against the limit of its own data set."
)


class Accounting:
    """Budgets, history and spending of one data set.

    Parameters
    ----------
    ledger : Ledger
        Ledger with the charges of the data set.
    database : Database
        Database that answered under this ledger; recalls stored answers.
    pooled : bool
        Whether pure charges are also counted in rho, as limits in rho or in queries do.
    people : str, optional
        Name of the people whose ledger it is, if other data sets about them count against the same limit;
        None otherwise.

    Privacy
    -------
    Everything follows from the ledger, which contains no row.
    """

    collusion = _COLLUSION

    def __init__(
        self, ledger: Ledger, database: Database, *, pooled: bool, people: str | None = None
    ) -> None:
        """Keep references to ledger and database, and say what the limit counts."""
        self.people = people
        self.composition = _ALONE if people is None else _SHARED.format(people)
        self._ledger = ledger
        self._database = database
        self._pooled = pooled
        self._mutex = threading.Lock()
        self._total = Spending()
        self._steps: list[dict[str, Any]] = []  # what was spent after each charge that was read

    @property
    def footnotes(self) -> tuple[str, str]:
        """Sentences about what the limits hold for, below every page."""
        return self.collusion, self.composition

    def remaining_amounts(
        self,
        caller: Caller,
        cost: tuple[Promise, ...],
        receipts: Sequence[Receipt] = (),
        *,
        charged: Sequence[Promise] | None = None,
    ) -> dict[str, Any]:
        """Return what is left for the caller and for all, and how many more of this cost that pays for.

        Parameters
        ----------
        caller : Caller
            Caller whose own budget is looked up.
        cost : tuple of Promise
            Charges of one query.
        receipts : sequence of Receipt
            Receipts of what was just charged for it; the accounts of the last one need not be read again.
        charged : sequence of Promise, optional
            Charges that were made for it; None before it is asked.
        """
        accounts = receipts[-1].accounts if receipts else None
        own, total = self._ledger.accounts(caller.name, None) if accounts is None else accounts
        return remaining_amounts(cost, own, total, charged=charged)

    def budget(self, caller: Caller) -> dict[str, Any]:
        """Return limit, spending and what is left, for the caller and for all together."""
        group = self._ledger.group_of(caller.name)
        return {
            "own": self.account(caller.name),
            "group": None if group is None else {"name": group, **self.group_account(group)},
            "total": self.account(None),
            "people": self._people_account(),
            "available": self._available(caller.name),
            "collusion": _COLLUSION,
            "composition": self.composition,
        }

    def unknown_budget(self) -> dict[str, Any]:
        """Return the budget as it is shown while the ledger does not answer: no amount is known."""
        unknown = dict.fromkeys(("limit", "spent", "left", "used"))
        return {
            "own": unknown,
            "group": None,
            "total": unknown,
            "people": None,
            "available": {"whose": "total", **unknown},
            "collusion": _COLLUSION,
            "composition": self.composition,
        }

    def _available(self, owner: str) -> dict[str, Any]:
        """Return the budget of which an owner can spend the least, and whose it is: of equals, the own."""
        accounts = self._ledger.charged_accounts(owner)

        def whose(scope: str) -> str:
            if scope == owner_scope(owner):
                return "own"
            return "group" if scope.startswith(group_scope("")) else "total"

        scope = min(accounts, key=lambda scope: (accounts[scope].room, whose(scope) != "own"))
        return {"whose": whose(scope), **self._describe(accounts[scope])}

    def _people_account(self) -> dict[str, Any] | None:
        """Return what all data sets about the same people have spent of their limit; None for one alone."""
        account = self._ledger.shared_account()
        if account is None:
            return None
        assert account.caps is not None
        return {
            "name": self.people,
            "limit": account.caps.limit.to_dict(),
            "spent": spent_amounts(account.spent, pooled=self._pooled),
            "left": account.left,
            "used": account.used,
        }

    def dataset_account(self) -> dict[str, Any] | None:
        """Return the account of a data set that shares its ledger, without the others; None for one alone."""
        if self._ledger.dataset is None:
            return None
        return self._describe(self._ledger.charged_accounts(None)[dataset_scope(self._ledger.dataset)])

    def account(self, owner: str | None) -> dict[str, Any]:
        """Return limit, spending and what is left of one name, or of all together for None."""
        if owner is not None:
            return self._describe(self._ledger.charged_accounts(owner)[owner_scope(owner)])
        (account,) = self._ledger.accounts(None)
        limit = None if account.caps is None else self._ledger.guarantee().to_dict()
        return self._describe(account) | {"limit": limit}

    def group_account(self, group: str) -> dict[str, Any]:
        """Return limit, spending and what is left of a group."""
        return self._describe(self._ledger.group_account(group))

    def _describe(self, account: Account) -> dict[str, Any]:
        return {
            "limit": None if account.caps is None else account.caps.limit.to_dict(),
            "spent": spent_amounts(account.spent, pooled=self._pooled),
            "left": account.left,
            "used": account.used,
        }

    def history(self, entries: Iterable[Entry]) -> list[dict[str, Any]]:
        """Return charges with their queries, in their order."""
        return [self._charge(entry) for entry in entries]

    def history_page(self, entries: Iterable[Entry], *, more: bool) -> tuple[dict[str, Any], list[Receipt]]:
        """Return one page of charges with queries and answers, and the receipts on it.

        Large answers are left out: asking again is free, and returns them one at a time.

        Parameters
        ----------
        entries : iterable of Entry
            Charges in order, of which the page takes as many as fit.
        more : bool
            Whether the ledger has charges after these.
        """
        lines: list[dict[str, Any]] = []
        receipts: list[Receipt] = []
        size, asked = 0, list(entries)
        recall = cache(self._database.recall)
        small = [entry for entry in asked if not _is_large(entry)]
        results = recall_results(self._database, small, recall)
        for entry in asked:
            line = {**self._charge(entry), **_answer_fields(entry, recall)}
            line["numbers"] = past_numbers(results, entry.receipt.id)
            size += len(json.dumps(line))
            if lines and size > MAX_BYTES:
                more = True
                break
            lines.append(line)
            receipts.append(entry.receipt)
        return {"kind": "history", "entries": lines, "more": more}, receipts

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

    def spending_history(self) -> dict[str, Any]:
        """Return the total spent after each charge, in order."""
        (account,) = self._ledger.accounts(None)
        with self._mutex:
            # Rows of a ledger never change, so only those after the last call are read.
            for receipt in self._ledger.history(after=self._steps[-1]["row"] if self._steps else 0):
                self._total += Spending.from_promises(receipt.promises, order=account.order)
                self._steps.append(
                    {
                        "row": receipt.seq,
                        "when": receipt.when,
                        "who": receipt.owner,
                        "spent": spent_amounts(self._total, pooled=self._pooled),
                    }
                )
            return {"steps": self._steps.copy(), "total": self.account(None)}


def _is_large(entry: Entry) -> bool:
    """Return whether an answer has more numbers than a history contains."""
    return entry.answer is not None and entry.answer.count(b",") > MAX_VALUES


def _answer_fields(entry: Entry, recall: Callable[[str], Answer]) -> dict[str, Any]:
    """Return value, sd and noise law of a stored answer; None each if it is too large or unreadable."""
    nothing = {"value": None, "sd": None, "law": None}
    if entry.answer is None or (entry.asked or {}).get("question") is None:
        return nothing
    if _is_large(entry):
        return nothing
    try:
        answer = recall(entry.receipt.id).to_dict()
    except ParameterError:  # answered under an earlier schema
        return nothing
    return {name: answer[name] for name in nothing}
