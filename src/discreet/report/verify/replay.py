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
    Batches with other rows than the published ones come out as a second release of them, with noise of its
    own, which nobody paid for. So the replayed file has no name, and ends with the process. Messages name
    rows and columns, never a cell.
    """
    with checks.guarded("key"):
        if Stream(key).commitment != statement.implementation.key_commitment:
            checks.add("key", "failed", "The key is not the one that the statement commits to.")
            return
        checks.add("key", "passed", "The key is the one that the statement commits to.")
    with checks.guarded("replay"), tempfile.TemporaryFile() as file:
        again = Path(f"/dev/fd/{file.fileno()}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DiscreetWarning)  # the curator has seen them
            publication = method.publish(
                source,
                again,
                shuffle=statement.implementation.shuffled,
                stream=Stream.for_replay(key),
                rows_salt=statement.implementation.rows_salt,
            )
        wrong = []
        if publication.n_read != statement.what.rows_read:
            wrong.append(f"The source has {publication.n_read} rows, not {statement.what.rows_read}.")
        tolerance = method.replay_tolerance
        wrong += first_difference(again, folder / DATA, publication.schema, tolerance)
        close = f", numbers to {tolerance:g} of the largest of their column" if tolerance else ""
        checks.settle("replay", wrong, f"The same key and rows give the same file, cell for cell{close}.")
