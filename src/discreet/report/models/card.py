"""The model card: what a model is, for people; follows from its statement alone."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING

from discreet.learn import METHODS
from discreet.report.wording import counted, date, name, number, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet.report.models.statement import ModelStatement
    from discreet.report.statement import DeclaredBound

_LONGEST = 200  # characters of a parameter that are shown; the statement has all of them


def model_card(statement: ModelStatement) -> str:
    """Return the content of ``model-card.md``.

    Privacy
    -------
    Says what the statement says, and nothing else.
    """
    return "\n".join(_lines(statement)) + "\n"


def _lines(statement: ModelStatement) -> Iterator[str]:
    what, model = statement.what, statement.what.model
    yield f"# {_text(what.release)}\n"
    kind = METHODS.get(model.name)
    summary = "" if kind is None else (inspect.getdoc(kind) or "").partition("\n")[0]
    yield f"`{_code(model.name)}` ({_code(model.learner)}). {summary}\n"
    yield from _about(statement)
    yield "\n## What is promised\n"
    yield from (f"- {_text(sentence)}" for sentence in statement.definition.sentences)
    yield f"- {_text(statement.definition.deployment)}"
    yield f"\nSo far: {_text(statement.composition.total)}"
    yield f"\nTuning on private rows: {statement.tuning.on_private_rows}. {_text(statement.tuning.why)}"
    yield "\n## What is not protected\n"
    yield from (f"- {_text(sentence)}" for sentence in statement.not_protected)
    yield "\n## How to use it\n"
    columns = f"a frame with the columns {', '.join(f'`{_code(c)}`' for c in what.reads)}"
    yield f"`rows` is {columns}; cells are clipped to what is declared below.\n"
    yield "```python\nfrom discreet import load_model"
    yield 'model = load_model("public")  # this folder; reading it runs no code'
    yield f"model.{'predict' if kind is None or hasattr(kind, 'predict') else 'transform'}(rows)\n```\n"
    yield "How good it is was not measured on the rows that it was trained on. Test it on rows of your own."
    yield "\n## What it was told\n"
    yield "| parameter | value |\n|---|---|"
    for parameter, value in sorted(model.parameters.items()):
        text = json.dumps(value, ensure_ascii=False, sort_keys=True)
        shown = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
        yield f"| `{_code(parameter)}` | `{_code(shown)}` |"
    yield "\n## What was asked of the rows\n"
    yield "| pass | part of the promise | charged |\n|---|---|---|"
    for part in statement.passes:
        paid = "not asked" if part.receipt is None else _receipt(part.receipt)
        share = "-" if part.share is None else number(part.share)
        yield f"| {_text(part.name)} | {share} | {paid} |"
    yield "\n## What is declared about the rows\n"
    yield "| column | may hold | who says so |\n|---|---|---|"
    for bound in statement.bounds:
        yield f"| `{_code(bound.column)}` | {_allowed(bound)} | {_text(bound.source or '')} |"
    yield f"\nSchema: `{_code(statement.digest)}`. Model: `{_code(next(iter(statement.files.values())))}`."
    yield "Anyone can re-check all of this: `discreet verify public`."


def _about(statement: ModelStatement) -> Iterator[str]:
    what = statement.what
    rows = "a number of rows that is not public" if what.rows is None else counted(what.rows, "row")
    yield f"- Trained on {rows} of {_text(what.dataset or 'a table')}, {date(what.created)}."
    yield f"- Predicts `{_code(what.predicts)}`." if what.predicts else "- Predicts no column."
    unit = _text(statement.unit.unit)
    used = f"at most {counted(statement.unit.max_rows_per_unit, 'row')} of each {unit}"
    yield f"- Protected is one {unit} ({statement.unit.neighbors}); used are {used}."
    for word in ("curator", "purpose", "contact", "license", "supersedes"):
        if value := getattr(what, word):
            yield f"- {word.capitalize()}: {_text(value)}"


def _receipt(receipt: dict[str, object]) -> str:
    seq = receipt.get("seq")
    return "without a ledger" if seq is None else f"row {seq} of the ledger"


def _allowed(bound: DeclaredBound) -> str:
    if bound.values is not None:
        listed = ", ".join(str(value) for value in bound.values)
        words = listed if len(listed) <= _LONGEST else f"{len(bound.values)} declared values"
    else:
        words = f"{bound.lower} to {bound.upper}"
    return _text(words + (", or nothing" if bound.missing else ""))


def _text(words: str) -> str:
    """Write somebody's words into Markdown so that they stay words: on one line, without any markup."""
    shown = name(visible(words))
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#!&" else c for c in shown)


def _code(words: str | None) -> str:
    """Write words between backticks; one that would end them is left out."""
    return name(visible(words or "")).replace("`", "'").replace("|", "\\|")
