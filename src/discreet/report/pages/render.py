"""HTML pages of a release: the internal report and the public statement.

Each is one file without references to a network: style, script and pictures are inside, and a content
security policy forbids everything else. A glossary explains words of differential privacy and of attacks.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from discreet import formatting
from discreet.arguments import checked_arguments
from discreet.audit import Risk
from discreet.report.pages import _attacks, _columns, _declared, _first_page, _learning, _model, _quality
from discreet.report.pages._compiled_templates import CompiledTemplates
from discreet.report.pages.tables import SHOWN, badge, name_markup, verdict_badge

if TYPE_CHECKING:
    from discreet.learn import PrivateClassifier
    from discreet.report.findings import Findings
    from discreet.report.noisy_tables import MeasuredTables
    from discreet.report.statement.documents import Statement
    from discreet.report.statement.model_documents import ModelStatement

_TEMPLATES = Path(__file__).parents[1] / "templates"
_CURVES_SHOWN = 4
WORDS = {
    "epsilon": (
        "Bounds how much the data of one person can change what is published: no result becomes more than "
        "exp(ε) times as probable. 0 would be no change at all; about 1 is strong, above 8 it says little."
    ),
    "delta": "Probability, chosen far below 1 / rows, with which the bound of ε may fail.",
    "floor": (
        "Least error of any guess of a cell by somebody who knows only the published file and the prior, on "
        "average over the prior."
    ),
    "prior": (
        "What an attacker is assumed to know before: here, that every value of the declared range or list is "
        "equally probable."
    ),
    "linkage": "Finding a person's row in the published file from values of that person.",
    "membership": "Telling whether a person is in the table at all.",
    "attribute inference": "Guessing a value of a person from the file and the person's other values.",
    "randomized response": "Each cell is kept with a known probability, or replaced by another listed value.",
    "mechanism": "The random noise that was added to the cells of a column.",
    "ledger": "The curator's record of every charge for this table; what it lists adds up.",
}
"""Explanation of each word, as pages show it in place and list it at their end."""
_SHOWN = {"epsilon": "ε (epsilon)", "delta": "δ (delta)", "floor": "error floor"}


@checked_arguments
def write_report(path: str | Path, statement: Statement, findings: Findings) -> None:
    """Write the internal report.

    Parameters
    ----------
    path : str or Path
        File of the page; an existing one is replaced.
    statement : Statement
        Public statement of the release.
    findings : Findings
        Attacks, learning and comparisons, which are internal.

    Privacy
    -------
    Internal: it shows how well attacks on real rows do, and how the rows compare with the release. The same
    inputs give the same bytes.

    Reference
    ---------
    How to read it: ``docs/howto/read-a-report.md``.

    Examples
    --------
    >>> from discreet import Column, Schema, publish
    >>> schema = Schema(columns=[Column("age", type="integer", lower=17, upper=90, measure="years")])
    >>> rows = {"age": [20, 35, 50, 65] * 250}
    >>> done = publish(rows, schema=schema, protect={"age": 14}, ledger=False, out="made")
    >>> write_report("report.html", done.statement, done.findings)
    """
    Path(path).write_bytes(_report_page(statement, findings).encode())


def statement_page(statement: Statement, measured: MeasuredTables | None = None) -> str:
    """Return the page of the public statement.

    Parameters
    ----------
    statement : Statement
        Public statement of the release.
    measured : MeasuredTables, optional
        What the published answers of a synthetic release measure; None for other releases.

    Privacy
    -------
    Shows nothing but the statement and published answers. The same ones give the same page.

    Reference
    ---------
    How to read it: ``docs/howto/read-a-report.md``.
    """
    return _page(
        "statement.html.j2",
        script="",
        **_common_values(statement),
        example=_declared.code_example(statement),
        measured=None if measured is None else _quality.measured_view(measured),
    )


def model_page(statement: ModelStatement, model: PrivateClassifier) -> str:
    """Return the page of a published classifier: how good it is, and the effect of each column as a picture.

    Parameters
    ----------
    statement : ModelStatement
        Statement of the model, which says how good it is.
    model : PrivateClassifier
        Fitted classifier that the folder holds.

    Privacy
    -------
    Shows nothing but the statement and the published model. The same ones give the same page.

    Reference
    ---------
    How to read it: ``docs/howto/train-without-choosing.md``.
    """
    return _page(
        "model.html.j2",
        script="",
        more_style="model.css",
        statement=statement,
        page=_first_page.model_first_page(statement, _model.score_tiles(model)),
        effects=_model.effects_view(model),
    )


def _report_page(statement: Statement, findings: Findings) -> str:
    """Return the internal report as one HTML file."""
    common = _common_values(statement, findings)
    named_columns = [view.column for view in common["columns"][:SHOWN]]
    curves = _attacks.error_curves(statement, findings, named_columns)
    return _page(
        "report.html.j2",
        script=_text("what_if.js"),
        **common,
        findings=findings,
        what_if=_learning.what_if_view(statement, findings),
        on_prior=_attacks.guess_table(findings.guesses, on="prior"),
        on_file=_attacks.guess_table(findings.guesses, on="file"),
        on_rows=_attacks.guess_table(findings.guesses, on="rows"),
        audits=_attacks.audit_table(findings.audits),
        exposures=_attacks.exposures(findings.exposures),
        asks_questions=statement.what.method.name == "synthetic",
        real_members=_attacks.member_table(findings.members, on="rows", synthetic=common["made_up"]),
        curves=curves[:_CURVES_SHOWN],
        folded_curves=curves[_CURVES_SHOWN:],
        quality=None if findings.quality is None else _quality.quality_view(findings.quality),
        learning=None if findings.learning is None else _learning.learning_view(findings.learning),
        data=_columns.data_view(findings.columns, findings.correlations),
        stages=_declared.stage_table(findings),
    )


def _common_values(statement: Statement, findings: Findings | None = None) -> dict[str, Any]:
    """Return the template values that both pages share; findings add attacks to the columns."""
    made_up = any(numbers.law["kind"] == "synthetic" for numbers in statement.numbers.columns)
    risk = None if statement.risk is None else Risk.from_dict(statement.risk)
    guesses = statement.attacks if findings is None else findings.guesses
    return {
        "statement": statement,
        "facts": _declared.facts(statement),
        "page": _first_page.first_page(statement, risk, findings),
        "risks": _attacks.risk_table(risk),
        "words": glossary(),
        "columns": _columns.protected_columns(statement, guesses),
        "clear": _columns.clear_columns(statement),
        "promises": _declared.promise_table(statement),
        "column_table": _declared.column_table(statement),
        "bounds": _declared.bounds_table(statement),
        "dropped": _declared.dropped_columns(statement),
        "composition": _declared.composition_view(statement),
        "public_attacks": _attacks.guess_table(statement.attacks, on="file"),
        "public_members": _attacks.member_table(statement.attacks, on="made-up", synthetic=made_up),
        "made_up": made_up,
    }


def _page(template: str, *, script: str, more_style: str | None = None, **values: Any) -> str:
    """Return a rendered template, with a policy that allows its own style and script alone."""
    if values.get("quality") or values.get("measured"):
        more_style = "quality.css"
    style = _text("style.css") + ("" if more_style is None else _text(more_style))
    policy = [
        "default-src 'none'",
        f"style-src {_source(style)}",
        f"script-src {_source(script) if script else repr('none')}",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return (
        _environment()
        .get_template(template)
        .render(
            style=Markup(style),  # noqa: S704 - a file of this package
            script=Markup(script),  # noqa: S704 - likewise
            policy="; ".join(policy),
            **values,
        )
    )


def _source(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def _text(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


@cache
def _environment() -> jinja2.Environment:
    """Return the template environment: escaping, strict about undefined names and about None."""
    # All options below, by which the code of a template is found again.
    options = "escaped, strict, finalized, without the blanks around blocks"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        bytecode_cache=CompiledTemplates(_TEMPLATES, options),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "name": name_markup,
        "date": formatting.date,
        "counted": formatting.count_noun,
        "number": formatting.number,
        "up": lambda value: formatting.number(value, rounding="up"),
        "verdict": verdict_badge,
    }
    environment.globals |= {"badge": badge, "SHOWN": SHOWN, "term": term}
    return environment


def _finalize(value: Any) -> Any:
    """Return a template value with invisible characters made visible; raise for None."""
    if value is None:
        raise AssertionError("a template prints None")
    return formatting.printable(value) if type(value) is str else value


def term(word: str, shown: str | None = None) -> Markup:
    """Return a word with its explanation, which a pointer shows and the end of the page lists."""
    return Markup('<abbr title="{}">{}</abbr>').format(WORDS[word], shown or word)


def glossary() -> list[tuple[str, str]]:
    """Return all words with their explanations."""
    return [(_SHOWN.get(word, word), text) for word, text in WORDS.items()]
