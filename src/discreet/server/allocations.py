"""Allocations of analysts and groups inside the limit of a data set, as a curator sees and changes them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from discreet.errors import DiscreetError
from discreet.ledger.records import owner_scope
from discreet.server.callers import check_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from discreet.ledger import Ledger
    from discreet.privacy import Promise
    from discreet.server.audit_log import ServiceLog
    from discreet.server.dataset_config import DatasetConfig


class Allocations:
    """Limits of analysts and groups at one data set.

    Parameters
    ----------
    ledger : Ledger
        Ledger of the data set.
    audit_log : ServiceLog
        Log in which each change is recorded before it is made.
    entry : DatasetConfig
        Data set with the rule and order of its limits.

    Privacy
    -------
    Only the limit of the data set is a promise. What an allocation allows beyond it is refused.
    """

    def __init__(self, ledger: Ledger, audit_log: ServiceLog, entry: DatasetConfig) -> None:
        self._ledger = ledger
        self._audit_log = audit_log
        self._entry = entry

    def set_limit(self, by: str, kind: Literal["analyst", "group"], name: str, limit: Promise | None) -> None:
        """Set, raise or lower a limit; it counts from the next charge on, for what was spent before too.

        Parameters
        ----------
        by : str
            Name of who does this, for the audit log.
        kind : {"analyst", "group"}
            Whether the limit is of one analyst, or of all members of a group together.
        name : str
            Name of the analyst or of the group.
        limit : Promise, optional
            New limit; None for none beside that of the data set.
        """
        check_name(name)
        text = "none" if limit is None else str(limit)
        self._audit_log.write("limit set", who=by, dataset=self._entry.name, kind=kind, name=name, limit=text)
        change = self._ledger.set_owner_limit if kind == "analyst" else self._ledger.set_group_limit
        change(name, limit, rule=self._entry.rule, order=self._entry.order)

    @contextmanager
    def keep_limits(self, by: str, names: Sequence[str], limit: Promise) -> Iterator[None]:
        """Set the limit of several analysts, all or none; if the body is refused, put back those before.

        Parameters
        ----------
        by : str
            Name of who does this, for the audit log.
        names : sequence of str
            Names of the analysts, each of whom gets the limit.
        limit : Promise
            New limit of each of them.
        """
        before = {name: self._ledger.charged_accounts(name)[owner_scope(name)].caps for name in names}
        about = {"who": by, "dataset": self._entry.name, "kind": "analyst", "limit": str(limit)}
        self._audit_log.write_all("limit set", [{**about, "name": name} for name in names])
        self._ledger.set_owner_limit(names, limit, rule=self._entry.rule, order=self._entry.order)
        try:
            yield
        except DiscreetError:
            for name, caps in before.items():
                self.set_limit(by, "analyst", name, None if caps is None else caps.limit)
            raise

    def set_group(self, by: str, name: str, group: str | None) -> None:
        """Put an analyst into a group, instead of the one before; None takes the analyst out."""
        for given in (name,) if group is None else (name, group):
            check_name(given)
        self._audit_log.write("group set", who=by, dataset=self._entry.name, name=name, group=group)
        self._ledger.set_group(name, group)

    def groups(self) -> dict[str, list[str]]:
        """Return the members of every group, by its name."""
        return self._ledger.groups()
