"""``discreet audit-log``: check, rotate and begin the audit log of a service."""

from contextlib import closing
from pathlib import Path

import typer

from discreet.cli.console import Console, write_out
from discreet.cli.options import Json
from discreet.cli.token import ConfigFile, load_config, open_service_ledger, operator_name

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Check, rotate and begin the audit log of a service, also while it runs.",
)
_DEFAULT = Path("config.yaml")


@app.command()
def check(config: ConfigFile = _DEFAULT, json: Json = False) -> None:
    """Verify every line of the log, and that it has the line whose hash the ledger keeps."""
    from discreet.formatting import count_noun, number
    from discreet.server.audit_log import ServiceLog

    settings = load_config(config)
    log = ServiceLog(settings.audit_log)
    with closing(open_service_ledger(settings)) as ledger:
        last = log.compare(settings.dataset, ledger)
        lines, elsewhere = log.check()
        anchors = ledger.log_anchors()
    console = Console(as_json=json)
    anchored = 0 if last is None or last.log not in anchors else anchors[last.log].line
    console.json(
        {
            "audit_log": str(log.path),
            "intact": True,
            "lines": lines,
            "elsewhere": elsewhere,
            "anchored": anchored,
            "logs": list(anchors),
        }
    )
    console.line(
        f"{log.path}: {count_noun(lines, 'line')}, intact. "
        f"The ledger keeps the hash of line {number(anchored)}."
    )
    if elsewhere:
        console.line(
            f"Lines 1 to {number(elsewhere)} are in files that were moved elsewhere, and were not verified."
        )
    if len(anchors) > 1:
        console.line(
            f"{count_noun(len(anchors), 'log')} were begun for this ledger, and this is one of them."
        )


@app.command()
def rotate(config: ConfigFile = _DEFAULT) -> None:
    """Begin a new file of the log; the old one is never written again, and may be moved elsewhere."""
    from discreet.server.audit_log import ServiceLog

    settings = load_config(config)
    log = ServiceLog(settings.audit_log)
    with closing(open_service_ledger(settings)) as ledger:
        log.confirm(settings.dataset, ledger)
        old = log.rotate()
        log.anchor(settings.dataset, ledger)
    write_out(
        f"{log.path} goes on; the lines so far are in {old}.\n" if old else "The log has no line yet.\n"
    )


@app.command()
def begin(config: ConfigFile = _DEFAULT) -> None:
    """Begin a new log because the last one is lost, or is kept on another machine; the ledger records it."""
    from discreet.server.audit_log import ServiceLog

    settings = load_config(config)
    log = ServiceLog(settings.audit_log)
    with closing(open_service_ledger(settings)) as ledger:
        log.begin(ledger, operator_name())
    write_out(f"{log.path} was begun, and the ledger says so.\n")
