"""The service as a whole: its data sets by name, its callers, and what each of them may see."""

from __future__ import annotations

import contextlib
import threading
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

from discreet.errors import DiscreetError, LedgerUnavailable, ParameterError
from discreet.server.access import AccessStore
from discreet.server.audit_log import ServiceLog
from discreet.server.callers import Caller
from discreet.server.credentials import TokenAdmin
from discreet.server.dataset import Dataset, load_schema
from discreet.server.dataset_service import DatasetService
from discreet.server.errors import FORBIDDEN, NO_SUCH_DATASET, NOT_READY, ApiException
from discreet.server.jobs import JobStore
from discreet.server.monitoring import log

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

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
    shared : Path, optional
        Private folder in which the processes of this service share curated tables, encrypted; None for one
        process.

    Attributes
    ----------
    config : Config
        Configuration that is in effect.
    config_file : path or None
        File that it was read from, which an operator may have read again; None if it was not read.
    datasets : dict of str to DatasetService
        Operations on each table, by its name.
    access : AccessStore
        Tokens, grants, sessions and stop switches.
    audit_log : ServiceLog
        Hash-chained log of what happened.
    jobs : JobStore
        Requests that are answered while nobody waits.
    tokens : TokenAdmin
        Administration of tokens and grants.

    Privacy
    -------
    A caller who has no role on a data set cannot tell it from one that does not exist. A ledger of another
    data set, or one that was set back to an earlier state, is refused at the start.
    """

    def __init__(self, config: Config, *, shared: Path | None = None) -> None:
        """Open access store, audit log and data sets; close what was opened if one of them fails."""
        self.config = config
        self._shared = shared
        self.config_file: Path | None = None
        self._changing = threading.Lock()
        self._retiring: list[threading.Thread] = []
        self.datasets: dict[str, DatasetService] = {}
        with ExitStack() as resources:
            self.access = resources.enter_context(closing(AccessStore(config.access, sign_in=config.sign_in)))
            self.audit_log = resources.enter_context(closing(ServiceLog(config.audit_log)))
            self.jobs = resources.enter_context(closing(JobStore(config.jobs, clock=self.access.now)))
            self.tokens = TokenAdmin(self.access, self.audit_log, self._keep_limits)
            self.datasets = self._open(config, config.datasets)
            self._resources = resources.pop_all()

    def _open(self, config: Config, names: Iterable[str]) -> dict[str, DatasetService]:
        """Open data sets of a configuration, all or none, and log that they are served."""
        schemas = {name: load_schema(config.datasets[name]) for name in names}
        opened: dict[str, DatasetService] = {}
        with ExitStack() as resources:
            for name, schema in schemas.items():
                dataset = Dataset(
                    config, config.datasets[name], schema, self.audit_log, self._shared_copy(name)
                )
                opened[name] = resources.enter_context(
                    closing(DatasetService(dataset, self.access, self.audit_log, config, self.tokens))
                )
                self.audit_log.write_start(
                    name, dataset.ledger, schema=dataset.schema.digest, seeded=config.seed is not None
                )
            resources.pop_all()
        return opened

    def _shared_copy(self, name: str) -> Path | None:
        return None if self._shared is None else self._shared / f"{name}.curated"

    def drop_shared_copy(self, name: str) -> None:
        """Remove the rows that processes share of a data set, so that it is read anew if it comes back."""
        copy = self._shared_copy(name)
        if copy is not None:
            copy.unlink(missing_ok=True)

    def change_datasets(self, config: Config, by: str) -> dict[str, list[str]]:
        """Open the data sets that a new configuration adds, and retire those that it no longer has.

        A retired data set answers what it is being asked, then its table is closed; its ledger stays.

        Parameters
        ----------
        config : Config
            New configuration; apart from added and removed data sets, and from the people and groups that
            may sign in, it must be the one that is in effect.
        by : str
            Name of the operator, for the audit log.

        Returns
        -------
        dict of str to list of str
            Names of the data sets that were ``added`` and ``retired``.

        Raises
        ------
        DiscreetError
            Nothing was changed: a new data set cannot be opened, or something else differs.
        """
        with self._changing:
            check_change(self.config, config)
            added = [name for name in config.datasets if name not in self.datasets]
            retired = [name for name in self.datasets if name not in config.datasets]
            opened = self._open(config, added)
            try:
                for name in retired:
                    self.audit_log.write("retire", dataset=name, who=by)
            except BaseException:
                # Also when interrupted: the service stays as it was.
                for one in opened.values():
                    one.close()
                raise
            leaving = [self.datasets[name] for name in retired]
            kept = {name: one for name, one in self.datasets.items() if name not in retired}
            self.datasets, self.config = kept | opened, config
            self.access.set_sign_in(config.sign_in)
            for one in leaving:
                self._begin_to_retire(one)
        return {"added": added, "retired": retired}

    def _begin_to_retire(self, leaving: DatasetService) -> None:
        thread = threading.Thread(target=self._retire, args=(leaving,), name=f"retire {leaving.name}")
        thread.start()
        self._retiring = [thread, *(earlier for earlier in self._retiring if earlier.is_alive())]

    def _retire(self, leaving: DatasetService) -> None:
        """Wait for the questions that run, anchor the audit log a last time, and close the data set."""
        leaving.retire()
        with contextlib.suppress(DiscreetError):  # the next start says what is wrong with log or ledger
            self.audit_log.anchor({leaving.name: leaving.dataset.ledger})
        leaving.close()

    def _keep_limits(
        self, by: str, dataset: str, names: Sequence[str], limit: Promise
    ) -> AbstractContextManager[None]:
        return self.datasets[dataset].allocations.keep_limits(by, names, limit)

    def find(self, caller: Caller, name: str, role: Role = "analyst") -> DatasetService:
        """Return a data set for a caller who has a role on it, or a higher one.

        Raises
        ------
        ApiException
            There is no such data set, or the caller has no role on it: both are the same error, after the
            same work. A caller with a lower role is told that a higher one is needed.
        """
        if caller.role(name) is None or name not in self.datasets:
            raise ApiException(NO_SUCH_DATASET)
        if not caller.may(role, name):
            raise ApiException(FORBIDDEN)
        return self.datasets[name]

    def visible(self, caller: Caller) -> list[DatasetService]:
        """Return the data sets on which a caller has a role, in the order of their names."""
        return [self.datasets[name] for name in sorted(self.datasets) if caller.role(name) is not None]

    def catalogue(self, caller: Caller) -> list[dict[str, Any]]:
        """Return the public facts about every data set that a caller may see, with role and budgets.

        One whose ledger does not answer is in it without amounts, so that the others can be found.
        """
        return [
            {**one.dataset.summary(), "role": caller.role(one.name), **_readiness_and_budget(one, caller)}
            for one in self.visible(caller)
        ]

    def ready(self) -> bool:
        """Return True if ledgers and engines answer and the audit log can be written; raise otherwise."""
        for one in self.datasets.values():
            one.dataset.ledger.head  # noqa: B018 - reads the ledger
        self.audit_log.check_writable()
        if not all(one.dataset.is_answering for one in self.datasets.values()):
            raise ApiException(NOT_READY)
        return True

    @property
    def is_lost(self) -> bool:
        """Whether all engines have failed for so long that none comes back by itself."""
        return all(one.dataset.is_lost for one in self.datasets.values())

    @property
    def has_lost(self) -> bool:
        """Whether an engine has failed for so long that it does not come back by itself."""
        return any(one.dataset.is_lost for one in self.datasets.values())

    def reopen_lost(self) -> None:
        """Open every data set whose engine is lost anew, as a restart would; log what became of each.

        One that cannot be opened stays as it is: it refuses questions before they are charged.
        """
        with self._changing:
            lost = [one for one in self.datasets.values() if one.dataset.is_lost]
            for one in lost:
                try:
                    opened = self._open(self.config, [one.name])
                except Exception as problem:
                    # Any error at all: the others go on. Its text may quote rows.
                    log("data set not reopened", dataset=one.name, kind=type(problem).__name__)
                    continue
                self.datasets = self.datasets | opened
                self._begin_to_retire(one)
                log("data set reopened", dataset=one.name)

    def anchor_log(self) -> None:
        """Verify the audit log since its last anchor, and record its last line in every ledger."""
        self.audit_log.anchor({name: one.dataset.ledger for name, one in self.datasets.items()})

    def close(self) -> None:
        """Anchor the audit log, and close all data sets and the access store."""
        with contextlib.suppress(DiscreetError):  # the next start says what is wrong with log or ledger
            self.anchor_log()
        for thread in self._retiring:
            thread.join()
        for one in self.datasets.values():
            one.close()
        self._resources.close()


def _readiness_and_budget(one: DatasetService, caller: Caller) -> dict[str, Any]:
    """Return whether a data set can be asked now, and its budgets."""
    try:
        budget = one.budget(caller)
    except LedgerUnavailable:
        return {"ready": False, **one.dataset.accounting.unknown_budget()}
    return {"ready": one.dataset.is_answering, **budget}


def check_change(old: Config, new: Config) -> None:
    """Refuse a configuration that differs in more than data sets, and people who may sign in."""
    for key in type(old).model_fields:
        before, after = getattr(old, key), getattr(new, key)
        if key == "sign_in" and before is not None and after is not None:
            before, after = before.without_people(), after.without_people()
        if key not in ("datasets", "people") and before != after:
            raise ParameterError(
                f"{key} of the configuration must stay the same while the service runs, and differs. Put it "
                "back, or restart the service."
            )
    for kind in ("people", "datasets"):
        before, after = getattr(old, kind), getattr(new, kind)
        for name in before.keys() & after.keys():
            if before[name] != after[name]:
                raise ParameterError(
                    f"{kind}.{name} of the configuration must stay the same while the service runs, and "
                    "differs. Put it back, or restart the service."
                )
