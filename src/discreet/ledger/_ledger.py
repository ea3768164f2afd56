"""The ledger of a data set, with which every charge is made before its noise is drawn."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from discreet.arguments import checked_arguments
from discreet.errors import LedgerError
from discreet.ledger._allocations import SetAllocation, SetGroup
from discreet.ledger._charges import (
    Details,
    StoreAnswer,
    WriteOperation,
    check_texts,
    make_charge,
)
from discreet.ledger._opening import BindDataset, OpenDataset, make_caps, open_ledger, open_store
from discreet.ledger._reading import LedgerReader
from discreet.ledger._store import unwrap
from discreet.ledger.backup import restore as restore_backup
from discreet.ledger.backup import snapshot
from discreet.ledger.records import (
    LogAnchor,
    find_anchor,
    log_mark,
    other_mark,
)
from discreet.privacy.promises import Promise
from discreet.privacy.receipt import canonical, now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Self

    from discreet.ledger._caps import Rule
    from discreet.ledger.transaction import Transaction
    from discreet.privacy.receipt import Receipt

T = TypeVar("T")


class Ledger(LedgerReader):
    """All charges against a data set, under a limit that no interleaving of charges can exceed.

    Open one with :meth:`open`.

    Attributes
    ----------
    url : str
        Address of the file or database that stores it.
    identity : str
        Hash of its first row; receipts carry it.
    dataset : str or None
        Name of the data set that is charged, where several about the same people share the ledger; None for
        a ledger of one, or for the whole.

    Privacy
    -------
    A limit becomes fixed caps once, at creation; a charge is admitted only if all caps still hold, for
    the total and for the owner, both or neither, and is on disk before :meth:`charge` returns. So
    whatever is drawn afterwards was paid for, a crash costs budget and never privacy, and
    :meth:`guarantee` holds against analysts who choose each query after seeing every answer.
    There are no refunds. The record shows the queries and their times, and no row of the data: callers pass
    public facts only. Limits of owners assume that owners do not pool what they learn; the total does not.

    Reference
    ---------
    ``docs/explanation/theorems/composition.md``.

    Examples
    --------
    >>> from discreet.privacy.promises import PureDP
    >>> ledger = Ledger.open(":memory:", limit=PureDP(epsilon=1))
    >>> receipt = ledger.charge(PureDP(epsilon=0.1), what="a count")
    >>> ledger.remaining()["epsilon"]
    0.9
    """

    @classmethod
    @checked_arguments
    def open(
        cls,
        path_or_url: str | os.PathLike[str],
        *,
        limit: Promise | None = None,
        owner_limit: Promise | None = None,
        rule: Rule = "mixed",
        order: float | None = None,
        dataset: str | None = None,
        dataset_limit: Promise | None = None,
        timeout: float = 30.0,
    ) -> Self:
        """Open a ledger, creating it if it does not exist.

        Parameters
        ----------
        path_or_url : str or path
            Path of a file; ``postgresql://host/database#name``; or ``":memory:"``, which ends with the
            process.
        limit : Promise, optional
            Promise that the total must keep; None records without a limit. Fixed when the ledger is created:
            a different one is refused later, and none given means the one it has.
        owner_limit : Promise, optional
            Promise that each owner without a limit of :meth:`set_owner_limit` must keep; None is no limit.
        rule : {"mixed", "gaussian", "pure"}
            Noise that limits of :class:`ApproxDP` add up: "mixed" is one pool for every kind, a Rényi
            divergence at one order; "gaussian" admits Gaussian noise alone and 16 % more of it at (1, 1e-6);
            "pure" adds up the epsilons of pure and (epsilon, delta) charges. Fixed with the limit.
        order : float, optional
            Order above 1 for "mixed"; None is the one at which the most Gaussian noise fits. A larger one
            admits larger single pure charges.
        dataset : str, optional
            One of several data sets about the same people that share the ledger: each charge counts against
            its limit and against `limit`, both or neither, and what is read is its own. None is the whole.
        dataset_limit : Promise, optional
            Promise that the charges of `dataset` must keep; fixed when it is first opened, None is no limit
            beside `limit`.
        timeout : float
            Seconds to wait for other writers.
        """
        # Limits first: a wrong one must not leave an empty file behind.
        caps, owner_caps = make_caps(limit, rule, order), make_caps(owner_limit, rule, order)
        dataset_caps = make_caps(dataset_limit, rule, order)
        check_texts(dataset=dataset)
        store = open_store(path_or_url, timeout)
        ledger = cls(store, open_ledger(store, caps, owner_caps, when=now()), dataset)
        if dataset is not None:
            ledger._write(OpenDataset(dataset, dataset_caps, now()))
        return ledger

    @staticmethod
    def identity_at(path_or_url: str | os.PathLike[str], *, timeout: float = 30.0) -> str | None:
        """Return the identity of the ledger at an address, None if there is none, and create nothing.

        Parameters
        ----------
        path_or_url, timeout
            As for :meth:`open`.
        """
        store = open_store(path_or_url, timeout)
        try:
            if not store.exists():
                return None
            with store.read() as transaction:
                return transaction.head()[0]
        finally:
            store.close()

    def charge(
        self,
        promises: Promise | Iterable[Promise],
        *,
        owner: str | None = None,
        what: str = "charge",
        question: str | None = None,
        schema: str | None = None,
        seeded: bool = False,
        plan: Iterable[Promise] = (),
        asked: Mapping[str, Any] | None = None,
        request: str | None = None,
    ) -> Receipt:
        """Charge for noise that is about to be drawn, durably, or refuse.

        Parameters
        ----------
        promises : Promise or iterable of Promise
            Promises of the result. Several are parts of one event and are added up, so give only one of two
            promises about the same noise.
        owner : str, optional
            Name of the owner, who is charged beside the total; None charges the total alone.
        what : str
            Short description for the record.
        question : str, optional
            Digest of everything that fixes the question: data version, canonical form, bounds, noise.
            A question that was paid for is free: the receipt carries the stored answer, or None if it
            was never answered and may now be executed under the charge that stands. A new owner pays
            their own share, the total does not pay again.
        schema : str, optional
            Digest of the schema, for the receipt; None if there is none.
        seeded : bool
            Whether the noise will come from a seed.
        plan : iterable of Promise
            Promises that the same job will charge later: the charge is refused unless all of them fit too,
            so that no job pays for its first half alone. The plan is not charged. It is reserved only
            where the charge is the first of all and fits no other way: then charge and plan are read
            exactly, and nothing beside them is admitted. A question that its owner paid for is free whatever
            the plan.
        asked : mapping, optional
            Query as JSON values, for readers of the record. Kept there and not on the receipt.
        request : str, optional
            Idempotency key of the owner, so that a request whose answer got lost can be sent again: the
            repeat gets receipt and answer of the first, even if the data and with it `question` changed in
            between, as long as promises and `asked` are the same.

        Returns
        -------
        Receipt
            Receipt of the charge, which is committed to disk.

        Raises
        ------
        BudgetExceeded
            A cap of the total or of the owner would be passed; nothing was charged.
        PromiseError
            The limit cannot express the promise.
        KeyReused
            The owner used the key `request` for another question.
        LedgerUnavailable
            The charge may or may not stand; nothing may be drawn.

        Privacy
        -------
        `what`, `asked` and `request` are stored in a record that many may read: they must be public and not
        depend on rows.
        """
        charge = self.prepare_charge(
            promises,
            owner=owner,
            what=what,
            question=question,
            schema=schema,
            seeded=seeded,
            plan=plan,
            asked=asked,
            request=request,
        )
        return unwrap(self.execute([charge])[0])

    def prepare_charge(
        self, promises: Promise | Iterable[Promise], **details: Unpack[Details]
    ) -> WriteOperation[Receipt]:
        """Return the operation of a charge, for :meth:`execute`: with others, in one transaction.

        Parameters
        ----------
        promises, **details
            As for :meth:`charge`.
        """
        parts = (promises,) if isinstance(promises, Promise) else tuple(promises)
        charge = make_charge(
            parts, details, identity=self.identity, totals=self._totals, dataset=self.dataset
        )
        return self._operation(charge)

    def store(self, receipt: Receipt, answer: bytes) -> bytes:
        """Store the answer that a charge paid for, and return the one that may be published.

        The first answer stored is the only one: a caller that executed the same question at the same time
        gets that one back and discards its own.

        Parameters
        ----------
        receipt : Receipt
            Receipt of the charge, from this ledger.
        answer : bytes
            Noisy answer that was drawn under the charge.
        """
        return unwrap(self.execute([self.prepare_answer(receipt, answer)])[0])

    def prepare_answer(self, receipt: Receipt, answer: bytes) -> WriteOperation[bytes]:
        """Return the operation of :meth:`store`, for :meth:`execute`."""
        return self._operation(StoreAnswer.from_receipt(receipt, self._receipt_row(receipt), answer))

    def execute(self, operations: Sequence[WriteOperation[T]]) -> list[T | Exception]:
        """Execute prepared charges and answers, durably and in one transaction, and return their results.

        Parameters
        ----------
        operations : sequence of WriteOperation
            Operations of :meth:`prepare_charge` and :meth:`prepare_answer`, executed in this order.

        Returns
        -------
        list
            Result of each operation, or the error that :meth:`charge` or :meth:`store` would raise: it
            undoes that operation alone.

        Raises
        ------
        LedgerUnavailable
            Some of it may stand; nothing may be drawn.
        """
        return self._store.write_all(operations)

    def _operation(self, write: Callable[[Transaction], T]) -> WriteOperation[T]:
        """Return an operation that runs on the ledger that was opened, and on no other."""
        return WriteOperation(self.identity, self._store.shown, write)

    def _write(self, write: Callable[[Transaction], T]) -> T:
        return unwrap(self.execute([self._operation(write)])[0])

    def set_owner_limit(
        self,
        owner: str | Sequence[str],
        limit: Promise | None,
        *,
        rule: Rule = "mixed",
        order: float | None = None,
    ) -> None:
        """Set the limit of one owner, or change it: an allocation inside the limit of the ledger.

        Parameters
        ----------
        owner : str or sequence of str
            Name of the owner, as for :meth:`charge`; several get the same limit each, all or none.
        limit : Promise, optional
            Limit of all charges of the owner, earlier ones included; None is no limit.
        rule, order
            As for :meth:`open`.

        Privacy
        -------
        Only the limit of the ledger is a promise, and it never changes. Once the limit of an owner was
        changed after a charge, :meth:`guarantee` of that owner is the ledger's.
        """
        self._write(SetAllocation.prepare("owner", owner, make_caps(limit, rule, order)))

    def set_group_limit(
        self, group: str, limit: Promise | None, *, rule: Rule = "mixed", order: float | None = None
    ) -> None:
        """Set or change the limit of a group: what its members may spend together, whoever they are.

        Parameters
        ----------
        group : str
            Name of the group.
        limit, rule, order
            As for :meth:`set_owner_limit`, of all charges of its members while they are in it.
        """
        self._write(SetAllocation.prepare("group", group, make_caps(limit, rule, order)))

    def set_group(self, owner: str, group: str | None) -> None:
        """Put an owner into a group, instead of the one before; later charges count against the group too.

        Parameters
        ----------
        owner : str
            Name of the owner, as for :meth:`charge`.
        group : str, optional
            Name of the group; None takes the owner out of the group.
        """
        check_texts(owner=owner, group=group)
        self._write(SetGroup(owner, group, now()))

    def bind(self, dataset: str) -> None:
        """Record the name of the ledger's data set, or check that the recorded one is the same.

        Raises
        ------
        LedgerError
            The ledger is about another data set: charges against one would use up the other's limit.
        """
        check_texts(dataset=dataset)
        recorded = self._write(BindDataset(dataset, now()))
        if recorded != dataset:
            raise LedgerError(
                f"dataset of Ledger.bind must be the one that the ledger {self.shown} is about, "
                f"{recorded!r}, got {dataset!r}. Keep a ledger for each data set."
            )

    def note_others(self, ledgers: Iterable[str]) -> None:
        """Record that the same table was charged to other ledgers, which this one does not count.

        Parameters
        ----------
        ledgers : iterable of str
            Identities of those ledgers; the ones already in the record are left out.
        """
        identities, when = list(ledgers), now()

        def append(transaction: Transaction) -> None:
            new = [ledger for ledger in identities if transaction.mark(other_mark(ledger)) is None]
            if new:
                row = transaction.append(when, canonical({"type": "others", "ledgers": new}))
                for ledger in new:
                    transaction.put_mark(other_mark(ledger), row.seq)

        self._write(append)

    def anchor_log(self, anchor: LogAnchor) -> None:
        """Record the last line of an audit log, so that a log without this line is known to be incomplete.

        Parameters
        ----------
        anchor : LogAnchor
            Line that is on disk; one before a line that is anchored already is left out.

        Privacy
        -------
        Number and hash of a line depend on requests and their order, and on no row of the table.
        """
        when = now()

        def append(transaction: Transaction) -> None:
            known = find_anchor(transaction, anchor.log)
            if known is None or known.line < anchor.line:
                row = transaction.append(when, canonical({"type": "audit log", **anchor.to_dict()}))
                transaction.put_mark(log_mark(anchor.log), row.seq)

        self._write(append)

    def secret(self) -> bytes:
        """Return the key under which this ledger's questions are named, drawing it at first use.

        For a ledger in a file the key is a file of mode 0600 beside it that ends in ``.version-key``; in
        PostgreSQL it is a table of its own, so that every machine has the same key; in memory it ends with
        the process.

        Privacy
        -------
        A fingerprint of private rows lets an attacker who knows all rows but one test guesses of that one;
        under a key it reveals nothing to those without the key. Do not give the key to readers of the record.
        """
        return self._store.secret()

    def backup(self, path: str | os.PathLike[str]) -> tuple[int, str]:
        """Write a consistent copy of the ledger to a new file while others go on charging, and check it.

        Parameters
        ----------
        path : str or path
            Path of a file that does not exist yet. It becomes a ledger in SQLite, wherever this one is kept;
            its key goes beside it, as for :meth:`secret`.

        Returns
        -------
        tuple of (int, str)
            The :attr:`head` of the copy.

        Privacy
        -------
        A copy that is charged instead of the ledger is a second budget for the same people: keep it to
        :meth:`restore` it and for nothing else.
        """
        with snapshot(self) as state:
            return state.back_up(os.fspath(path))

    @classmethod
    def restore(
        cls,
        backup: str | os.PathLike[str],
        to: str | os.PathLike[str],
        *,
        head: tuple[int, str] | None = None,
        timeout: float = 30.0,
    ) -> Self:
        """Restore a ledger from a backup, unless charges would be lost, and open it.

        Parameters
        ----------
        backup : str or path
            Path of a file that :meth:`backup` wrote.
        to : str or path
            Path or URL of the ledger, as for :meth:`open`. If there is a ledger, it must be an earlier state
            of the same record, and the rows that it lacks are added to it.
        head : tuple of (int, str), optional
            A :attr:`head` of the lost ledger that was kept elsewhere: the backup must have this row.
        timeout : float
            Seconds to wait for other writers.

        Raises
        ------
        LedgerError
            Rows of `to`, or up to `head`, are not in the backup; the message says which.

        Privacy
        -------
        An earlier state of the record would return spent budget. If the ledger is gone and no `head` was
        kept, this cannot be detected: charges after the backup are then lost.
        """
        with closing(open_store(backup, timeout)) as source, closing(open_store(to, timeout)) as target:
            restore_backup(source, target, head)
        return cls.open(to, timeout=timeout)

    def close(self) -> None:
        """Close the database; a ledger on file opens it again at its next use."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._store.lasting:
            raise LedgerError(
                "a ledger in memory must stay in its process, and cannot be pickled: its charges "
                "would be lost. Open the ledger with a path."
            )
        return _reopen, (self.url, self.identity, self.dataset)


def _reopen(url: str, identity: str, dataset: str | None) -> Ledger:
    ledger = Ledger.open(url, dataset=dataset)
    if ledger.identity != identity:
        raise LedgerError(
            f"the ledger {ledger!r} must be the one that was pickled, and is another. "
            "Make sure that both processes see the same file."
        )
    return ledger
