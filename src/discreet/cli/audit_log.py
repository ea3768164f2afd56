"""``discreet audit-log``: check, rotate and begin the audit log of a service."""

from contextlib import closing
from pathlib import Path
from typing import Any

import typer

from discreet.cli.console import Console, write_out
from discreet.cli.options import Json
from discreet.cli.token import ConfigFile, load_config, open_ledgers, operator_name

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Check, rotate and begin the audit log of a service. It may run meanwhile.",
)
_DEFAULT = Path("config.yaml")


@app.command()
def check(config: ConfigFile = _DEFAULT, json: Json = False) -> None:
    """Verify every line of the log. It must also have the lines whose hashes the ledgers keep."""
    from discreet.formatting import count_noun, number
    from discreet.server.audit_log import ServiceLog

    settings = load_config(config)
    found: dict[str, Any] = {}
    with open_ledgers(settings) as ledgers, closing(ServiceLog(settings.audit_log)) as log:
        for name, ledger in ledgers.items():
            last, anchors = log.compare(name, ledger), ledger.log_anchors()
            anchored = 0 if last is None or last.log not in anchors else anchors[last.log].line
            found[name] = {"anchored": anchored, "logs": list(anchors)}
        lines, elsewhere = log.check()
    console = Console(as_json=json)
    console.json(
        {
            "audit_log": str(log.path),
            "intact": True,
            "lines": lines,
            "elsewhere": elsewhere,
            "datasets": found,
        }
    )
    console.line(f"{log.path}: {count_noun(lines, 'line')}, intact.")
    for name, one in found.items():
        console.line(f"The ledger of {name} keeps the hash of line {number(one['anchored'])}.")
        if len(one["logs"]) > 1:
            console.line(
                f"{count_noun(len(one['logs']), 'log')} were begun for this ledger, and this is one of them."
            )
    if elsewhere:
        console.line(
            f"Lines 1 to {number(elsewhere)} are in files that were moved elsewhere, and were not verified."
        )


@app.command()
def rotate(config: ConfigFile = _DEFAULT) -> None:
    """Begin a new file of the log. The old one is never written again, and may be moved elsewhere."""
    from discreet.server.audit_log import ServiceLog

    settings = load_config(config)
    with open_ledgers(settings) as ledgers, closing(ServiceLog(settings.audit_log)) as log:
        for name, ledger in ledgers.items():
            log.confirm(name, ledger)
        old = log.rotate()
        log.anchor(ledgers)
    write_out(
        f"The lines so far are in {old}; new ones go to {log.path}.\n"
        if old
        else "The log has no line yet, so there is nothing to rotate.\n"
    )


@app.command()
def begin(config: ConfigFile = _DEFAULT) -> None:
    """Begin a new log. The last one is lost, or is kept on another machine; the ledgers record it."""
    from discreet.server.audit_log import ServiceLog

    settings = load_config(config)
    with open_ledgers(settings) as ledgers, closing(ServiceLog(settings.audit_log)) as log:
        log.begin(list(ledgers.values()), operator_name())
    write_out(f"A new log was begun at {log.path}, and the ledgers record it.\n")
