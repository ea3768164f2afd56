"""Tables that were charged before, and to which ledgers: one table, one ledger.

A ledger is found by its place, and its place follows from the file's folder and the schema's ``dataset``. So
a table that is moved, copied or renamed would get a new ledger, without a limit and without what was spent.
A table is therefore known again by its path, by the audit log beside it and by a keyed fingerprint of its
rows (:mod:`~discreet.pipeline._identity`), and whoever would charge it to another ledger has to say so.

The list of known tables is a file of the user's own, ``tables.json`` in ``$DISCREET_STATE``, by default
``$XDG_STATE_HOME/discreet`` or ``~/.local/state/discreet`` (mode 0700), with its key beside it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.errors import DiscreetWarning, OtherLedger
from discreet.ledger import Ledger
from discreet.ledger.audit_log import AuditLog
from discreet.ledger.records import draw_key
from discreet.pipeline._identity import fingerprint, is_same
from discreet.pipeline.sources import is_bundled, label_of, ledger_place, log_place, path_of, table_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet.pipeline.sources import LedgerPlace
    from discreet.schema import Schema

STATE = "DISCREET_STATE"
"""Environment variable that names the folder of the list of known tables."""
_TABLES, _KEY = "tables.json", "tables.key"
_LOG = ".audit.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTable:
    """A table, and a ledger that it was charged to.

    Attributes
    ----------
    ledger : str
        Identity of the ledger.
    place : str
        Where that ledger was, without secrets.
    path : str or None
        Absolute path or address of the table; None for rows in memory.
    stamp : list of int or None
        Size and time of change of the file when its fingerprint was taken.
    rows : list of str
        The fingerprint; empty where rows could not be read.
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
        Where it is kept; made at first use, readable by its owner alone.

    Privacy
    -------
    Internal. It names paths and holds keyed digests of rows beside their key: whoever may read the folder may
    read the tables as well, or must not read it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_user(cls) -> Registry:
        """Return the list of whoever runs this process."""
        named = os.environ.get(STATE)
        if named:
            return cls(Path(named).absolute())
        state = os.environ.get("XDG_STATE_HOME")
        return cls((Path(state) if state else Path("~/.local/state").expanduser()) / "discreet")

    def read(self) -> tuple[bytes, list[KnownTable]]:
        """Return the key of all fingerprints and the tables; neither where nothing was noted yet.

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
        """Return the key, making it at first use.

        Raises
        ------
        OSError
            The folder cannot be used.
        """
        with self._locked() as lock:
            key = os.pread(lock, 64, 0)
            if not key:
                key = draw_key()
                os.pwrite(lock, key, 0)
        return key

    def note(self, noted: KnownTable) -> None:
        """Add a table, in the place of what was known about the same path and ledger.

        Raises
        ------
        OSError, ValueError
            The folder cannot be used, or holds something else.
        """
        with self._locked():
            tables = [
                table
                for table in self._read()
                if table != noted
                and (noted.path is None or (table.ledger, table.path) != (noted.ledger, noted.path))
            ]
            self._write([*tables, noted])

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """Hold the list, which nobody else changes meanwhile; give the open file of its key."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.folder / _KEY, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
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
    """What is known about a table that is about to be charged to a ledger.

    Parameters
    ----------
    source : Any
        The table. Its rows are read unless it is known by its path, unchanged, to the ledger.
    schema : Schema
        Schema that declares the columns of the table.
    identity : str or None
        Identity of the ledger; None if it would be made.

    Attributes
    ----------
    others : dict of str to str
        Identity and place of the ledgers that know the table. None where the given one is among them.

    Privacy
    -------
    Whether a table is known depends on its rows, and is for the curator's own console.
    """

    def __init__(self, source: Any, schema: Schema, identity: str | None) -> None:
        self._source, self._schema = source, schema
        self._path = path_of(source)
        self._stamp = _stamp(self._path)
        self._registry = Registry.of_user()
        self._rows: tuple[str, ...] | None = None
        self.others: dict[str, str] = {}
        try:
            key, tables = self._registry.read()
        except (OSError, ValueError) as problem:
            self._warn(problem)
            key, tables = b"", []
        known = [table for table in tables if table.path is not None and table.path == self._path]
        self._by_path = bool(known)
        self._settled = is_bundled(source) or any(
            table.ledger == identity and table.stamp == self._stamp for table in known
        )
        if self._settled:
            return
        if tables:
            self._rows = fingerprint(table_of(source), schema, key)
            known += [table for table in tables if table not in known and is_same(table.rows, self._rows)]
        beside = _beside(self._path)
        self._by_path = self._by_path or bool(beside)
        others = beside | {table.ledger: table.place for table in known}
        if identity not in others:
            self.others = others

    def require(self, *, new_ledger: bool) -> None:
        """Stop where another ledger knows the table, unless a new one is meant.

        Raises
        ------
        OtherLedger
            Names the other ledger, and the ways out.
        """
        if not self.others or new_ledger:
            return
        first = next(iter(self.others.values()))
        gone = "" if "://" in first or Path(first).exists() else ", which is not there any more"
        more = f" and {len(self.others) - 1} more" if len(self.others) > 1 else ""
        raise OtherLedger(
            f"{label_of(self._source)} is known by its {'path' if self._by_path else 'rows'}: it was charged "
            f"to the ledger {first!r}{more}{gone}, and what was charged there would not be counted. Nothing "
            f"was charged. Go on with --ledger {first} (ledger= in Python, ledger: in the configuration of a "
            "service), or open another one knowingly with --new-ledger (new_ledger=True, new_ledger: true): "
            "its record and what is published will say so.",
            ledgers=tuple(self.others.values()),
        )

    def note(self, ledger: Ledger) -> None:
        """Note that the table is charged to a ledger from now on, and in its record which others know it."""
        if self._settled or ledger.url == ":memory:":
            return
        if self.others:
            ledger.note_others(self.others)
        try:
            if self._rows is None:
                self._rows = fingerprint(table_of(self._source), self._schema, self._registry.key())
            self._registry.note(
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
            f"{label_of(self._source)} gets another ledger unnoticed if it is moved or renamed. Mend the "
            f"folder, or name another in {STATE}.",
            DiscreetWarning,
            stacklevel=5,
        )


