"""The ledger that people use: charge, then draw."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import time
from typing import TYPE_CHECKING, Any

from discreet.errors import LedgerError, LedgerTampered, ParameterError, PromiseError
from discreet.privacy.caps import Caps
from discreet.privacy.compose import Spending
from discreet.privacy.ledger.chain import START, Row
from discreet.privacy.ledger.proof import check, read_caps, scopes_of, write_caps
from discreet.privacy.ledger.store import FORMAT, TOTAL, Session, Store, owner_scope
from discreet.privacy.promises import NoPromise, Promise
from discreet.privacy.receipt import Receipt, canonical, now, product_version

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self


_ON_RECEIPT = ("what", "owner", "question", "promises", "schema", "seeded", "version")


class Ledger:
    """Every charge against a data set, under a limit that no interleaving can pass.

    Open one with :meth:`open`.

    Attributes
    ----------
    url : str
        Where it is kept.
    identity : str
        Hash of its first row; receipts carry it.

    Privacy
    -------
    A limit becomes fixed caps once, at opening; a charge is admitted only if all caps still hold, for
    the total and for the owner, both or neither, and is on disk before :meth:`charge` returns. So
    whatever is drawn afterwards was paid for, a crash costs budget and never privacy, and
    :meth:`guarantee` holds against analysts who choose each question after seeing every answer.
    There are no refunds. The record shows what was asked and when, and no row of the data.

    Owners' limits assume that owners do not pool what they learn; the total does not.

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

    def __init__(self, store: Store, identity: str) -> None:
        self._store = store
        self.identity = identity

    @classmethod
    def open(
        cls,
        path_or_url: str | os.PathLike[str],
        *,
        limit: Promise | None = None,
        owner_limit: Promise | None = None,
        gaussian_share: float = 0.5,
        timeout: float = 30.0,
    ) -> Self:
        """Open a ledger, making it if it does not exist.

        Parameters
        ----------
        path_or_url : str or path
            A file; ``postgresql://host/database#name``; or ``":memory:"``, which ends with the
            process.
        limit : Promise, optional
            What the total must keep; None records without a limit. Fixed when the ledger is made: a
            different one is refused later, and none given means the one it has.
        owner_limit : Promise, optional
            The same for each owner who gets none of their own by :meth:`set_owner_limit`.
        gaussian_share : float
            Part of epsilon kept for Gaussian events under limits of :class:`ApproxDP`.
        timeout : float
            Seconds to wait for other writers.
        """
        store = _store(os.fspath(path_or_url), timeout)
        caps = _fix(limit, gaussian_share)
        owner_caps = _fix(owner_limit, gaussian_share)
        if not store.exists():
            body = {
                "type": "open",
                "format": FORMAT,
                "version": product_version(),
                # Two ledgers opened with the same words at the same time are two ledgers.
                "born": [os.getpid(), time.monotonic_ns()],
                "caps": None if caps is None else caps.to_dict(),
                "owner_caps": None if owner_caps is None else owner_caps.to_dict(),
            }
            first = Row.after(0, START, now(), canonical(body))
            store.create(first, write_caps(caps), canonical(Spending().to_dict()))
        with store.read() as session:
            identity, _, _ = session.head()
            opened = _first(session)
        _check_limit("limit", caps, opened["caps"])
        _check_limit("owner_limit", owner_caps, opened["owner_caps"])
        return cls(store, identity)

    @property
    def url(self) -> str:
        """Where it is kept."""
        return self._store.url

    @property
    def head(self) -> tuple[int, str]:
        """Number and hash of the last row: keep it elsewhere, and a rollback will show."""
        with self._store.read() as session:
            _, seq, digest = session.head()
        return seq, digest

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
    ) -> Receipt:
        """Charge what is about to be drawn, durably, or refuse.

        Parameters
        ----------
        promises : Promise or iterable of Promise
            What the result will promise. Several are the parts of one event and are added up, so of
            two ways to say the same thing about the same noise give one.
        owner : str, optional
            Who asks: charged beside the total.
        what : str
            A few words for the record.
        question : str, optional
            Digest of everything that fixes the question: data version, canonical form, bounds, noise.
            A question that was paid for is free: the receipt carries the stored answer, or None if it
            was never answered and may now be executed under the charge that stands. A new owner pays
            their own share, the total does not pay again.
        schema : str, optional
            Digest of the schema, for the receipt.
        seeded : bool
            Whether the noise will come from a seed.
        plan : iterable of Promise
            What will be charged after this, by the same work: refused now unless all of it fits too, so
            that nobody pays for the first half of something. It is neither charged nor kept aside, and a
            question that was paid for is free whatever the plan.

        Returns
        -------
        Receipt
            Committed to disk.

        Raises
        ------
        BudgetExceeded
            A cap of the total or of the owner would be passed; nothing was charged.
        PromiseError
            The limit cannot express the promise.
        LedgerUnavailable
            The charge may or may not stand; nothing may be drawn.
        """
        parts = (promises,) if isinstance(promises, Promise) else tuple(promises)
        asked = Spending.of(parts)
        planned = tuple(plan)
        later = sum(map(Spending.of, planned), Spending()) if planned else None
        _check_words(what=what)
        _check_words(
            **{
                name: value
                for name, value in (("owner", owner), ("question", question), ("schema", schema))
                if value is not None
            }
        )
        body: dict[str, Any] = {
            "type": "charge",
            "what": what,
            "owner": owner,
            "question": question,
            "promises": [part.to_dict() for part in parts],
            "schema": schema,
            "seeded": bool(seeded),
            "version": product_version(),
        }
        with self._store.write() as session:
            self._check_identity(session)
            paid = session.paid(question) if question is not None else {}
            if paid:
                earlier = self._earlier(session, paid, owner, body)
                if earlier is not None:
                    return earlier
            scopes = scopes_of(owner, known=bool(paid))
            body["scopes"] = scopes
            for scope in scopes:
                self._spend(session, scope, asked, later)
            row = session.append(now(), canonical(body))
            if question is not None:
                session.put_paid(question, owner or "", row.seq)
            answer = session.answer(_key(question, row.seq))
        return self._receipt(row, answer)

    def _spend(self, session: Session, scope: str, asked: Spending, later: Spending | None) -> None:
        caps, before = self._scope(session, scope)
        name = scope if scope == TOTAL else scope.removeprefix("owner:")
        after = before + asked if caps is None else caps.admit(before, asked, scope=name, later=later)
        session.put_total(scope, write_caps(caps), canonical(after.to_dict()))

    def _scope(self, session: Session, scope: str) -> tuple[Caps | None, Spending]:
        found = session.total(scope)
        try:
            if found is None:
                return read_caps(_first(session)["owner_caps"]), Spending()
            caps, spent = found
            return (
                read_caps(None if caps is None else json.loads(caps)),
                Spending.from_dict(json.loads(spent)),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise LedgerTampered(
                f"the total of {scope!r} must be readable, and is not ({error}). "
                "Restore the ledger from a backup that checks."
            ) from error

    def _earlier(
        self, session: Session, paid: dict[str, int], owner: str | None, body: dict[str, Any]
    ) -> Receipt | None:
        """Return the receipt of a question already paid for by `owner`, if it is."""
        seq = paid.get(owner) if owner is not None else min(paid.values())
        row = session.row(min(paid.values()) if seq is None else seq)
        if row is None:
            raise LedgerTampered(
                f"row {seq} of the ledger's record must be there, and is not. "
                "Restore the ledger from a backup that checks."
            )
        if row.content["promises"] != json.loads(canonical(body["promises"])):
            raise PromiseError(
                "question of Ledger.charge must be a digest that fixes the promise too, and this one "
                "was charged with another promise. Put the noise into the digest."
            )
        if seq is None:
            return None
        return self._receipt(row, session.answer(_key(row.content["question"], row.seq)))

    def store(self, receipt: Receipt, answer: bytes) -> bytes:
        """Keep the answer that a charge paid for, and return the one that may leave.

        The first answer stored is the only one: whoever executed the same question at the same time
        gets that one back and throws their own away.
        """
        with self._store.write() as session:
            self._check_identity(session)
            self._find(session, receipt)
            assert receipt.seq is not None
            key = _key(receipt.question, receipt.seq)
            stored = session.answer(key)
            if stored is not None:
                return stored
            digest = hashlib.sha256(answer).hexdigest()
            session.append(now(), canonical({"type": "answer", "key": key, "sha256": digest}))
            session.put_answer(key, answer)
        return answer

    def spent(self, owner: str | None = None) -> Spending:
        """Return the exact books of the total, or of one owner.

        Privacy
        -------
        Read as an epsilon, they are a guarantee only for charges whose costs were fixed before any
        answer was seen; otherwise :meth:`guarantee` is.
        """
        with self._store.read() as session:
            _, spent = self._scope(session, _scope_name(owner))
        return spent

    def remaining(self, owner: str | None = None) -> dict[str, float] | None:
        """Return what is left in each currency, rounded down; None without a limit."""
        with self._store.read() as session:
            caps, spent = self._scope(session, _scope_name(owner))
        return None if caps is None else caps.left(spent)

    def guarantee(self, owner: str | None = None) -> Promise:
        """Return what holds for everything charged, now and later, however it is chosen.

        Privacy
        -------
        The limit, where there is one, for the columns that every charge protected. Without a limit
        nothing is guaranteed in advance: :class:`NoPromise`; :meth:`spent` says what fixed charges
        come to.
        """
        with self._store.read() as session:
            caps, spent = self._scope(session, _scope_name(owner))
        if caps is None:
            return NoPromise("the ledger has no limit, so nothing bounds what is charged next")
        return caps.guarantee(spent)

    def set_owner_limit(self, owner: str, limit: Promise | None, *, gaussian_share: float = 0.5) -> None:
        """Give an owner a limit of their own, before their first charge."""
        _check_words(owner=owner)
        caps = _fix(limit, gaussian_share)
        scope = owner_scope(owner)
        with self._store.write() as session:
            self._check_identity(session)
            if self._scope(session, scope)[1].charges:
                raise LedgerError(
                    f"limit of owner {owner!r} must be set before the first charge, and there are "
                    "charges. Caps are fixed before any answer is seen."
                )
            values = None if caps is None else caps.to_dict()
            session.append(now(), canonical({"type": "owner limit", "owner": owner, "caps": values}))
            session.put_total(scope, write_caps(caps), canonical(Spending().to_dict()))

    def history(self, owner: str | None = None, *, after: int = 0) -> list[Receipt]:
        """Return the receipts of all charges, oldest first.

        Parameters
        ----------
        owner : str, optional
            Only theirs.
        after : int
            Only rows of the record past this one.
        """
        found = []
        with self._store.read() as session:
            for row in session.record(after):
                content = row.content
                if content["type"] == "charge" and owner in (None, content["owner"]):
                    found.append(self._receipt(row, None))
        return found

    def secret(self) -> bytes:
        """Return the key under which this ledger's questions are named, making it at first use.

        Beside a file it is a file of mode 0600 that ends in ``.version-key``; in PostgreSQL it is a table of
        its own, so that every machine has the same; in memory it ends with the process.

        Privacy
        -------
        A fingerprint of private rows lets whoever knows all rows but one test guesses at that one; under a
        key it tells nothing to whoever has not got it. Keep the key from those who may read the record.
        """
        return self._store.secret()

    def check(self, receipt: Receipt | None = None) -> None:
        """Verify the record, the totals against it, every cap, and that a receipt is still there.

        Raises
        ------
        LedgerTampered
            Names the row or total that does not agree. Whoever can write to the database could rewrite
            all of it consistently, from any row on; a receipt or :attr:`head` kept elsewhere shows
            that too.
        """
        with self._store.read() as session:
            self._check_identity(session)
            check(session)
            if receipt is not None:
                self._find(session, receipt)

    def _find(self, session: Session, receipt: Receipt) -> None:
        if receipt.ledger != self.identity or receipt.seq is None:
            raise LedgerError(
                f"receipt must be of this ledger {self.identity[:12]}, and {receipt.id} is not. "
                "Look it up in the ledger that gave it."
            )
        row = session.row(receipt.seq)
        if row is None or self._receipt(row, None) != receipt:
            raise LedgerTampered(
                f"row {receipt.seq} of the ledger's record must be what the receipt {receipt.id} "
                "says, and is not: the record was rolled back or rewritten. Restore the ledger."
            )

    def _check_identity(self, session: Session) -> None:
        identity, _, _ = session.head()
        if identity != self.identity:
            raise LedgerTampered(
                f"the ledger {self._store.shown} must be the one that was opened, and is another: it "
                "was replaced. Open it anew if that was meant."
            )

    def _receipt(self, row: Row, answer: bytes | None) -> Receipt:
        content = row.content
        made = Receipt.from_dict(
            {
                "id": f"{self.identity[:12]}-{row.seq}",
                "when": row.time,
                "ledger": self.identity,
                "seq": row.seq,
                "hash": row.hash,
                **{name: content[name] for name in _ON_RECEIPT},
            }
        )
        return dataclasses.replace(made, answer=answer)

    def close(self) -> None:
        """Close the database; a ledger on file opens it again at its next use."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # A ledger is an identity: a copy would charge books that nobody reads.
    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __sklearn_clone__(self) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._store.lasting:
            raise LedgerError(
                "a ledger in memory must stay in its process, and cannot be pickled: its charges "
                "would be lost. Open the ledger with a path."
            )
        return _reopen, (self.url, self.identity)

    def __repr__(self) -> str:
        return f"Ledger({self._store.shown!r})"


def _reopen(url: str, identity: str) -> Ledger:
    ledger = Ledger.open(url)
    if ledger.identity != identity:
        raise LedgerError(
            f"the ledger {ledger!r} must be the one that was pickled, and is another. "
            "Make sure that both processes see the same file."
        )
    return ledger


def _store(url: str, timeout: float) -> Store:
    if url.startswith(("postgresql://", "postgres://")):
        from discreet.privacy.ledger.postgres import PostgresSchema

        return PostgresSchema(url, timeout)
    from discreet.privacy.ledger.sqlite import Memory, SqliteFile

    return Memory() if url == ":memory:" else SqliteFile(url, timeout)


def _fix(limit: Promise | None, gaussian_share: float) -> Caps | None:
    return None if limit is None else Caps.fix(limit, gaussian_share=gaussian_share)


def _first(session: Session) -> dict[str, Any]:
    """Return what the ledger was opened with."""
    first = session.row(1)
    if first is None:
        raise LedgerTampered(
            "row 1 of the ledger's record must be there, and is not. "
            "Restore the ledger from a backup that checks."
        )
    try:
        return first.content
    except ValueError as error:
        raise LedgerTampered(
            "row 1 of the ledger's record must be readable, and is not. "
            "Restore the ledger from a backup that checks."
        ) from error


def _check_words(**named: object) -> None:
    for name, value in named.items():
        if not isinstance(value, str) or not value:
            raise ParameterError(
                f"{name} of a charge must be a non-empty string, got {value!r}. "
                "Leave it out if there is none."
            )


def _check_limit(name: str, given: Caps | None, fixed: dict[str, Any] | None) -> None:
    if given is None:
        return
    caps = read_caps(fixed)
    # The amounts stay as they were fixed, also where a newer version would round them differently.
    if caps is None or (caps.limit, caps.gaussian_share) != (given.limit, given.gaussian_share):
        have = "none" if caps is None else str(caps.limit)
        raise LedgerError(
            f"{name} of Ledger.open must be the one fixed when the ledger was made, {have}, got "
            f"{given.limit} (with its gaussian_share). Leave it out, or open another ledger."
        )


def _scope_name(owner: str | None) -> str:
    return TOTAL if owner is None else owner_scope(owner)


def _key(question: str | None, seq: int) -> str:
    return f"row:{seq}" if question is None else f"question:{question}"
