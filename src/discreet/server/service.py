"""The service as a whole: its data sets by name, its callers, and what each of them may see."""

from __future__ import annotations

import contextlib
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

from discreet.errors import DiscreetError
from discreet.server.access import AccessStore
from discreet.server.audit_log import ServiceLog
from discreet.server.callers import Caller
from discreet.server.credentials import TokenAdmin
from discreet.server.dataset import Dataset, load_schema
from discreet.server.dataset_service import DatasetService
from discreet.server.errors import FORBIDDEN, NOT_FOUND, ApiException

if TYPE_CHECKING:
    from discreet.privacy import Promise
    from discreet.server.callers import Role
    from discreet.server.config import Config

__all__ = ["Caller", "Service"]


class Service:
    """Private tables, their ledgers, and the callers who may query them.

    Parameters
    ----------
    config : Config
        Configuration as the operator wrote it.

    Attributes
    ----------
    config : Config
        Configuration that the service was made with.
    datasets : dict of str to DatasetService
        Operations on each table, by its name.
    access : AccessStore
        Tokens, grants, sessions and stop switches.
    audit_log : ServiceLog
        Hash-chained log of what happened.
    tokens : TokenAdmin
        Administration of tokens and grants.

    Privacy
    -------
    A caller who has no role on a data set cannot tell it from one that does not exist. A ledger of another
    data set, or one that was set back to an earlier state, is refused at the start.
    """

    def __init__(self, config: Config) -> None:
        """Open access store, audit log and data sets; close what was opened if one of them fails."""
        self.config = config
        schemas = {name: load_schema(entry) for name, entry in config.datasets.items()}
        with ExitStack() as resources:
            self.access = resources.enter_context(closing(AccessStore(config.access)))
            self.audit_log = ServiceLog(config.audit_log)
            self.tokens = TokenAdmin(self.access, self.audit_log, self._set_limit)
            self.datasets: dict[str, DatasetService] = {}
            for name, schema in schemas.items():
                dataset = Dataset(config, config.datasets[name], schema, self.audit_log)
                self.datasets[name] = resources.enter_context(
                    closing(DatasetService(dataset, self.access, self.audit_log, config, self.tokens))
                )
                self.audit_log.write_start(
                    name, dataset.ledger, schema=dataset.schema.digest, seeded=config.seed is not None
                )
            self._resources = resources.pop_all()

    def _set_limit(self, by: str, dataset: str, name: str, limit: Promise) -> None:
        self.datasets[dataset].allocations.set_limit(by, "analyst", name, limit)

    def find(self, caller: Caller, name: str, role: Role = "analyst") -> DatasetService:
        """Return a data set for a caller who has a role on it, or a higher one.

        Raises
        ------
        ApiException
            There is no such data set, or the caller has no role on it: both are the same error, after the
            same work. A caller with a lower role is told that a higher one is needed.
        """
        if caller.role(name) is None or name not in self.datasets:
            raise ApiException(NOT_FOUND)
        if not caller.may(role, name):
            raise ApiException(FORBIDDEN)
        return self.datasets[name]

    def visible(self, caller: Caller) -> list[DatasetService]:
        """Return the data sets on which a caller has a role, in the order of their names."""
        return [self.datasets[name] for name in sorted(self.datasets) if caller.role(name) is not None]

    def catalogue(self, caller: Caller) -> list[dict[str, Any]]:
        """Return the public facts about every data set that a caller may see, with role and budgets."""
        return [
            {**one.dataset.summary(), "role": caller.role(one.name), **one.budget(caller)}
            for one in self.visible(caller)
        ]

    def ready(self) -> bool:
        """Return True if ledgers and engines answer and the audit log can be written; raise otherwise."""
        for one in self.datasets.values():
            one.dataset.ledger.head  # noqa: B018 - reads the ledger
        self.audit_log.check_writable()
        for one in self.datasets.values():
            one.dataset.check_engine()
        return True

    @property
    def is_lost(self) -> bool:
        """Whether no engine has answered for so long that only a new process brings one back."""
        return all(one.dataset.is_lost for one in self.datasets.values())

    def anchor_log(self) -> None:
        """Verify the audit log since its last anchor, and record its last line in every ledger."""
        for name, one in self.datasets.items():
            self.audit_log.anchor(name, one.dataset.ledger)

    def close(self) -> None:
        """Anchor the audit log, and close all data sets and the access store."""
        with contextlib.suppress(DiscreetError):  # the next start says what is wrong with log or ledger
            self.anchor_log()
        self._resources.close()
