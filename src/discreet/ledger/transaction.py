"""One transaction's view of a ledger's tables: what it has read, and what it has yet to write.

Threads that share a transaction each read a few rows and write a few. Sent one by one, those statements cost
more than the disk does. So whoever has work to do says first what it will need, which is read for all of
them together, and what is written waits here and goes to the database at the end, table by table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from discreet.errors import LedgerTampered
from discreet.ledger.records import Row

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
_PUT_MARK = "INSERT INTO marks (key, seq) VALUES (?, ?)"

_MOST_KNOWN = 4096  # entries of a table that are remembered: whoever checks a ledger looks at all of them
_ABSENT: Any = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a piece of work will look at, so that it can be read together with what others need."""

    rows: tuple[int, ...] = ()
    scopes: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()


class _Kept(Generic[K, V]):
    """Entries of one table as a transaction sees them; None where there is none."""

    __slots__ = ("journal", "known", "unwritten")

    def __init__(self) -> None:
        self.known: dict[K, V | None] = {}
        self.unwritten: dict[K, V] = {}
        # What to put back if a piece of work fails, newest last; nobody looks while there is no such piece.
        self.journal: list[tuple[K, Any, Any]] | None = None

    def put(self, key: K, value: V) -> None:
        if self.journal is not None:
            self.journal.append((key, self.known.get(key, _ABSENT), self.unwritten.get(key, _ABSENT)))
        self.known[key] = self.unwritten[key] = value

    def undo(self) -> None:
        for key, known, unwritten in reversed(self.journal or ()):
            _put_back(self.known, key, known)
            _put_back(self.unwritten, key, unwritten)

    def shrink(self) -> None:
        """Forget what was read, if that is much and nothing of it waits to be written."""
        if len(self.known) > _MOST_KNOWN and not self.unwritten:
            self.known.clear()

    def missing(self, keys: Iterable[K]) -> list[K]:
        """Return those that nobody has read yet; from here on they count as read, with no entry."""
        new = [key for key in dict.fromkeys(keys) if key not in self.known]
        self.known.update(dict.fromkeys(new))
        return new


