"""What a database must do for a ledger: exclusive transactions over six small tables.

``book``       one row: the ledger's identity, number and hash of the last row of the record
``record``     the hash-chained record; a trigger refuses to change or delete its rows
``totals``     per scope: its caps and what it spent, as JSON with amounts as decimal text
``questions``  per digest of a question and owner: the row of the record that paid for it
``answers``    per question or charge: the one answer that ever leaves
``marks``      per key of a request, and for the data set: the row of the record that has it

Every write happens inside :meth:`Store.write`, which holds the book exclusively from its first
statement to a durable commit, so that reading a total and then writing it cannot race. Threads that
write at the same time share one such transaction: see :mod:`~discreet.privacy.ledger.line`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from discreet.errors import LedgerTampered
from discreet.noise import Stream
from discreet.privacy.ledger.chain import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

T = TypeVar("T")

FORMAT = 1
"""Version of the tables and of the record; a change of meaning gets a new number."""

TOTAL = "total"

OLDEST_FIRST = "SELECT seq, time, body, previous, hash FROM record WHERE seq > ? ORDER BY seq"
NEWEST_FIRST = f"{OLDEST_FIRST} DESC"

_KEY_LENGTH = 32


def fresh_key() -> bytes:
    """Draw a secret."""
    return Stream().words(_KEY_LENGTH // 8).tobytes()


def owner_scope(owner: str) -> str:
    """Return the scope of an owner, which no owner's name can make collide with the total."""
    return f"owner:{owner}"


class Session(ABC):
    """One transaction's view of the tables."""

    failures: tuple[type[Exception], ...]
    """What :meth:`execute` raises where the database is at fault: the transaction is then lost."""

    marks_table: ClassVar[str]
    """Makes the table of marks, which ledgers of earlier versions do not have, where it is missing."""

    def __init__(self) -> None:
        # Read once: nobody else moves it in what this transaction sees.
        self._head: tuple[str, int, str] | None = None

    @abstractmethod
    def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement with ``?`` for values, and return its rows."""

    @abstractmethod
    def record(self, after: int = 0, *, newest_first: bool = False) -> Iterator[Row]:
        """Go through the record in order without holding it in memory."""

    @abstractmethod
    def tables(self) -> set[str]:
        """Return the names of the tables that there are."""

    def attempt(self, work: Callable[[Session], T]) -> T:
        """Do a piece of work that, if it raises, undoes what it did and nothing else."""
        self.execute("SAVEPOINT piece")
        try:
            result = work(self)
        except self.failures:
            raise
        except Exception:
            self._head = None
            self.execute("ROLLBACK TO piece")
            self.execute("RELEASE piece")
            raise
        self.execute("RELEASE piece")
        return result

    def head(self) -> tuple[str, int, str]:
        """Return identity, last row's number and its hash."""
        if self._head is None:
            found = self.execute("SELECT identity, seq, hash FROM book")
            if len(found) != 1:
                raise LedgerTampered(
                    f"the book of the ledger must have one row, and has {len(found)}. "
                    "Restore the ledger from a backup that checks."
                )
            identity, seq, digest = found[0]
            self._head = str(identity), int(seq), str(digest)
        return self._head

    def append(self, time: str, body: str) -> Row:
        """Add a row to the record and move the head to it."""
        identity, seq, previous = self.head()
        row = Row.after(seq, previous, time, body)
        self.insert(row)
        self.put_head(identity, row)
        return row

    def put_head(self, identity: str, row: Row) -> None:
        """Note which row is the last."""
        self.execute(
            "INSERT INTO book (one, identity, seq, hash) VALUES (1, ?, ?, ?) "
            "ON CONFLICT (one) DO UPDATE SET seq = excluded.seq, hash = excluded.hash",
            identity, row.seq, row.hash,
        )  # fmt: skip
        self._head = identity, row.seq, row.hash

    def insert(self, row: Row) -> None:
        """Write a row of the record."""
        self.execute(
            "INSERT INTO record (seq, time, body, previous, hash) VALUES (?, ?, ?, ?, ?)",
            row.seq, row.time, row.body, row.previous, row.hash,
        )  # fmt: skip

    def row(self, seq: int) -> Row | None:
        """Return one row of the record."""
        found = self.execute("SELECT seq, time, body, previous, hash FROM record WHERE seq = ?", seq)
        return Row(*found[0]) if found else None

    def total(self, scope: str) -> tuple[str | None, str] | None:
        """Return caps and spending of a scope as text, or None if it has none yet."""
        found = self.execute("SELECT caps, spent FROM totals WHERE scope = ?", scope)
        return (found[0][0], str(found[0][1])) if found else None

    def totals(self) -> dict[str, tuple[str | None, str]]:
        """Return caps and spending of every scope."""
        found = self.execute("SELECT scope, caps, spent FROM totals")
        return {str(scope): (caps, str(spent)) for scope, caps, spent in found}

    def put_total(self, scope: str, caps: str | None, spent: str) -> None:
        """Write caps and spending of a scope."""
        self.execute(
            "INSERT INTO totals (scope, caps, spent) VALUES (?, ?, ?) "
            "ON CONFLICT (scope) DO UPDATE SET caps = excluded.caps, spent = excluded.spent",
            scope, caps, spent,
        )  # fmt: skip

    def paid(self, question: str) -> dict[str, int]:
        """Return who paid for a question, and in which row; the first payer's row is smallest."""
        found = self.execute("SELECT owner, seq FROM questions WHERE question = ?", question)
        return {str(owner): int(seq) for owner, seq in found}

    def put_paid(self, question: str, owner: str, seq: int) -> None:
        """Note that an owner (or nobody, "") paid for a question."""
        self.execute("INSERT INTO questions (question, owner, seq) VALUES (?, ?, ?)", question, owner, seq)

    def answer(self, key: str) -> bytes | None:
        """Return the stored answer."""
        found = self.execute("SELECT answer FROM answers WHERE key = ?", key)
        return bytes(found[0][0]) if found else None

    def put_answer(self, key: str, answer: bytes) -> None:
        """Store an answer."""
        self.execute("INSERT INTO answers (key, answer) VALUES (?, ?)", key, answer)

    def mark(self, key: str) -> int | None:
        """Return the row of the record that has a key."""
        found = self.execute("SELECT seq FROM marks WHERE key = ?", key)
        return int(found[0][0]) if found else None

    def marks(self) -> dict[str, int]:
        """Return every key and its row; none in a ledger that never needed the table."""
        if "marks" not in self.tables():
            return {}
        return {str(key): int(seq) for key, seq in self.execute("SELECT key, seq FROM marks")}

    def put_mark(self, key: str, seq: int) -> None:
        """Note which row has a key."""
        self.execute("INSERT INTO marks (key, seq) VALUES (?, ?)", key, seq)


