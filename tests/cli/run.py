"""Run the command line as people do, in this process: imports are paid once."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unittest import mock

from discreet.cli import main

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Done:
    """How it ended and what it printed."""

    code: int
    out: str
    err: str


def discreet(*arguments: str, cwd: Path, **environment: str) -> Done:
    """Run a command in a folder."""
    out, err = io.StringIO(), io.StringIO()
    handler = signal.getsignal(signal.SIGTERM)
    with (
        contextlib.chdir(cwd),
        mock.patch.object(sys, "argv", ["discreet", *arguments]),
        mock.patch.dict(os.environ, environment),
        mock.patch.object(warnings, "showwarning", warnings.showwarning),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        finally:
            signal.signal(signal.SIGTERM, handler)
    done = Done(code, out.getvalue(), err.getvalue())
    assert "Traceback" not in done.err
    return done
