"""Allocations: limits of owners and groups inside the limit of the ledger, which may change at any time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.ledger._account import spending_under
from discreet.ledger._caps import write_caps
from discreet.ledger._charges import check_texts
from discreet.ledger.records import (
    changed_mark,
    group_scope,
    iter_charges,
    member_mark,
    owner_scope,
)
from discreet.privacy.promises import promise_from_dict
from discreet.privacy.receipt import canonical, now

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.ledger._caps import Caps
    from discreet.ledger.transaction import Transaction


@dataclass(frozen=True, slots=True)
class SetAllocation:
    """Operation that sets the limit of owners or of groups; what was spent stays spent.

    Attributes
    ----------
    kind : {"owner", "group"}
        Whether the limit is of one owner or of all members of a group together.
    names : tuple of str
        Names of the owners or of the groups, each of which gets the limit.
    caps : Caps or None
        Caps of the new limit; None is no limit beside that of the ledger.
    when : str
        Universal time for the rows.

    Privacy
    -------
    The charges so far are counted under the new caps, at their order, from the record. No charge is undone:
    after a limit below what was spent nothing more is admitted. The limit of the ledger does not change, and
    every charge counts against it.
    """

    kind: str
    names: tuple[str, ...]
    caps: Caps | None
    when: str

    @classmethod
    def prepare(cls, kind: str, name: str | Sequence[str], caps: Caps | None) -> SetAllocation:
        """Return the operation for one name or several, which are checked, at the present time."""
        names = tuple(name) if isinstance(name, list | tuple) else (name,)
        for one in names:
            check_texts(**{kind: one})
        return cls(kind, names, caps, now())

    def __call__(self, transaction: Transaction) -> None:
        """Record the limits, and put each in the place of the one before."""
        for name in self.names:
            self._set(transaction, name)

    def _set(self, transaction: Transaction, name: str) -> None:
        """Record the limit of one name, and count its charges under the new caps."""
        scope = owner_scope(name) if self.kind == "owner" else group_scope(name)
        owner = name if self.kind == "owner" else None
        charges = [
            tuple(map(promise_from_dict, content["promises"]))
            for _, content in iter_charges(transaction, owner, 0)
            if scope in content["scopes"]
        ]
        values = None if self.caps is None else self.caps.to_dict()
        body: dict[str, Any] = {"type": f"{self.kind} limit", self.kind: name, "caps": values}
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
