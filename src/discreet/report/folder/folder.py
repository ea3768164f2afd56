"""Public folder of a release or a model: its files, hashes and signature.

Every byte follows from the released table or model and its statement.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from discreet import learn
from discreet.errors import DiscreetError, ParameterError, SourceError
from discreet.file_system import BINARY, NO_FOLLOW, NON_BLOCKING
from discreet.report.folder._metadata import croissant, data_package, model_card
from discreet.report.folder._readme import readme
from discreet.report.pages.render import model_page, statement_page
from discreet.report.statement.documents import Statement, read_json
from discreet.report.statement.model_documents import MODEL_KIND

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from discreet.learn import Learner
    from discreet.report.noisy_tables import MeasuredTables
    from discreet.report.statement.model_documents import ModelStatement

DATA, READABLE = "data.parquet", "readable.csv"
STATEMENT, PAGE, README = "statement.json", "statement.html", "README.txt"
PACKAGE, CROISSANT = "datapackage.json", "croissant.json"
SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"
CLASSIFIER = "classifier.json"
"""File of the classifier of a masked release."""
TABLES, DEPENDENCES = "tables.json", "model.json"
"""Files of a synthetic release: its noisy answers, and the model made of them."""
PRIOR = "prior.json"
"""File of the law of public rows that attackers were assumed to know, where the curator declared some."""
MODEL, CARD = "model.npz", "model-card.md"
MODEL_PAGE = "model.html"
"""Page of a classifier with the effect of each column; other models have none."""

DATA_FILES = (DATA, DEPENDENCES, PRIOR, READABLE, TABLES)
"""Files of data and of what they were tested with, whose hashes are in the statement."""
LARGEST_TEXT = 1 << 26
"""Largest size in bytes of any file but the data, as they are read into memory."""

_PART = r"part-[0-9]{5}\.parquet"
_LINE = re.compile(rf"([0-9a-f]{{64}})  ([A-Za-z0-9][A-Za-z0-9._-]{{0,99}}|{re.escape(DATA)}/{_PART})")
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class FolderFiles:
    """Names of the files that a public folder holds.

    Attributes
    ----------
    required, optional : tuple of str
        Names of files that must be there, and of files that may be there.
    content : tuple of str
        Names of the files that the statement is about, the only ones that may be large.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...]
    content: tuple[str, ...]

    @property
    def known(self) -> tuple[str, ...]:
        """All names, required ones first."""
        return self.required + self.optional


TABLE_FILES = FolderFiles(
    (DATA, READABLE, README, PACKAGE, CROISSANT, STATEMENT, PAGE, SUMS),
    (SIGNATURE, CLASSIFIER, TABLES, DEPENDENCES, PRIOR),
    (DATA, READABLE),
)
MODEL_FILES = FolderFiles((MODEL, STATEMENT, CARD, SUMS), (SIGNATURE, MODEL_PAGE), (MODEL,))


def find_folder(path: Path) -> Path:
    """Return the public folder: `path` itself, or ``public`` in it.

    Raises
    ------
    SourceError
        If `path` is no folder.
    """
    if not path.is_dir():
        raise SourceError(
            f"path of verify must be a folder, and {str(path)!r} is not. Unpack the release first."
        )
    inside = path / "public"
    return inside if inside.is_dir() and not (path / STATEMENT).exists() else path


def data_digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of data, as a statement carries them."""
    names = [name for name in DATA_FILES if (folder / name).is_file()]
    return {name: digest_of(folder / name) for name in (*names, *part_names(folder))}


def part_names(folder: Path) -> list[str]:
    """Return the files of the published table in order, where it is a folder of parts; empty if it is a file.

    Raises
    ------
    SourceError
        The folder is a link, or holds anything but consecutive parts.
    """
    parts = folder / DATA
    if parts.is_file() or not parts.exists():
        return []
    names = sorted(entry.name for entry in parts.iterdir()) if not parts.is_symlink() else []
    if not names or any(name != f"part-{number:05d}.parquet" for number, name in enumerate(names)):
        raise SourceError(
            f"{DATA} must be a file, or a folder of part-00000.parquet and so on, and is something else. Ask "
            "for the folder again."
        )
    return [f"{DATA}/{name}" for name in names]


def is_part(name: str) -> bool:
    """Return whether a name in a statement is that of a part of the published table."""
    return re.fullmatch(f"{re.escape(DATA)}/{_PART}", name) is not None


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with _open_file(path) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def write_public(folder: Path, statement: Statement) -> None:
    """Write the files that go with the data: statement and page, README, data package, Croissant and hashes.

    Parameters
    ----------
    folder : Path
        Folder with the data that ``statement.files`` lists.
    statement : Statement
        Statement that is written beside it.

    Privacy
    -------
    Adds nothing to what the statement and the data say.
    """
    for name, text in {STATEMENT: statement.to_json(), **derived(statement, folder)}.items():
        (folder / name).write_bytes(text.encode("utf-8"))
    write_sums(folder)


def derived(statement: Statement, folder: Path) -> dict[str, str]:
    """Return the files that follow from the statement and from published answers, by name.

    Parameters
    ----------
    statement : Statement
        Statement of the release.
    folder : Path
        Folder that holds the answers of a synthetic release; of others nothing is read.
    """
    has_answers = TABLES in statement.files
    return {
        README: readme(statement),
        PACKAGE: data_package(statement),
        PAGE: statement_page(statement, _read_measured(folder) if has_answers else None),
        CROISSANT: croissant(statement),
    }


def _read_measured(folder: Path) -> MeasuredTables:
    """Return what the answers in a folder measure."""
    from discreet.report.noisy_tables import read_tables

    tables, model = (read_json(read_bytes(folder / name), name) for name in (TABLES, DEPENDENCES))
    return read_tables(tables, model)


def write_sums(folder: Path) -> None:
    """Write ``SHA256SUMS`` over everything else, in the form that ``sha256sum -c`` reads."""
    names = [
        entry.name for entry in folder.iterdir() if entry.is_file() and entry.name not in (SUMS, SIGNATURE)
    ]
    names += part_names(folder)
    text = sums_text({name: digest_of(folder / name) for name in names})
    (folder / SUMS).write_text(text, encoding="ascii")


def sums_text(digests: Mapping[str, str]) -> str:
    """Return the content of ``SHA256SUMS``: a function of the hashes alone."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))


