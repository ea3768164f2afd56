"""Audit log of a service: answers, refusals, tokens and the stop switch, one hash-chained line per event.

The ledger holds the charges; the audit log names the ledger rows that paid for each answer. It is a separate
file, so that a ledger set back to an earlier state is detected; and the ledger holds the hash of a late line
of the log, so that a log that was cut, replaced or deleted is detected.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from discreet.errors import (
    DiscreetError,
    LedgerError,
    LedgerTampered,
    LedgerUnavailable,
    ParameterError,
    SourceError,
)
from discreet.ledger.audit_log import ROTATED, AuditLog, rotated_files
from discreet.ledger.log_verification import (
    check_log,
    log_identity,
    missing_lines,
    read_last_lines,
    verify_log,
)
from discreet.ledger.postgres import is_postgres
from discreet.ledger.postgres_log import PostgresLog
from discreet.privacy.receipt import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from discreet.ledger import Ledger
    from discreet.ledger.audit_log import LogSnapshot
    from discreet.ledger.postgres_log import PostgresSnapshot
    from discreet.ledger.records import LogAnchor
    from discreet.privacy import Receipt

_MAX_TAIL = 1 << 22  # bytes read from the end to show the last refusals
_MAX_BYTES = 1 << 24  # of a file before it is rotated: some 50,000 lines
_MAX_QUESTION = 500  # characters stored of a query, so that free repeats do not fill the disk


class LoggedPosition(NamedTuple):
    """A row of a ledger, as a line of the audit log names it: identity of the ledger, row, hash."""

    ledger: str
    row: int
    hash: str


@dataclass(frozen=True, slots=True)
class AnswerEvent:
    """An answer that is about to be sent.

    Attributes
    ----------
    dataset : str
        Name of the data set that the answer is about.
    caller : str
        Name of the caller who gets the answer.
    question : object
        Query of the caller, as JSON or as text.
    receipts : sequence of Receipt
        Receipts of the charges that paid for the answer.
    cached : bool
        Whether it was paid for by an earlier request.
    """

    dataset: str
    caller: str
    question: Any
    receipts: Sequence[Receipt]
    cached: bool

    @property
    def facts(self) -> dict[str, Any]:
        """Fields of its line in the audit log."""
        rows = [[one.ledger, one.seq, one.hash] for one in self.receipts if one.recorded]
        return {
            "dataset": self.dataset,
            "who": self.caller,
            **_question_fields(self.question),
            "rows": rows,
            "cached": self.cached,
        }


class _NamedRows:
    """The last row of each ledger that lines of a log name, and the ledger of each data set."""

    def __init__(self) -> None:
        self.rows: dict[str, LoggedPosition] = {}
        self._ledgers: dict[str, str] = {}

    def read(self, line: Mapping[str, Any]) -> None:
        """Read one line of the log."""
        if line["event"] in ("start", ROTATED):
            self._ledgers.update(line["ledgers"])
        for row in line.get("rows", ()):
            position = LoggedPosition(*row)
            known = self.rows.get(position.ledger)
            if known is None or position.row > known.row:
                self.rows[position.ledger] = position

    def last(self, dataset: str) -> LoggedPosition | None:
        """Return the last row that was named of the ledger with which a data set was last started."""
        return self.rows.get(self._ledgers.get(dataset, ""))

    def to_dict(self) -> dict[str, Any]:
        """Return what was read, as the first line of the next file carries it on."""
        return {"ledgers": self._ledgers, "rows": [list(row) for row in self.rows.values()]}


class LogSummary(NamedTuple):
    """Number of lines of a log, and how many of them are in rotated files that were moved elsewhere."""

    lines: int
    elsewhere: int


class ServiceLog:
    """Audit log of one service, shared by its processes.

    Parameters
    ----------
    address : path or str
        File of the log, to which lines are appended under a lock that all processes share; or
        ``postgresql://host/database#name``, so that services on several machines share it.
    max_bytes : int
        Size from which on the file is rotated.

    Privacy
    -------
    For the curator alone: it names callers and their queries. It holds no token, no row and no answer. The
    ledger row that paid for an answer is written before the answer is sent, by whatever route; since each
    row of the ledger contains the hash of the one before, the last named row stands for all earlier ones.
    Lines are handed to the operating system without waiting for the disk: a power failure may lose the last
    of them, and the next answer then names a later row. :meth:`anchor` waits for the disk, and then records
    the last line in the ledger: a log that ends before it was cut, and one without it is another.
    """

    def __init__(self, address: Path | str, *, max_bytes: int = _MAX_BYTES) -> None:
        """Open the log, with nothing known to be wrong with it."""
        self.path: Path | PostgresLog
        self._log: AuditLog | PostgresLog
        if isinstance(address, str) and is_postgres(address):
            self.path = self._log = PostgresLog(address)
        else:
            self.path = Path(address)
            self._log = AuditLog(self.path)
        self._max_bytes = max_bytes
        self._last_rows: dict[str, int] = {}  # last row of each ledger that this process knows to be named
        self._problem: DiscreetError | None = None  # what the last write or verification found wrong
        self._differing: frozenset[str] = frozenset()  # data sets of the last comparison that failed

    def write(self, event: str, **facts: Any) -> None:
        """Append one event.

        Raises
        ------
        LedgerUnavailable
            The log cannot be written; the answer that the event is about must not be sent.
        """
        self._write([(event, facts)])

    def write_all(self, event: str, facts: Iterable[dict[str, Any]]) -> None:
        """Append several events of one kind, all or none, as :meth:`write` appends one."""
        self._write([(event, one) for one in facts])

    def write_start(self, dataset: str, ledger: Ledger, **facts: Any) -> None:
        """Append that a data set is served, with the last row of its ledger, and anchor the log there.

        Parameters
        ----------
        dataset, ledger
            As for :meth:`compare`.
        **facts
            Further public facts about the data set, as JSON values.
        """
        row, digest = ledger.head
        rows = [[ledger.identity, row, digest]]
        self.write("start", dataset=dataset, ledgers={dataset: ledger.identity}, rows=rows, **facts)
        self._note_row(ledger.identity, row)
        self.anchor({dataset: ledger})

    def _write(self, events: Sequence[tuple[str, dict[str, Any]]]) -> None:
        try:
            self._log.write_all(events)
        except (OSError, SourceError, LedgerUnavailable) as problem:
            self._problem = self._cannot_write(problem)
            raise copy(self._problem) from problem
        if self._log.size > self._max_bytes:
            with contextlib.suppress(OSError):  # a disk without room for a new file may still take lines
                self.rotate()

    def _cannot_write(self, problem: Exception) -> LedgerUnavailable:
        if isinstance(problem, LedgerUnavailable):
            return copy(problem)  # an exception belongs to one thread
        reason = problem if isinstance(problem, SourceError) else "Make room, or repair it."
        return LedgerUnavailable(
            f"audit_log {str(self.path)!r} must be a file that can be written, and is not. {reason}"
        )

    def write_answers(self, answers: Sequence[AnswerEvent]) -> list[None]:
        """Append answers with the ledger rows that paid for them; return one None per answer."""
        self._write([("answer", answer.facts) for answer in answers])
        for answer in answers:
            for receipt in answer.receipts:
                self._note_row(receipt.ledger, receipt.seq)
        return [None] * len(answers)

    def _note_row(self, ledger: str | None, row: int | None) -> None:
        if ledger is not None and row is not None:
            self._last_rows[ledger] = max(self._last_rows.get(ledger, 0), row)

    def cover_receipts(self, dataset: str, caller: str, receipts: Iterable[Receipt]) -> None:
        """Append the receipts of stored answers that are about to be sent, unless a later row is named.

        Parameters
        ----------
        dataset, caller : str
            Name of the data set, and of the caller who gets the answers.
        receipts : iterable of Receipt
            Receipts of the charges that paid for them.

        Raises
        ------
        LedgerUnavailable
            The log cannot be written; the answers must not be sent.
        """
        missing = [
            receipt
            for receipt in receipts
            if (receipt.seq or 0) > self._last_rows.get(receipt.ledger or "", 0)
        ]
        if missing:
            self.write_answers([AnswerEvent(dataset, caller, "history", missing, cached=True)])

    def check_writable(self) -> None:
        """Check that the log can be written, and that the last line written or verified was in order.

        Raises
        ------
        DiscreetError
            The log cannot be written or was changed, so no answer could be sent.
        """
        if isinstance(self._problem, LedgerUnavailable):
            # It may have been repaired since: the line says so.
            self._problem = None
            self.write("resume log")
        if self._problem is not None:
            raise copy(self._problem)  # an exception belongs to one thread
        try:
            self._log.check_writable()
        except OSError as problem:
            raise self._cannot_write(problem) from problem

    def require(self) -> None:
        """Refuse a question before its charge while the log is known not to be in order.

        Raises
        ------
        DiscreetError
            An answer could not be sent, so nothing may be charged: the last line could not be written and
            still cannot, or the log was found to be changed and was not put back.
        """
        if self._problem is not None:
            self.check_writable()

    @property
    def problem(self) -> DiscreetError | None:
        """What the last write or verification found wrong with the log; None if it was in order."""
        return self._problem

    def check(self) -> LogSummary:
        """Verify the hash chain of all files that are there, and return how many lines the log has.

        Raises
        ------
        LedgerTampered
            The message names the first line that does not follow from the one before.
        """
        try:
            return LogSummary(check_log(self.path), missing_lines(self.path))
        except SourceError as problem:
            self._problem = LedgerTampered(str(problem))
            raise copy(self._problem) from None

    def confirm(self, dataset: str, ledger: Ledger) -> None:
        """Repair an incomplete last line of the log, then check as :meth:`compare` does.

        Parameters
        ----------
        dataset, ledger
            As for :meth:`compare`.

        Raises
        ------
        LedgerTampered
            The ledger was set back to an earlier state, or is another one; or the log was cut or replaced.
        """
        try:
            self._log.repair()
        except OSError as problem:
            raise self._cannot_write(problem) from problem
        self.compare(dataset, ledger)

    def compare(self, dataset: str, ledger: Ledger, *, anchored: bool = True) -> LogAnchor | None:
        """Check log and ledger against each other from the ledger's last anchor on, and change nothing.

        Parameters
        ----------
        dataset : str
            Name of the data set that the ledger is charged for.
        ledger : Ledger
            Ledger of which the log must name no row that it lacks, and which may hold anchors of the log.
        anchored : bool
            Whether the log must have the ledger's anchor; False checks only the rows that the log names.

        Returns
        -------
        LogAnchor or None
            The last line of the log, verified; None if it has none.

        Raises
        ------
        LedgerTampered
            The ledger was set back to an earlier state, or is another one; or the log was cut or replaced.
        """
        return self._compare({dataset: (ledger, self._find_anchor(ledger) if anchored else None)})

    def _compare(self, ledgers: Mapping[str, tuple[Ledger, LogAnchor | None]]) -> LogAnchor | None:
        """Compare as :meth:`compare` does, for several data sets and from the first of their anchors on."""
        named = _NamedRows()
        anchors = [anchor for _, anchor in ledgers.values() if anchor is not None]
        # A ledger that has no anchor yet may be named by any line of the file.
        passes = [anchors, []] if 0 < len(anchors) < len(ledgers) else [anchors]
        try:
            lasts = [verify_log(self.path, some, on_line=named.read) for some in passes]
        except SourceError as problem:
            raise LedgerTampered(str(problem)) from None
        for dataset, (ledger, _) in ledgers.items():
            position = named.last(dataset) or named.rows.get(ledger.identity)
            if position is not None:
                self._check_row(ledger, position)
                self._note_row(position.ledger, position.row)
        return lasts[0]

    def _find_anchor(self, ledger: Ledger) -> LogAnchor | None:
        """Return the line that the log must have for a ledger; None if the ledger has anchors of no log."""
        anchors = ledger.log_anchors()
        identity = log_identity(self.path)
        if identity in anchors:
            return anchors[identity]
        # The ledger belongs to other logs: the newest of them is missed.
        return list(anchors.values())[-1] if anchors else None

    def anchor(self, ledgers: Mapping[str, Ledger]) -> None:
        """Verify the log since the last anchor in each ledger, and record its last line there.

        The lines are read once for all ledgers. Those that cannot be reached do not keep the others waiting.

        Parameters
        ----------
        ledgers : mapping of str to Ledger
            Ledgers by the names of their data sets.

        Raises
        ------
        LedgerTampered
            As for :meth:`compare`.
        LedgerUnavailable
            The log, or one of the ledgers, cannot be read or written now.
        """
        unavailable: list[LedgerUnavailable] = []
        reached: dict[str, tuple[Ledger, LogAnchor | None]] = {}
        for dataset, ledger in ledgers.items():
            try:
                reached[dataset] = ledger, self._find_anchor(ledger)
            except LedgerUnavailable as problem:
                unavailable.append(problem)
        try:
            last = self._compare(reached) if reached else None
        except LedgerTampered as problem:
            self._problem, self._differing = copy(problem), frozenset(reached)
            raise
        if isinstance(self._problem, LedgerTampered) and self._differing <= reached.keys():
            self.check()  # also the lines before the anchor, which were perhaps what was found changed
            self._problem = None  # the log was put back
        if last is not None:
            try:
                self._log.sync()
            except OSError as problem:
                raise self._cannot_write(problem) from problem
            for ledger, _ in reached.values():
                try:
                    ledger.anchor_log(last)
                except LedgerUnavailable as problem:
                    unavailable.append(problem)
        if unavailable:
            raise unavailable[0]

    def begin(self, ledgers: Sequence[Ledger], who: str) -> None:
        """Begin a new log for ledgers that have anchors of another one, and anchor it there.

        Parameters
        ----------
        ledgers : sequence of Ledger
            Ledgers in which the new log is anchored beside the others.
        who : str
            Name of the operator, for the first line.
        """
        names = self.find_files()
        if names:
            raise ParameterError(
                f"audit_log {str(self.path)!r} must not exist yet to begin a new log, and "
                f"{', '.join(names)} is there. Keep the old log in another place."
            )
        others = dict.fromkeys(log for ledger in ledgers for log in ledger.log_anchors())
        self.write("begin", who=who, others=list(others))
        last = verify_log(self.path)
        assert last is not None
        for ledger in ledgers:
            ledger.anchor_log(last)

    def snapshot(self) -> AbstractContextManager[LogSnapshot | PostgresSnapshot]:
        """Return a context with the present files of the log; no line is added until its first release."""
        return self._log.snapshot()

    def find_files(self) -> list[str]:
        """Return the names of the files of the log that are there, or the address of one in a database."""
        if isinstance(self.path, Path):
            return [path.name for path in (self.path, *rotated_files(self.path)) if path.exists()]
        return [self.path.name] if self.path.exists() else []

    def close(self) -> None:
        """Close the connection to a log in a database."""
        if isinstance(self._log, PostgresLog):
            self._log.close()

    def rotate(self) -> Path | str | None:
        """Begin a new file of the log; return where the old one is now, or None if it had no line."""

        def summarize(lines: Iterable[bytes]) -> dict[str, Any]:
            named = _NamedRows()
            contents = map(json.loads, lines)
            first = next(contents)
            named.read(first)
            for content in contents:
                named.read(content)
            return {"log": first["log"] if first["event"] == ROTATED else first["hash"], **named.to_dict()}

        return self._log.rotate(summarize)

    def _check_row(self, ledger: Ledger, position: LoggedPosition) -> None:
        """Refuse a ledger that lacks a row that the log names."""
        try:
            if position.ledger != ledger.identity:
                raise LedgerTampered("another ledger")
            ledger.confirm(position.row, position.hash)
        except LedgerUnavailable:
            raise
        except LedgerError:
            raise LedgerTampered(
                f"ledger must hold row {position.row}, which the audit log {str(self.path)!r} names, and "
                "does not: it went back to an earlier state, or is another one, and answers would be paid "
                "twice. Restore the newest backup of the ledger; if there is none, move the log away only "
                "after lowering the limit by what was lost."
            ) from None

    def last_position(self, dataset: str) -> LoggedPosition | None:
        """Return the last ledger row that the log names for a data set, after verifying its file."""
        named = _NamedRows()
        verify_log(self.path, on_line=named.read)
        return named.last(dataset)

    def last(self, event: str, dataset: str, most: int) -> list[dict[str, Any]]:
        """Return the last events of one kind about a data set, newest first."""
        lines = map(json.loads, read_last_lines(self.path, _MAX_TAIL))
        found = (line for line in lines if (line["event"], line.get("dataset")) == (event, dataset))
        return list(itertools.islice(found, most))


def _question_fields(question: Any) -> dict[str, Any]:
    """Return the query for the log; of a long one its beginning and its SHA-256."""
    text = question if isinstance(question, str) else canonical(question)
    if len(text) <= _MAX_QUESTION:
        return {"asked": question}
    return {"asked": text[:_MAX_QUESTION], "asked_sha256": hashlib.sha256(text.encode()).hexdigest()}
