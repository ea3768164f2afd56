"""``discreet token``: make, list, replace and revoke the tokens of a service."""

import warnings
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from discreet.cli import options
from discreet.cli.console import Console, write_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from discreet.ledger import Ledger
    from discreet.privacy import Promise
    from discreet.server.access import AccessStore
    from discreet.server.allocations import Allocations
    from discreet.server.audit_log import ServiceLog
    from discreet.server.config import Config
    from discreet.server.credentials import TokenAdmin
    from discreet.server.dataset_config import DatasetConfig

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Manage the tokens and grants of a service. It may run; changes take effect immediately.",
)
ConfigFile = Annotated[
    Path, typer.Option("--config", help="The configuration of the service.", envvar="DISCREET_CONFIG")
]
Name = Annotated[str, typer.Argument(help="Name of the bearer, to which questions are charged.")]
Names = Annotated[
    list[str],
    typer.Argument(help="Names of the bearers, to which their questions are charged.", metavar="NAME..."),
]
Epsilon = Annotated[float | None, typer.Option(help="Limit of each name, within that of the data set.")]
Delta = Annotated[float | None, typer.Option(help="Delta of the limit; goes with --epsilon.")]
Rho = Annotated[
    float | None,
    typer.Option(help="Instead of --epsilon: a limit in zero-concentrated differential privacy."),
]
Mu = Annotated[
    float | None, typer.Option(help="Instead of --epsilon: a limit in Gaussian differential privacy.")
]
Queries = Annotated[int | None, typer.Option(help="With --epsilon and --delta: maximum number of queries.")]
Role = Literal["analyst", "curator", "operator"]
DatasetOption = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        help="Data set that is granted; '*' for all, also later ones. Not needed where there is only one.",
    ),
]
ChargedOption = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        help="Data set it counts for, with those that share its ledger. Not needed if there is only one.",
    ),
]
RoleOption = Annotated[Role, typer.Option(help="Role that is granted; an operator has every data set.")]
_DEFAULT = Path("config.yaml")


@app.command()
def create(
    names: Names,
    config: ConfigFile = _DEFAULT,
    dataset: DatasetOption = None,
    role: RoleOption = "analyst",
    days: Annotated[int, typer.Option(help="Days until it expires.", min=1, max=3660)] = 90,
    epsilon: Epsilon = None,
    delta: Delta = None,
    rho: Rho = None,
    mu: Mu = None,
    queries: Queries = None,
) -> None:
    """Create a token with a grant for each name. It is printed once and cannot be shown again.

    It opens all data sets that are granted to its bearer. For several names each line has a name, a tab and a
    token; if one of them cannot be created, none is.
    """
    numbers: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "mu": mu, "rho": rho, "queries": queries}
    with _open_tokens(config) as (tokens, settings):
        granted = _dataset(settings, dataset, role)
        limit = _limit(settings, granted, numbers)
        made = tokens.create_all(operator_name(), names, days=days, dataset=granted, role=role, limit=limit)
    write_out(
        "".join(f"{token}\n" if len(made) == 1 else f"{name}\t{token}\n" for name, token in made.items())
    )


@app.command()
def limit(
    name: Annotated[str, typer.Argument(help="Name of the bearer, or of the group with --group.")],
    config: ConfigFile = _DEFAULT,
    dataset: ChargedOption = None,
    group: Annotated[
        bool, typer.Option("--group", help="Set the limit of a group, which its members share.")
    ] = False,
    epsilon: Epsilon = None,
    delta: Delta = None,
    rho: Rho = None,
    mu: Mu = None,
    queries: Queries = None,
) -> None:
    """Raise or lower the limit of a name or a group. Without a number, remove it.

    The limit of the data set stays as it is. What was spent before counts under the new limit too.
    """
    numbers: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "mu": mu, "rho": rho, "queries": queries}
    settings = load_config(config)
    entry = _entry(settings, _dataset(settings, dataset, "analyst"))
    with _open_allocations(settings, entry) as allocations:
        promise = _limit(settings, entry.name, numbers)
        allocations.set_limit(operator_name(), "group" if group else "analyst", name, promise)
    limited = "only the limit of the data set" if promise is None else promise
    write_out(f"{name}: {limited} at {_list_charged(settings, entry)}.\n")


