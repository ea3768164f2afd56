"""Buffer of one transaction: the entries of a ledger's tables that it has read and has yet to write.

Threads that share a transaction each read and write a few rows. As single statements these cost more than
the disk does. So each operation first declares what it will read, all of that is read together, and writes
are buffered and sent at the end, one statement per table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from discreet.errors import LedgerTampered
from discreet.ledger.records import LedgerRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

OLDEST_FIRST = "SELECT seq, time, body, previous, hash FROM record WHERE seq > ? ORDER BY seq"
NEWEST_FIRST = f"{OLDEST_FIRST} DESC"

_ROWS = "SELECT seq, time, body, previous, hash FROM record WHERE seq"
_TOTALS = "SELECT scope, caps, spent FROM totals WHERE scope"
_PAID = "SELECT question, owner, seq FROM questions WHERE question"
_ANSWERS = "SELECT key, answer FROM answers WHERE key"
_MARKS = "SELECT key, seq FROM marks WHERE key"

_PUT_ROW = "INSERT INTO record (seq, time, body, previous, hash) VALUES (?, ?, ?, ?, ?)"
_PUT_HEAD = (
    "INSERT INTO book (one, identity, seq, hash) VALUES (1, ?, ?, ?) "
    "ON CONFLICT (one) DO UPDATE SET seq = excluded.seq, hash = excluded.hash"
)
_PUT_TOTAL = (
    "INSERT INTO totals (scope, caps, spent) VALUES (?, ?, ?) "
    "ON CONFLICT (scope) DO UPDATE SET caps = excluded.caps, spent = excluded.spent"
)
_PUT_PAID = "INSERT INTO questions (question, owner, seq) VALUES (?, ?, ?)"
_PUT_ANSWER = "INSERT INTO answers (key, answer) VALUES (?, ?)"
_PUT_MARK = "INSERT INTO marks (key, seq) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET seq = excluded.seq"

_MOST_KNOWN = 4096  # entries of a table that are cached: checking a ledger reads all of them
_ABSENT: Any = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSet:
    """Keys of the entries that an operation will read, so that those of several are read together."""

    rows: tuple[int, ...] = ()
    scopes: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()


class _TableBuffer(Generic[K, V]):
    """Entries of one table as a transaction sees them; None where there is none."""

    __slots__ = ("journal", "known", "unwritten")

    def __init__(self) -> None:
        self.known: dict[K, V | None] = {}
        self.unwritten: dict[K, V] = {}
        # Values to restore if the running operation fails, newest last; None while none can fail alone.
        self.journal: list[tuple[K, Any, Any]] | None = None

    def put(self, key: K, value: V) -> None:
        if self.journal is not None:
            self.journal.append((key, self.known.get(key, _ABSENT), self.unwritten.get(key, _ABSENT)))
        self.known[key] = self.unwritten[key] = value

    def undo(self) -> None:
        for key, known, unwritten in reversed(self.journal or ()):
            _restore(self.known, key, known)
            _restore(self.unwritten, key, unwritten)

    def shrink(self) -> None:
        """Clear the cache if it is large and nothing in it has yet to be written."""
        if len(self.known) > _MOST_KNOWN and not self.unwritten:
            self.known.clear()

    def take_unread(self, keys: Iterable[K]) -> list[K]:
        """Return the keys not read yet; from here on they count as read, with no entry."""
        new = [key for key in dict.fromkeys(keys) if key not in self.known]
        self.known.update(dict.fromkeys(new))
        return new


class Transaction(ABC):
    """Tables of a ledger as one transaction sees them.

    Privacy
    -------
    No result of a write is returned before it is durable: the transaction flushes and commits, and only then
    do the callers that wait for it go on.

    Reference
    ---------
    ``docs/explanation/theorems/composition.md``.
    """

    failures: tuple[type[Exception], ...]
    """Exceptions that mean a fault of the database: the whole transaction is then lost."""

    def __init__(self) -> None:
        self._clear()

    def reset(self) -> None:
        """Write what is buffered and clear the cache, so that reads show the content of the database."""
        self.flush()
        self._clear()

    def _clear(self) -> None:
        # The head is read once: no other transaction can change it while this one runs.
        self._head: tuple[str, int, str] | None = None
        self._head_changed = False
        self._rows: _TableBuffer[int, LedgerRow] = _TableBuffer()
        self._totals: _TableBuffer[str, tuple[str | None, str]] = _TableBuffer()
        self._paid: _TableBuffer[str, dict[str, int]] = _TableBuffer()
        self._payers: _TableBuffer[tuple[str, str], int] = _TableBuffer()
        self._answers: _TableBuffer[str, bytes] = _TableBuffer()
        self._marks: _TableBuffer[str, int] = _TableBuffer()

    @property
    def _tables(self) -> tuple[_TableBuffer[Any, Any], ...]:
        return self._rows, self._totals, self._paid, self._payers, self._answers, self._marks

    # Statements of the database.

    @abstractmethod
    def select(self, queries: Sequence[tuple[str, Sequence[Any]]]) -> list[list[tuple[Any, ...]]]:
        """Run statements with ``?`` for values, in their order, and return the rows of each."""

    @abstractmethod
    def write_rows(self, statements: Sequence[tuple[str, Sequence[Sequence[Any]]]]) -> None:
        """Run statements, each for every one of its lists of values, in their order."""

    @abstractmethod
    def in_condition(self, values: Sequence[Any]) -> tuple[str, Sequence[Any]]:
        """Return the SQL for "column is one of these values" after the column, and its parameters."""

    @abstractmethod
    def stream(self, sql: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Run a statement and yield its rows without holding them in memory."""

    # Operations.

    def preload(self, read_sets: Sequence[ReadSet]) -> None:
        """Read the head and the entries that several operations will read, one statement per table."""
        queries: list[tuple[str, Sequence[Any]]] = []
        loaders: list[Callable[[tuple[Any, ...]], None]] = []

        def read(sql: str, missing: Sequence[Any], load: Callable[[tuple[Any, ...]], None]) -> None:
            if missing:
                condition, values = self.in_condition(missing)
                queries.append((f"{sql} {condition}", values))
                loaders.append(load)

        if self._head is None:
            queries.append(("SELECT identity, seq, hash FROM book", ()))
            loaders.append(self._load_head)
        read(_ROWS, self._rows.take_unread(n for one in read_sets for n in one.rows), self._load_row)
        read(_TOTALS, self._totals.take_unread(n for one in read_sets for n in one.scopes), self._load_total)
        read(_PAID, self._paid.take_unread(n for one in read_sets for n in one.questions), self._load_paid)
        read(
            _ANSWERS,
            self._answers.take_unread(n for one in read_sets for n in one.answers),
            self._load_answer,
        )
        read(_MARKS, self._marks.take_unread(n for one in read_sets for n in one.marks), self._load_mark)
        for rows, load in zip(self.select(queries) if queries else (), loaders, strict=True):
            for row in rows:
                load(row)

    def _load_head(self, row: tuple[Any, ...]) -> None:
        identity, seq, digest = row
        self._head = str(identity), int(seq), str(digest)

    def _load_row(self, row: tuple[Any, ...]) -> None:
        self._rows.known[int(row[0])] = LedgerRow(*row)

    def _load_total(self, row: tuple[Any, ...]) -> None:
        self._totals.known[str(row[0])] = row[1], str(row[2])

    def _load_paid(self, row: tuple[Any, ...]) -> None:
        question, owner, seq = row
        paid = self._paid.known
        paid[str(question)] = {**(paid[str(question)] or {}), str(owner): int(seq)}

    def _load_answer(self, row: tuple[Any, ...]) -> None:
        self._answers.known[str(row[0])] = bytes(row[1])

    def _load_mark(self, row: tuple[Any, ...]) -> None:
        self._marks.known[str(row[0])] = int(row[1])

    def execute_all(self, operations: Sequence[Callable[[Transaction], T]]) -> list[T | Exception]:
        """Execute operations one after the other, after reading the entries that they declare.

        Returns
        -------
        list
            Result of each operation, or the Exception that undid it and nothing else.
        """
        read_sets = [getattr(operation, "read_set", None) for operation in operations]
        self.preload([one for one in read_sets if one is not None])
        return [
            self._try(self._run_in_savepoint if read_set is None else self._run_buffered, operation)
            for operation, read_set in zip(operations, read_sets, strict=True)
        ]

    def _try(
        self, run: Callable[[Callable[[Transaction], T]], T], operation: Callable[[Transaction], T]
    ) -> T | Exception:
        try:
            return run(operation)
        except self.failures:
            raise
        except Exception as error:
            # Operations may raise anything: the error goes to its caller, and the rest of the batch stands.
            return error

    def _run_buffered(self, operation: Callable[[Transaction], T]) -> T:
        """Execute an operation that touches nothing but this buffer, and restore the buffer if it raises."""
        head, head_changed = self._head, self._head_changed
        for table in self._tables:
            table.journal = []
        try:
            return operation(self)
        except self.failures:
            raise
        except Exception:
            # Whatever was raised, what the operation wrote is undone and the error goes on.
            self._head, self._head_changed = head, head_changed
            for table in self._tables:
                table.undo()
            raise
        finally:
            for table in self._tables:
                table.journal = None

    def _run_in_savepoint(self, operation: Callable[[Transaction], T]) -> T:
        """Execute an operation that may run statements of its own, inside a savepoint."""
        self.execute("SAVEPOINT piece")
        try:
            result = operation(self)
            self.flush()
        except self.failures:
            raise
        except Exception:
            # Whatever was raised, as above.
            self._clear()
            self.execute("ROLLBACK TO piece")
            self.execute("RELEASE piece")
            raise
        self.execute("RELEASE piece")
        return result

    def flush(self) -> None:
        """Write what is buffered, one statement per table."""
        assert self._rows.journal is None, "what an operation may still undo must not be written"
        statements: list[tuple[str, Sequence[Sequence[Any]]]] = []

        def write(sql: str, values: Sequence[Sequence[Any]]) -> None:
            if values:
                statements.append((sql, values))

        write(
            _PUT_ROW,
            [(row.seq, row.time, row.body, row.previous, row.hash) for row in self._rows.unwritten.values()],
        )
        if self._head_changed:
            assert self._head is not None
            write(_PUT_HEAD, [self._head])
        write(_PUT_TOTAL, [(scope, *total) for scope, total in self._totals.unwritten.items()])
        write(_PUT_PAID, [(*payer, seq) for payer, seq in self._payers.unwritten.items()])
        write(_PUT_ANSWER, list(self._answers.unwritten.items()))
        write(_PUT_MARK, list(self._marks.unwritten.items()))
        if statements:
            self.write_rows(statements)
        self._head_changed = False
        for table in self._tables:
            table.unwritten.clear()
            table.shrink()

    def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Write what is buffered, then run a statement with ``?`` for values and return its rows."""
        self.flush()
        return self.select([(sql, values)])[0]

    # The head and the record.

    def head(self) -> tuple[str, int, str]:
        """Return the identity, and number and hash of the last row."""
        if self._head is None:
            self.preload(())
        if self._head is None:
            raise LedgerTampered(
                "the book of the ledger must have one row, and has none. "
                "Restore the ledger from a backup that checks."
            )
        return self._head

    def append(self, time: str, body: str) -> LedgerRow:
        """Append a row to the record, make it the head, and return it."""
        identity, seq, previous = self.head()
        row = LedgerRow.from_previous(seq, previous, time, body)
        self.insert(row)
        self.put_head(identity, row)
        return row

    def put_head(self, identity: str, row: LedgerRow) -> None:
        """Set the identity and the last row."""
        self._head, self._head_changed = (identity, row.seq, row.hash), True

    def insert(self, row: LedgerRow) -> None:
        """Insert a row into the record."""
        self._rows.put(row.seq, row)

    def record(self, after: int = 0, *, newest_first: bool = False) -> Iterator[LedgerRow]:
        """Yield the rows of the record past one, without holding them in memory."""
        self.flush()
        return (LedgerRow(*row) for row in self.stream(NEWEST_FIRST if newest_first else OLDEST_FIRST, after))

    def row(self, seq: int) -> LedgerRow | None:
        """Return one row of the record; None if there is none of this number."""
        self._ensure_read(self._rows, seq, ReadSet(rows=(seq,)))
        return self._rows.known[seq]

    # Totals, payments, answers and marks.

    def total(self, scope: str) -> tuple[str | None, str] | None:
        """Return caps and spending of a scope as text, or None if it has none yet."""
        self._ensure_read(self._totals, scope, ReadSet(scopes=(scope,)))
        return self._totals.known[scope]

    def totals(self) -> dict[str, tuple[str | None, str]]:
        """Return caps and spending of every scope."""
        rows = self.execute("SELECT scope, caps, spent FROM totals")
        return {str(scope): (caps, str(spent)) for scope, caps, spent in rows}

    def put_total(self, scope: str, caps: str | None, spent: str) -> None:
        """Write caps and spending of a scope."""
        self._totals.put(scope, (caps, spent))

    def paid(self, question: str) -> dict[str, int]:
        """Return the owners that paid for a question, with their rows; the first payer's row is smallest."""
        self._ensure_read(self._paid, question, ReadSet(questions=(question,)))
        return self._paid.known[question] or {}

    def put_paid(self, question: str, owner: str, seq: int) -> None:
        """Record that an owner ("" for none) paid for a question."""
        self._paid.put(question, {**self.paid(question), owner: seq})
        self._payers.put((question, owner), seq)

    def answer(self, key: str) -> bytes | None:
        """Return the stored answer; None if there is none."""
        self._ensure_read(self._answers, key, ReadSet(answers=(key,)))
        return self._answers.known[key]

    def put_answer(self, key: str, answer: bytes) -> None:
        """Store the answer of a key."""
        self._answers.put(key, answer)

    def mark(self, key: str) -> int | None:
        """Return the number of the row that has a key; None if none has."""
        self._ensure_read(self._marks, key, ReadSet(marks=(key,)))
        return self._marks.known[key]

    def marks(self) -> dict[str, int]:
        """Return every key and its row."""
        return {str(key): int(seq) for key, seq in self.execute("SELECT key, seq FROM marks")}

    def put_mark(self, key: str, seq: int) -> None:
        """Record that a row has a key, instead of an earlier row that may have had it."""
        self._marks.put(key, seq)

    def _ensure_read(self, table: _TableBuffer[K, V], key: K, read_set: ReadSet) -> None:
        if key not in table.known:
            table.shrink()
            self.preload([read_set])


def _restore(entries: dict[K, Any], key: K, value: Any) -> None:
    if value is _ABSENT:
        del entries[key]
    else:
        entries[key] = value
