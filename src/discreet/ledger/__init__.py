"""The ledger of a data set: every charge, kept where no crash, copy or race can lose it.

Reading order: ``_ledger`` has the :class:`Ledger` that people use, ``_opening`` how it is created, opened,
backed up and restored; ``_charges`` are the operations that write to it, under the limits of ``_caps``;
``records`` are the rows of its record and the charges read back from them, ``_verification`` the replay
behind ``Ledger.check``; ``transaction`` is what one transaction has read and has yet to write, ``_store`` the
interface to a database, and ``_sqlite`` (with ``_journal``) and ``_postgres`` are the two databases.
``audit_log`` is the hash-chained log of events that is kept beside a ledger.
"""

from __future__ import annotations

from discreet.ledger._caps import Caps
from discreet.ledger._ledger import Ledger
from discreet.ledger.records import Entry

__all__ = ["Caps", "Entry", "Ledger"]
