"""``discreet token``: make, list, replace and revoke the tokens of a service."""

from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from discreet.cli import options
from discreet.cli.console import Console, write_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet.server.config import Config
    from discreet.server.credentials import TokenAdmin

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Manage the tokens of a service, also while it runs; changes take effect immediately.",
)
ConfigFile = Annotated[
    Path, typer.Option("--config", help="The configuration of the service.", envvar="DISCREET_CONFIG")
]
Name = Annotated[str, typer.Argument(help="Name of the bearer, whose queries are charged to it.")]
_DEFAULT = Path("config.yaml")


@app.command()
def create(
    name: Name,
    config: ConfigFile = _DEFAULT,
    scope: Annotated[Literal["analyst", "curator"], typer.Option(help="What it opens.")] = "analyst",
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
    """Create a token and print it once; it cannot be shown again."""
    numbers: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "mu": mu, "rho": rho, "queries": queries}
    with _open_tokens(config) as (tokens, settings):
        limit = None
        if any(value is not None for value in numbers.values()):
            from discreet.server.dataset import load_schema

            limit = options.make_promise(load_schema(settings), **numbers)
        token = tokens.create(operator_name(), name, scope, days=days, limit=limit)
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
        ("name", "scope", "made", "expires", "state"),
        ((t["name"], t["scope"], _day(t["created"]), _day(t["expires"]), t["state"]) for t in rows),
        left=4,
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


@contextmanager
def _open_tokens(config: Path) -> "Iterator[tuple[TokenAdmin, Config]]":
    """Open the token store of a service, and yield it with the configuration of the service."""
    from discreet.server.access import AccessStore
    from discreet.server.audit_log import ServiceLog
    from discreet.server.credentials import TokenAdmin

    settings = load_config(config)
    access = AccessStore(settings.access)
    try:
        tokens = TokenAdmin(
            access,
            ServiceLog(settings.audit_log),
            lambda: open_service_ledger(settings),
            rule=settings.rule,
            order=settings.order,
        )
        yield tokens, settings
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


def open_service_ledger(settings: "Config") -> Any:
    """Open the ledger of a service."""
    from discreet.server.dataset import load_schema, open_ledger

    return open_ledger(settings, load_schema(settings))


def operator_name() -> str:
    """Return who runs this command, for the audit log."""
    import getpass

    try:
        return f"{getpass.getuser()} at a terminal"
    except (OSError, KeyError):  # a container may run under a number without a name
        return "unknown user at a terminal"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
