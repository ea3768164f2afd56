"""Let others learn from a table without giving its people away.

Names are loaded when they are first used, so that ``import discreet`` and the command line start at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.audit import run_audit
    from discreet.client.database import RemoteDatabase
    from discreet.client.service import connect
    from discreet.learn import (
        LargeMarginGaussianClassifier,
        NoiseAwareClassifier,
        NoiseAwareRidge,
        PrivateClassifier,
        PrivateID3Classifier,
        PrivateKMeans,
        PrivateLogisticRegression,
        PrivatePCA,
        PrivatePerceptron,
        PrivateSVM,
        RegularizedSVM,
    )
    from discreet.ledger import Ledger
    from discreet.pipeline import load_model, publish, publish_model, read
    from discreet.privacy import ZCDP, ApproxDP, ErrorFloor, GaussianDP, NoPromise, PureDP
    from discreet.query import Database
    from discreet.release import (
        BoundedRelease,
        CoarseRelease,
        GaussianRelease,
        InputPerturbation,
        InvariantRelease,
        LaplaceRelease,
        MaskedRelease,
        SyntheticRelease,
    )
    from discreet.report import write_report
    from discreet.report.folder.loading import load_release
    from discreet.report.verify import verify
    from discreet.schema import Column, Schema

__all__ = [
    "ZCDP",
    "ApproxDP",
    "BoundedRelease",
    "CoarseRelease",
    "Column",
    "Database",
    "ErrorFloor",
    "GaussianDP",
    "GaussianRelease",
    "InputPerturbation",
    "InvariantRelease",
    "LaplaceRelease",
    "LargeMarginGaussianClassifier",
    "Ledger",
    "MaskedRelease",
    "NoPromise",
    "NoiseAwareClassifier",
    "NoiseAwareRidge",
    "PrivateClassifier",
    "PrivateID3Classifier",
    "PrivateKMeans",
    "PrivateLogisticRegression",
    "PrivatePCA",
    "PrivatePerceptron",
    "PrivateSVM",
    "PureDP",
    "RegularizedSVM",
    "RemoteDatabase",
    "Schema",
    "SyntheticRelease",
    "connect",
    "load_model",
    "load_release",
    "publish",
    "publish_model",
    "read",
    "run_audit",
    "verify",
    "write_report",
]

_ROOMS = {
    "schema": ("Column", "Schema"),
    "privacy": ("ZCDP", "ApproxDP", "ErrorFloor", "GaussianDP", "NoPromise", "PureDP"),
    "ledger": ("Ledger",),
    "query": ("Database",),
    "learn": (
        "LargeMarginGaussianClassifier",
        "NoiseAwareClassifier",
        "NoiseAwareRidge",
        "PrivateClassifier",
        "PrivateID3Classifier",
        "PrivateKMeans",
        "PrivateLogisticRegression",
        "PrivatePCA",
        "PrivatePerceptron",
        "PrivateSVM",
        "RegularizedSVM",
    ),
    "release": (
        "BoundedRelease",
        "CoarseRelease",
        "GaussianRelease",
        "InputPerturbation",
        "InvariantRelease",
        "LaplaceRelease",
        "MaskedRelease",
        "SyntheticRelease",
    ),
    "audit": ("run_audit",),
    "report": ("write_report",),
    "report.folder.loading": ("load_release",),
    "report.verify": ("verify",),
    "pipeline": ("load_model", "publish", "publish_model", "read"),
    "client.database": ("RemoteDatabase",),
    "client.service": ("connect",),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'discreet' has no attribute {name!r}")
    return getattr(import_module(f"discreet.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
