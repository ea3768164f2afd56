"""Checks of the files of a folder: names, hashes and signature.

Checks that the files of data hold, byte for byte, the cells of the table and nothing else.

A Parquet file has parts that no reader of cells uses: notes, names, gaps, the division into row
groups, the bits of NaN. So the cells are written again, by the code that publishes, and the bytes must be the
same. That needs the version of the engine that wrote them; in another one, only the known parts are checked.
"""

from __future__ import annotations

import contextlib
import hashlib
import stat
import tempfile
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TypeVar

import duckdb

from discreet.errors import SourceError
from discreet.privacy.receipt import product_version
from discreet.release.publication import published_fields
from discreet.release.readable import readable_columns, write_readable
from discreet.report.folder.folder import (
    DATA,
    LARGEST_TEXT,
    READABLE,
    SIGNATURE,
    STATEMENT,
    SUMS,
    derived,
    digest_of,
    is_signed_by,
    part_names,
    read_bytes,
    read_sums,
    sums_text,
)
from discreet.report.folder.published_cells import published_batches
from discreet.report.statement.documents import Statement
from discreet.report.statement.model_documents import ModelStatement
from discreet.tables import write_table
from discreet.tables.duckdb import connect, quote_path
from discreet.tables.writers import row_group_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from discreet.release import ReleasePlan
    from discreet.release.readable import ReadableColumn
    from discreet.report.folder.folder import FolderFiles
    from discreet.report.verify._parts import PublishedParts
    from discreet.report.verify._result import Checks
    from discreet.schema import Schema

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
        elif entry.name == DATA and stat.S_ISDIR(entry.lstat().st_mode):
            plain = _check_parts(folder, wrong) and plain
        elif not stat.S_ISREG(entry.lstat().st_mode):
            wrong.append(f"{entry.name} is a link or something other than a plain file.")
            plain = False
        elif entry.name not in files.content and entry.lstat().st_size > LARGEST_TEXT:
            wrong.append(f"{entry.name} is larger than any such file of a release.")
            plain = False
    missing = [name for name in files.required if name not in present]
    wrong += [f"{name} is missing." for name in missing]
    checks.settle("files", wrong, f"{len(present)} files are there, and nothing else.")
    return plain and not {*files.content, STATEMENT} & set(missing)


def _check_parts(folder: Path, wrong: list[str]) -> bool:
    """Check that a table in parts consists of plain files with consecutive names; return whether it does."""
    try:
        names = part_names(folder)
    except SourceError as problem:
        wrong.append(str(problem))
        return False
    odd = [name for name in names if not stat.S_ISREG((folder / name).lstat().st_mode)]
    wrong += [f"{name} is a link or something other than a plain file." for name in odd]
    return not odd


def check_hashes(folder: Path, checks: Checks, files: FolderFiles, parts: PublishedParts) -> None:
    """Check that every file has the hash in ``SHA256SUMS``."""
    with checks.attempt("hashes"):
        content = read_bytes(folder / SUMS)
        hashes = read_sums(content)
        present = {name for name in (*files.known, *parts.names) if (folder / name).is_file()}
        present -= {SUMS, SIGNATURE}
        wrong = [f"{name} is not listed in {SUMS}." for name in sorted(present - set(hashes))]
        for name, digest in sorted(hashes.items()):
            if name not in present:
                wrong.append(f"{name} is listed in {SUMS} and not there.")
            elif parts.digest(name) != digest:
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
                "The folder is signed; give the curator's public key to check the signature."
                if signed
                else "The folder is not signed: anyone who could change a file could change its hash as well."
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
        content = derived(statement, folder)
        wrong = [
            f"{name} does not say what {STATEMENT} says."
            for name, text in sorted(content.items())
            if read_bytes(folder / name) != text.encode("utf-8")
        ]
        listed = ", ".join(sorted(content))
        checks.settle("derived files", wrong, f"{listed} say what {STATEMENT} says.")


_AROUND = 12
"""Bytes of a Parquet file outside columns and footer: the magic number twice, and the footer length."""
_BLOCK = 1 << 20


def check_container(parts: PublishedParts, statement: Statement, plan: ReleasePlan, checks: Checks) -> None:
    """Check that the files of data are, byte for byte, what the release writes for their cells.

    Privacy
    -------
    Reads published files alone. What can still be hidden is in the cells and in their order.
    """
    with checks.attempt("bytes"):
        written, here = statement.implementation.versions.get("duckdb", ""), duckdb.__version__
        if written != here:
            wrong = [fault for faults in parts.map(_parquet_faults) for fault in faults]
            if wrong:
                checks.settle("bytes", wrong, "")
                return
            checks.add(
                "bytes",
                "not checkable",
                f"The data were written by DuckDB {written[:20]}, and this is {here}: nothing is in the "
                "places where something could be hidden beside the cells, but the bytes cannot be compared. "
                "Verify with that version.",
            )
            return
        again = parts.map(partial(_write_again, schema=plan.schema, typed=plan.typed))
        wrong = [
            f"{Path(name).name} is not what the release writes for its cells: something is beside them."
            for name, digest in zip(parts.names, again, strict=True)
            if parts.digest(name) != digest
        ]
        checks.settle("bytes", wrong, "Written again, the cells give the same file, byte for byte.")