def charged_ledger(
    source: Any, schema: Schema, ledger: LedgerPlace, *, new_ledger: bool = False, log: bool = False
) -> Ledger | None:
    """Open the ledger that a table is charged to, or stop if the table is known to another one.

    Parameters
    ----------
    source : Any
        Table that is about to be charged: a path, an address or a frame.
    schema : Schema
        Schema that declares the columns of the table.
    ledger : Ledger, path, URL, False or None
        As for :func:`~discreet.pipeline.sources.ledger_place`. A ledger that was opened was chosen knowingly.
    new_ledger : bool
        Whether the table may be charged to a ledger that does not know it although another one does.
    log : bool
        Whether to note the table in the audit log beside the ledger, for a caller who writes nothing else.

    Returns
    -------
    Ledger or None
        None if `ledger` is False.

    Raises
    ------
    OtherLedger
        The table was charged to another ledger before. No ledger was made, nothing was charged.
    """
    if ledger is False:
        return None
    if isinstance(ledger, Ledger):
        if ledger.url != ":memory:":
            Recognition(source, schema, ledger.identity).note(ledger)
        return ledger
    place = ledger_place(source, schema, ledger)
    if place == ":memory:":
        return Ledger.open(place)
    identity = Ledger.identity_at(place)
    found = Recognition(source, schema, identity)
    found.require(new_ledger=new_ledger)
    book = Ledger.open(place)
    found.note(book)
    path = path_of(source)
    if log and identity is None and path is not None:
        AuditLog(log_place(book)).write("table", table=path, dataset=schema.dataset, ledger=book.identity)
    return book


def _stamp(path: str | None) -> list[int] | None:
    """Return size and time of change of a file; None for anything else."""
    if path is None or "://" in path:
        return None
    try:
        found = Path(path.partition("?table=")[0]).stat()
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns]


def _beside(path: str | None) -> dict[str, str]:
    """Return the ledgers, by identity, whose audit logs in the folder of a table name it."""
    if path is None or "://" in path:
        return {}
    table, found = Path(path.partition("?table=")[0]), {}
    for log in sorted(table.parent.glob(f"*{_LOG}")):
        with contextlib.suppress(OSError), log.open("rb") as lines:
            for line in lines:
                with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                    content = json.loads(line)
                    if Path(content["table"]).name == table.name and isinstance(content["ledger"], str):
                        found[content["ledger"]] = str(log.with_name(log.name.removesuffix(_LOG) + ".ledger"))
    return found