class Session(ABC):
    """One transaction's view of the tables.

    Privacy
    -------
    Nothing that was written is told to anybody before it is durable: the transaction flushes, commits, and
    only then lets go of whoever waits for it.

    Reference
    ---------
    ``docs/explanation/theorems/composition.md``.
    """

    failures: tuple[type[Exception], ...]
    """What statements raise where the database is at fault: the transaction is then lost."""

    marks_table: ClassVar[str]
    """Makes the table of marks, which ledgers of earlier versions do not have, where it is missing."""

    def __init__(self) -> None:
        self._forget()

    def renew(self) -> None:
        """Write what waits, and read everything anew: for whoever wants to see what the database has."""
        self.flush()
        self._forget()

    def _forget(self) -> None:
        # The head is read once: nobody else moves it in what this transaction sees.
        self._head: tuple[str, int, str] | None = None
        self._moved = False
        self._rows: _Kept[int, Row] = _Kept()
        self._totals: _Kept[str, tuple[str | None, str]] = _Kept()
        self._paid: _Kept[str, dict[str, int]] = _Kept()
        self._payers: _Kept[tuple[str, str], int] = _Kept()
        self._answers: _Kept[str, bytes] = _Kept()
        self._marks: _Kept[str, int] = _Kept()

    @property
    def _tables(self) -> tuple[_Kept[Any, Any], ...]:
        return self._rows, self._totals, self._paid, self._payers, self._answers, self._marks

    # What a database does.

    @abstractmethod
    def selected(self, queries: Sequence[tuple[str, Sequence[Any]]]) -> list[list[tuple[Any, ...]]]:
        """Run statements with ``?`` for values, in their order, and return the rows of each."""

    @abstractmethod
    def written(self, statements: Sequence[tuple[str, Sequence[Sequence[Any]]]]) -> None:
        """Run statements, each for every one of its lists of values, in their order."""

    @abstractmethod
    def among(self, values: Sequence[Any]) -> tuple[str, Sequence[Any]]:
        """Return the end of a condition that a column has one of some values, and the values for it."""

    @abstractmethod
    def streamed(self, sql: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Run a statement and hand out its rows without holding them in memory."""

    @abstractmethod
    def tables(self) -> set[str]:
        """Return the names of the tables that there are."""

    # Pieces of work.

    def expect(self, needs: Sequence[Needs]) -> None:
        """Read what several pieces of work will look at."""
        queries: list[tuple[str, Sequence[Any]]] = []
        places: list[Callable[[tuple[Any, ...]], None]] = []

        def read(sql: str, missing: Sequence[Any], place: Callable[[tuple[Any, ...]], None]) -> None:
            if missing:
                condition, values = self.among(missing)
                queries.append((f"{sql} {condition}", values))
                places.append(place)

        if self._head is None:
            queries.append(("SELECT identity, seq, hash FROM book", ()))
            places.append(self._see_head)
        read(_ROWS, self._rows.missing(n for one in needs for n in one.rows), self._see_row)
        read(_TOTALS, self._totals.missing(n for one in needs for n in one.scopes), self._see_total)
        read(_PAID, self._paid.missing(n for one in needs for n in one.questions), self._see_paid)
        read(_ANSWERS, self._answers.missing(n for one in needs for n in one.answers), self._see_answer)
        read(_MARKS, self._marks.missing(n for one in needs for n in one.marks), self._see_mark)
        for found, see in zip(self.selected(queries) if queries else (), places, strict=True):
            for row in found:
                see(row)

    def _see_head(self, row: tuple[Any, ...]) -> None:
        identity, seq, digest = row
        self._head = str(identity), int(seq), str(digest)

    def _see_row(self, row: tuple[Any, ...]) -> None:
        self._rows.known[int(row[0])] = Row(*row)

    def _see_total(self, row: tuple[Any, ...]) -> None:
        self._totals.known[str(row[0])] = row[1], str(row[2])

    def _see_paid(self, row: tuple[Any, ...]) -> None:
        question, owner, seq = row
        paid = self._paid.known
        paid[str(question)] = {**(paid[str(question)] or {}), str(owner): int(seq)}

    def _see_answer(self, row: tuple[Any, ...]) -> None:
        self._answers.known[str(row[0])] = bytes(row[1])

    def _see_mark(self, row: tuple[Any, ...]) -> None:
        self._marks.known[str(row[0])] = int(row[1])

    def attempt(self, work: Callable[[Session], T]) -> T:
        """Do a piece of work that, if it raises, undoes what it did and nothing else."""
        return self._apart(work) if getattr(work, "needs", None) is None else self._drafted(work)

    def _drafted(self, work: Callable[[Session], T]) -> T:
        """Do work that touches nothing but what waits here."""
        head, moved = self._head, self._moved
        for table in self._tables:
            table.journal = []
        try:
            return work(self)
        except self.failures:
            raise
        except Exception:
            self._head, self._moved = head, moved
            for table in self._tables:
                table.undo()
            raise
        finally:
            for table in self._tables:
                table.journal = None

    def _apart(self, work: Callable[[Session], T]) -> T:
        """Do work that may run statements of its own."""
        self.execute("SAVEPOINT piece")
        try:
            result = work(self)
            self.flush()
        except self.failures:
            raise
        except Exception:
            self._forget()
            self.execute("ROLLBACK TO piece")
            self.execute("RELEASE piece")
            raise
        self.execute("RELEASE piece")
        return result

    def flush(self) -> None:
        """Write what waits."""
        assert self._rows.journal is None, "what a piece of work may still undo must not be written"
        statements: list[tuple[str, Sequence[Sequence[Any]]]] = []

        def write(sql: str, values: Sequence[Sequence[Any]]) -> None:
            if values:
                statements.append((sql, values))

        write(
            _PUT_ROW,
            [(row.seq, row.time, row.body, row.previous, row.hash) for row in self._rows.unwritten.values()],
        )
        if self._moved:
            assert self._head is not None
            write(_PUT_HEAD, [self._head])
        write(_PUT_TOTAL, [(scope, *total) for scope, total in self._totals.unwritten.items()])
        write(_PUT_PAID, [(*payer, seq) for payer, seq in self._payers.unwritten.items()])
        write(_PUT_ANSWER, list(self._answers.unwritten.items()))
        write(_PUT_MARK, list(self._marks.unwritten.items()))
        if statements:
            self.written(statements)
        self._moved = False
        for table in self._tables:
            table.unwritten.clear()
            table.shrink()

    def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement with ``?`` for values, after all that waits was written, and return its rows."""
        self.flush()
        return self.selected([(sql, values)])[0]

    # The book and its record.

    def head(self) -> tuple[str, int, str]:
        """Return identity, last row's number and its hash."""
        if self._head is None:
            self.expect(())
        if self._head is None:
            raise LedgerTampered(
                "the book of the ledger must have one row, and has none. "
                "Restore the ledger from a backup that checks."
            )
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
        self._head, self._moved = (identity, row.seq, row.hash), True

    def insert(self, row: Row) -> None:
        """Write a row of the record."""
        self._rows.put(row.seq, row)

    def record(self, after: int = 0, *, newest_first: bool = False) -> Iterator[Row]:
        """Go through the record in order without holding it in memory."""
        self.flush()
        return (Row(*row) for row in self.streamed(NEWEST_FIRST if newest_first else OLDEST_FIRST, after))

    def row(self, seq: int) -> Row | None:
        """Return one row of the record."""
        self._need(self._rows, seq, Needs(rows=(seq,)))
        return self._rows.known[seq]

    # What was spent, by whom, for what, and what came of it.

    def total(self, scope: str) -> tuple[str | None, str] | None:
        """Return caps and spending of a scope as text, or None if it has none yet."""
        self._need(self._totals, scope, Needs(scopes=(scope,)))
        return self._totals.known[scope]

    def totals(self) -> dict[str, tuple[str | None, str]]:
        """Return caps and spending of every scope."""
        found = self.execute("SELECT scope, caps, spent FROM totals")
        return {str(scope): (caps, str(spent)) for scope, caps, spent in found}

    def put_total(self, scope: str, caps: str | None, spent: str) -> None:
        """Write caps and spending of a scope."""
        self._totals.put(scope, (caps, spent))

    def paid(self, question: str) -> dict[str, int]:
        """Return who paid for a question, and in which row; the first payer's row is smallest."""
        self._need(self._paid, question, Needs(questions=(question,)))
        return self._paid.known[question] or {}

    def put_paid(self, question: str, owner: str, seq: int) -> None:
        """Note that an owner (or nobody, "") paid for a question."""
        self._paid.put(question, {**self.paid(question), owner: seq})
        self._payers.put((question, owner), seq)

    def answer(self, key: str) -> bytes | None:
        """Return the stored answer."""
        self._need(self._answers, key, Needs(answers=(key,)))
        return self._answers.known[key]

    def put_answer(self, key: str, answer: bytes) -> None:
        """Store an answer."""
        self._answers.put(key, answer)

    def mark(self, key: str) -> int | None:
        """Return the row of the record that has a key."""
        self._need(self._marks, key, Needs(marks=(key,)))
        return self._marks.known[key]

    def marks(self) -> dict[str, int]:
        """Return every key and its row; none in a ledger that never needed the table."""
        if "marks" not in self.tables():
            return {}
        return {str(key): int(seq) for key, seq in self.execute("SELECT key, seq FROM marks")}

    def put_mark(self, key: str, seq: int) -> None:
        """Note which row has a key."""
        self._marks.put(key, seq)

    def _need(self, table: _Kept[K, V], key: K, needs: Needs) -> None:
        if key not in table.known:
            table.shrink()
            self.expect([needs])


def _put_back(entries: dict[K, Any], key: K, value: Any) -> None:
    if value is _ABSENT:
        del entries[key]
    else:
        entries[key] = value