def _write_again(path: Path, *, schema: Schema, typed: bool) -> str:
    """Return the SHA-256 of the file that the release writes for the cells of a file."""
    with tempfile.TemporaryDirectory(prefix="discreet-") as name:
        again = Path(name) / DATA
        batches = published_batches(path, schema, typed=typed)
        write_table(again, published_fields(schema, typed=typed), batches)
        return digest_of(again)


def check_readable(parts: PublishedParts, folder: Path, plan: ReleasePlan, checks: Checks) -> None:
    """Check that the readable copy is, byte for byte, what its rule makes of the published cells.

    Privacy
    -------
    Reads published files alone.
    """
    with checks.attempt(READABLE):
        line = _first_other_line(folder / READABLE, parts, readable_columns(plan))
        wrong = [f"{READABLE} is not the clamped and rounded copy of {DATA}: line {line} differs."]
        checks.settle(
            READABLE,
            wrong if line else [],
            f"It is {DATA} again, clamped to the declared ranges and rounded to public steps.",
        )


class ReadablePart(NamedTuple):
    """Stretch of the readable copy that holds the rows of one file of the table.

    Attributes
    ----------
    n_bytes, n_lines : int
        Length of the stretch, in bytes and in lines.
    digest : str
        SHA-256 of its bytes.
    """

    n_bytes: int
    n_lines: int
    digest: str


def _first_other_line(copy: Path, parts: PublishedParts, columns: Sequence[ReadableColumn]) -> int:
    """Return the number of the first line of a readable copy that is not as it must be; 0 if there is none.

    Each part says how many bytes its rows have in the copy, so that the copy is read once, in a stretch for
    each; only the part with the first difference is written again here, to find the line.
    """
    headers = [place == 0 for place in range(len(parts.names))]
    line = 1
    with copy.open("rb") as file:
        for place, part in enumerate(parts.map(partial(_describe_readable, columns=columns), headers)):
            start = file.tell()
            if _digest_next(file, part.n_bytes) != part.digest:
                file.seek(start)
                with tempfile.TemporaryDirectory(prefix="discreet-") as name:
                    again = Path(name) / READABLE
                    write_readable(parts.paths[place], again, columns, header=headers[place])
                    with again.open("rb") as rows:
                        pairs = enumerate(zip_longest(_lines(rows), _lines(file)), line)
                        return next(number for number, (one, other) in pairs if one != other)
            line += part.n_lines
        return line if file.read(1) else 0


def _describe_readable(path: Path, header: bool, *, columns: Sequence[ReadableColumn]) -> ReadablePart:
    """Return what the readable copy holds for one file of the table."""
    with tempfile.TemporaryDirectory(prefix="discreet-") as name:
        written = Path(name) / READABLE
        write_readable(path, written, columns, header=header)
        n_bytes = n_lines = 0
        digest = hashlib.sha256()
        with written.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                n_bytes += len(block)
                n_lines += block.count(b"\n")
        return ReadablePart(n_bytes, n_lines, digest.hexdigest())


def _digest_next(file: BinaryIO, n_bytes: int) -> str:
    """Return the SHA-256 of the next bytes of a file, of fewer where it ends before."""
    digest = hashlib.sha256()
    while n_bytes and (block := file.read(min(n_bytes, _BLOCK))):
        digest.update(block)
        n_bytes -= len(block)
    return digest.hexdigest()


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of an untrusted file, cut where they are longer than any of ours."""
    while line := file.readline(_BLOCK):
        yield line


def _parquet_faults(path: Path) -> list[str]:
    """Return the faults of the parts of a Parquet file that hold no cells."""
    file = quote_path(path)
    with contextlib.closing(connect()) as connection:
        notes = connection.execute(f"FROM parquet_kv_metadata({file})").fetchall()
        ((footer,),) = connection.execute(f"FROM parquet_file_metadata({file}) SELECT footer_size").fetchall()
        parts = connection.execute(
            f"FROM parquet_metadata({file}) SELECT row_group_id, any_value(row_group_num_rows), "
            "sum(total_compressed_size + coalesce(bloom_filter_length, 0)), count(*) "
            "GROUP BY ALL ORDER BY row_group_id"
        ).fetchall()
    wrong = []
    group = row_group_size(max((columns for *_, columns in parts), default=1))
    if notes:
        wrong.append(f"{DATA} carries notes beside its cells.")
    if any(rows != group for _, rows, *_ in parts[:-1]) or any(rows > group for _, rows, *_ in parts):
        wrong.append(f"{DATA} is not cut into row groups as a release is.")
    if sum(size for _, _, size, _ in parts) + footer + _AROUND != path.stat().st_size:
        wrong.append(f"{DATA} has bytes that belong to no column.")
    return wrong