@app.command()
def group(
    name: Name,
    group: Annotated[
        str | None, typer.Argument(help="Name of the group; leave it out to leave the group.")
    ] = None,
    config: ConfigFile = _DEFAULT,
    dataset: ChargedOption = None,
) -> None:
    """Put a name into a group. It leaves the one it is in; what it spends from then on counts there too."""
    settings = load_config(config)
    entry = _entry(settings, _dataset(settings, dataset, "analyst"))
    with _open_allocations(settings, entry) as allocations:
        allocations.set_group(operator_name(), name, group)
    membership = "in no group" if group is None else f"in the group {group}"
    write_out(f"{name}: {membership} at {_list_charged(settings, entry)}.\n")


@app.command(name="list")
def list_(config: ConfigFile = _DEFAULT, json: options.Json = False) -> None:
    """List the tokens by name. The tokens themselves are known only to their bearers."""
    with _open_tokens(config) as (tokens, _):
        rows = tokens.list_tokens()
    console = Console(as_json=json)
    console.json({"tokens": rows})
    console.table(
        "",
        ("name", "valid at", "roles", "created", "expires", "state"),
        (
            (
                t["name"], t["at"], _roles(t["roles"]) or "no role",
                _day(t["created"]), _day(t["expires"]), t["state"],
            )
            for t in rows
        ),
        left=5,
    )  # fmt: skip


@app.command()
def people(config: ConfigFile = _DEFAULT, json: options.Json = False) -> None:
    """List people who may sign in through a provider. Also those who did, by the names that are charged."""
    from discreet.server.sign_in import list_people

    with _open_access(config) as (access, settings):
        rows = list_people(settings.sign_in, access.identities())
    console = Console(as_json=json)
    console.json({"people": rows})
    console.table(
        "",
        ("name", "subject", "shown as", "roles", "last sign-in"),
        (
            (
                one["name"], one["subject"], one["display"],
                _roles(one["roles"]) or "may not sign in",
                "never" if one["latest"] is None else _day(one["latest"]),
            )
            for one in rows
        ),
        left=5,
    )  # fmt: skip


@app.command()
def rotate(name: Name, config: ConfigFile = _DEFAULT) -> None:
    """Replace a token by a new one and print it once. The old one becomes invalid immediately."""
    with _open_tokens(config) as (tokens, _):
        token = tokens.rotate(operator_name(), name)
    write_out(token + "\n")


@app.command()
def revoke(name: Name, config: ConfigFile = _DEFAULT) -> None:
    """Revoke the tokens and end the sign-ins of a name. Answers that were paid for stay paid."""
    with _open_tokens(config) as (tokens, _):
        count = tokens.revoke(operator_name(), name)
    write_out(f"{name}: {'revoked' if count else 'had no valid token and no open sign-in'}.\n")


@app.command()
def grant(
    name: Name, config: ConfigFile = _DEFAULT, dataset: DatasetOption = None, role: RoleOption = "analyst"
) -> None:
    """Give a name a role on a data set. It replaces the one that it has there."""
    with _open_tokens(config) as (tokens, settings):
        granted = _dataset(settings, dataset, role)
        tokens.grant(operator_name(), name, granted, role)
    write_out(f"{name}: {role} of {'all data sets' if granted == '*' else granted}.\n")


@app.command()
def withdraw(name: Name, config: ConfigFile = _DEFAULT, dataset: DatasetOption = None) -> None:
    """Withdraw the role of a name on a data set. It takes effect immediately, also in open sessions."""
    with _open_tokens(config) as (tokens, settings):
        granted = _dataset(settings, dataset, "analyst")
        had = tokens.withdraw(operator_name(), name, granted)
    write_out(f"{name}: {'withdrawn' if had else 'had no role there'}.\n")


def _dataset(settings: "Config", named: str | None, role: Role) -> str:
    """Return the data set that an option names; the only one, or all for an operator, if it names none."""
    from discreet.server.callers import EVERY

    if named is None and role == "operator":
        return EVERY
    if named is None and len(settings.datasets) == 1:
        return next(iter(settings.datasets))
    return EVERY if named == EVERY else _entry(settings, named).name


def _list_charged(settings: "Config", entry: "DatasetConfig") -> str:
    """Return the names of data sets where a limit or a group counts: all that share a ledger."""
    from discreet.formatting import list_names

    return list_names([name for name, one in settings.datasets.items() if one.ledger == entry.ledger])


def _entry(settings: "Config", named: str | None) -> "DatasetConfig":
    """Return the entry of a data set in the configuration."""
    from discreet.errors import ParameterError

    if named not in settings.datasets:
        raise ParameterError(
            f"--dataset must be one of {', '.join(settings.datasets)}, was {named or 'not given'}. Name one."
        )
    return settings.datasets[named]


@contextmanager
def _open_access(config: Path) -> "Iterator[tuple[AccessStore, Config]]":
    """Open the access store of a service, and yield it with the configuration of the service."""
    from discreet.server.access import AccessStore

    settings = load_config(config)
    with closing(AccessStore(settings.access, sign_in=settings.sign_in)) as access:
        yield access, settings


