"""The books of a data set: every charge, kept where no crash, copy or race can lose it.

Reading order: :mod:`~discreet.ledger._ledger` has the :class:`Ledger` that people use;
:mod:`~discreet.ledger._opening` how it is found or made,
:mod:`~discreet.ledger._charges` what a charge does and
:mod:`~discreet.ledger.totals` the sums it moves;
:mod:`~discreet.ledger.entries` how charges are read back,
:mod:`~discreet.ledger.backup` how a ledger is copied and put back;
:mod:`~discreet.ledger.records` the hash chain over its record;
:mod:`~discreet.ledger._verification` the replay behind ``check``;
:mod:`~discreet.ledger.transaction` what a transaction sees and has yet to write;
:mod:`~discreet.ledger._store` what a database must do for it;
:mod:`~discreet.ledger._sqlite` and :mod:`~discreet.ledger._postgres` the two that do, with
their idle connections in :mod:`~discreet.ledger.pool` and the threads that write through them in
:mod:`~discreet.ledger.line`.
"""

from __future__ import annotations

from discreet.ledger._ledger import Ledger
from discreet.ledger.entries import Entry

__all__ = ["Entry", "Ledger"]
