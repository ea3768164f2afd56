"""Checks that the files of data hold, byte for byte, the cells of the table and nothing else.

A Parquet or gzip file has parts that no reader of cells uses: notes, names, gaps, the division into row
groups, the bits of NaN. So the cells are written again, by the code that publishes, and the bytes must be the
same. That needs the version of the engine that wrote them; in another one, only the known parts are checked.
"""

from __future__ import annotations

import contextlib
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from discreet.release.publication import published_fields
from discreet.report.folder.folder import CSV, DATA, add_csv, digest_of
from discreet.report.folder.loading import published_batches
from discreet.tables import write_table
from discreet.tables._writers import ROW_GROUP
from discreet.tables.duckdb import connect, quote_path

if TYPE_CHECKING:
    from discreet.report.statement.documents import Statement
    from discreet.report.verify._result import Checks
    from discreet.schema import Schema

_AROUND = 12
"""Bytes of a Parquet file outside columns and footer: the magic number twice, and the footer length."""
_BLOCK = 1 << 20


def check_container(folder: Path, statement: Statement, schema: Schema, checks: Checks) -> None:
    """Check that the files of data are, byte for byte, what the release writes for their cells.

    Privacy
    -------
    Reads published files alone. What can still be hidden is in the cells and in their order.
    """
    with checks.attempt("bytes"):
        written, here = statement.implementation.versions.get("duckdb", ""), duckdb.__version__
        if written != here:
            wrong = _parquet_faults(folder / DATA)
            wrong += _gzip_faults(folder / CSV) if (folder / CSV).is_file() else []
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
        wrong = []
        with tempfile.TemporaryDirectory(prefix="discreet-") as name:
            room = Path(name)
            write_table(room / DATA, published_fields(schema), published_batches(folder / DATA, schema))
            if digest_of(room / DATA) != digest_of(folder / DATA):
                wrong.append(
                    f"{DATA} is not what the release writes for its cells: something is beside them."
                )
            if (folder / CSV).is_file():
                add_csv(room, 0, wanted=True)
                if digest_of(room / CSV) != digest_of(folder / CSV):
                    wrong.append(f"{CSV} is not what the release writes for the cells of {DATA}.")
        checks.settle("bytes", wrong, "Written again, the cells give the same files, byte for byte.")


def _parquet_faults(path: Path) -> list[str]:
    """Return the faults of the parts of a Parquet file that hold no cells."""
    file = quote_path(path)
    with contextlib.closing(connect()) as connection:
        notes = connection.execute(f"FROM parquet_kv_metadata({file})").fetchall()
        ((footer,),) = connection.execute(f"FROM parquet_file_metadata({file}) SELECT footer_size").fetchall()
        parts = connection.execute(
            f"FROM parquet_metadata({file}) SELECT row_group_id, any_value(row_group_num_rows), "
            "sum(total_compressed_size + coalesce(bloom_filter_length, 0)) GROUP BY ALL ORDER BY row_group_id"
        ).fetchall()
    wrong = []
    if notes:
        wrong.append(f"{DATA} carries notes beside its cells.")
    if any(rows != ROW_GROUP for _, rows, _ in parts[:-1]) or any(rows > ROW_GROUP for _, rows, _ in parts):
        wrong.append(f"{DATA} is not cut into row groups as a release is.")
    if sum(size for _, _, size in parts) + footer + _AROUND != path.stat().st_size:
        wrong.append(f"{DATA} has bytes that belong to no column.")
    return wrong


def _gzip_faults(path: Path) -> list[str]:
    """Return the faults of header and end of a gzip file: one member, no name, no note, nothing after it."""
    with path.open("rb") as file:
        header = file.read(10)
        if header[:4] != b"\x1f\x8b\x08\x00" or header[4:8] != b"\0\0\0\0":
            return [f"{CSV} has a name, a time or a note in its header."]
        unpacked = zlib.decompressobj(-zlib.MAX_WBITS)
        while block := file.read(_BLOCK):
            rest = block
            while rest and not unpacked.eof:
                unpacked.decompress(rest, _BLOCK)
                rest = unpacked.unconsumed_tail
            if unpacked.eof:
                after = len(unpacked.unused_data) + len(file.read(9))
                return [] if after == 8 else [f"{CSV} goes on after its end."]
    return [f"{CSV} does not end."]
