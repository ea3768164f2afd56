"""Statements of releases and models, public folders and their verification, and the internal report.

``statement`` builds the published documents, ``folder`` writes and reads the files of a public folder,
``verify`` checks such a folder; ``findings`` holds what the curator learns, and ``pages`` and ``charts`` draw
the internal report and the page of the statement. Names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.report.folder.loading import PublishedTable
    from discreet.report.pages.render import write_report
    from discreet.report.statement.build import build_statement
    from discreet.report.statement.documents import Statement
    from discreet.report.verify._result import Verification

__all__ = ["PublishedTable", "Statement", "Verification", "build_statement", "write_report"]

_HOME = {
    "PublishedTable": "folder.loading",
    "Statement": "statement.documents",
    "Verification": "verify",
    "build_statement": "statement.build",
    "write_report": "pages.render",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'discreet.report' has no attribute {name!r}")
    return getattr(import_module(f"discreet.report.{_HOME[name]}"), name)
