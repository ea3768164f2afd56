"""``discreet serve``: answer queries on a private table over HTTP."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from discreet.cli.console import write_out

if TYPE_CHECKING:
    from discreet.server.config import Config
    from discreet.server.service import Service


def serve(
    config: Annotated[
        Path,
        typer.Argument(
            help="The configuration, a YAML file: see docs/howto/run-the-service.md.", metavar="CONFIG"
        ),
    ],
    check: Annotated[
        bool,
        typer.Option("--check", help="Check the configuration; start and change nothing."),
    ] = False,
    ready: Annotated[
        bool,
        typer.Option(
            "--ready", help="Check whether the service with this configuration answers; start nothing."
        ),
    ] = False,
) -> None:
    """Answer questions about private tables over HTTP. Each is charged to a budget; runs until stopped.

    Ctrl-C or SIGTERM stops it gracefully: open questions are answered, and no paid answer is lost.
    """
    if ready:
        from discreet.server.config import Config
        from discreet.server.health import probe

        settings = Config.load(config)
        probe(settings)
        write_out(
            f"{config}: ready. The service answers questions about {_names(settings)} at {settings.listen}.\n"
        )
        return
    if check:
        from discreet.formatting import count_noun
        from discreet.server import preflight

        settings = preflight.check(config)
        if settings.sign_in is not None:
            from discreet.server.oidc import check_provider

            check_provider(settings)
        write_out(
            f"{config}: valid. The service would answer questions about {_names(settings)} at "
            f"{settings.listen}.\n"
        )
        write_out(
            "Checked: tables, schemas, ledgers, access, audit log, jobs, disk space and the limit of open "
            "files. Nothing was changed.\n"
        )
        if settings.sign_in is not None:
            write_out(
                f"People would sign in through {settings.sign_in.issuer}, which can be reached. Admitted are "
                f"{count_noun(len(settings.sign_in.subjects), 'subject')} and "
                f"{count_noun(len(settings.sign_in.groups), 'group')}.\n"
            )
        return

    from discreet.server import app

    def print_address(address: str, service: "Service") -> None:
        write_out(f"discreet answers questions about {_names(service.config)} at {address}\n")
        valid = [token for token in service.tokens.list_tokens() if token["state"] == "valid"]
        if not any(token["role"] in ("curator", "operator") for token in valid):
            write_out(
                "There is no curator's token yet. Create one, and one for each analyst:\n"
                f"  discreet token create NAME --role curator --config {config}\n"
            )
        if service.config.seed is not None:
            write_out("WARNING: a seed is set, so the noise can be reproduced. Use it for tests only.\n")

    app.serve(config, ready=print_address)


def _names(config: "Config") -> str:
    return ", ".join(config.datasets)
