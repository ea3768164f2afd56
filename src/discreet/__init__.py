"""Let others learn from a table without giving its people away.

Names are loaded when they are first used, so that ``import discreet`` and the command line start at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.audit import run_audit
    from discreet.job import publish
    from discreet.learn import (
        PrivateID3Classifier,
        PrivateKMeans,
        PrivateLogisticRegression,
        PrivatePCA,
        PrivatePerceptron,
        RegularizedSVM,
    )
    from discreet.privacy import ZCDP, ApproxDP, ErrorFloor, GaussianDP, Ledger, NoPromise, PureDP
    from discreet.query import Database
    from discreet.release import (
        BoundedRelease,
        GaussianRelease,
        InputPerturbation,
        InvariantRelease,
        LaplaceRelease,
        MaskedRelease,
    )
    from discreet.report import write_report
    from discreet.report.verify import verify
    from discreet.schema import Column, Schema

__all__ = [
    "ZCDP",
    "ApproxDP",
    "BoundedRelease",
    "Column",
    "Database",
    "ErrorFloor",
    "GaussianDP",
    "GaussianRelease",
    "InputPerturbation",
    "InvariantRelease",
    "LaplaceRelease",
    "Ledger",
    "MaskedRelease",
    "NoPromise",
    "PrivateID3Classifier",
    "PrivateKMeans",
    "PrivateLogisticRegression",
    "PrivatePCA",
    "PrivatePerceptron",
    "PureDP",
    "RegularizedSVM",
    "Schema",
    "publish",
    "run_audit",
    "verify",
    "write_report",
]

_ROOMS = {
    "schema": ("Column", "Schema"),
    "privacy": ("ZCDP", "ApproxDP", "ErrorFloor", "GaussianDP", "Ledger", "NoPromise", "PureDP"),
    "query": ("Database",),
    "learn": (
        "PrivateID3Classifier",
        "PrivateKMeans",
        "PrivateLogisticRegression",
        "PrivatePCA",
        "PrivatePerceptron",
        "RegularizedSVM",
    ),
    "release": (
        "BoundedRelease",
        "GaussianRelease",
        "InputPerturbation",
        "InvariantRelease",
        "LaplaceRelease",
        "MaskedRelease",
    ),
    "audit": ("run_audit",),
    "report": ("write_report",),
    "report.verify": ("verify",),
    "job": ("publish",),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'discreet' has no attribute {name!r}")
    return getattr(import_module(f"discreet.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
