"""Compiled templates, kept beside the compiled modules of this package."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import sys
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2

if TYPE_CHECKING:
    from jinja2.bccache import Bucket

_UNREADABLE = (OSError, EOFError, ValueError, pickle.UnpicklingError)


class CompiledTemplates(jinja2.BytecodeCache):
    """Keeps the code of templates where Python keeps that of modules: in ``__pycache__``, if it may.

    Compiling the templates of a page takes as long as writing it, a tenth of a short command.

    Parameters
    ----------
    folder : Path
        Folder of the templates.
    options : str
        Everything besides its text on which the code of a template depends: whatever is kept under other
        options, or by another version of Jinja, is not found.
    """

    def __init__(self, folder: Path, options: str) -> None:
        self._folder = folder
        self._tag = hashlib.sha256(f"{jinja2.__version__} {options}".encode()).hexdigest()[:16]

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """Return the file in which the code of a template is kept."""
        return cache_from_source(str(self._folder / name), optimization=self._tag)

    def load_bytecode(self, bucket: Bucket) -> None:
        """Load the code of a template, if it is there and was made from the same text."""
        # Another one is written in its place.
        with contextlib.suppress(*_UNREADABLE), Path(bucket.key).open("rb") as file:
            bucket.load_bytecode(file)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep the code of a template, unless Python is told to keep none or the folder is read-only."""
        if sys.dont_write_bytecode:
            return
        path = Path(bucket.key)
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(bucket.bytecode_to_string())
            # As a whole: another process may read it at the same time.
            partial.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
