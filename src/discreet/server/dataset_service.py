"""All operations on one data set: routes and pages call a :class:`DatasetService`, and nothing else touches a
ledger.

Beside answers it has budgets and histories, and what a curator does. It knows nothing of HTTP, nor of other
data sets.
"""  # noqa: D205

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from discreet.server.query_service import QueryService

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from discreet.ledger import Entry
    from discreet.privacy import Promise
    from discreet.server.access import AccessStore
    from discreet.server.allocations import Allocations
    from discreet.server.audit_log import ServiceLog
    from discreet.server.callers import Caller, Role
    from discreet.server.config import Config
    from discreet.server.credentials import TokenAdmin
    from discreet.server.dataset import Dataset


class DatasetService(QueryService):
    """A private table, its ledger, and the callers who may query it.

    Parameters
    ----------
    dataset : Dataset
        Table that is opened; closed with this.
    access : AccessStore
        Tokens, grants, sessions and stop switches of the service.
    audit_log : ServiceLog
        Hash-chained log of what happened.
    config : Config
        Configuration of the service.
    tokens : TokenAdmin
        Administration of tokens and grants.
    """

    def __init__(
        self,
        dataset: Dataset,
        access: AccessStore,
        audit_log: ServiceLog,
        config: Config,
        tokens: TokenAdmin,
    ) -> None:
        """Keep references to the table and to what all tables of the service share."""
        super().__init__(dataset, access, audit_log)
        self.config = config
        self._tokens = tokens

    # The caller's own charges.

    def budget(self, caller: Caller) -> dict[str, Any]:
        """Return limit, spending and what is left, of the caller and of all callers together."""
        return self.dataset.accounting.budget(caller)

    def history(self, caller: Caller, *, last: int, analyst: str | None = None) -> list[dict[str, Any]]:
        """Return the newest charges without the answers; a curator may see those of every analyst.

        Parameters
        ----------
        caller : Caller
            Caller whose charges are returned.
        last : int
            Maximum number of charges, the newest.
        analyst : str, optional
            Name whose charges a curator requests; None for all. Ignored for an analyst.
        """
        dataset = self.dataset
        entries = dataset.ledger.entries(self._history_owner(caller, analyst), last=last)
        return dataset.accounting.history(entries)

    def history_page(
        self,
        caller: Caller,
        *,
        last: int,
        first: int | None = None,
        analyst: str | None = None,
        after: int = 0,
    ) -> dict[str, Any]:
        """Return one page of charges with their answers.

        Parameters
        ----------
        caller, analyst
            As for :meth:`history`.
        last : int
            Maximum number of charges, the newest.
        first : int, optional
            Maximum number of charges, the oldest, instead of `last`; for reading page after page.
        after : int
            Row of the ledger after which the page begins.
        """
        ledger, owner = self.dataset.ledger, self._history_owner(caller, analyst)
        if first is None:
            entries: Iterable[Entry] = ledger.entries(owner, last=last, after=after)
            more = False
        else:
            # Answers are read one by one, as the page fills.
            receipts = ledger.history(owner, after=after, first=first + 1)
            entries = (ledger.entry(receipt.id) for receipt in receipts[:first])
            more = len(receipts) > first
        page, page_receipts = self.dataset.accounting.history_page(entries, more=more)
        self.audit_log.cover_receipts(self.name, caller.name, page_receipts)
        return page

    def _history_owner(self, caller: Caller, analyst: str | None) -> str | None:
        """Return the owner whose charges a caller sees: the caller, or who a curator names; None for all."""
        return analyst if caller.may("curator", self.name) else caller.name

    # For the curator.

    def overview(self) -> dict[str, Any]:
        """Return the configuration and the state of the data set."""
        dataset, stopped = self.dataset, self.access.stop_record(self.name)
        rows, head = dataset.ledger.head
        tokens = self.tokens()
        asked = {step["who"] for step in dataset.accounting.spending_history()["steps"]} - {None}
        names = {token["name"] for token in tokens} | asked
        account = dataset.accounting.account
        return {
            **dataset.about(),
            "stopped": None if stopped is None else {"who": stopped.caller, "since": stopped.since},
            "slots": self.config.slots,
            "workers": self.config.workers,
            "ledger": {"identity": dataset.ledger.identity, "rows": rows, "head": head},
            "total": account(None),
            "analysts": {name: account(name) for name in sorted(names)},
            "tokens": tokens,
        }

    def spending_history(self) -> dict[str, Any]:
        """Return the total spent after each charge, with the name that was charged."""
        return self.dataset.accounting.spending_history()

    def refusals(self, most: int = 200) -> list[dict[str, Any]]:
        """Return the last `most` refusals, newest first."""
        return [
            {"when": line["time"], "who": line["who"], "code": line["code"], "asked": line["asked"]}
            for line in self.audit_log.last("refused", self.name, most)
        ]

    def check(self) -> dict[str, Any]:
        """Verify ledger and audit log, and return their lengths."""
        ledger = self.dataset.ledger
        ledger.check()
        self.audit_log.confirm(self.name, ledger)
        lines = self.audit_log.check().lines
        rows, head = ledger.head
        return {"intact": True, "rows": rows, "head": head, "trail_lines": lines}

    def attack(self, *, patience: float) -> dict[str, Any]:
        """Return what an attacker could reconstruct from all answers so far; for the curator only.

        Parameters
        ----------
        patience : float
            Seconds to wait for a result, as for :meth:`BackgroundAttack.run`.
        """
        return self.dataset.attack.run(patience=patience)

    def stop(self, curator: Caller) -> None:
        """Stop all answers, in all processes and also after a restart."""
        self.access.stop(self.name, curator.name)
        self.audit_log.write("stop", dataset=self.name, who=curator.name)

    def resume(self, curator: Caller) -> None:
        """Allow answers again, after recording that in the audit log."""
        self.audit_log.write("resume", dataset=self.name, who=curator.name)
        self.access.resume(self.name)

    def tokens(self) -> list[dict[str, Any]]:
        """Return the records of all tokens that are valid here; the tokens themselves are not stored."""
        return self._tokens.list_tokens(self.name)

    def create_token(
        self, by: str, name: str, role: Role = "analyst", *, days: float = 90, limit: Promise | None = None
    ) -> str:
        """Create a token that is valid at this data set alone, with the bearer's role; it is shown once.

        Parameters
        ----------
        by : str
            Name of the curator who does this, for the audit log.
        name, role : str
            Name of the bearer, and the role that the bearer is granted here.
        days : float
            Days until the token expires.
        limit : Promise, optional
            Limit of the bearer; None for the usual one.
        """
        return self._tokens.create(
            by, name, days=days, at=self.name, dataset=self.name, role=role, limit=limit
        )

    def create_tokens(
        self,
        by: str,
        names: Sequence[str],
        role: Role = "analyst",
        *,
        days: float = 90,
        limit: Promise | None = None,
    ) -> dict[str, str]:
        """Create tokens for several names, all or none, and return them by name; they are shown once.

        Parameters
        ----------
        names : sequence of str
            Names of the bearers, each once.
        by, role, days, limit
            As for :meth:`create_token`, the same for all.
        """
        return self._tokens.create_all(
            by, names, days=days, at=self.name, dataset=self.name, role=role, limit=limit
        )

    def rotate_token(self, by: str, name: str) -> str:
        """Replace the token of a name that is valid here alone, and return the new one; it is shown once."""
        return self._tokens.rotate(by, name, self.name)

    def revoke_token(self, by: str, name: str) -> int:
        """Revoke all tokens of a name that are valid here alone; return how many were valid."""
        return self._tokens.revoke(by, name, self.name)

    def grant(self, by: str, name: str, role: Role) -> None:
        """Give a name a role on this data set, for a login or a token that is valid everywhere."""
        self._tokens.grant(by, name, self.name, role)

    def withdraw(self, by: str, name: str) -> bool:
        """Withdraw the role of a name on this data set; return whether it had one."""
        return self._tokens.withdraw(by, name, self.name)

    @property
    def allocations(self) -> Allocations:
        """Limits of analysts and groups, and who is in which group."""
        return self.dataset.allocations(self.audit_log)

    def list_allocations(self) -> dict[str, Any]:
        """Return limit, spending and what is left of every analyst and group."""
        accounting, members = self.dataset.accounting, self.allocations.groups()
        of = {name: group for group, names in members.items() for name in names}
        names = {token["name"] for token in self.tokens()} | set(self.dataset.ledger.owners()) | set(of)
        return {
            "analysts": [
                {"name": name, "group": of.get(name), **accounting.account(name)} for name in sorted(names)
            ],
            "groups": [
                {"name": group, "members": members[group], **accounting.group_account(group)}
                for group in sorted(members)
            ],
        }

    def close(self) -> None:
        """Close table and ledger."""
        self.dataset.close()
