"""Tasks of workers: check, draw and write one part; each can be repeated, and gives the same rows."""

from __future__ import annotations

import hashlib
import json
import pickle
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import DiscreetError, SourceError
from discreet.noise import Stream
from discreet.release.base import ORDER
from discreet.release.keystream import BatchStreams, rows_digest
from discreet.release.publication import published_fields
from discreet.release.spark._job import DrawJob, JobFile, SampleJob, SourceJob, WriteJob
from discreet.tables import write_table
from discreet.tables.external_sort import word_order
from discreet.tables.fingerprint import sample_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from discreet._types import AnyArray
    from discreet.release.publication import Encoded
    from discreet.schema import Schema
    from discreet.tables import Batch


_BUFFER = 1 << 20

SOURCE_CHANGED = (
    "The source has changed since this release was planned. Restore it, and run the same command with "
    "--resume if it was paid for; a new release is charged again."
)


def run_task(name: str, file: JobFile, number: int) -> str:
    """Run one task, and return its result as JSON.

    An error of this package is a result, so that Spark does not try again. Any other is raised again without
    its text, which may quote rows and would be in Spark's logs.
    """
    try:
        return json.dumps(TASKS[name](file, number))
    except DiscreetError as problem:
        return json.dumps({"error": pickle.dumps(problem).hex()})
    except Exception as problem:
        last = traceback.extract_tb(problem.__traceback__)[-1]
        failure = f"{type(problem).__name__} in {Path(last.filename).name}, line {last.lineno}"
    raise RuntimeError(f"discreet: {failure}")


def sample_part(file: JobFile, number: int) -> dict[str, Any]:
    """Store the smallest hashes of the rows of a part, of which the fingerprint of the table is made."""
    job = file.read(SampleJob)
    sample = sample_rows((batch for _, batch in job.read_part(number)), job.schema, job.key)
    name = f"{_attempt_name(f'sample-{number}')}.npy"
    np.save(job.folder / name, sample)
    return {"part": number, "name": name}


def check_part(file: JobFile, number: int) -> dict[str, Any]:
    """Read every cell of a part, and return the digest of its rows with their ids, and that of its ids."""
    job = file.read(SourceJob)
    digest, ids, n_rows = hashlib.sha256(), hashlib.sha256(), 0
    for _, batch in job.read_part(number):
        digest.update(source_digest(batch, job.schema).encode())
        if batch.ids is not None:
            ids.update(batch.ids.data)
        n_rows += batch.n_rows
    return {"part": number, "rows": n_rows, "digest": digest.hexdigest(), "ids": ids.hexdigest()}


def source_digest(batch: Batch, schema: Schema) -> str:
    """Return the digest of a batch as it was read, with its ids, which decide what rows of a person are used.

    They are in no keystream, which depends on the rows that are used and not on whose they are.
    """
    if schema.id_column is None:
        return rows_digest(batch)
    assert batch.ids is not None
    return rows_digest({**batch, schema.id_column: batch.ids})


def draw_part(file: JobFile, number: int) -> dict[str, Any]:
    """Draw the published rows of a part, and store them by the run of words that each belongs to.

    Nothing is stored unless the rows are those that were paid for.
    """
    job = file.read(DrawJob)
    digest, shift = hashlib.sha256(), np.uint64(64 - (job.n_runs.bit_length() - 1))
    drawn: list[tuple[dict[str, AnyArray], list[int]]] = []
    counts = np.zeros(job.n_runs, np.int64)
    for _, columns, of_rows in draw_batches(job, job.read_part(number)):
        digest.update(of_rows.encode())
        # A batch fits into a processor's cache; a part does not, and sorting it would take longer.
        runs = (columns[ORDER] >> shift).astype(np.uint16)
        order = np.argsort(runs, kind="stable")
        sizes = np.bincount(runs, minlength=job.n_runs)
        counts += sizes
        ends = [0, *np.cumsum(sizes).tolist()]
        drawn.append(({name: values.take(order) for name, values in columns.items()}, ends))
    if digest.hexdigest() != job.digests[number]:
        raise SourceError(SOURCE_CHANGED)
    name = _attempt_name(f"drawn-{number}")
    layout = [(column, values.dtype.str) for column, values in drawn[0][0].items()]
    with (job.folder / name).open("wb", buffering=_BUFFER) as out:
        for run in range(job.n_runs):
            for column, _ in layout:
                for columns, ends in drawn:
                    out.write(columns[column][ends[run] : ends[run + 1]].data)
    n_rows = int(counts.sum())
    return {"part": number, "name": name, "rows": n_rows, "counts": counts.tolist(), "layout": layout}


def draw_batches(
    job: DrawJob, batches: Iterator[tuple[int, Batch]]
) -> Iterator[tuple[Encoded, dict[str, AnyArray], str]]:
    """Yield for each batch its used rows, the published ones with their words, and its source digest."""
    streams = BatchStreams(Stream(job.key), plan=job.plan_digest, schema=job.schema.digest)
    for number, batch in batches:
        of_rows, kept = source_digest(batch, job.schema), job.mask(number, batch.n_rows)
        rows: Encoded = batch if kept is None else {name: values[kept] for name, values in batch.items()}
        noise, order = streams.batch(rows, part=0, batch=number, digest=of_rows if kept is None else None)
        columns = job.plan.draw(rows, noise)
        columns[ORDER] = order.words(len(next(iter(columns.values()))))
        yield rows, columns, of_rows


def write_part(file: JobFile, number: int) -> dict[str, Any]:
    """Write the rows of one part of the release in the order of their words."""
    job = file.read(WriteJob)
    path = job.folder / f"{_attempt_name(f'part-{number}')}.parquet"
    n_rows = write_table(
        path, published_fields(job.plan.schema, typed=job.plan.typed), _sorted_runs(job, number)
    )
    return {
        "part": number,
        "name": path.name,
        "rows": n_rows,
        "bytes": path.stat().st_size,
        "sha256": _hash_file(path),
    }


def _sorted_runs(job: WriteJob, number: int) -> Iterator[dict[str, AnyArray]]:
    """Yield the rows of one part, a run of words at a time, in the order of their words."""
    dtypes = {column: np.dtype(dtype) for column, dtype in job.layout}
    width = sum(dtype.itemsize for dtype in dtypes.values())
    first, last = (job.n_runs // job.n_written * place for place in (number, number + 1))
    contents, starts = [], [0] * len(job.drawn)
    for name, counts in job.drawn:
        with (job.folder / name).open("rb") as file:
            file.seek(sum(counts[:first]) * width)
            contents.append(file.read(sum(counts[first:last]) * width))
    for run in range(first, last):
        pieces: dict[str, list[AnyArray]] = {column: [] for column in dtypes}
        for place, (_, counts) in enumerate(job.drawn):
            for column, dtype in dtypes.items():
                pieces[column].append(np.frombuffer(contents[place], dtype, counts[run], starts[place]))
                starts[place] += counts[run] * dtype.itemsize
        columns = {column: np.concatenate(arrays) for column, arrays in pieces.items()}
        order = word_order(columns.pop(ORDER))
        yield {column: values.take(order) for column, values in columns.items()}


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _attempt_name(stem: str) -> str:
    """Return a name that no other attempt has, also not one of a driver that was killed."""
    return f"{stem}-{Stream().words(2).tobytes().hex()}"


TASKS: dict[str, Callable[[JobFile, int], dict[str, Any]]] = {
    "sample": sample_part,
    "check": check_part,
    "draw": draw_part,
    "write": write_part,
}
