"""``discreet serve``: answer queries on a private table over HTTP."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from discreet.cli.console import write_out

if TYPE_CHECKING:
    from discreet.server.service import Service


def serve(
    config: Annotated[
        Path, typer.Argument(help="A YAML file: see docs/howto/run-the-service.md.", metavar="CONFIG")
    ],
    check: Annotated[
        bool,
        typer.Option("--check", help="Say whether the configuration is right; start and change nothing."),
    ] = False,
    ready: Annotated[
        bool,
        typer.Option(
            "--ready", help="Say whether the service that was started with it answers; start nothing."
        ),
    ] = False,
) -> None:
    """Answer analysts over HTTP, under one budget, until it is stopped.

    Ctrl-C or SIGTERM ends it quietly: what is being answered is finished, and nothing that was paid is lost.
    """
    if ready:
        from discreet.server.config import Config
        from discreet.server.health import probe

        settings = Config.load(config)
        probe(settings)
        write_out(f"{config}: ready. {settings.dataset} is answered for at {settings.listen}.\n")
        return
    from discreet.server import app

    if check:
        settings = app.check(config)
        write_out(f"{config}: right. It would answer for {settings.dataset} at {settings.listen}.\n")
        return

    def print_address(address: str, service: "Service") -> None:
        write_out(f"discreet answers for {service.dataset.name} at {address}\n")
        valid = [token for token in service.tokens() if token["state"] == "valid"]
        if not any(token["scope"] == "curator" for token in valid):
            write_out(
                "Nobody has a curator's token yet. Make one, and one for each analyst:\n"
                f"  discreet token create NAME --scope curator --config {config}\n"
            )
        if service.config.seed is not None:
            write_out("WARNING: a seed is set, so the noise is public. For tests alone.\n")

    app.serve(config, ready=print_address)
