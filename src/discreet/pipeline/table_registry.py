"""Registry of the tables that were charged before, and of their ledgers: one table, one ledger.

The place of a ledger follows from the folder of the table and the schema's ``dataset``. A table that is
moved, copied or renamed would therefore get a new ledger, without its limit and without its charges. So a
table is recognized by its path, by the audit log beside it and by a keyed fingerprint of its rows, and
charging it to another ledger must be requested.

For the fingerprint, a keyed hash of their cells chooses some rows, always the same ones of the same table,
and a keyed digest of each is kept. The hash takes cells as values, without names and order of columns. So a
table is recognized after it was sorted, written in another format or declared under other names, and after a
few of its rows were added, changed or removed.

The list of known tables is a file of the user's own, ``tables.json`` in ``$DISCREET_STATE``, by default
``$XDG_STATE_HOME/discreet`` or ``~/.local/state/discreet`` (mode 0700), with its key beside it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.errors import DiscreetWarning, OtherLedger
from discreet.file_system import lock_file
from discreet.ledger import Ledger
from discreet.ledger.audit_log import AuditLog
from discreet.ledger.records import draw_key
from discreet.pipeline import sources
from discreet.tables.fingerprint import fingerprint_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeAlias

    from discreet.pipeline.sources import LedgerPlace
    from discreet.schema import Schema

    Fingerprint: TypeAlias = Callable[[Any, Schema, bytes], tuple[str, ...]]

_SAME = 0.75  # share of rows that must agree
_FEWEST = 8  # rows that must agree, unless there are fewer
STATE = "DISCREET_STATE"
"""Environment variable that names the folder of the list of known tables."""
_TABLES, _KEY = "tables.json", "tables.key"
_LOG = ".audit.jsonl"


def is_same_table(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether two fingerprints under one key belong to the same table.

    Three of four rows must agree, and at least eight, or all if there are fewer. In two tables of different
    people with few columns, a row occurs equally often in at most about four cases of ten.
    """
    fewer = min(len(one), len(other))
    return fewer > 0 and len({*one} & {*other}) >= max(math.ceil(_SAME * fewer), min(_FEWEST, fewer))


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTable:
    """A table with a ledger that it was charged to.

    Attributes
    ----------
    ledger : str
        Identity of the ledger.
    place : str
        Path or address of that ledger, without secrets.
    path : str or None
        Absolute path or address of the table; None for rows in memory.
    stamp : list of int or None
        Size in bytes and time of change in nanoseconds of the file when its fingerprint was taken.
    rows : list of str
        Fingerprint of the rows; empty if they could not be read.
    """

    ledger: str
    place: str
    path: str | None
    stamp: list[int] | None
    rows: list[str]


class Registry:
    """The list of known tables of one user.

    Parameters
    ----------
    folder : Path
        Folder of the list; made at first use, readable by its owner alone.

    Privacy
    -------
    Internal. It names paths and holds keyed digests of rows beside their key, so only those who may read the
    tables may read the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def from_environment(cls) -> Registry:
        """Return the list of the user who runs this process."""
        named = os.environ.get(STATE)
        if named:
            return cls(Path(named).absolute())
        state = os.environ.get("XDG_STATE_HOME")
        home = os.path.expanduser("~")  # noqa: PTH111 - this one leaves "~" for a number that no user has
        return cls(Path(state or f"{'' if home == '~' else home}/.local/state", "discreet"))

    def read(self) -> tuple[bytes, list[KnownTable]]:
        """Return the key of all fingerprints and the tables; both are empty if nothing was noted yet.

        Raises
        ------
        OSError, ValueError
            The folder cannot be used, or holds something else.
        """
        try:
            return (self.folder / _KEY).read_bytes(), self._read()
        except FileNotFoundError:
            return b"", []

    def key(self) -> bytes:
        """Return the key of all fingerprints, drawn at first use.

        Raises
        ------
        OSError
            The folder cannot be used.
        """
        with self._lock() as lock:
            key = os.pread(lock, 64, 0)
            if not key:
                key = draw_key()
                os.pwrite(lock, key, 0)
        return key

    def add(self, new: KnownTable) -> None:
        """Add a table, in the place of an entry with the same path and ledger.

        Raises
        ------
        OSError, ValueError
            The folder cannot be used, or holds something else.
        """
        with self._lock():
            tables = [
                table
                for table in self._read()
                if table != new and (new.path is None or (table.ledger, table.path) != (new.ledger, new.path))
            ]
            self._write([*tables, new])

    @contextlib.contextmanager
    def _lock(self) -> Iterator[int]:
        """Hold the list exclusively, and yield the open file of its key."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.folder / _KEY, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            lock_file(lock)
            yield lock
        finally:
            os.close(lock)

    def _read(self) -> list[KnownTable]:
        try:
            content = (self.folder / _TABLES).read_bytes()
        except FileNotFoundError:
            return []
        try:
            return [KnownTable(**entry) for entry in json.loads(content)]
        except TypeError as problem:
            raise ValueError("it is no list of known tables") from problem

    def _write(self, tables: list[KnownTable]) -> None:
        draft = self.folder / f".{_TABLES}.{os.getpid()}"
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump([asdict(table) for table in tables], file)
        draft.replace(self.folder / _TABLES)


