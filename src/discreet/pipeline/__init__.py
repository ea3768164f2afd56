"""The stages of a release or of a model, from a table to two folders; and one question about a table.

Reading order: :mod:`~discreet.pipeline.release` is the order of the stages and :mod:`~discreet.pipeline._release_stages` what
happens in them; ``declared`` and ``options`` turn a request into a schema, a ledger and a method;
``folders``, ``log`` and ``keeping`` look after what is written; ``sample``, ``comparing``, ``learning`` and
``what_if`` look at the result for the curator; ``rehearsing``, ``planning``, ``attacking`` and ``rebuild_report`` are
parts of the job that can be run by themselves. ``model`` trains one instead, with ``training`` to say which
there are. ``asking`` answers a question that ``sentence`` reads, cut up by ``pieces``, ``select`` and
``axes``: ``behind`` has the noisy sums that it takes, ``reply`` what it is answered with; ``combining`` adds
answers up, and ``dummy`` makes rows to try questions on. Names are loaded when they are first used: drafting
a schema needs no learner.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.pipeline.model import PublishedModel, load_model, publish_model
    from discreet.pipeline.release import publish
    from discreet.pipeline.result import Published, Row

__all__ = ["Published", "PublishedModel", "Row", "load_model", "publish", "publish_model"]

_HOME = {
    "Published": "result",
    "PublishedModel": "model",
    "Row": "result",
    "load_model": "model",
    "publish": "release",
    "publish_model": "model",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'discreet.pipeline' has no attribute {name!r}")
    return getattr(import_module(f"discreet.pipeline.{_HOME[name]}"), name)
