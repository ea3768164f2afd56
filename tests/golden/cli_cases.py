"""Exit codes of recorded calls of the command line, and its commands with their flags and defaults.

Output is compared where programs read it (``--json``): which keys it has, and the kind of an error.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer.main

from tests.golden._entry_points import command, typer_app
from tests.golden.publication_cases import ACCEPTED, FAST, workplace

if TYPE_CHECKING:
    from pathlib import Path

FLOOR = ("--protect", "age=9", *FAST, *ACCEPTED)
PRICE = ("--epsilon", "1", "--delta", "1e-6")
CALLS: dict[str, tuple[str, ...]] = {
    "no command": (),
    "unknown command": ("publish",),
    "help": ("--help",),
    "help of release": ("release", "--help"),
    "init again": ("init", "people.csv"),
    "init elsewhere": ("init", "people.csv", "--out", "p.yaml", "--json"),
    "init nothing": ("init", "no.csv"),
    "init into nowhere": ("init", "people.csv", "--out", "no/p.yaml"),
    "plan": ("plan", "people.csv", "--protect", "age=9", "--json"),
    "plan of nothing": ("plan", "people.csv", "--json"),
    "plan of an unknown column": ("plan", "people.csv", "--protect", "weight=9", "--json"),
    "plan of an impossible floor": ("plan", "people.csv", "--protect", "age=900", "--json"),
    "plan undeclared": ("plan", "bare.csv", "--protect", "age=9", "--json"),
    "release undeclared": ("release", "other.csv", "--protect", "age=9", "--json"),
    "release wrongly declared": ("release", "people.csv", "--schema", "wrong.yaml", "--protect", "age=9",
                                 "--json"),
    "release dry": ("release", "people.csv", *FLOOR, "--dry-run", "--json"),
    "release": ("release", "people.csv", *FLOOR, "--ledger", "a.ledger", "--json"),
    "release again": ("release", "people.csv", *FLOOR, "--ledger", "a.ledger", "--json"),
    "release by an unknown method": ("release", "people.csv", "--method", "magic", "--json"),
    "release with an unknown flag": ("release", "people.csv", "--magic"),
    "release with an unknown option": ("release", "people.csv", "--protect", "age=9", "--set", "magic=1",
                                       "--json"),
    "release of delta alone": ("release", "people.csv", "--delta", "1e-6", "--json"),
    "verify": ("verify", "release/public", "--json"),
    "verify nothing": ("verify", "nothing", "--json"),
    "verify forged": ("verify", "forged", "--json"),
    "audit a folder": ("audit", "release", "--json"),
    "audit a plan": ("audit", "people.csv", "--method", "gaussian", *PRICE, *FAST, "--json"),
    "report": ("report", "release"),
    "report elsewhere": ("report", "release", "--out", "again.html"),
    "report of nothing": ("report", "nothing"),
    "query": ("query", "people.csv", "count where age > 40", *PRICE, "--ledger", "a.ledger", "--json"),
    "query again": ("query", "people.csv", "count where age > 40", *PRICE, "--ledger", "a.ledger", "--json"),
    "query by": ("query", "people.csv", "mean(hours) by sex", *PRICE, "--no-ledger", "--json"),
    "query refused": ("query", "people.csv", "max(age)", *PRICE, "--no-ledger", "--json"),
    "query of an unknown column": ("query", "people.csv", "sum(weight)", *PRICE, "--no-ledger", "--json"),
    "query without a price": ("query", "people.csv", "count", "--no-ledger", "--json"),
    "query another ledger": ("query", "people.csv", "count", *PRICE, "--ledger", "b.ledger", "--json"),
    "query beyond the budget": ("query", "people.csv", "count where age > 30", "--epsilon", "9",
                                "--ledger", "small.ledger", "--new-ledger", "--json"),
    "learn list": ("learn", "--list", "--json"),
    "learn": ("learn", "people.csv", "--model", "naive-bayes", *PRICE, "--ledger", "a.ledger", "--json"),
    "learn again": ("learn", "people.csv", "--model", "naive-bayes", *PRICE, "--ledger", "a.ledger",
                    "--json"),
    "learn unknown": ("learn", "people.csv", "--model", "forest", *PRICE, "--json"),
    "learn without a price": ("learn", "people.csv", "--model", "id3", "--json"),
    "verify a model": ("verify", "model", "--json"),
    "ledger create": ("ledger", "create", "c.ledger", "--epsilon", "1"),
    "ledger create again": ("ledger", "create", "c.ledger", "--epsilon", "2"),
    "ledger show": ("ledger", "show", "a.ledger", "--json"),
    "ledger check": ("ledger", "check", "a.ledger", "--json"),
    "ledger check a receipt": ("ledger", "check", "a.ledger", "--receipt", "release/public/statement.json"),
    "ledger check another receipt": ("ledger", "check", "c.ledger", "--receipt",
                                     "release/public/statement.json"),
    "ledger export": ("ledger", "export", "a.ledger"),
    "ledger show nothing": ("ledger", "show", "none.ledger"),
    "ledger backup": ("ledger", "backup", "a.ledger", "--out", "copy", "--json"),
    "ledger restore over a newer one": ("ledger", "restore", "copy", "--to", "c.ledger"),
    "ledger restore": ("ledger", "restore", "copy", "--to", "back.ledger"),
    "token create": ("token", "create", "--config", "serve.yaml", "--name", "ana"),
    "token list": ("token", "list", "--config", "serve.yaml", "--json"),
    "token list of nothing": ("token", "list", "--config", "none.yaml"),
    "serve nothing": ("serve", "--config", "none.yaml"),
    "demo unknown": ("demo", "town", "--json"),
}  # fmt: skip


def command_cases() -> dict[str, Any]:
    """Return exit codes and keys of the JSON of every recorded call, in order, in one folder."""
    found: dict[str, Any] = {}
    with workplace("commands") as folder:
        _prepare(folder)
        for name, arguments in CALLS.items():
            if name == "verify forged":
                _forge(folder)
            done = command(*arguments, cwd=folder)
            found[name] = [done.code, _keys(done.out) if "--json" in arguments else None]
        found["files"] = sorted(path.name for path in folder.iterdir())
    return found


def _prepare(folder: Path) -> None:
    """Write what the calls name."""
    rows = (folder / "people.csv").read_text()
    (folder / "bare.csv").write_text(rows)
    (folder / "other.csv").write_text(rows)
    (folder / "wrong.yaml").write_text("fields: [{name: age, type: magic}]\n")
    command("ledger", "create", "small.ledger", "--epsilon", "1", cwd=folder)


def _forge(folder: Path) -> None:
    """Copy the published folder, and change a file of it."""
    (folder / "forged").mkdir()
    for path in (folder / "release" / "public").iterdir():
        (folder / "forged" / path.name).write_bytes(path.read_bytes())
    with (folder / "forged" / "datapackage.json").open("a") as file:
        file.write("x\n")


def _keys(text: str) -> Any:
    """Return the keys of printed JSON, and the kind and exit code of an error in it."""
    try:
        values = json.loads(text)
    except ValueError:
        return "no JSON"
    if isinstance(values, dict) and "error" in values:
        return [values["error"].get("kind"), values["error"].get("exit")]
    return sorted(values) if isinstance(values, dict) else len(values)


def flag_cases() -> dict[str, Any]:
    """Return the flags of every command with default, whether required, repeated, a switch."""
    found: dict[str, Any] = {}
    _walk("discreet", typer.main.get_command(typer_app), found)
    return found


def _walk(name: str, group: Any, found: dict[str, Any]) -> None:
    """Add a command and those below it."""
    for child, inner in sorted(getattr(group, "commands", {}).items()):
        _walk(f"{name} {child}", inner, found)
    if not hasattr(group, "commands"):
        for parameter in group.params:
            flags = " ".join(sorted([*parameter.opts, *parameter.secondary_opts]))
            default = parameter.default
            told = default if isinstance(default, str | int | float | bool | None) else str(default)
            flag = bool(getattr(parameter, "is_flag", False))
            found[f"{name} {flags}"] = [told, parameter.required, parameter.multiple, flag]
