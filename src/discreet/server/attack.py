"""The reconstruction attack on a data set, run in the background and continued with new answers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from discreet.server.errors import ATTACK_FAILED, ApiError, ApiException
from discreet.server.monitoring import log_failure

if TYPE_CHECKING:
    from discreet.audit.reconstruction import Reconstructor
    from discreet.ledger import Ledger
    from discreet.query import Database


class BackgroundAttack:
    """The attack on all answers of one data set, on a thread of its own.

    The first run reads all answers; later ones continue with those that are new. A result stays until the
    next one is there.

    Parameters
    ----------
    database : Database
        Database whose answers are attacked.
    ledger : Ledger
        Ledger that stores the answers.

    Privacy
    -------
    The result compares with rows, and is for the curator only. Nothing is charged.
    """

    def __init__(self, database: Database, ledger: Ledger) -> None:
        self._database, self._ledger = database, ledger
        self._mutex = threading.Lock()
        self._running: threading.Thread | None = None
        self._closed = threading.Event()
        self._attack: Reconstructor | None = None
        self._result: dict[str, Any] | None = None
        self._failed = False

    def last(self) -> dict[str, Any] | None:
        """Return the last result; None if there is none yet."""
        return self._result

    def run(self, *, patience: float) -> dict[str, Any]:
        """Return a result, waiting for one that uses all answers so far.

        Parameters
        ----------
        patience : float
            Seconds to wait; after that an earlier result is returned, whose ``through_row`` shows its age.

        Raises
        ------
        ApiException
            The first run has not ended yet, or this one failed; it goes on, or is begun again, when called
            again.
        """
        with self._mutex:
            if self._running is None or not self._running.is_alive():
                self._failed = False
                self._running = threading.Thread(target=self._run, name="attack", daemon=True)
                self._running.start()
            running = self._running
        running.join(patience)
        if self._failed and not running.is_alive():
            raise ApiException(ATTACK_FAILED)
        if self._result is None:
            raise ApiException(self._still_running())
        return self._result

    def _still_running(self) -> ApiError:
        rows, _ = self._ledger.head
        read = 0 if self._attack is None else self._attack.row
        return ApiError(
            code="busy",
            message=f"The attack is running: it has read {read:,} of {rows:,} rows of the ledger.",
            hint="Ask again in a moment; it goes on in the background.",
            headers={"Retry-After": "5"},
        )

    def _run(self) -> None:
        """Continue the attack with the answers that are new, and store its result."""
        from discreet.audit.reconstruction import Reconstructor

        try:
            if self._attack is None:
                self._attack = Reconstructor(self._database, self._ledger)
            self._attack.update(lambda: not self._closed.is_set())
            if not self._closed.is_set():
                self._result = {**self._attack.result().to_dict(), "through_row": self._attack.row}
        except Exception as error:
            # Begun afresh next time: an interrupted update may have used an answer for some columns only.
            self._attack = None
            self._failed = True
            if not self._closed.is_set():
                log_failure("attack", error)

    def close(self) -> None:
        """End a run after the piece of answers that it is reading."""
        self._closed.set()
        with self._mutex:
            running = self._running
        if running is not None:
            running.join()
