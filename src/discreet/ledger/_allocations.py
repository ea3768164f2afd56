"""Allocations: limits of owners and groups inside the limit of the ledger, which may change at any time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.ledger._account import spending_under
from discreet.ledger._caps import write_caps
from discreet.ledger.records import (
    changed_mark,
    group_scope,
    iter_charges,
    member_mark,
    owner_scope,
)
from discreet.privacy.promises import promise_from_dict
from discreet.privacy.receipt import canonical

if TYPE_CHECKING:
    from discreet.ledger._caps import Caps
    from discreet.ledger.transaction import Transaction


@dataclass(frozen=True, slots=True)
class SetAllocation:
    """Operation that sets the limit of an owner or of a group; what was spent stays spent.

    Attributes
    ----------
    kind : {"owner", "group"}
        Whether the limit is of one owner or of all members of a group together.
    name : str
        Name of the owner or of the group.
    caps : Caps or None
        Caps of the new limit; None is no limit beside that of the ledger.
    when : str
        Universal time for the row.

    Privacy
    -------
    The charges so far are counted under the new caps, at their order, from the record. No charge is undone:
    after a limit below what was spent nothing more is admitted. The limit of the ledger does not change, and
    every charge counts against it.
    """

    kind: str
    name: str
    caps: Caps | None
    when: str

    def __call__(self, transaction: Transaction) -> None:
        """Record the limit, and put it in the place of the one before."""
        scope = owner_scope(self.name) if self.kind == "owner" else group_scope(self.name)
        owner = self.name if self.kind == "owner" else None
        charges = [
            tuple(map(promise_from_dict, content["promises"]))
            for _, content in iter_charges(transaction, owner, 0)
            if scope in content["scopes"]
        ]
        values = None if self.caps is None else self.caps.to_dict()
        body: dict[str, Any] = {"type": f"{self.kind} limit", self.kind: self.name, "caps": values}
        row = transaction.append(self.when, canonical(body))
        if charges:
            transaction.put_mark(changed_mark(scope), row.seq)
        spent = spending_under(self.caps, charges)
        transaction.put_total(scope, write_caps(self.caps), canonical(spent.to_dict()))


@dataclass(frozen=True, slots=True)
class SetGroup:
    """Operation that puts an owner into a group, instead of the one before.

    Attributes
    ----------
    owner : str
        Name of the owner, whose later charges count against the group too.
    group : str or None
        Name of the group; None for none.
    when : str
        Universal time for the row.
    """

    owner: str
    group: str | None
    when: str

    def __call__(self, transaction: Transaction) -> None:
        """Record the group of the owner."""
        row = transaction.append(
            self.when, canonical({"type": "group", "owner": self.owner, "group": self.group})
        )
        transaction.put_mark(member_mark(self.owner), row.seq)


def read_groups(transaction: Transaction) -> dict[str, list[str]]:
    """Return the members of every group, by its name; a group that only has a limit has none."""
    groups: dict[str, list[str]] = {
        scope.removeprefix(group_scope("")): []
        for scope in sorted(transaction.totals())
        if scope.startswith(group_scope(""))
    }
    start = canonical(["group of"])[:-1] + ","
    for key, seq in sorted(transaction.marks().items()):
        row = transaction.row(seq) if key.startswith(start) else None
        if row is not None and row.content["group"] is not None:
            groups.setdefault(row.content["group"], []).append(row.content["owner"])
    return groups
