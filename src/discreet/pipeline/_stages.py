"""Every declared cell is looked at once, so that a bad one is named before anything is paid.

The stages of a job: each is timed, said when it is done, and written to the log.
"""

from __future__ import annotations

import time
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from discreet.errors import DiscreetError, ParameterError
from discreet.ledger.audit_log import AuditLog
from discreet.report.findings import Stage
from discreet.report.statement.documents import About, Tuning
from discreet.tables import open_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from discreet.ledger import Ledger
    from discreet.ledger.audit_log import AuditLog
    from discreet.pipeline.sources import LedgerPlace
    from discreet.privacy import Receipt
    from discreet.schema import Schema

    Say: TypeAlias = Callable[[Stage], None]
    Progress: TypeAlias = Callable[[str, float], None]

READABLE = "every cell can be read as declared, and counts as its bound where it is outside"
"""What is known then. Numbers outside their bounds are no error: bounds are never widened for a row."""


def look_at_cells(source: Any, schema: Schema, seen: Callable[[int], object] = lambda rows: None) -> int:
    """Read all cells of a table; return the number of rows. ``seen`` hears how many are done."""
    n_rows = 0
    with open_table(source) as table:
        for batch in table.batches(schema, ids=schema.id_column is not None):
            n_rows += batch.n_rows
            seen(n_rows)
    return n_rows


class Stages:
    """Runs stages one after another.

    Parameters
    ----------
    log : AuditLog
        Gets a line for each stage.
    say : callable, optional
        Called with a stage when it is done.
    progress : callable, optional
        Called with the name of a stage and how much of it is done, from 0 to 1.

    Attributes
    ----------
    done : list of Stage
        Those that are over.
    """

    def __init__(self, log: AuditLog, *, say: Say | None = None, progress: Progress | None = None) -> None:
        self.done: list[Stage] = []
        self._log = log
        self._say = say
        self._progress = progress

    @contextmanager
    def stage(self, name: str) -> Iterator[StageReport]:
        """Time what happens inside; whoever is inside tells what it did."""
        start = time.perf_counter()
        told = StageReport(name, self._progress)
        told.progress(0.0)
        yield told
        said = "; ".join(filter(None, (told.words, *told.left_out)))
        stage = Stage(name=name, said=said, seconds=round(time.perf_counter() - start, 3))
        self.done.append(stage)
        self._log.write("stage", name=stage.name, said=stage.said, seconds=stage.seconds)
        if self._say is not None:
            self._say(stage)


class StageReport:
    """What a stage says about itself."""

    def __init__(self, name: str, progress: Progress | None) -> None:
        self.words = ""
        self.left_out: list[str] = []
        self._name = name
        self._progress = progress

    def __call__(self, words: str) -> None:
        """Say in a few words what was done."""
        self.words = words

    @contextmanager
    def optional(self, what: str) -> Iterator[None]:
        """Compute something for the curator's eyes alone inside; where that fails, say so and go on.

        By then the release is paid for, and whether it fails may depend on private rows: an exit code must
        not. A disk that cannot be written to is no such failure.
        """
        try:
            yield
        except OSError:
            raise
        except Exception as problem:
            last = traceback.extract_tb(problem.__traceback__)[-1]
            place = f"{Path(last.filename).name}, line {last.lineno}"
            self.left_out.append(f"without {what}, which failed ({type(problem).__name__} in {place})")

    def progress(self, share: float) -> None:
        """Say how much is done, from 0 to 1."""
        if self._progress is not None:
            self._progress(self._name, min(max(share, 0.0), 1.0))


def about_of(about: About | Mapping[str, str | None] | None) -> About:
    """Return what people say about a publication."""
    if isinstance(about, About):
        return about
    words = about or {}
    known = tuple(About.model_fields)
    for name, text in words.items():
        if name not in known or not (text is None or isinstance(text, str)):
            raise ParameterError(
                f"about must hold words for {', '.join(known)}, and {name!r} is something else. Leave it out."
            )
    return About(**words)


@contextmanager
def closing(book: Ledger | None, given: LedgerPlace) -> Iterator[None]:
    """Close a ledger that was opened here."""
    try:
        yield
    finally:
        if book is not None and book is not given:
            book.close()


@contextmanager
def recorded(log: AuditLog) -> Iterator[None]:
    """Write down why a run ended early."""
    try:
        yield
    except BaseException as problem:
        reason = str(problem) if isinstance(problem, DiscreetError) else ""
        log.write("ended", kind=type(problem).__name__, reason=reason)
        raise


def tuning_of(tuned: bool, logged: bool, receipt: Receipt, book: Ledger | None) -> Tuning:
    """Say whether the amount of noise may have been chosen by looking at private rows."""
    if tuned or logged:
        who = "The curator says" if tuned else "The log of this table says"
        return Tuning(
            on_private_rows="yes",
            why=f"{who} that amounts of noise were compared on private rows. Nothing accounts for that.",
        )
    if book is None or receipt.seq is None:
        return Tuning(
            on_private_rows="possible",
            why="No ledger counts releases of this table. An earlier one may have shown the curator what a "
            "choice of noise does to private rows.",
        )
    if any(past.seq is not None and past.seq < receipt.seq for past in book.history()):
        return Tuning(
            on_private_rows="possible",
            why="There were earlier releases of this table, whose internal reports show the curator what a "
            "choice of noise does to private rows.",
        )
    return Tuning(
        on_private_rows="no",
        why="By the ledger and its log, the amount of noise was chosen before anything was computed from "
        "private rows.",
    )
