"""Output of commands: stages, tables and sentences for people, one JSON object for programs."""

import errno
import json
import os
import sys
import textwrap
import traceback
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.progress import Progress

    from discreet.report.findings import Stage

_PIPED_WIDTH = 110  # of tables that no terminal wraps
_TEXT_WIDTH = 80  # of stages and sentences


EXIT_SCHEMA = 2
"""Exit code for a schema that is missing, incomplete or wrong, or that a table does not keep."""


class Ended(Exception):
    """The end of a command that has said everything, with its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def stop_printing() -> None:
    """Send further output nowhere: its reader has closed the pipe, and the work goes on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    finally:
        os.close(nowhere)


def write_out(text: str) -> None:
    """Write text as it is to standard output."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        stop_printing()


def describe_unexpected(problem: Exception) -> str:
    """Return a sentence about an error of our own, without its text, which may quote rows."""
    if os.environ.get("DISCREET_DEBUG"):
        traceback.print_exception(problem)
    if isinstance(problem, MemoryError):
        return "There is not enough memory for this. Close other programs, or use a machine with more memory."
    if isinstance(problem, OSError) and problem.errno == errno.ENOSPC:
        return (
            "There is no space left to write to. Make room and run the command again; a charge that was "
            "already made remains."
        )
    last = traceback.extract_tb(problem.__traceback__)[-1]
    return (
        f"Internal error ({type(problem).__name__} in "
        f"{os.path.basename(last.filename)}, "  # noqa: PTH119 - a string
        f"line {last.lineno}). Its text is withheld because it may quote rows; set DISCREET_DEBUG=1 to see "
        "it, and please report it."
    )


class Console:
    """Printer for people, or for programs as JSON.

    Parameters
    ----------
    as_json : bool
        Whether to print nothing but one JSON object at the end.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._rich: RichConsole | None = None
        self._bar: Progress | None = None

    @property
    def rich(self) -> "RichConsole":
        """The console that people read."""
        if self._rich is None:
            from rich.console import Console as RichConsole

            class PipeConsole(RichConsole):
                """Console that outlives the reader of its output."""

                def on_broken_pipe(self) -> None:
                    self.quiet = True
                    stop_printing()

            narrow = {} if sys.stdout.isatty() else {"width": _PIPED_WIDTH}
            self._rich = PipeConsole(highlight=False, emoji=False, **narrow)  # type: ignore[arg-type]
        return self._rich

    def stage(self, stage: "Stage") -> None:
        """Print the line of a stage that is done, with its time."""
        self._stop_bar()
        if self.as_json:
            return
        width = max(20, min(self.rich.width, _TEXT_WIDTH) - 18)
        first, *rest = textwrap.wrap(stage.said, width) or [""]
        self.line(f" {stage.name:8s} {first:<{width}s}{stage.seconds:5.1f} s")
        for more in rest:
            self.line(f" {'':8s} {more}")

    def progress(self, name: str, share: float) -> None:
        """Show the share of a stage that is done, on a terminal only."""
        if self.as_json or not sys.stderr.isatty():
            return
        if self._bar is None:
            from rich.console import Console as RichConsole
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn(" {task.description:9s}"), BarColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=RichConsole(stderr=True), transient=True)
            self._bar.start()
            self._bar.add_task(name, total=1.0)
        self._bar.update(self._bar.task_ids[0], completed=share)

    def _stop_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def line(self, text: str = "") -> None:
        """Print one line as it is."""
        if not self.as_json:
            self.rich.print(text, markup=False, soft_wrap=True)

    def paragraph(self, text: str, *, bullet: str = "") -> None:
        """Print sentences, wrapped."""
        width = min(self.rich.width, _TEXT_WIDTH)
        indent = " " * len(bullet)
        for line in textwrap.wrap(bullet + text, width, subsequent_indent=indent, break_long_words=False):
            self.line(line)

    def table(
        self,
        title: str,
        headings: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        left: int = 1,
        right: int = 1,
    ) -> None:
        """Print a table; the first `left` columns and the last `right` hold text, the others numbers."""
        from rich.table import Table
        from rich.text import Text

        if self.as_json:
            return
        table = Table(title=title or None, title_justify="left", title_style="", box=None, pad_edge=False)
        for place, heading in enumerate(headings):
            is_text = place < left or place >= len(headings) - right
            table.add_column(
                heading, justify="left" if is_text else "right", overflow="fold", header_style=""
            )
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        self.rich.print(table)

    def json(self, value: Any) -> None:
        """Print the JSON object, if output is for programs."""
        self._stop_bar()
        if self.as_json:
            write_out(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n")

    def close(self) -> None:
        """Remove the progress bar from the terminal."""
        self._stop_bar()

    def __enter__(self) -> "Console":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
