"""``discreet service``: back up, restore and upgrade everything that a service keeps."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from discreet.cli.console import Console
from discreet.cli.options import Json
from discreet.cli.token import ConfigFile, load_config, operator_name

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Back up, restore and upgrade a service. Its ledgers, keys, access, audit log and jobs go together.",
)
_DEFAULT = Path("config.yaml")


@app.command()
def backup(
    out: Annotated[Path, typer.Option(help="Folder for the backup; it must not exist yet.")],
    config: ConfigFile = _DEFAULT,
    json: Json = False,
) -> None:
    """Write a checked backup of the whole service. It goes to a new folder; the service may run."""
    from discreet.formatting import count_noun
    from discreet.server.backup import back_up_service

    load_config(config)
    console = Console(as_json=json)
    manifest = back_up_service(config, out)
    ledgers = [{"datasets": one.datasets, "rows": one.rows, "head": one.head} for one in manifest.ledgers]
    console.json(
        {"backup": str(out), "digest": manifest.digest, "ledgers": ledgers, "log_lines": manifest.log_lines}
    )
    for one in manifest.ledgers:
        console.line(
            f"Ledger of {', '.join(one.datasets)}: {count_noun(one.rows, 'row')}, intact. "
            f"Head: {one.rows}:{one.head}"
        )
    console.line(f"Audit log: {count_noun(manifest.log_lines, 'line')}, intact.")
    if manifest.access_format is None:
        console.line("There is no access store yet.")
    console.line(
        f"{out}: {count_noun(len(manifest.files) + 1, 'file')}. SHA-256 of its manifest: {manifest.digest}"
    )
    console.line(
        "Keep the heads and the SHA-256 elsewhere. Protect the folder: it holds the keys of the ledgers. The "
        "tables are not in it."
    )


@app.command()
def restore(
    backup: Annotated[Path, typer.Argument(help="What `discreet service backup` wrote.", metavar="FOLDER")],
    config: ConfigFile = _DEFAULT,
    digest: Annotated[
        str | None,
        typer.Option(help="SHA-256 of the manifest that was kept elsewhere.", metavar="SHA256"),
    ] = None,
    json: Json = False,
) -> None:
    """Restore what the service lacks. A ledger, a log or a store that exists is never set back.

    Stop the service first. The configuration says where each part belongs.
    """
    from discreet.formatting import count_noun
    from discreet.server.health import require_stopped
    from discreet.server.restore import restore_service

    settings = load_config(config)
    require_stopped(settings)
    console = Console(as_json=json)
    restored = restore_service(backup, settings, by=operator_name(), digest=digest)
    console.json(
        {
            "ledgers": restored.ledgers,
            "audit_log": restored.log,
            "access": restored.access,
            "jobs": restored.jobs,
            "repeated": restored.revoked,
        }
    )
    for name, rows in restored.ledgers.items():
        done = f"got {count_noun(rows, 'row')} from the backup" if rows else "lacks no row, and was kept"
        console.line(f"The ledger of {name} {done}.")
    for name, put_back in (
        ("audit log", restored.log),
        ("access store", restored.access),
        ("jobs", restored.jobs),
    ):
        console.line(f"{name}: {'restored' if put_back else 'kept as it was'}.")
    for change in restored.revoked:
        console.line(f"The audit log says that {change} after the backup. This was done again.")
    if restored.access:
        console.line(
            "Run `discreet token list`: a token that was revoked after the backup may be valid again."
        )
    console.line("Run `discreet serve CONFIG --check` before you start the service.")


@app.command()
def upgrade(
    backup: Annotated[Path, typer.Option(help="Folder for a backup of everything; it must not exist yet.")],
    config: ConfigFile = _DEFAULT,
    json: Json = False,
) -> None:
    """Upgrade files of earlier versions to this one. A backup is made first; later versions are refused.

    Stop the service first.
    """
    from discreet.server.audit_log import ServiceLog
    from discreet.server.backup import back_up_service
    from discreet.server.health import require_stopped
    from discreet.server.upgrade import read_formats, upgrade_stores

    settings = load_config(config)
    require_stopped(settings)
    console = Console(as_json=json)
    stores = read_formats(settings)
    older = [store for store in stores if store.is_older]
    if older:
        back_up_service(config, backup)
        upgrade_stores(settings, older)
        steps = {store.key: [store.written, store.known] for store in older}
        with closing(ServiceLog(settings.audit_log)) as log:
            log.write("upgraded", who=operator_name(), formats=steps)
    console.json(
        {
            "backup": str(backup) if older else None,
            "upgraded": {store.key: [store.written, store.known] for store in older},
        }
    )
    for store in older:
        console.line(f"{store.key} {store.address}: format {store.written} is now format {store.known}.")
    if older:
        console.line(
            f"The state before the upgrade is in {backup}. Run `discreet serve CONFIG --check` before you "
            "start the service."
        )
    else:
        console.line(
            "Everything has the formats of this version. Nothing was changed, and no backup was made."
        )
