"""The page ``docs/reference/cli.md``, written from the commands themselves.

Run ``python -m discreet.cli.reference > docs/reference/cli.md`` after a change; a test compares the two.
"""

import inspect
import sys
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from discreet.cli.commands import app
from discreet.job.options import DEFAULT, options_of
from discreet.job.training import model_options, summary_of, trainable
from discreet.release import METHODS

HEAD = """\
# The command line

`discreet COMMAND --help` says the same. `discreet --install-completion` teaches the shell to complete
commands, options and the names of methods and models. `discreet --version` prints the version and exits.

| exit code | |
|---|---|
| 0 | ok |
| 1 | anything else, with a sentence; wrong usage too |
| 2 | the declaration of the table is missing, incomplete or wrong; where there was none, a draft is now |
| 3 | an attack on made-up records beat what is promised: our mistake; nothing was charged or published |
| 4 | the budget does not allow it; nothing was charged |
| 130, 143 | stopped by Ctrl-C or by `kill`; nothing is left behind, and a charge that was made stands |

With `--json` one object goes to standard output, an error too, as `{"error": {"kind", "message", "exit"}}`.
`DISCREET_DEBUG=1` shows the traceback of an unexpected error, whose text may quote rows.

## Methods

What `--method` takes, and what each method can be told: by the option of the same name, or by
`--set NAME=VALUE`.

"""

MODELS = """
## Models

What `--model` of `discreet learn` takes, and what `--set NAME=VALUE` can tell each.

"""


def page() -> str:
    """Return the text of the page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield HEAD + "| method | options |\n|---|---|"
    for name in sorted(METHODS):
        default = " (the default)" if name == DEFAULT else ""
        yield f"| `{name}`{default} | {', '.join(f'`{option}`' for option in options_of(name))} |"
    yield MODELS + "| model | what it is | options |\n|---|---|---|"
    for name in trainable():
        told = ", ".join(f"`{option}`" for option in model_options(name))
        yield f"| `{name}` | {_escaped(summary_of(name))} | {told} |"
    for path, command in _commands(get_command(app), "discreet"):
        yield from _section(path, command)


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, inner in sorted(command.commands.items()):
        if hasattr(inner, "commands"):
            yield from _commands(inner, f"{path} {name}")
        else:
            yield f"{path} {name}", inner


def _section(path: str, command: Any) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    yield f"\n## {path}\n\n{inspect.cleandoc(command.help)}\n\n```text"
    yield f"{path} {' '.join(_shown(p) for p in arguments)} [OPTIONS]\n```\n"
    yield "| | |\n|---|---|"
    for parameter in (*arguments, *options):
        names = " / ".join((*parameter.opts, *parameter.secondary_opts))
        called = _shown(parameter) if parameter in arguments else names
        yield f"| `{_escaped(called)}` | {_cell(parameter)} |"


def _shown(parameter: Any) -> str:
    called = parameter.metavar or parameter.name.upper()
    return called if parameter.required else f"[{called}]"


def _cell(parameter: Any) -> str:
    default = parameter.default
    known = default is not None and default is not False and not callable(default) and default != []
    said = f" Default: `{default}`." if known and "[default" not in (parameter.help or "") else ""
    return _escaped((parameter.help or "") + said)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.stdout.write(page())
