"""A progress bar for notebooks and scripts; the command line has its own."""

from __future__ import annotations

import sys
from html import escape
from typing import Any


class ProgressBar:
    """Bar that shows how far a job is: below the cell of a notebook, otherwise as a line on standard error.

    Give it as ``on_progress`` to :func:`discreet.publish` or :func:`discreet.publish_model`.

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
