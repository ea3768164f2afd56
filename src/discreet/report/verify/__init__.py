"""A stranger re-checks a release: without secrets from the folder alone, with key and source bit for bit.

``opening`` looks at the files, ``claims`` at the statement, ``rows`` and ``moments`` at the data, ``masked``
at the classifier that some data carry, ``replay`` releases it again; ``model`` does all of that for a model;
``run`` has the order of all checks, and ``result`` what they say. Everything here reads what somebody
else wrote.
"""

from __future__ import annotations

from discreet.report.verify._result import Check, Verification
from discreet.report.verify._run import verify

__all__ = ["Check", "Verification", "verify"]
