"""The auditor's check: the same key and the same rows must give the same file."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.audit import attack_file
from discreet.errors import DiscreetWarning, ParameterError
from discreet.law import InvariantLaw, MaskedLaw
from discreet.noise import Stream
from discreet.privacy import Receipt
from discreet.report.folder.folder import DATA, holds_model
from discreet.report.statement.documents import Statement
from discreet.report.verify._container import check_container
from discreet.report.verify._ledger import check_ledger
from discreet.report.verify._model import check_model_folder
from discreet.report.verify._result import Checks, Verification
from discreet.report.verify.claims import (
    check_claims,
    check_derived,
    check_files,
    check_hashes,
    check_schema,
    check_signature,
    differences,
    find_folder,
    read_claims,
    replan,
)
from discreet.report.verify.data import check_classifier, check_data, first_difference

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from discreet._typing import AnyArray
    from discreet.privacy import Ledger
    from discreet.release import Plan, ReleaseMethod


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


def verify(
    path: str | os.PathLike[str],
    *,
    key: bytes | None = None,
    source: Any = None,
    public_key: bytes | None = None,
    ledger: Ledger | None = None,
    progress: Callable[[str], None] | None = None,
) -> Verification:
    """Re-check a published folder without trusting whoever made it.

    Parameters
    ----------
    path : path
        A ``public`` folder of a release or a model, or the folder that holds one.
    key : bytes, optional
        The key of the release, for an auditor; with `source`.
    source : frame, path or URL, optional
        The true table; with `key`.
    public_key : bytes, optional
        The curator's Ed25519 public key in PEM, to check a signature.
    ledger : Ledger, optional
        Where it was charged, to check what the statement says about it: without it, that is not checkable.
    progress : callable, optional
        Told what is being checked.

    Returns
    -------
    Verification
        What a file cannot show by itself is called "not checkable", and why; it is no failure.

    Privacy
    -------
    Without key and source nothing private is read. What is checked: that every number follows from what is
    declared, and that the data can come from the stated mechanism. What is not: that the noise was really
    drawn that way, which only a replay shows.

    Reference
    ---------
    docs/howto/verify-a-release.md
    """
    if (key is None) != (source is None):
        raise ParameterError(
            "verify needs key and source together, to replay a release, or neither. Give both, or leave both "
            "out."
        )
    folder = find_folder(Path(path))
    checks = Checks(progress)
    if holds_model(folder):
        if key is not None:
            raise ParameterError(
                "key and source of verify are for a released table, and this folder holds a model: its noise "
                "cannot be drawn again. Leave them out."
            )
        check_model_folder(folder, public_key, checks, ledger)
    elif check_files(folder, checks):
        check_hashes(folder, checks)
        check_signature(folder, public_key, checks, Statement)
        statement = read_claims(folder, checks, Statement)
        if statement is not None:
            _check_statement(folder, statement, key, source, ledger, checks)
    return Verification(folder=str(folder), checks=tuple(checks.made))


def _check_statement(
    folder: Path, statement: Statement, key: bytes | None, source: Any, ledger: Ledger | None, checks: Checks
) -> None:
    check_derived(folder, statement, checks)
    schema = check_schema(statement, checks)
    planned = None if schema is None else replan(statement, schema, checks)
    if schema is None or planned is None:
        return
    method, plan = planned
    check_claims(statement, schema, method, plan, checks)
    with checks.guarded("ledger"):
        charged = Receipt.from_dict(statement.composition.receipt)
        check_ledger(statement.composition, [charged], ledger, checks)
    rows = check_data(folder, statement, plan, checks)
    if rows is not None:
        check_container(folder, statement, plan.schema, checks)
        check_classifier(folder, plan, checks)
        _check_attacks(statement, plan, rows, checks)
    if key is not None:
        check_replay(folder, statement, method, key, source, checks)
    else:
        _say_what_is_open(statement, plan, checks)
    checks.add(
        "tuning",
        "not checkable",
        f"The statement says {statement.tuning.on_private_rows!r}. Whether the noise was chosen by looking "
        "at private rows, the curator alone knows: that, and what is said about it in words, is not "
        "checkable.",
    )
    checks.add(
        "other releases",
        "not checkable",
        "A file cannot show what else was published about the same people: charges outside the ledger, and "
        "the limit of the ledger, are not checkable.",
    )


def _check_attacks(statement: Statement, plan: Plan, rows: dict[str, AnyArray], checks: Checks) -> None:
    with checks.guarded("attacks"):
        again = [{**guess.to_dict(), "seconds": 0.0} for guess in attack_file(plan, rows)]
        found = list(differences(statement.attacks, again, "attacks"))
        wrong = [f"Run again, an attack on this file gives something else ({found[0][0]})."] if found else []
        checks.settle("attacks", wrong, f"{len(again)} attacks, run again, give what the statement says.")


def _say_what_is_open(statement: Statement, plan: Plan, checks: Checks) -> None:
    checks.add(
        "noise",
        "not checkable",
        "That the noise was drawn in full, and by the stated sampler, is not checkable without the key: "
        "noise that is too small on a column with a wide range, or drawn in floating point and put on the "
        "lattice, leaves a file like this one. Whoever chose the noise could write anything with it.",
    )
    checks.add(
        "order",
        "not checkable",
        "That rows stand where chance has put them is not checkable without the key: their "
        "order could carry something too.",
    )
    if any(isinstance(summary.law, InvariantLaw | MaskedLaw) for summary in plan.columns):
        checks.add(
            "digits",
            "not checkable",
            "The numbers of this method are on no lattice: what their last digits carry is not checkable.",
        )
    checks.add(
        "people's words",
        "not checkable",
        "Names, purposes and other words of the curator (what, tuning.why), what was declared and chosen "
        "(schema, parameters), and the commitment to the key can say anything.",
    )
    seeded = statement.implementation.seeded
    checks.add(
        "key",
        "not checkable",
        "SEEDED: whoever knows the seed can remove the noise. This file protects nobody."
        if seeded
        else "That the key was thrown away, or is kept where nobody else finds it, is not checkable.",
    )
