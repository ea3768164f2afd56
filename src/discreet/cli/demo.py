"""``discreet demo``: a bundled table published in four ways."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.console import Console
from discreet.cli.options import AttackRecords, Json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.audit import Risk
    from discreet.audit.risk import RiskAttack
    from discreet.pipeline.model import PublishedModel
    from discreet.pipeline.result import Published
    from discreet.privacy import Promise
    from discreet.query.results import QueryResult
    from discreet.report.statement.documents import Statement
    from discreet.report.statement.model_documents import ModelStatement

TABLE = "demo:census"
FLOOR = 14.0
QUESTION = "mean(hours_per_week) by sex"


def demo(
    out: Annotated[Path, typer.Option(help="Folder for what is published.")] = Path("demo-release"),
    attack_records: AttackRecords = 20_000,
    json: Json = False,
) -> None:
    """Publish a bundled census in four ways.

    They are a synthetic table, an answer, a model, and rows with noise.

    Each comes with its promise, what it is good for, and what an attacker gains.
    """
    out.mkdir(parents=True, exist_ok=True)
    with Console(as_json=json) as console:
        console.line(f"{TABLE}: 48,842 people, 13 columns. About a minute; four ways to publish it:")
        steps = [
            _publish_synthetic(console, out / "synthetic"),
            _answer_question(console),
            _publish_model(console, out / "model"),
            _publish_rows(console, out / "rows", attack_records),
        ]
        console.line()
        console.line(f"Anyone can check a folder: discreet verify {out}/synthetic/public")
        console.line(f"First page for whoever decides: {out}/synthetic/internal/report.html")
        console.json(dict(zip(("synthetic", "answer", "model", "rows"), steps, strict=True)))


def _publish_synthetic(console: Console, out: Path) -> dict[str, Any]:
    """Publish made-up rows under one epsilon for everything in them."""
    from discreet.privacy import ApproxDP

    _print_step(console, "1. A synthetic table: rows of nobody, for any use")
    result = _publish(console, out, method="synthetic", privacy=ApproxDP(epsilon=1.0, delta=1e-6))
    quality = result.findings.quality
    errors = [] if quality is None else [error for row in quality.two_way for error in row]
    pairs = f"; tables of two columns off by {sum(errors) / len(errors):.1%}" if errors else ""
    return _print_table(console, result, _describe_promise(result.statement), pairs)


def _publish_rows(console: Console, out: Path, attack_records: int) -> dict[str, Any]:
    """Publish the true rows with noise that leaves an error floor."""
    _print_step(console, f"4. The true rows with noise: an error floor of {FLOOR:g} years for age")
    result = _publish(console, out, method="gaussian", protect={"age": FLOOR}, attack_records=attack_records)
    (sentence,) = (one.sentence for one in result.statement.numbers.columns if one.column == "age")
    return _print_table(console, result, sentence)


def _publish(console: Console, out: Path, *, attack_records: int = 20_000, **request: Any) -> "Published":
    """Publish the table as requested, in place of what an earlier run made."""
    from discreet.cli.options import command_line
    from discreet.pipeline.options import Output, RunOptions
    from discreet.pipeline.release import publish

    return publish(
        TABLE,
        out=out,
        output=Output(replace=True),
        run=RunOptions(attack_records=attack_records, command=command_line(), on_progress=console.progress),
        **request,
    )


def _print_table(console: Console, result: "Published", promise: str, more: str = "") -> dict[str, Any]:
    """Print promise, use and risk of a published table."""
    learned = next(stage.said for stage in result.findings.stages if stage.name == "learn")
    _print_field(console, "promise", promise)
    _print_field(console, "good for", f"a model of {learned}{more}")
    _print_field(console, "attack", _describe_risk(result.risk))
    _print_field(console, "publish?", f"{result.risk.verdict.capitalize()}. {result.risk.why}")
    return {"public": str(result.public), "internal": str(result.internal), "risk": result.risk.to_dict()}


def _answer_question(console: Console) -> dict[str, Any]:
    """Answer one question about the rows."""
    from discreet.pipeline.query import QuerySession
    from discreet.privacy import ApproxDP

    _print_step(console, f"2. One answer: {QUESTION}")
    with QuerySession(TABLE) as session:
        result = session.query(QUESTION, privacy=ApproxDP(epsilon=0.1, delta=1e-6))
    _print_field(console, "promise", "epsilon 0.1, delta 10⁻⁶ for each person")
    _print_field(console, "good for", _describe_answer(result))
    _print_field(console, "attack", _describe_bound(result.cost))
    return {"question": result.question, "csv": result.to_csv()}


def _describe_answer(result: "QueryResult") -> str:
    """Return the answer of each group, with its interval."""
    return "; ".join(
        f"{', '.join(cell.key)} {cell.value:.1f} (95%: {cell.lower:.1f} to {cell.upper:.1f})"
        for cell in result.cells
    )


def _publish_model(console: Console, out: Path) -> dict[str, Any]:
    """Train a classifier and publish it."""
    from discreet.cli.options import command_line
    from discreet.pipeline.model import publish_model
    from discreet.pipeline.options import Output, RunOptions
    from discreet.privacy import ApproxDP, promise_from_dict

    _print_step(console, "3. A model of income")
    result: PublishedModel = publish_model(
        TABLE,
        out=out,
        privacy=ApproxDP(epsilon=1.0, delta=1e-6),
        output=Output(replace=True),
        run=RunOptions(command=command_line(), on_progress=console.progress),
    )
    score = None if result.statement.quality is None else result.statement.quality.score
    promises = [promise_from_dict(values) for values in result.statement.numbers.promises]
    _print_field(console, "promise", _describe_promise(result.statement))
    if score is not None:
        text = f"{score['accuracy']:.1%} of people predicted right; the most common class {score['vote']:.1%}"
        _print_field(console, "good for", text)
    _print_field(console, "attack", _describe_bound(promises))
    return {"public": str(result.public), "internal": str(result.internal)}


def _describe_bound(promises: "Sequence[Promise]") -> str:
    """Return how often any attacker can be right about one person, by the promises."""
    from discreet.audit import max_success_probability
    from discreet.formatting import percent

    most = min(max_success_probability(promise, (0.5, 0.5)) for promise in promises)
    share = percent(most, rounding="up").replace("\u00a0", "")
    return f"whoever knows all others is right about a person in at most {share}"


def _describe_promise(statement: "Statement | ModelStatement") -> str:
    """Return epsilon and delta, and what they mean."""
    from discreet.formatting import format_factor, number

    numbers = statement.numbers
    assert numbers.epsilon is not None
    delta = f", delta {number(numbers.delta, rounding='up')}" if numbers.delta else ""
    factor = format_factor(numbers.epsilon)
    epsilon = number(numbers.epsilon, rounding="up")
    return f"epsilon {epsilon}{delta}: no result gets over {factor} times as likely"


def _describe_risk(risk: "Risk") -> str:
    """Return the best attack of each kind beside its limit, in short."""
    from discreet.formatting import small_percent

    names: dict[RiskAttack, str] = {
        "linkage": "finds a person's row",
        "membership": "says who is in the table",
        "attribute inference": "guesses a value",
    }
    parts = []
    for attack, text in names.items():
        worst = risk.worst(attack)
        if worst is not None:
            share, limit = small_percent(worst.success), small_percent(worst.threshold)
            parts.append(f"{text}: {share} (limit {limit})".replace("\u00a0", ""))
    return "; ".join(parts)


def _print_step(console: Console, title: str) -> None:
    console.line()
    console.line(title)


def _print_field(console: Console, name: str, text: str) -> None:
    console.paragraph(text, bullet=f"   {name:8s}  ")
