"""What is kept, encrypted, of a curated table, so that its source need not be read again.

A copy is one file of a folder that the operator names, for the next start, or of a temporary one, for the
processes of one service; a version is a small file beside the ledger. The key of such a file follows from
the ledger's secret and a salt of its own. Its first block says of what it was made: of which files in which
state, or for a service of which table. Blocks are sealed by AES-GCM under their number, whether they are the
last, and the name of the file, so that none can be changed, moved or left out unnoticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import time
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from discreet.errors import ParameterError, SourceError
from discreet.file_system import NO_FOLLOW, lock_file
from discreet.noise import Stream
from discreet.privacy.receipt import canonical
from discreet.query.curation import Version
from discreet.tables.table import list_files

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import BinaryIO

    from discreet.ledger import Ledger
    from discreet.query.curation import Curation

_MARK = b"discreet copy 2\n"  # 1: files of several types were read as the first
_SALT, _LENGTH, _TAG, _BLOCK = 32, 4, 16, 2**20  # bytes
_TAIL = 2**16  # bytes at the end of a file that are compared: all of the footer of most Parquet files
LARGE = 2**26
"""Bytes of the files of a table from which on the version of its rows is kept."""
_NAME = 16  # hexadecimal digits by which versions beside one ledger are told apart
_SETTLED = 2 * 10**9  # nanoseconds after which a write to a file cannot have the time of the one before


class SealedFile:
    """A file that holds facts about a table in files, and is valid as long as these do not change.

    Parameters
    ----------
    path : Path
        File that is written, and looked for.
    secret : bytes
        Secret of the ledger, from which the key of the file follows.
    files : sequence of Path
        Files that the table is read from.
    """

    def __init__(self, path: Path, secret: bytes, files: Sequence[Path]) -> None:
        """Look at the files of the table."""
        self._path = path
        self._secret = secret
        self._files = files
        self._started = time.time_ns()
        self._manifest = self._describe_files()

    def _describe_files(self) -> list[list[Any]]:
        """Return path, size, times and the hash of the end of each file."""
        described = []
        for path in self._files:
            with path.open("rb") as file:
                facts = os.fstat(file.fileno())
                file.seek(-min(_TAIL, facts.st_size), 2)
                end = hashlib.sha256(file.read()).hexdigest()
            described.append([str(path), facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, end])
        return described

    def is_current(self) -> bool:
        """Return whether the files are those that were looked at, as far as the file system tells."""
        return self._describe_files() == self._manifest

    def read(self, into: BinaryIO) -> Version | None:
        """Write the decrypted content to an open file; return the version of the rows, None if stale."""
        try:
            with self._path.open("rb") as file, contextlib.closing(self._open_blocks(file)) as blocks:
                head = json.loads(next(blocks))
                if head["files"] != self._manifest:
                    return None
                for block in blocks:
                    into.write(block)
                into.flush()
                return Version(*head["version"])
        except (OSError, InvalidTag, StopIteration) as problem:
            # Absent, damaged, or of another ledger: the table is read anew.
            self._check_replaceable(problem)
            into.seek(0)
            into.truncate()
            return None

    def _check_replaceable(self, problem: Exception) -> None:
        """Raise an error if the table must not be read anew because of what kept the file from being read."""

    def _open_blocks(self, file: BinaryIO) -> Generator[bytes]:
        """Yield the decrypted blocks of the file; raises InvalidTag if one is not as it was written."""
        if file.read(len(_MARK)) != _MARK:
            return
        cipher, name = self._cipher(file.read(_SALT)), self._path.stem.encode()
        sealed, number = file.read(int.from_bytes(file.read(_LENGTH)) + _TAG), 0
        while sealed:
            following = file.read(_BLOCK + _TAG)
            yield cipher.decrypt(_nonce(number, last=not following), sealed, name)
            sealed, number = following, number + 1

    def write(self, held: BinaryIO, version: Version) -> None:
        """Keep the bytes of an open file, unless the source was written to meanwhile."""
        if not self._may_be_kept():
            return
        draft = self._path.with_suffix(".part")
        with os.fdopen(os.open(draft, os.O_RDWR | os.O_CREAT | NO_FOLLOW, 0o600), "wb") as file:
            if not lock_file(file.fileno(), wait=False):
                return  # another process writes the same
            file.truncate()
            salt = Stream().words(_SALT // 8).tobytes()
            cipher, name = self._cipher(salt), self._path.stem.encode()
            head = canonical({"files": self._manifest, "version": astuple(version)}).encode()
            file.write(_MARK + salt + len(head).to_bytes(_LENGTH))
            held.seek(0)
            block, number = head, 0
            while block:
                following = held.read(_BLOCK)
                file.write(cipher.encrypt(_nonce(number, last=not following), block, name))
                block, number = following, number + 1
            file.flush()
            os.fsync(file.fileno())
            draft.replace(self._path)

    def _may_be_kept(self) -> bool:
        """Return whether a later look at the files would show any change since they were read."""
        newest = max(max(facts[2], facts[3]) for facts in self._manifest)
        return newest <= self._started - _SETTLED and self.is_current()

    def _cipher(self, salt: bytes) -> AESGCM:
        derived = HKDF(hashes.SHA256(), length=32, salt=salt, info=b"discreet kept copy")
        return AESGCM(derived.derive(self._secret))


class KeptCopy(SealedFile):
    """One curated table in a folder of kept copies.

    Parameters
    ----------
    folder : path
        Folder of the copies; made with mode 0700 if it does not exist.
    secret : bytes
        Secret of the ledger, from which the keys of copies follow.
    source : path
        Table in files: Parquet, a folder or pattern of it, text, or a DuckDB database.
    curation : Curation
        Layout of the curated table.
    salt : str
        Salt that decides which rows of a unit are used.

    Privacy
    -------
    Without the ledger's secret a file tells its length, hence about how many rows there are, and when it was
    written. No row is ever in a file that has a name and is not encrypted. A copy of files that have changed
    is not read; it is replaced at the next registration.

    Reference
    ---------
    docs/decisions/0062-kept-copies.md.
    """

    def __init__(
        self, folder: str | os.PathLike[str], secret: bytes, source: Any, curation: Curation, salt: str
    ) -> None:
        """Look at the files of the source, and name the copy."""
        files = list_files(source) if isinstance(source, str | os.PathLike) else None
        if files is None:
            raise ParameterError(
                "keep of a Database must be left out where the table is not in files, since nothing tells "
                "whether its rows are still the same. Write the table to Parquet files."
            )
        place = Path(folder)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        layout = [
            curation.schema.digest,
            curation.ids,
            salt,
            duckdb.__version__,
            str(Path(source).absolute()),
        ]
        super().__init__(place / f"{_sealed_name(secret, 'kept copy', layout)}.curated", secret, files)


class SharedCopy(SealedFile):
    """One curated table in a private folder, for the processes of one service while it runs.

    Parameters
    ----------
    path : Path
        File of the copy, in a folder that is removed when the service ends.
    secret : bytes
        Secret of the ledger, from which the key of the copy follows.
    source : Any
        Table that was curated, by its path or address.
    curation : Curation
        Layout of the curated table.
    salt : str
        Salt that decides which rows of a unit are used.

    Privacy
    -------
    See :class:`KeptCopy`. The copy is not compared with the source: the rows of a service are those of its
    start, and a process that starts later has to answer about the same ones as the others.

    Reference
    ---------
    docs/decisions/0176-processes-share-curated-rows.md.
    """

    def __init__(self, path: Path, secret: bytes, source: Any, curation: Curation, salt: str) -> None:
        """Note of which table the copy is, in which layout."""
        self._contents = [[str(source), curation.schema.digest, curation.ids, salt, duckdb.__version__]]
        super().__init__(path, secret, ())

    def _describe_files(self) -> list[list[Any]]:
        """Return what the copy is of."""
        return self._contents

    def _may_be_kept(self) -> bool:
        return True

    def _check_replaceable(self, problem: Exception) -> None:
        """Refuse to read the source anew while there is a copy: other processes answer about its rows."""
        if isinstance(problem, OSError) and not isinstance(problem, FileNotFoundError):
            raise SourceError(
                f"The copy of the curated rows that the processes of a service share cannot be read: "
                f"{type(problem).__name__}. Look for a full disk or too many open files."
            ) from None

    @contextlib.contextmanager
    def lock(self) -> Generator[None]:
        """Wait until no other process reads the source to make this copy, and be the only one that may."""
        handle = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | NO_FOLLOW, 0o600)
        with os.fdopen(handle) as file:
            lock_file(file.fileno())
            yield


class KeptVersion(SealedFile):
    """Version of the rows of a large table in files, kept beside the ledger for questions about few columns.

    Privacy
    -------
    The version of private rows lets whoever knows all rows but one test guesses at that one, and is sealed
    as a kept copy is. The file holds no row, and its length follows from the number and names of the source's
    files.

    Reference
    ---------
    docs/decisions/0095-questions-read-their-columns.md.
    """

    @classmethod
    def beside(cls, ledger: Ledger, source: Any, curation: Curation) -> KeptVersion | None:
        """Return the place of a table's version; None where no version is kept.

        Notes
        -----
        None is kept of a small table, which is read as fast; nor of one in which people have several rows,
        since which of them are used follows from all columns.
        """
        in_file = "://" not in ledger.url and ledger.url != ":memory:"
        files = list_files(source) if isinstance(source, str | os.PathLike) and in_file else None
        if files is None or curation.has_units or sum(path.stat().st_size for path in files) < LARGE:
            return None
        secret, place = ledger.secret(), Path(ledger.url)
        layout = [curation.schema.digest, str(Path(source).absolute())]
        name = _sealed_name(secret, "kept version", layout)[:_NAME]
        return cls(place.with_name(f"{place.name}.{name}.rows"), secret, files)


def _sealed_name(secret: bytes, kind: str, layout: list[Any]) -> str:
    return hmac.new(secret, canonical([kind, layout]).encode(), hashlib.sha256).hexdigest()


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11) + bytes([last])
