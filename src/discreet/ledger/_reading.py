"""What a ledger says about itself: spending, limits, history, and whether its record is intact."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from discreet.errors import LedgerError, LedgerTampered
from discreet.ledger._account import Account, ChargeTotals
from discreet.ledger._allocations import read_groups
from discreet.ledger._charges import check_identity, check_receipt
from discreet.ledger._verification import check_record
from discreet.ledger.records import (
    Entry,
    LogAnchor,
    anchored_logs,
    changed_mark,
    dataset_scope,
    find_anchor,
    find_entry,
    find_position,
    group_scope,
    hash_row,
    iter_charges,
    make_entry,
    make_receipt,
    other_ledgers,
    scope_name,
)
from discreet.privacy.promises import NoPromise, Promise

if TYPE_CHECKING:
    from typing import Any, Self

    from discreet.ledger._opening import Opening
    from discreet.ledger._store import Store
    from discreet.ledger.transaction import Transaction
    from discreet.privacy.composition import Spending
    from discreet.privacy.receipt import Receipt


class LedgerReader:
    """The part of a ledger that reads: every method sees one consistent state and writes nothing.

    Parameters
    ----------
    store : Store
        Database that holds the ledger.
    opening : Opening
        Facts about the ledger that never change.
    dataset : str, optional
        One of several data sets that share the ledger; None for a ledger of one, or for the whole.
    """

    def __init__(self, store: Store, opening: Opening, dataset: str | None = None) -> None:
        self._store = store
        self.identity = opening.identity
        self.dataset = dataset
        self._totals = ChargeTotals(opening.owner_caps)

    @property
    def url(self) -> str:
        """Address of the file or database that stores it."""
        return self._store.url

    @property
    def shown(self) -> str:
        """The address without secrets, for messages."""
        return self._store.shown

    @property
    def head(self) -> tuple[int, str]:
        """Number and hash of the last row; a copy stored elsewhere reveals a rollback."""
        with self._store.read() as transaction:
            _, seq, digest = transaction.head()
        return seq, digest

    def spent(self, owner: str | None = None) -> Spending:
        """Return the exact spending of the total, or of one owner.

        Privacy
        -------
        Read as an epsilon, it is a guarantee only for charges whose costs were fixed before any
        answer was seen; otherwise :meth:`guarantee` is.
        """
        with self._store.read() as transaction:
            _, spent = self._totals.caps_and_spending(transaction, self._scope(owner))
        return spent

    def _scope(self, owner: str | None) -> str:
        """Return the scope of an owner; without one, that of the data set, or of the total if it has none."""
        if owner is None and self.dataset is not None:
            return dataset_scope(self.dataset)
        return scope_name(owner)

    def remaining(self, owner: str | None = None) -> dict[str, float] | None:
        """Return what is left in each currency, rounded down; None without a limit."""
        (account,) = self.accounts(owner)
        return account.left

    def accounts(self, *owners: str | None) -> list[Account]:
        """Return caps and spending of several owners, None being the total, read at one moment.

        Where several data sets share the ledger, the total is that of the data set or that of all of them,
        whichever is nearer to its limit; likewise an owner who is in a group has the account of the group if
        it is nearer.
        """
        with self._store.read() as transaction:
            return [
                self._totals.nearest_total(transaction, self.dataset)
                if owner is None
                else self._totals.nearest_own(transaction, owner)
                for owner in owners
            ]

    def charged_accounts(self, owner: str | None) -> dict[str, Account]:
        """Return every account that a charge to an owner is taken from, by its scope, read at one moment.

        Parameters
        ----------
        owner : str, optional
            Name of the owner; None for a charge to the total alone.
        """
        with self._store.read() as transaction:
            return self._totals.all_accounts(transaction, owner, self.dataset)

    def group_of(self, owner: str) -> str | None:
        """Return the group that an owner is in; None for none."""
        with self._store.read() as transaction:
            return self._totals.group(transaction, owner)

    def groups(self) -> dict[str, list[str]]:
        """Return the members of every group, by its name."""
        with self._store.read() as transaction:
            return read_groups(transaction)

    def group_account(self, group: str) -> Account:
        """Return caps and spending of a group; without caps if it has no limit."""
        with self._store.read() as transaction:
            return Account(*self._totals.caps_and_spending(transaction, group_scope(group)))

    def shared_account(self) -> Account | None:
        """Return caps and spending of all data sets that share the ledger; None if it has one alone."""
        if self.dataset is None:
            return None
        with self._store.read() as transaction:
            return self._totals.account(transaction, None)

    def guarantee(self, owner: str | None = None) -> Promise:
        """Return the promise that all charges keep together, now and later, however they are chosen.

        Privacy
        -------
        This is the limit, if there is one, for the columns that every charge protected. Without a limit
        nothing is guaranteed in advance, and the result is :class:`NoPromise`; :meth:`spent` adds up fixed
        charges. The same holds if the charges exceed the limit, as a changed total would let them. For an
        owner whose limit was changed after a charge it is that of the ledger: a limit that may follow
        answers promises nothing.
        """
        with self._store.read() as transaction:
            scope = scope_name(owner)
            if owner is None or transaction.mark(changed_mark(scope)) is not None:
                account = self._totals.nearest_total(transaction, self.dataset)
            else:
                account = self._totals.account(transaction, owner)
        caps, spent = account.caps, account.spent
        if caps is None:
            return NoPromise("the ledger has no limit, so nothing bounds what is charged next")
        if not caps.holds(spent):
            return NoPromise(f"the charges pass the limit, {caps.limit}: see which with Ledger.check()")
        return caps.guarantee(spent)

    def owners(self) -> dict[str, Spending]:
        """Return the exact spending of every owner who was charged or given a limit, by name."""
        with self._store.read() as transaction:
            return self._totals.owners(transaction)

    def others(self) -> list[str]:
        """Return the identities of other ledgers that the same table was charged to, as far as recorded."""
        with self._store.read() as transaction:
            return other_ledgers(transaction)

    def log_anchors(self) -> dict[str, LogAnchor]:
        """Return the last anchor of every audit log, by the log's identity, that of the latest row last."""
        with self._store.read() as transaction:
            anchors = ((log, find_anchor(transaction, log)) for log in anchored_logs(transaction))
            return {log: anchor for log, anchor in anchors if anchor is not None}

    def history(self, owner: str | None = None, *, after: int = 0, first: int | None = None) -> list[Receipt]:
        """Return the receipts of all charges, oldest first.

        Parameters
        ----------
        owner : str, optional
            Only charges of this owner; None returns those of all.
        after : int
            Number of a row; only charges past it are returned.
        first : int, optional
            Number of charges, oldest first; None returns all.
        """
        with self._store.read() as transaction:
            charges = itertools.islice(iter_charges(transaction, owner, after, dataset=self.dataset), first)
            return [make_receipt(self.identity, row, content) for row, content in charges]

    def entries(
        self,
        owner: str | None = None,
        *,
        after: int = 0,
        first: int | None = None,
        last: int | None = None,
    ) -> list[Entry]:
        """Return all charges with their queries and answers, oldest first.

        Parameters
        ----------
        owner : str, optional
            Only charges of this owner; None returns those of all.
        after : int
            Number of a row; only charges past it are returned.
        first, last : int, optional
            Number of charges, of which the oldest or the newest are kept; None returns all.
        """
        with self._store.read() as transaction:
            charges = iter_charges(
                transaction, owner, after, dataset=self.dataset, newest_first=last is not None
            )
            chosen = list(itertools.islice(charges, first if last is None else last))
            if last is not None:
                chosen.reverse()
            return [make_entry(transaction, self.identity, row, content) for row, content in chosen]

    def position(self, receipt: Receipt) -> tuple[str, dict[str, int]]:
        """Return the hash before a receipt's row, and the number of earlier rows by type other than charges.

        A reader who has the receipt and the charges before it can then check that none is missing.
        """
        with self._store.read() as transaction:
            self._check_identity(transaction)
            return find_position(transaction, self._receipt_row(receipt))

    def entry(self, receipt_id: str) -> Entry:
        """Return the charge that a receipt's id names, with its query and answer.

        Raises
        ------
        LedgerError
            This ledger has no such charge.
        """
        with self._store.read() as transaction:
            return find_entry(transaction, self.identity, receipt_id, self.dataset)

    def has_paid(self, question: str, owner: str | None = None) -> bool:
        """Return whether charging a question again would be free. Nothing is charged or written.

        Parameters
        ----------
        question : str
            Digest of the question, as for :meth:`charge`.
        owner : str, optional
            Owner whose own payment counts; None counts a payment by any owner.

        Privacy
        -------
        With an owner the result reveals nothing about others; without, it reveals whether anyone has asked.
        """
        with self._store.read() as transaction:
            paid = transaction.paid(question)
        return bool(paid) if owner is None else owner in paid

    def check(self, receipt: Receipt | None = None) -> None:
        """Verify the record, the totals against it, every cap, and that a receipt is still there.

        Raises
        ------
        LedgerTampered
            The message names the row or total that does not agree. An attacker with write access could
            rewrite the record consistently from any row on; a receipt or :attr:`head` stored elsewhere
            reveals that too.
        """
        with self._store.read() as transaction:
            self._check_identity(transaction)
            check_record(transaction)
            if receipt is not None:
                check_receipt(transaction, receipt, self._receipt_row(receipt))

    def confirm(self, seq: int, hash: str) -> None:
        """Check that the record still has a row with a number and hash seen before, such as its head.

        Raises
        ------
        LedgerTampered
            The row is missing or different: an older state was restored, or the ledger was replaced.
        """
        with self._store.read() as transaction:
            self._check_identity(transaction)
            row = transaction.row(seq)
        if row is None or row.hash != hash or row.hash != hash_row(row.seq, row.previous, row.time, row.body):
            raise LedgerTampered(
                f"row {seq} of the ledger's record must have the hash {hash!r}, and "
                f"{'is not there' if row is None else 'has another'}: an older state was put back, or the "
                "ledger was replaced or rewritten. Restore it from a backup that has this row."
            )

    def _receipt_row(self, receipt: Receipt) -> int:
        if receipt.ledger != self.identity or receipt.seq is None:
            raise LedgerError(
                f"receipt must be of this ledger {self.identity[:12]}, and {receipt.id} is not. "
                "Look it up in the ledger that gave it."
            )
        return receipt.seq

    def _check_identity(self, transaction: Transaction) -> None:
        check_identity(transaction, self.identity, self.shown)

    # A ledger is an identity: a copy would record charges that no one reads.
    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __sklearn_clone__(self) -> Self:
        return self

    def __repr__(self) -> str:
        return f"Ledger({self.shown!r})"

    def _repr_html_(self) -> str:
        """Return what was charged and what is left, for a notebook."""
        from discreet.formatting import format_amounts
        from discreet.html_tables import draw_facts  # only a notebook draws

        (account,) = self.accounts(None)
        facts = {"where": self.shown, "charges": f"{account.spent.charges:,}"}
        if account.left is None or account.used is None:
            return draw_facts("Ledger", [*facts.items(), ("limit", "none")])
        facts |= {"limit": str(self.guarantee()), "left": format_amounts(account.left, up=False)}
        return draw_facts("Ledger", facts.items(), (account.used["share"] or 0.0, 0.0))