class Store(ABC):
    """A database that holds one ledger. It may be used from any thread and after a fork."""

    url: str
    """What :meth:`Ledger.open` was given, made absolute: opening it again finds the same ledger."""

    shown: str
    """The same without secrets, for messages."""

    lasting: bool
    """Whether another process can open it."""

    @abstractmethod
    def exists(self) -> bool:
        """Say whether there is a ledger; raise NotALedger where there is something else."""

    @abstractmethod
    def create(self, fill: Callable[[Session], None], key: bytes | None = None) -> bool:
        """Make the tables and fill them, durably and all at once.

        Parameters
        ----------
        fill : callable
            Writes the first rows.
        key : bytes, optional
            What :meth:`secret` shall be.

        Returns
        -------
        bool
            False if another process just made a ledger there: nothing was filled.
        """

    @abstractmethod
    def write(self, work: Callable[[Session], T]) -> T:
        """Do a piece of work that holds the book exclusively, and return once it is durable.

        Whatever it raises undoes it, and nothing but it. It may be done by another thread.
        """

    @abstractmethod
    def read(self) -> AbstractContextManager[Session]:
        """Look at one consistent state."""

    @abstractmethod
    def known_secret(self) -> bytes | None:
        """Return the key that goes with the ledger, if it was made."""

    @abstractmethod
    def secret(self, first: bytes | None = None) -> bytes:
        """Return a key that goes with the ledger and is not part of its record, making it at first use.

        Parameters
        ----------
        first : bytes, optional
            What it shall be if there is none; by default a fresh one.
        """

    @abstractmethod
    def close(self) -> None:
        """Give back what the database holds open; the next use opens it again."""
