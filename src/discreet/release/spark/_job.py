"""Private files through which driver and workers of one release exchange rows, keys and plans."""

from __future__ import annotations

import hashlib
import os
import pickle
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from discreet.errors import SourceError
from discreet.tables.parquet_parts import PART_ROWS
from discreet.tables.spark import installed_version
from discreet.tables.table import ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from discreet._types import AnyArray, Bools
    from discreet.release.publication import ReleasePlan
    from discreet.schema import Schema
    from discreet.tables import Batch
    from discreet.tables.parquet_parts import ParquetParts

T = TypeVar("T", bound="SourceJob")
_RUNS = 256
_MOST_RUNS = 1 << 20
"""Largest number of runs of rows that pass from parts that are read to parts that are written."""


def part_batches(n_rows: int) -> int:
    """Return the number of batches in a part, which follows from the number of rows alone."""
    batches = PART_ROWS // ROWS
    while (n_rows / (batches * ROWS)) ** 2 > _MOST_RUNS:
        batches *= 2
    return batches


@dataclass(frozen=True, kw_only=True)
class SourceJob:
    """What a worker has to know to read a part of the table.

    Attributes
    ----------
    schema : Schema
        Declaration of the columns.
    parts : ParquetParts
        Files of the table.
    batches : int
        Number of batches in a part.
    version : str
        Version of the package by which the driver wrote the job.
    """

    schema: Schema
    parts: ParquetParts
    batches: int
    version: str = field(default_factory=installed_version)

    @property
    def n_parts(self) -> int:
        """Number of parts that are read."""
        return -(-self.parts.n_rows // (self.batches * ROWS))

    def read_part(self, number: int) -> Iterator[tuple[int, Batch]]:
        """Yield the batches of one part, each with its number in the whole table."""
        return self.parts.read_batches(self.schema, number * self.batches, (number + 1) * self.batches)


@dataclass(frozen=True, kw_only=True)
class SampleJob(SourceJob):
    """What a worker has to know to take its share of the fingerprint of the table.

    Attributes
    ----------
    key : bytes
        Key of fingerprints, by which guesses at rows can be tested.
    folder : Path
        Private folder for the samples of parts.
    """

    key: bytes = field(repr=False)
    folder: Path


@dataclass(frozen=True, kw_only=True)
class DrawJob(SourceJob):
    """What a worker has to know to draw and write a part of the release.

    Attributes
    ----------
    plan : ReleasePlan
        Noise of the release.
    plan_digest : str
        Digest of the plan, of which the keystreams of batches depend.
    key : bytes
        Key of all batches: ``derive_key("parts")`` of the stream of the release.
    digests : tuple of str
        Digest of the rows of each part that was paid for.
    folder : Path
        Private folder for drawn rows, written parts and the mask of rows.
    """

    plan: ReleasePlan
    plan_digest: str
    key: bytes = field(repr=False)
    digests: tuple[str, ...]
    folder: Path

    @property
    def n_written(self) -> int:
        """Number of parts that are written, a power of two: the first bits of a row's word are its part.

        It has at most 16 bits, since the number of parts that are read is limited.
        """
        return 1 << (self.n_parts - 1).bit_length()

    @property
    def n_runs(self) -> int:
        """Number of runs of words by which drawn rows are stored: a run of all parts fits into a cache."""
        return max(self.n_written, _RUNS)

    def mask(self, batch: int, n_rows: int) -> Bools | None:
        """Return which rows of a batch are used; None for all."""
        if self.schema.id_column is None:
            return None
        kept: AnyArray = np.load(self.folder / "kept.npy", mmap_mode="r")
        return np.asarray(kept[batch * ROWS : batch * ROWS + n_rows])


@dataclass(frozen=True, kw_only=True)
class WriteJob(DrawJob):
    """What a worker has to know to write a part: also the files that hold the drawn rows.

    Attributes
    ----------
    drawn : tuple of (str, tuple of int)
        Name of the file with the drawn rows of each part that was read, and the number of rows in each of its
        runs.
    layout : tuple of (str, str)
        Name and numpy type of each column of drawn rows, the words by which they are ordered last.
    """

    layout: tuple[tuple[str, str], ...]
    drawn: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class JobFile:
    """Address of a job: all that Spark carries to a worker, beside the number of a part.

    Attributes
    ----------
    path : str
        Private file that holds the job.
    digest : str
        SHA-256 of the file, in hexadecimal.
    """

    path: str
    digest: str

    @classmethod
    def write(cls, job: SourceJob, folder: Path, name: str) -> JobFile:
        """Write a job to a file that only its owner can read."""
        content, path = pickle.dumps(job), folder / name
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "wb") as file:  # noqa: PTH123 - a handle, not a path
            file.write(content)
            file.flush()
            os.fsync(handle)
        return cls(str(path), hashlib.sha256(content).hexdigest())

    def read(self, kind: type[T]) -> T:
        """Return the job; raise unless it is the one that the driver wrote, for this version."""
        job = _load(self)
        if not isinstance(job, kind) or job.version != installed_version():
            raise SourceError(
                f"A worker of Spark runs discreet {installed_version()}, and the driver another version. "
                "They must be equal: noise would be drawn otherwise. Install the same version on both."
            )
        return job


@lru_cache(maxsize=1)
def _load(file: JobFile) -> Any:
    content = Path(file.path).read_bytes()
    if hashlib.sha256(content).hexdigest() != file.digest:
        raise SourceError(
            "The job of a Spark release was changed while it ran. No one else may write to its folder."
        )
    return pickle.loads(content)  # noqa: S301 - its hash is the driver's
