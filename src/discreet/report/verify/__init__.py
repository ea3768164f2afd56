"""Verification of a published folder: from its files alone, or bit for bit with key and source.

``_files`` checks names and hashes, ``claims`` the statement, ``data`` the cells, ``_noise_tests`` their
moments, ``_container`` the bytes of the files of data, ``_ledger`` the charges, ``_model`` a model; ``_run``
has the order of all checks, and ``_result`` what they return. Everything here reads untrusted files.
"""

from __future__ import annotations

from discreet.report.verify._result import Check, Verification
from discreet.report.verify._run import verify

__all__ = ["Check", "Verification", "verify"]
