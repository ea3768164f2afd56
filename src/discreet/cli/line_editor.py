"""Lines that are typed at the prompt: editing and completion by readline, and a history across sessions."""

import contextlib
import os
import sys
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from discreet.query.language.completion import complete

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.schema import Schema

_DELIMITERS = " \t\n(),=<>+*/"  # a hyphen and quotes belong to values
_MOST_KEPT = 1000  # questions of earlier sessions
_HISTORY = "query_history"


class LineReader(Protocol):
    """Reader of the lines that a person types."""

    def read(self, prompt: str, before: str = "") -> str:
        """Return the next line; `before` is what was typed of the same question on earlier lines.

        Raises
        ------
        EOFError
            There are no more lines: Ctrl-D.
        KeyboardInterrupt
            The line was cancelled: Ctrl-C.
        """

    def confirm(self, prompt: str) -> str:
        """Return the reply to a question of ours, typed after it was shown."""

    def remember(self, question: str) -> None:
        """Add a question to the history."""


class LineEditor:
    """Lines typed at a terminal, with completion and history where Python has readline.

    Parameters
    ----------
    schema : Schema
        Schema whose columns and values are completed.
    commands : sequence of str
        Commands of the prompt, each with its first sign.
    keep_history : bool
        Whether questions are read from and written to the history of the user.

    Privacy
    -------
    The history holds questions as they were typed, never answers. Questions are public by the model of
    differential privacy; the file can be read by its owner alone all the same.
    """

    def __init__(self, schema: "Schema", commands: "Sequence[str]", *, keep_history: bool) -> None:
        self._schema, self._commands = schema, commands
        self._keep = keep_history
        self._before = ""
        self._readline: ModuleType | None = None

    def __enter__(self) -> Self:
        """Set readline up for questions, with those of earlier sessions."""
        with contextlib.suppress(ImportError):  # a Python built without it reads plain lines
            import readline

            self._readline = readline
            readline.set_auto_history(False)  # replies are no questions
            readline.set_completer_delims(_DELIMITERS)
            readline.set_completer(self._complete)
            if "libedit" in (readline.__doc__ or ""):
                readline.parse_and_bind("bind ^I rl_complete")
            else:
                readline.parse_and_bind("tab: complete")
                # A statement that is pasted over several lines is one line then, and no line of it a reply.
                readline.parse_and_bind("set enable-bracketed-paste on")
            for question in read_history() if self._keep else ():
                readline.add_history(question)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _problem: BaseException | None, _at: TracebackType | None
    ) -> None:
        if self._readline is not None:
            self._readline.set_completer(None)
            self._readline.clear_history()
            self._readline.set_auto_history(True)

    def read(self, prompt: str, before: str = "") -> str:
        """Return the next line: see :meth:`LineReader.read`."""
        self._before = before
        return input(prompt)

    def confirm(self, prompt: str) -> str:
        """Return the reply to a question of ours; what was typed before it was shown does not count."""
        with contextlib.suppress(ImportError, OSError, ValueError):
            import termios

            termios.tcflush(sys.stdin, termios.TCIFLUSH)
        if self._readline is not None:
            self._readline.set_completer(None)
        try:
            return input(prompt)
        finally:
            if self._readline is not None:
                self._readline.set_completer(self._complete)

    def remember(self, question: str) -> None:
        """Add a question to the history of this session, and of later ones unless that is off."""
        line = " ".join(question.split("\n"))
        if self._readline is not None:
            self._readline.add_history(line)
        if self._keep:
            append_history(line)

    def _complete(self, _text: str, state: int) -> str | None:
        """Return the completion with this number, as readline asks for them."""
        assert self._readline is not None
        try:
            typed = self._readline.get_line_buffer()[: self._readline.get_endidx()]
            line = f"{self._before}\n{typed}" if self._before else typed
            begin = len(line) - len(typed) + self._readline.get_begidx()
            start, candidates = complete(line, self._schema, self._commands)
            # Readline replaces from its own delimiter on, which may be inside of a value.
            fitted = [line[begin:start] + one[max(0, begin - start) :] for one in candidates]
            return fitted[state] if state < len(fitted) else None
        except Exception:
            # Readline prints the traceback of any error into the line that is being typed.
            return None


def history_path() -> Path:
    """Return the path of the history, in the folder of the user's own state."""
    from discreet.pipeline.table_registry import Registry

    return Registry.from_environment().folder / _HISTORY


def read_history() -> list[str]:
    """Return the questions of earlier sessions, oldest first; none if they cannot be read."""
    try:
        lines = history_path().read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    kept = [line for line in lines if line.strip()][-_MOST_KEPT:]
    if len(lines) > 2 * _MOST_KEPT:
        with contextlib.suppress(OSError):
            draft = history_path().with_name(f".{_HISTORY}.{os.getpid()}")
            _write(draft, kept, os.O_TRUNC)
            draft.replace(history_path())
    return kept


def append_history(line: str) -> None:
    """Add a question to the file; a folder that cannot be written does not stop the session."""
    with contextlib.suppress(OSError):
        history_path().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(history_path(), [line], os.O_APPEND)


def _write(path: Path, lines: "Sequence[str]", mode: int) -> None:
    """Write lines to a file that its owner alone can read."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | mode, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
        path.chmod(0o600)
        file.writelines(f"{line}\n" for line in lines)
