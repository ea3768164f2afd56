"""The key under which the version of private rows is named in a ledger.

A question that was paid for is free when it comes again about the same rows, so a ledger must recognize the
rows. A plain fingerprint of them would let whoever knows all rows but one test guesses at that one; under a
secret key it tells nothing.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from discreet.errors import LedgerUnavailable
from discreet.noise import Stream

if TYPE_CHECKING:
    from discreet.privacy import Ledger

_LENGTH = 32
_IN_PROCESS: weakref.WeakKeyDictionary[Ledger, bytes] = weakref.WeakKeyDictionary()


def version_key(ledger: Ledger) -> bytes:
    """Return the secret key that goes with a ledger, making it at first use.

    Beside a ledger on file it is a file of mode 0600 that ends in ``.version-key``. With any other ledger
    it lives as long as the process: there a repeat in another process is paid for again.
    """
    if ledger.url == ":memory:" or "://" in ledger.url:
        if ledger not in _IN_PROCESS:
            _IN_PROCESS[ledger] = _fresh()
        return _IN_PROCESS[ledger]
    path = Path(f"{ledger.url}.version-key")
    try:
        with contextlib.suppress(FileExistsError):
            # Written whole under another name first: two processes may come at the same time.
            draft = path.with_name(f"{path.name}.{os.getpid()}")
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                os.write(handle, _fresh())
                os.fsync(handle)
            finally:
                os.close(handle)
            try:
                os.link(draft, path)
            finally:
                draft.unlink()
        return path.read_bytes()[:_LENGTH]
    except OSError as problem:
        raise LedgerUnavailable(
            f"The file {str(path)!r} must be readable, and writable at first use, and is not "
            f"({problem.strerror}). Check who may write beside the ledger."
        ) from None


def _fresh() -> bytes:
    return Stream().words(_LENGTH // 8).tobytes()
