"""What can be found wrong before a service starts, without making or changing anything."""

from __future__ import annotations

import os
import ssl
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from discreet.errors import LedgerError, LedgerTampered, LedgerUnavailable, ParameterError
from discreet.job.declared import table_of
from discreet.ledger import Ledger
from discreet.query.curation import Curation
from discreet.server.config import Config
from discreet.server.office import declared_in, known_table
from discreet.server.trail import Trail
from discreet.tables import open_table

if TYPE_CHECKING:
    from discreet.schema import Schema
    from discreet.server.config import Tls


def check(path: str | os.PathLike[str]) -> Config:
    """Verify a configuration as far as that changes nothing.

    Keys, schema, the head of the table, files and folders, certificate; and of a ledger that exists, whether
    it is the one of this configuration and of the audit trail. A ledger in PostgreSQL is first asked when the
    service starts.

    Raises
    ------
    DiscreetError
        Says what is wrong, and the way out.

    Privacy
    -------
    Tells whoever starts the service, and may see the table, which cell at its head cannot be read; never what
    is in it.
    """
    config = Config.load(path)
    _check_table_is_there(config)
    declared = declared_in(config)
    Curation.of(declared, ids=config.keep_ids)
    _check_table(config, declared)
    _check_files(config)
    if config.tls is not None:
        _check_tls(config.tls)
    _check_ledger(config, declared)
    return config


def _on_file(place: str) -> bool:
    return "://" not in place and not place.startswith("demo:")


def _check_table_is_there(config: Config) -> None:
    """Before its schema is looked for beside it: whoever mistypes a path is not told to declare columns."""
    if _on_file(config.table) and not Path(config.table).exists():
        raise ParameterError(
            f"table of the configuration must be a file that can be read, and there is no {config.table!r}. "
            "Correct it; paths are relative to the configuration."
        )


def _check_table(config: Config, declared: Schema) -> None:
    with open_table(table_of(config.table)) as table:
        rows = table.batches(declared, rows=1)  # names declared columns that are not there
        if _on_file(config.table) and next(rows, None) is None:
            raise ParameterError(
                f"table of the configuration must have at least one row, and {config.table!r} has none. "
                "Export it again."
            )


def _check_files(config: Config) -> None:
    places = {"access": config.access, "audit_log": config.audit_log}
    if _on_file(config.ledger):
        places["ledger"] = Path(config.ledger)
    for key, place in places.items():
        if not (place.parent.is_dir() and os.access(place.parent, os.W_OK)):
            raise ParameterError(
                f"{key} of the configuration must be in a folder that can be written to, and "
                f"{str(place.parent)!r} is not. Make it, or name another."
            )
        if place.is_dir():
            raise ParameterError(
                f"{key} of the configuration must be a file, and {str(place)!r} is a folder. Name a file in "
                "it; it is made."
            )


def _check_tls(tls: Tls) -> None:
    for key, place in (("certificate", tls.certificate), ("key", tls.key)):
        if not (place.is_file() and os.access(place, os.R_OK)):
            raise ParameterError(
                f"tls.{key} of the configuration must be a file that can be read, and {str(place)!r} is "
                "not. Give a PEM file, and let the service's user read it."
            )
    try:
        # A passphrase would be asked for at a terminal, which a service has not.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key, password="")
    except (ssl.SSLError, ValueError):
        raise ParameterError(
            f"tls.key of the configuration must be the private key of tls.certificate, and {str(tls.key)!r} "
            f"is not that of {str(tls.certificate)!r}. Both are PEM files, the key without a passphrase and "
            "the certificate with those that vouch for it."
        ) from None


def _check_ledger(config: Config, declared: Schema) -> None:
    """Refuse a ledger that is gone, is another one or has other limits, before an empty one is made."""
    if not _on_file(config.ledger):
        return
    trail = Trail(config.audit_log)
    if not Path(config.ledger).exists():
        named = trail.furthest()
        if named is not None:
            raise LedgerTampered(
                f"ledger {config.ledger!r} must be there, since the audit trail {str(trail.path)!r} says "
                f"that its row {named.row} paid for an answer, and is not. Put the newest backup in its "
                "place with `discreet ledger restore`; if there is none, move the trail away only after "
                "lowering the limit by what was lost."
            )
        known_table(config, declared).require(new_ledger=config.new_ledger)
        return
    analysts = config.analyst_limit
    try:
        ledger = Ledger.open(
            config.ledger,
            limit=config.limit.promise(declared),
            owner_limit=None if analysts is None else analysts.promise(declared),
            gaussian_share=config.gaussian_share,
        )
    except (LedgerUnavailable, LedgerTampered):
        raise
    except LedgerError as problem:
        raise LedgerError(
            f"{problem} (That is ledger, limit, analyst_limit and gaussian_share of the configuration: write "
            "what the ledger was made with.)"
        ) from None
    with closing(ledger):
        trail.compare(ledger)
    known_table(config, declared).require(new_ledger=config.new_ledger)
