"""Stages of a job: each is timed, reported when it is done, and written to the audit log.

Beside them what the stages of a release and of a model share: the look at every cell, the texts about a
publication, and the statement about tuning; and a progress bar for notebooks and scripts (the command line
has its own).
"""

from __future__ import annotations

import sys
import time
import traceback
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from discreet.errors import DiscreetError, ParameterError
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

    OnStage: TypeAlias = Callable[[Stage], None]
    OnProgress: TypeAlias = Callable[[str, float], None]

READABLE = "every cell can be read; what is outside its bounds is clamped"
"""Result of :func:`check_every_cell`. Numbers outside their bounds are no error: no row widens a bound."""


def check_every_cell(
    source: Any, schema: Schema, on_batch: Callable[[int], object] = lambda n_rows: None
) -> int:
    """Read every declared cell once, so that a bad one is named before anything is charged.

    Parameters
    ----------
    source : Any
        Table as :func:`~discreet.tables.open_table` reads it.
    schema : Schema
        Schema that declares the columns of the table.
    on_batch : callable
        Called after each batch with the number of rows read so far.

    Returns
    -------
    int
        Number of rows.
    """
    n_rows = 0
    with open_table(source, schema=schema) as table:
        for batch in table.batches(schema, ids=schema.id_column is not None):
            n_rows += batch.n_rows
            on_batch(n_rows)
    return n_rows


class Stages:
    """Clock and log of the stages of a job, which run one after another.

    Parameters
    ----------
    log : AuditLog
        Audit log that gets a line for each stage.
    on_stage : callable, optional
        Called with each stage when it is done.
    on_progress : callable, optional
        Called with the name of the running stage and the share of it that is done, from 0 to 1.

    Attributes
    ----------
    done : list of Stage
        Stages that are over, in their order.
    """

    def __init__(
        self, log: AuditLog, *, on_stage: OnStage | None = None, on_progress: OnProgress | None = None
    ) -> None:
        self.done: list[Stage] = []
        self._log = log
        self._on_stage = on_stage
        self._on_progress = on_progress

    @contextmanager
    def stage(self, name: str) -> Iterator[StageReport]:
        """Time the block as one stage, and yield the report that it fills in."""
        start = time.perf_counter()
        report = StageReport(name, self._on_progress)
        report.progress(0.0)
        yield report
        text = "; ".join(filter(None, (report.text, *report.failures)))
        stage = Stage(name=name, said=text, seconds=round(time.perf_counter() - start, 3))
        self.done.append(stage)
        self._log.write("stage", name=stage.name, said=stage.said, seconds=stage.seconds)
        if self._on_stage is not None:
            self._on_stage(stage)


class StageReport:
    """Report of one stage: what was done, what failed without ending the job, and how far it is.

    Parameters
    ----------
    name : str
        Name of the stage, such as "read".
    on_progress : callable or None
        Called with the name of the stage and the share that is done; None: no callback.

    Attributes
    ----------
    text : str
        Description of what was done, empty until the report is called.
    failures : list of str
        Description of each optional part that failed.
    """

    def __init__(self, name: str, on_progress: OnProgress | None) -> None:
        self.text = ""
        self.failures: list[str] = []
        self._name = name
        self._on_progress = on_progress

    def __call__(self, text: str) -> None:
        """Set the description of what was done."""
        self.text = text

    @contextmanager
    def optional(self, what: str) -> Iterator[None]:
        """Record a failure of the block, which is for the curator alone, instead of raising it.

        By then the release is paid for, and whether the block fails may depend on private rows: an exit code
        must not. A disk that cannot be written to is no such failure.
        """
        try:
            yield
        except OSError:
            raise
        except Exception as problem:
            # Any other error at all, and by its place alone: its text may quote rows.
            last = traceback.extract_tb(problem.__traceback__)[-1]
            place = f"{Path(last.filename).name}, line {last.lineno}"
            self.failures.append(f"without {what}, which failed ({type(problem).__name__} in {place})")

    def progress(self, share: float) -> None:
        """Report the share of the stage that is done, from 0 to 1."""
        if self._on_progress is not None:
            self._on_progress(self._name, min(max(share, 0.0), 1.0))


def parse_about(about: About | Mapping[str, str | None] | None) -> About:
    """Return the texts about a publication that its curator gave, checked."""
    if isinstance(about, About):
        return about
    texts = about or {}
    known = tuple(About.model_fields)
    for name, text in texts.items():
        if name not in known or not (text is None or isinstance(text, str)):
            raise ParameterError(
                f"about must hold words for {', '.join(known)}, and {name!r} is something else. Leave it out."
            )
    return About(**texts)


@contextmanager
def close_ledger(ledger: Ledger | None, given: LedgerPlace) -> Iterator[None]:
    """Close the ledger at the end of the block, unless it is the one that the caller gave."""
    try:
        yield
    finally:
        if ledger is not None and ledger is not given:
            ledger.close()


@contextmanager
def log_failure(log: AuditLog) -> Iterator[None]:
    """Write the reason to the audit log if the block ends early."""
    try:
        yield
    except BaseException as problem:
        # Also when interrupted: the log says how every job ended. The text of other errors may quote rows.
        reason = str(problem) if isinstance(problem, DiscreetError) else ""
        log.write("ended", kind=type(problem).__name__, reason=reason)
        raise


def describe_tuning(tuned: bool, logged: bool, receipt: Receipt, ledger: Ledger | None) -> Tuning:
    """Return what the statement says about choosing the amount of noise by looking at private rows.

    Parameters
    ----------
    tuned : bool
        Whether the curator says that it was chosen so.
    logged : bool
        Whether the audit log names a comparison on private rows.
    receipt : Receipt
        Receipt of the charge, which orders it among the others.
    ledger : Ledger or None
        Ledger that was charged; None: nothing was counted.
    """
    if tuned or logged:
        source = "The curator says" if tuned else "The log of this table says"
        return Tuning(
            on_private_rows="yes",
            why=f"{source} that amounts of noise were compared on private rows. Nothing accounts for that.",
        )
    if ledger is None or receipt.seq is None:
        return Tuning(
            on_private_rows="possible",
            why="No ledger counts releases of this table. An earlier one may have shown the curator what a "
            "choice of noise does to private rows.",
        )
    if any(past.seq is not None and past.seq < receipt.seq for past in ledger.history()):
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


class ProgressBar:
    """Bar that shows how far a job is: below the cell of a notebook, otherwise as a line on standard error.

    Give it to a job as ``run=RunOptions(on_progress=ProgressBar())``.

    Examples
    --------
    >>> bar = ProgressBar()
    >>> bar("read", 0.5)

    Privacy
    -------
    For the curator alone: how long a stage takes may depend on private rows.
    """

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown = ""

    def __call__(self, name: str, share: float) -> None:
        """Show the share of a stage that is done, from 0 to 1, in steps of one percent."""
        text = f"{name} {share:.0%}"
        if text == self._shown:
            return
        self._shown = text
        if (shell := _notebook()) is None:
            if sys.stderr.isatty():
                sys.stderr.write(f"\r\033[K{text}")
                sys.stderr.flush()
            return
        bar = {"text/plain": text, "text/html": f'<progress value="{share:.2f}"></progress> {escape(text)}'}
        if self._handle is None:
            self._handle = shell.display(bar, raw=True, display_id=True)
        else:
            self._handle.update(bar, raw=True)


def _notebook() -> Any:
    """Return IPython's display module where a kernel runs, and None elsewhere."""
    if "IPython" not in sys.modules:
        return None
    from IPython import display, get_ipython

    return display if getattr(get_ipython(), "kernel", None) is not None else None
