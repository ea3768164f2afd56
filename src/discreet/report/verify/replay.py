"""The auditor's check: the same key and the same rows must give the same file."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.errors import DiscreetWarning
from discreet.noise import Stream
from discreet.report.folder import DATA
from discreet.report.verify.rows import first_difference

if TYPE_CHECKING:
    from discreet.release import ReleaseMethod
    from discreet.report.statement import Statement
    from discreet.report.verify.result import Checks


def check_replay(
    folder: Path, statement: Statement, method: ReleaseMethod, key: bytes, source: Any, checks: Checks
) -> None:
    """Release the rows again under the key, and compare cell by cell.

    Privacy
    -------
    The replayed file is the published one or a failed attempt at it, and is removed. Messages name rows and
    columns, never a cell.
    """
    with checks.guarded("key"):
        if Stream(key).commitment != statement.implementation.key_commitment:
            checks.add("key", "failed", "The key is not the one that the statement commits to.")
            return
        checks.add("key", "passed", "The key is the one that the statement commits to.")
    with checks.guarded("replay"), tempfile.TemporaryDirectory(prefix="discreet-") as room:
        again = Path(room) / DATA
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DiscreetWarning)  # the curator has seen them
            publication = method.publish(
                source,
                again,
                shuffle=statement.implementation.shuffled,
                stream=Stream(key),
                rows_salt=statement.implementation.rows_salt,
            )
        wrong = []
        if publication.n_read != statement.what.rows_read:
            wrong.append(f"The source has {publication.n_read} rows, not {statement.what.rows_read}.")
        wrong += first_difference(again, folder / DATA, publication.schema)
        checks.settle("replay", wrong, "The same key and rows give the same file, cell for cell.")