class Recognition:
    """Ledgers that know a table which is about to be charged.

    Parameters
    ----------
    source : Any
        Table as a job takes it. Its rows are read unless the ledger knows it by its path, unchanged.
    schema : Schema
        Schema that declares the columns of the table.
    identity : str or None
        Identity of the ledger that will be charged; None if it does not exist yet.
    fingerprint : callable, optional
        As for :func:`open_charged_ledger`.

    Attributes
    ----------
    others : dict of str to str
        Place of each ledger that knows the table, by identity; empty if the given one is among them.

    Privacy
    -------
    Whether a table is known depends on its rows, so only the curator may see it.
    """

    def __init__(
        self, source: Any, schema: Schema, identity: str | None, fingerprint: Fingerprint | None = None
    ) -> None:
        """Look the table up by its path, by the audit logs beside it and by its rows."""
        self._source, self._schema = source, schema
        self._fingerprint = fingerprint or fingerprint_table
        self._path = sources.source_path(source)
        self._stamp = _stamp(self._path)
        self._registry = Registry.from_environment()
        self._rows: tuple[str, ...] | None = None
        self.others: dict[str, str] = {}
        try:
            key, tables = self._registry.read()
        except (OSError, ValueError) as problem:
            self._warn(problem)
            key, tables = b"", []
        known = [table for table in tables if table.path is not None and table.path == self._path]
        self._by_path = bool(known)
        self._settled = sources.is_bundled(source) or any(
            table.ledger == identity and table.stamp == self._stamp for table in known
        )
        if self._settled:
            return
        if tables:
            self._rows = self._fingerprint(sources.resolve_source(source), schema, key)
            known += [
                table for table in tables if table not in known and is_same_table(table.rows, self._rows)
            ]
        beside = _ledgers_beside(self._path)
        self._by_path = self._by_path or bool(beside)
        others = beside | {table.ledger: table.place for table in known}
        if identity not in others:
            self.others = others

    def require(self, *, new_ledger: bool) -> None:
        """Refuse a table that another ledger knows, unless a new ledger was requested.

        Raises
        ------
        OtherLedger
            Another ledger knows the table; the message names it and the ways out.
        """
        if not self.others or new_ledger:
            return
        first = next(iter(self.others.values()))
        gone = "" if "://" in first or Path(first).exists() else ", which is not there any more"
        more = f" and {len(self.others) - 1} more" if len(self.others) > 1 else ""
        raise OtherLedger(
            f"{sources.describe_source(self._source)} is known by its {'path' if self._by_path else 'rows'}: "
            f"it was charged to the ledger {first!r}{more}{gone}, and what was charged there would not be "
            f"counted. Nothing was charged. Go on with --ledger {first} (ledger= in Python, ledger: in the "
            "configuration of a service), or open another one knowingly with --new-ledger (new_ledger=True, "
            "new_ledger: true): its record and what is published will say so.",
            ledgers=tuple(self.others.values()),
        )

    def read_rows(self) -> None:
        """Take the fingerprint of the table, unless the ledger knows it.

        Raises
        ------
        SchemaError
            The table lacks a declared column.
        """
        if self._settled or self._rows is not None:
            return
        try:
            key = self._registry.key()
        except (OSError, ValueError) as problem:
            self._warn(problem)
            return
        self._rows = self._fingerprint(sources.resolve_source(self._source), self._schema, key)

    def note(self, ledger: Ledger) -> None:
        """Add the table to the list under a ledger, and note the other ledgers in that ledger's record."""
        if self._settled or ledger.url == ":memory:":
            return
        if self.others:
            ledger.note_others(self.others)
        self.read_rows()
        if self._rows is None:
            return
        try:
            self._registry.add(
                KnownTable(
                    ledger=ledger.identity,
                    place=ledger.shown,
                    path=self._path,
                    stamp=self._stamp,
                    rows=list(self._rows),
                )
            )
        except (OSError, ValueError) as problem:
            self._warn(problem)

    def _warn(self, problem: Exception) -> None:
        why = problem.strerror if isinstance(problem, OSError) else "it holds something else"
        warnings.warn(
            f"The list of known tables in {str(self._registry.folder)!r} cannot be used ({why}), so "
            f"{sources.describe_source(self._source)} gets another ledger unnoticed if it is moved or "
            f"renamed. Mend the folder, or name another in {STATE}.",
            DiscreetWarning,
            stacklevel=5,
        )


