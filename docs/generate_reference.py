"""Write ``http.md``, ``cli.md`` and ``names.md`` of ``docs/reference`` from what the source declares.

Run ``python docs/generate_reference.py`` after a change; tests compare the pages with what it writes.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.main import get_command

from discreet.cli.main import build_app
from discreet.pipeline.methods import FOR_EPSILON, FOR_FLOORS, method_options
from discreet.pipeline.training import model_options, model_summary, trainable_models
from discreet.release import METHODS
from discreet.server.api.openapi import body_types, describe_schema, openapi_document, schema_fields
from discreet.server.errors import STATUS

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parent / "reference"
_DEFAULTS = {FOR_EPSILON: " (the default for `--epsilon`)", FOR_FLOORS: " (the default for `--protect`)"}

PUBLIC = (
    "discreet",
    "discreet.schema",
    "discreet.tables",
    "discreet.noise_law",
    "discreet.noise",
    "discreet.privacy",
    "discreet.privacy.calibration",
    "discreet.privacy.floors",
    "discreet.privacy.priors",
    "discreet.privacy.bounded",
    "discreet.ledger",
    "discreet.query",
    "discreet.query.language",
    "discreet.query.aggregates",
    "discreet.query.vertical",
    "discreet.client",
    "discreet.learn",
    "discreet.learn.large_margin",
    "discreet.learn.large_margin.risk",
    "discreet.learn.logistic.utility",
    "discreet.release",
    "discreet.release.invariant",
    "discreet.release.spark",
    "discreet.release.statistics",
    "discreet.audit",
    "discreet.report",
    "discreet.pipeline",
)
"""Modules whose ``__all__`` is the public interface; every other name may change without notice."""

_NAMES_HEAD = """\
# All public names

The union of the `__all__` of the packages below is the public interface: these names keep their meaning
between minor versions, and every other name may change without notice. [Python](api.md) explains the names
used most in full.
"""
_HTTP_HEAD = """\
# The service over HTTP

`discreet serve` answers at these addresses. The same documentation is at `/docs` and, for programs, at
`/openapi.json`. Everything under `/v1` needs `Authorization: Bearer TOKEN`; a token must never be part of an
address. Bodies are JSON. A response has an `X-Request-Id`; refusals and errors are returned as
`{"error": {"code", "message", "hint", "details", "request_id"}}`.
"""
_CLI_HEAD = """\
# The command line

`discreet COMMAND --help` prints the same. `discreet --install-completion` installs shell completion of
commands, options and the names of methods and models. `discreet --version` prints the version and exits.

| exit code | |
|---|---|
| 0 | ok |
| 1 | any other error, with a message; also wrong usage |
| 2 | the schema is missing, incomplete or wrong; if it was missing, a draft is written |
| 3 | an attack on made-up records did better than promised; nothing was charged or published |
| 4 | the budget does not allow it; nothing was charged |
| 5 | attackers would gain [too much](../explanation/risk.md); nothing was charged or published |
| 130, 143 | stopped by Ctrl-C or by `kill`; no files remain, and a charge that was already made stands |

With `--json` one object is written to standard output, also for an error:
`{"error": {"kind", "message", "exit"}}`, with `risk` for exit code 5.
`DISCREET_DEBUG=1` shows the traceback of an unexpected error, whose text may quote rows.

## Methods

The values of `--method`, and the options of each method: given by the option of the same name, or by
`--set NAME=VALUE`.

"""

_MODELS = """
## Models

The values of `--model` of `discreet learn`, and the parameters of each model for `--set NAME=VALUE`.

"""


def http_page() -> str:
    """Return the text of ``docs/reference/http.md``."""
    return "\n".join(_http_lines(openapi_document())) + "\n"


def cli_page() -> str:
    """Return the text of ``docs/reference/cli.md``."""
    return "\n".join(_cli_lines()) + "\n"


def _http_lines(document: dict[str, Any]) -> Iterator[str]:
    schemas = document["components"]["schemas"]
    component = re.compile(rf"\b({'|'.join(schemas)})\b")

    def coded(text: str) -> str:
        """Return a text with the names of components as code."""
        return component.sub(r"`\1`", text)

    yield _HTTP_HEAD
    yield "## Addresses\n\n| address | for | what | takes | gives |\n|---|---|---|---|---|"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            types = body_types(operation)
            words = ". ".join(
                filter(None, (operation["summary"], operation["description"].removesuffix(".")))
            )
            cells = (
                f"`{method.upper()} {path}`",
                operation["tags"][0],
                words,
                coded(types["takes"] or ""),
                coded(types["gives"]),
            )
            yield f"| {' | '.join(map(_escaped, cells))} |"
    yield "\n## Parameters of addresses\n\n| address | parameter | |\n|---|---|---|"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for parameter in operation["parameters"]:
                where = f"`{method.upper()} {path}` | `{parameter['name']}`"
                yield f"| {where} | {_escaped(parameter['description'])} |"
    yield "\n## Refusals and failures\n\n| code | status |\n|---|---|"
    for code, status in sorted(STATUS.items(), key=lambda pair: (pair[1], pair[0])):
        yield f"| `{code}` | {status} |"
    yield "\n## Values"
    for name, schema in sorted(schemas.items()):
        yield f"\n### {coded(name)}\n\n{coded(describe_schema(schema))}".rstrip()
        if fields := schema_fields(schema):
            yield "\n| field | type | required |\n|---|---|---|"
        for field in fields:
            required = "yes" if field["required"] else ""
            yield f"| `{field['name']}` | {_escaped(coded(field['type']))} | {required} |"


def _cli_lines() -> Iterator[str]:
    yield _CLI_HEAD + "| method | options |\n|---|---|"
    for name in sorted(METHODS):
        default = _DEFAULTS.get(name, "")
        yield f"| `{name}`{default} | {', '.join(f'`{option}`' for option in method_options(name))} |"
    yield _MODELS + "| model | what it is | options |\n|---|---|---|"
    for name in trainable_models():
        options = ", ".join(f"`{option}`" for option in model_options(name))
        yield f"| `{name}` | {_escaped(model_summary(name))} | {options} |"
    for path, command in _commands(get_command(build_app()), "discreet"):
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


def names_page() -> str:
    """Return the text of ``docs/reference/names.md``."""
    lines = [_NAMES_HEAD]
    for module in PUBLIC:
        package = import_module(module)
        lines += [f"## {module}", "", "| name | |", "|---|---|"]
        for name in sorted(package.__all__, key=str.lower):
            value = getattr(package, name)
            documented = inspect.isclass(value) or inspect.isroutine(value)
            summary = (inspect.getdoc(value) or "").split("\n\n")[0] if documented else ""
            lines.append(f"| `{name}` | {_escaped(' '.join(summary.split()))} |")
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


if __name__ == "__main__":
    (FOLDER / "names.md").write_text(names_page(), encoding="utf-8")
    (FOLDER / "http.md").write_text(http_page(), encoding="utf-8")
    (FOLDER / "cli.md").write_text(cli_page(), encoding="utf-8")