def read_sums(content: bytes) -> dict[str, str]:
    """Return the hashes of ``SHA256SUMS`` by file name; names that lead out of the folder are refused."""
    try:
        lines = content.decode("ascii").splitlines()
    except UnicodeDecodeError:
        lines = [""]
    matches = [_LINE.fullmatch(line) for line in lines]
    if not all(matches) or len({m[2] for m in matches if m}) != len(matches):
        raise ParameterError(
            f"{SUMS} must have one line for each file, a hash and a plain name, and has others. Ask for the "
            "folder again."
        )
    return {m[2]: m[1] for m in matches if m}


def read_statement(folder: Path) -> Statement:
    """Return the statement of a folder.

    Raises
    ------
    SourceError, ParameterError
        If there is none, or it is something else.
    """
    return Statement.from_json(read_bytes(folder / STATEMENT))


def read_bytes(path: Path, most: int = LARGEST_TEXT) -> bytes:
    """Return the content of a small untrusted file: no links, no devices, at most `most` bytes."""
    with _open_file(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise SourceError(
            f"The file {path.name} must have at most {most} bytes, and has more. It is no file of a release."
        )
    return content


@contextlib.contextmanager
def _open_file(path: Path) -> Iterator[BinaryIO]:
    """Yield an open plain file; links are not followed, and pipes are not waited for."""
    try:
        handle = os.open(path, os.O_RDONLY | NO_FOLLOW | NON_BLOCKING | BINARY)
        with open(handle, "rb") as file:  # noqa: PTH123 - a handle, not a path
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SourceError(f"The file {path.name} must be a plain file, and is something else.")
            yield file
    except OSError as problem:
        raise SourceError(
            f"The file {path.name} must be one that can be read, and is not ({problem.strerror})."
        ) from None


def date_files(folder: Path, created: str) -> None:
    """Set the modification time of every file, and of the folder, to the time of the statement.

    The last file is written after all measurements on private rows: its time would say how long they took.
    """
    when = int(datetime.datetime.fromisoformat(created).timestamp())
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (when, when))


def signing_key(private_key_pem: bytes, password: str | None = None) -> Ed25519PrivateKey:
    """Return the Ed25519 private key in a PEM file, which may have a password."""
    key = _load_key(load_pem_private_key, private_key_pem, None if password is None else password.encode())
    if not isinstance(key, Ed25519PrivateKey):
        raise ParameterError(
            "private_key_pem of signing_key must be an Ed25519 private key, and is another kind."
        )
    return key


def sign(folder: Path, key: Ed25519PrivateKey) -> None:
    """Sign ``SHA256SUMS``, and with it every file, into ``SHA256SUMS.sig``.

    Parameters
    ----------
    folder : Path
        Public folder with all files and hashes.
    key : Ed25519PrivateKey
        Private key, as :func:`signing_key` returns it.
    """
    (folder / SIGNATURE).write_bytes(key.sign(read_bytes(folder / SUMS)))


def is_signed_by(folder: Path, public_key_pem: bytes) -> bool:
    """Return whether ``SHA256SUMS.sig`` was made by the owner of an Ed25519 public key."""
    key = _load_key(load_pem_public_key, public_key_pem)
    if not isinstance(key, Ed25519PublicKey):
        raise ParameterError("public_key must be an Ed25519 public key, and is another kind.")
    try:
        key.verify(read_bytes(folder / SIGNATURE, 64), read_bytes(folder / SUMS))
    except InvalidSignature:
        return False
    return True


def _load_key(load: Any, pem: bytes, *rest: bytes | None) -> Any:
    """Return a key read by a function of ``cryptography``; raise if it cannot be read."""
    try:
        return load(pem, *rest)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ParameterError(
            "A key must be given in PEM, with its password if it has one, and could not be read. Check the "
            "file and the password."
        ) from None


def write_model_folder(folder: Path, statement: ModelStatement, learner: Learner) -> None:
    """Write the files that go with the model: statement, card, page and hashes.

    Parameters
    ----------
    folder : Path
        Folder with the model that ``statement.files`` lists.
    statement : ModelStatement
        Statement that is written beside it.
    learner : Learner
        Fitted learner that the folder holds.

    Privacy
    -------
    Adds nothing to what the statement and the model say.
    """
    (folder / STATEMENT).write_bytes(statement.to_json().encode("utf-8"))
    for name, text in derived_of_model(statement, learner).items():
        (folder / name).write_bytes(text.encode("utf-8"))
    write_sums(folder)


def derived_of_model(statement: ModelStatement, learner: Learner) -> dict[str, str]:
    """Return the files that follow from the statement of a model and from the model, by name."""
    content = {CARD: model_card(statement)}
    if isinstance(learner, learn.PrivateClassifier):
        content[MODEL_PAGE] = model_page(statement, learner)
    return content


def holds_model(folder: Path) -> bool:
    """Return whether a folder claims to be that of a model, by its statement or else by its files."""
    try:
        content = read_json(read_bytes(folder / STATEMENT), STATEMENT)
        return isinstance(content, dict) and content.get("kind") == MODEL_KIND
    except DiscreetError:
        return (folder / MODEL).exists()
