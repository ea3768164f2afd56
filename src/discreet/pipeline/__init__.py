"""Jobs from a table to a folder: a release, a model, their plans, and queries on a file.

Reading order: ``release`` has the order of the stages of a release, ``_plan_stages`` those before its charge
and ``_release_stages`` the others; ``model`` and ``training`` do the same for a model. ``options`` groups
what a job is given, ``methods`` turns a request into a release method, ``sources`` finds schema and ledger of
a table, and ``table_registry`` recognizes a table by its path or its rows. ``_stages`` times and logs the
stages, with a bar for notebooks, ``_output`` builds the folder and keeps the key, ``result`` holds what a job
returns. ``ways`` compares ways to publish before any of them is taken. ``plan`` and ``published_folder`` are
parts of a job that also run alone: a plan with more and less noise, a dry run, attacks on a published folder,
the internal report. ``query`` answers queries on a file, ``query_plan`` those of a ``question_file``
together. ``draft`` writes a schema. Names are loaded at first use: drafting a schema needs no learner.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.pipeline._stages import ProgressBar
    from discreet.pipeline.model import PublishedModel, load_model, publish_model
    from discreet.pipeline.options import KeyEscrow, Output, RunOptions, Signing, SparkOptions
    from discreet.pipeline.query import preview_table_query, query_table, read
    from discreet.pipeline.release import publish
    from discreet.pipeline.result import Published, Row

__all__ = [
    "KeyEscrow",
    "Output",
    "ProgressBar",
    "Published",
    "PublishedModel",
    "Row",
    "RunOptions",
    "Signing",
    "SparkOptions",
    "load_model",
    "preview_table_query",
    "publish",
    "publish_model",
    "query_table",
    "read",
]

_HOME = {
    "KeyEscrow": "options",
    "Output": "options",
    "ProgressBar": "_stages",
    "Published": "result",
    "PublishedModel": "model",
    "Row": "result",
    "RunOptions": "options",
    "Signing": "options",
    "SparkOptions": "options",
    "load_model": "model",
    "preview_table_query": "query",
    "publish": "release",
    "publish_model": "model",
    "query_table": "query",
    "read": "query",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'discreet.pipeline' has no attribute {name!r}")
    return getattr(import_module(f"discreet.pipeline.{_HOME[name]}"), name)