@contextmanager
def _open_tokens(config: Path) -> "Iterator[tuple[TokenAdmin, Config]]":
    """Open the token store of a service, and yield it with the configuration of the service."""
    from discreet.server.audit_log import ServiceLog
    from discreet.server.credentials import TokenAdmin

    with _open_access(config) as (access, settings), closing(ServiceLog(settings.audit_log)) as log:
        if not log.find_files():
            # The first line would begin another log, which the next start of the service would refuse.
            _require_no_other_log(settings, log)
            _warn_of_other_log(settings, log, access)
        yield TokenAdmin(access, log, partial(_keep_limits, settings)), settings


def _require_no_other_log(settings: "Config", log: "ServiceLog") -> None:
    """Refuse a new audit log where a ledger that is there has anchors of another one."""
    from discreet.ledger import Ledger
    from discreet.server.dataset import load_schema, open_ledger

    for name, entry in settings.datasets.items():
        if Ledger.identity_at(entry.ledger) is not None:
            with open_ledger(entry, load_schema(entry)) as ledger:
                log.compare(name, ledger)


def _warn_of_other_log(settings: "Config", log: "ServiceLog", access: "AccessStore") -> None:
    """Say that a log begins though tokens were made before, which are in another one."""
    from discreet.errors import DiscreetWarning

    if access.tokens():
        warnings.warn(
            f"audit_log {str(log.path)!r} of the configuration is not there, though tokens were made before: "
            "the lines about them are in another log, and the next change begins a new one. If the "
            "configuration names the wrong place, put that right before the service starts.",
            DiscreetWarning,
            stacklevel=2,
        )


def load_config(config: Path) -> "Config":
    """Return the configuration of a service, or say that there is no such file."""
    from discreet.errors import ParameterError
    from discreet.server.config import Config

    if not config.exists():
        raise ParameterError(
            f"--config must be the configuration of the service, and there is no file {str(config)!r}. "
            "Give its path, or set DISCREET_CONFIG."
        )
    return Config.load(config)


@contextmanager
def open_ledgers(settings: "Config") -> "Iterator[dict[str, Ledger]]":
    """Open the ledgers of a service that are there, and yield them by name; none is created."""
    from discreet.server.dataset import load_schema, open_ledger
    from discreet.server.preflight import find_ledger

    with ExitStack() as stack:
        yield {
            name: stack.enter_context(open_ledger(entry, load_schema(entry)))
            for name, entry in settings.datasets.items()
            if find_ledger(settings, entry)
        }


@contextmanager
def _keep_limits(
    settings: "Config", by: str, dataset: str, names: "Sequence[str]", limit: "Promise"
) -> "Iterator[None]":
    """Set the limit of bearers in the ledger of a data set, and put back those before if the body fails."""
    with (
        _open_allocations(settings, settings.datasets[dataset]) as allocations,
        allocations.keep_limits(by, names, limit),
    ):
        yield


@contextmanager
def _open_allocations(settings: "Config", entry: "DatasetConfig") -> "Iterator[Allocations]":
    """Open the ledger of a data set, and yield the limits of analysts and groups in it."""
    from discreet.server.allocations import Allocations
    from discreet.server.audit_log import ServiceLog
    from discreet.server.dataset import load_schema, open_ledger
    from discreet.server.preflight import find_ledger

    find_ledger(settings, entry)  # a lost one is refused here; one that was never there is created
    with open_ledger(entry, load_schema(entry)) as ledger, closing(ServiceLog(settings.audit_log)) as log:
        if not log.find_files():
            log.compare(entry.name, ledger)  # as above
        yield Allocations(ledger, log, entry)


def _limit(settings: "Config", dataset: str, numbers: dict[str, Any]) -> "Promise | None":
    """Return the limit that options name, about the unit of a data set; None if they name none."""
    if all(value is None for value in numbers.values()):
        return None
    from discreet.server.dataset import load_schema

    promise: Promise = options.make_promise(load_schema(_entry(settings, dataset)), **numbers)
    return promise


def operator_name() -> str:
    """Return who runs this command, for the audit log."""
    import getpass

    try:
        return f"{getpass.getuser()} at a terminal"
    except (OSError, KeyError):  # a container may run under a number without a name
        return "unknown user at a terminal"


def _roles(roles: dict[str, str]) -> str:
    """Return roles by data set as text, such as ``curator of visits``."""
    return ", ".join(f"{role} of {name}" for name, role in roles.items())


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
