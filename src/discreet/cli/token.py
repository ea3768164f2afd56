"""``discreet token``: make, list, replace and revoke the tokens of a service."""

from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from discreet.cli import options
from discreet.cli.console import Console, write_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet.ledger import Ledger
    from discreet.privacy import Promise
    from discreet.server.config import Config
    from discreet.server.credentials import TokenAdmin
    from discreet.server.dataset_config import DatasetConfig

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Manage the tokens and grants of a service, also while it runs; changes take effect immediately.",
)
ConfigFile = Annotated[
    Path, typer.Option("--config", help="The configuration of the service.", envvar="DISCREET_CONFIG")
]
Name = Annotated[str, typer.Argument(help="Name of the bearer, whose queries are charged to it.")]
Role = Literal["analyst", "curator", "operator"]
DatasetOption = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        help="Data set that is granted; '*' for all, also later ones. Not needed if there is one.",
    ),
]
RoleOption = Annotated[Role, typer.Option(help="What is granted; an operator has every data set.")]
_DEFAULT = Path("config.yaml")


@app.command()
def create(
    name: Name,
    config: ConfigFile = _DEFAULT,
    dataset: DatasetOption = None,
    role: RoleOption = "analyst",
    days: Annotated[int, typer.Option(help="Days until it expires.", min=1, max=3660)] = 90,
    epsilon: Annotated[
        float | None, typer.Option(help=("A limit for this bearer, which cannot be changed later."))
    ] = None,
    delta: Annotated[float | None, typer.Option(help="Goes with --epsilon.")] = None,
    rho: Annotated[
        float | None, typer.Option(help=("Instead: a limit in zero-concentrated differential privacy."))
    ] = None,
    mu: Annotated[
        float | None, typer.Option(help="Instead: a limit in Gaussian differential privacy.")
    ] = None,
    queries: Annotated[
        int | None, typer.Option(help="With --epsilon and --delta: maximum number of queries.")
    ] = None,
) -> None:
    """Create a token with a grant and print it once; it cannot be shown again.

    It opens all data sets that are granted to its bearer.
    """
    numbers: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "mu": mu, "rho": rho, "queries": queries}
    with _open_tokens(config) as (tokens, settings):
        granted, limit = _dataset(settings, dataset, role), None
        if any(value is not None for value in numbers.values()):
            from discreet.server.dataset import load_schema

            limit = options.make_promise(load_schema(_entry(settings, granted)), **numbers)
        token = tokens.create(operator_name(), name, days=days, dataset=granted, role=role, limit=limit)
    write_out(token + "\n")


@app.command(name="list")
def list_(config: ConfigFile = _DEFAULT, json: options.Json = False) -> None:
    """List the tokens by name; the tokens themselves are known only to their bearers."""
    with _open_tokens(config) as (tokens, _):
        rows = tokens.list_tokens()
    console = Console(as_json=json)
    console.json({"tokens": rows})
    console.table(
        "",
        ("name", "at", "role", "made", "expires", "state"),
        (
            (t["name"], t["at"], t["role"] or "nothing", _day(t["created"]), _day(t["expires"]), t["state"])
            for t in rows
        ),
        left=5,
    )


@app.command()
def rotate(name: Name, config: ConfigFile = _DEFAULT) -> None:
    """Replace a token by a new one and print it once; the old one becomes invalid immediately."""
    with _open_tokens(config) as (tokens, _):
        token = tokens.rotate(operator_name(), name)
    write_out(token + "\n")


@app.command()
def revoke(name: Name, config: ConfigFile = _DEFAULT) -> None:
    """Revoke the tokens of a name immediately; answers that were paid for stay paid."""
    with _open_tokens(config) as (tokens, _):
        count = tokens.revoke(operator_name(), name)
    write_out(f"{name}: {'revoked' if count else 'had no valid token'}.\n")


@app.command()
def grant(
    name: Name, config: ConfigFile = _DEFAULT, dataset: DatasetOption = None, role: RoleOption = "analyst"
) -> None:
    """Give a name a role on a data set, in place of the one that it has there."""
    with _open_tokens(config) as (tokens, settings):
        granted = _dataset(settings, dataset, role)
        tokens.grant(operator_name(), name, granted, role)
    write_out(f"{name}: {role} of {'all data sets' if granted == '*' else granted}.\n")


@app.command()
def withdraw(name: Name, config: ConfigFile = _DEFAULT, dataset: DatasetOption = None) -> None:
    """Withdraw the role of a name on a data set; it takes effect immediately, also in open sessions."""
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


def _entry(settings: "Config", named: str | None) -> "DatasetConfig":
    """Return the entry of a data set in the configuration."""
    from discreet.errors import ParameterError

    if named not in settings.datasets:
        raise ParameterError(
            f"--dataset must be one of {', '.join(settings.datasets)}, was {named or 'not given'}. Name one."
        )
    return settings.datasets[named]


@contextmanager
def _open_tokens(config: Path) -> "Iterator[tuple[TokenAdmin, Config]]":
    """Open the token store of a service, and yield it with the configuration of the service."""
    from discreet.server.access import AccessStore
    from discreet.server.audit_log import ServiceLog
    from discreet.server.credentials import TokenAdmin

    settings = load_config(config)
    access = AccessStore(settings.access)
    try:
        yield TokenAdmin(access, ServiceLog(settings.audit_log), partial(_set_limit, settings)), settings
    finally:
        access.close()


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
    """Open the ledgers of all data sets of a service, and yield them by name."""
    from discreet.server.dataset import load_schema, open_ledger

    with ExitStack() as stack:
        yield {
            name: stack.enter_context(open_ledger(entry, load_schema(entry)))
            for name, entry in settings.datasets.items()
        }


def _set_limit(settings: "Config", dataset: str, name: str, limit: "Promise") -> None:
    """Set the limit of one bearer in the ledger of a data set."""
    from discreet.server.dataset import load_schema, open_ledger

    entry = settings.datasets[dataset]
    with open_ledger(entry, load_schema(entry)) as ledger:
        ledger.set_owner_limit(name, limit, rule=entry.rule, order=entry.order)


def operator_name() -> str:
    """Return who runs this command, for the audit log."""
    import getpass

    try:
        return f"{getpass.getuser()} at a terminal"
    except (OSError, KeyError):  # a container may run under a number without a name
        return "unknown user at a terminal"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