def open_charged_ledger(
    source: Any,
    schema: Schema,
    ledger: LedgerPlace,
    *,
    new_ledger: bool = False,
    log: bool = False,
    fingerprint: Fingerprint | None = None,
) -> Ledger | None:
    """Return the opened ledger that a table is charged to; refuse a table that another one knows.

    Parameters
    ----------
    source : Any
        Table that is about to be charged: a path, an address or a frame.
    schema : Schema
        Schema that declares the columns of the table.
    ledger : Ledger, path, URL, False or None
        As for :func:`~discreet.pipeline.sources.find_ledger`. An open ledger is taken as it is.
    new_ledger : bool
        Whether the table may be charged to a ledger that does not know it although another one does.
    log : bool
        Whether to name the table in the audit log of a new ledger, for a job that writes nothing else there.
    fingerprint : callable, optional
        Function that takes the fingerprint of the table from source, schema and key. None:
        :func:`~discreet.tables.fingerprint.fingerprint_table`, which reads every row in this process.

    Returns
    -------
    Ledger or None
        The ledger; None if `ledger` is False.

    Raises
    ------
    OtherLedger
        The table was charged to another ledger before. No ledger was made, nothing was charged.
    """
    if ledger is False:
        return None
    if isinstance(ledger, Ledger):
        if ledger.url != ":memory:":
            Recognition(source, schema, ledger.identity, fingerprint).note(ledger)
        return ledger
    place = sources.find_ledger(source, schema, ledger)
    if place == ":memory:":
        return Ledger.open(place)
    identity = Ledger.identity_at(place)
    recognition = Recognition(source, schema, identity, fingerprint)
    recognition.require(new_ledger=new_ledger)
    if identity is None:
        # A table without a declared column is refused before there is a ledger.
        recognition.read_rows()
    opened = Ledger.open(place)
    recognition.note(opened)
    path = sources.source_path(source)
    if log and identity is None and path is not None:
        AuditLog(sources.log_path(opened)).write(
            "table", table=path, dataset=schema.dataset, ledger=opened.identity
        )
    return opened


def _stamp(path: str | None) -> list[int] | None:
    """Return size in bytes and time of change in nanoseconds of a file; None for anything else."""
    if path is None or "://" in path:
        return None
    try:
        status = Path(path.partition("?table=")[0]).stat()
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns]


def _ledgers_beside(path: str | None) -> dict[str, str]:
    """Return the place of each ledger, by identity, whose audit log in the folder of a table names it."""
    if path is None or "://" in path:
        return {}
    table, ledgers = Path(path.partition("?table=")[0]), {}
    for log in sorted(table.parent.glob(f"*{_LOG}")):
        with contextlib.suppress(OSError), log.open("rb") as lines:
            for line in lines:
                with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                    content = json.loads(line)
                    if Path(content["table"]).name == table.name and isinstance(content["ledger"], str):
                        ledgers[content["ledger"]] = f"{log.parent / log.name.removesuffix(_LOG)}.ledger"
    return ledgers
