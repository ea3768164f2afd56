"""The outside of a folder: which files are there, and whether they are those that were hashed."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from discreet.errors import SourceError
from discreet.privacy.receipt import product_version
from discreet.report.folder import (
    CSV,
    DATA,
    LARGEST_TEXT,
    OPTIONAL,
    REQUIRED,
    SIGNATURE,
    STATEMENT,
    SUMS,
    derived,
    digest_of,
    read_bytes,
    read_sums,
    signed_by,
    sums_text,
)
from discreet.report.models.statement import ModelStatement
from discreet.report.statement import Statement

if TYPE_CHECKING:
    from pathlib import Path

    from discreet.report.verify.result import Checks

T = TypeVar("T", Statement, ModelStatement)
_MOST_ENTRIES = 100


def find_folder(path: Path) -> Path:
    """Return the folder that was meant: `path`, or ``public`` in it."""
    if not path.is_dir():
        raise SourceError(
            f"path of verify must be a folder, and {str(path)!r} is not. Unpack the release first."
        )
    inside = path / "public"
    return inside if inside.is_dir() and not (path / STATEMENT).exists() else path


@dataclass(frozen=True, slots=True)
class Contents:
    """Which files a folder holds.

    Attributes
    ----------
    required, optional : tuple of str
        What must be there, and what may be.
    content : str
        The file that all is about, which may be large.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...]
    content: str

    @property
    def known(self) -> tuple[str, ...]:
        """All names."""
        return self.required + self.optional


RELEASE = Contents(REQUIRED, OPTIONAL, DATA)


def check_files(folder: Path, checks: Checks, contents: Contents = RELEASE) -> bool:
    """Check that the files are there, plain, and the only ones; say whether it makes sense to go on."""
    wrong, present, plain = [], set(), True
    for count, entry in enumerate(folder.iterdir()):
        if count == _MOST_ENTRIES:
            wrong.append("The folder holds far more than a release.")
            plain = False
            break
        present.add(entry.name)
        if entry.name not in contents.known:
            wrong.append(f"{entry.name[:100]!r} is no file of a release.")
        elif not stat.S_ISREG(entry.lstat().st_mode):
            wrong.append(f"{entry.name} is a link or something else than a plain file.")
            plain = False
        elif entry.name not in (contents.content, CSV) and entry.lstat().st_size > LARGEST_TEXT:
            wrong.append(f"{entry.name} is larger than any such file of a release.")
            plain = False
    missing = [name for name in contents.required if name not in present]
    wrong += [f"{name} is missing." for name in missing]
    checks.settle("files", wrong, f"{len(present)} files are there, and nothing else.")
    return plain and not {contents.content, STATEMENT} & set(missing)


def check_hashes(folder: Path, checks: Checks, contents: Contents = RELEASE) -> None:
    """Check that every file has the hash that ``SHA256SUMS`` says."""
    with checks.guarded("hashes"):
        content = read_bytes(folder / SUMS)
        listed = read_sums(content)
        there = {name for name in contents.known if (folder / name).exists()} - {SUMS, SIGNATURE}
        wrong = [f"{name} is not listed in {SUMS}." for name in sorted(there - set(listed))]
        for name, digest in sorted(listed.items()):
            if name not in there:
                wrong.append(f"{name} is listed in {SUMS} and not there.")
            elif digest_of(folder / name) != digest:
                wrong.append(f"{name} was changed: it is not the file that was hashed.")
        if sums_text(listed).encode("ascii") != content:
            wrong.append(f"{SUMS} is not written the way lists of hashes are: it was edited.")
        checks.settle("hashes", wrong, f"{len(listed)} files are the ones that were hashed.")


def check_signature(folder: Path, public_key: bytes | None, checks: Checks, kind: type[T]) -> None:
    """Check who signed the hashes, and say what is signed with them: charge, ledger and time."""
    with checks.guarded("signature"):
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
        elif signed_by(folder, public_key):
            bound = signed_facts(kind.from_json(read_bytes(folder / STATEMENT)))
            checks.add(
                "signature", "passed", f"The hashes were signed by the owner of the key, and so {bound}."
            )
        else:
            checks.add(
                "signature", "failed", "The signature is not by the owner of the key, or not of these hashes."
            )


def signed_facts(statement: Statement | ModelStatement) -> str:
    """Say which facts about time and ledger whoever signs a folder signs with it."""
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


def read_claims(folder: Path, checks: Checks, kind: type[T]) -> T | None:
    """Read the statement; None if it is none."""
    with checks.guarded("statement"):
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
    with checks.guarded("derived files"):
        content = derived(statement)
        wrong = [
            f"{name} does not say what {STATEMENT} says."
            for name, text in sorted(content.items())
            if read_bytes(folder / name) != text.encode("utf-8")
        ]
        listed = ", ".join(sorted(content))
        checks.settle("derived files", wrong, f"{listed} say what {STATEMENT} says.")
