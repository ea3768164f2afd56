"""Checks of the files of a folder: names, hashes and signature."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, TypeVar

from discreet.privacy.receipt import product_version
from discreet.report.folder.folder import (
    CSV,
    LARGEST_TEXT,
    SIGNATURE,
    STATEMENT,
    SUMS,
    derived,
    digest_of,
    is_signed_by,
    read_bytes,
    read_sums,
    sums_text,
)
from discreet.report.statement.documents import ModelStatement, Statement

if TYPE_CHECKING:
    from pathlib import Path

    from discreet.report.folder.folder import FolderFiles
    from discreet.report.verify._result import Checks

T = TypeVar("T", Statement, ModelStatement)
_MOST_ENTRIES = 100


def check_files(folder: Path, checks: Checks, files: FolderFiles) -> bool:
    """Check that the files are there, plain, and the only ones; return whether further checks make sense."""
    wrong, present, plain = [], set(), True
    for count, entry in enumerate(folder.iterdir()):
        if count == _MOST_ENTRIES:
            wrong.append("The folder holds far more than a release.")
            plain = False
            break
        present.add(entry.name)
        if entry.name not in files.known:
            wrong.append(f"{entry.name[:100]!r} is no file of a release.")
        elif not stat.S_ISREG(entry.lstat().st_mode):
            wrong.append(f"{entry.name} is a link or something else than a plain file.")
            plain = False
        elif entry.name not in (files.content, CSV) and entry.lstat().st_size > LARGEST_TEXT:
            wrong.append(f"{entry.name} is larger than any such file of a release.")
            plain = False
    missing = [name for name in files.required if name not in present]
    wrong += [f"{name} is missing." for name in missing]
    checks.settle("files", wrong, f"{len(present)} files are there, and nothing else.")
    return plain and not {files.content, STATEMENT} & set(missing)


def check_hashes(folder: Path, checks: Checks, files: FolderFiles) -> None:
    """Check that every file has the hash in ``SHA256SUMS``."""
    with checks.attempt("hashes"):
        content = read_bytes(folder / SUMS)
        hashes = read_sums(content)
        present = {name for name in files.known if (folder / name).exists()} - {SUMS, SIGNATURE}
        wrong = [f"{name} is not listed in {SUMS}." for name in sorted(present - set(hashes))]
        for name, digest in sorted(hashes.items()):
            if name not in present:
                wrong.append(f"{name} is listed in {SUMS} and not there.")
            elif digest_of(folder / name) != digest:
                wrong.append(f"{name} was changed: it is not the file that was hashed.")
        if sums_text(hashes).encode("ascii") != content:
            wrong.append(f"{SUMS} is not written the way lists of hashes are: it was edited.")
        checks.settle("hashes", wrong, f"{len(hashes)} files are the ones that were hashed.")


def check_signature(
    folder: Path, public_key: bytes | None, checks: Checks, kind: type[Statement] | type[ModelStatement]
) -> None:
    """Check the signature of the hashes, and list what is signed with them: charge, ledger and time."""
    with checks.attempt("signature"):
        signed = (folder / SIGNATURE).exists()
        if public_key is None:
            detail = (
                "The folder is signed; give the curator's public key to check by whom."
                if signed
                else "The folder is not signed: whoever could change a file could change its hash as well."
            )
            checks.add("signature", "not checkable", detail)
        elif not signed:
            checks.add("signature", "failed", "A public key was given, and the folder is not signed.")
        elif is_signed_by(folder, public_key):
            bound = signed_facts(kind.from_json(read_bytes(folder / STATEMENT)))
            checks.add(
                "signature", "passed", f"The hashes were signed by the owner of the key, and so {bound}."
            )
        else:
            checks.add(
                "signature", "failed", "The signature is not by the owner of the key, or not of these hashes."
            )


def signed_facts(statement: Statement | ModelStatement) -> str:
    """Return a clause with the facts about time and ledger that are signed with a folder."""
    charges = (
        [statement.composition.receipt]
        if isinstance(statement, Statement)
        else [part.receipt for part in statement.passes if part.receipt is not None]
    )
    position = statement.composition.position
    head = (
        "that no ledger counted it"
        if position is None
        else f"the ledger's row {position.head_row} with the hash {position.head[:12]}..."
    )
    listed = ", ".join(str(receipt.get("id")) for receipt in charges)
    return f"were the time {statement.what.created}, the receipt {listed}, and {head}"


def read_written_statement(folder: Path, checks: Checks, kind: type[T]) -> T | None:
    """Return the statement after checking its form; None if it cannot be read."""
    with checks.attempt("statement"):
        content = read_bytes(folder / STATEMENT)
        statement = kind.from_json(content)
        wrong = []
        if statement.to_json().encode("utf-8") != content:
            wrong.append(f"{STATEMENT} is not written the way statements are: it was edited.")
        checks.settle("statement", wrong, "It is complete, and valid under its JSON Schema.")
        written, here = statement.what.product_version, product_version()
        if written != here:
            checks.add(
                "version",
                "not checkable",
                f"The statement was written by version {written[:20]}, and this is {here}. Where nothing but "
                "the wording differs below, verify it with that version.",
            )
        return statement
    return None


def check_derived(folder: Path, statement: Statement, checks: Checks) -> None:
    """Check that the files that follow from the statement say what it says."""
    with checks.attempt("derived files"):
        content = derived(statement)
        wrong = [
            f"{name} does not say what {STATEMENT} says."
            for name, text in sorted(content.items())
            if read_bytes(folder / name) != text.encode("utf-8")
        ]
        listed = ", ".join(sorted(content))
        checks.settle("derived files", wrong, f"{listed} say what {STATEMENT} says.")
