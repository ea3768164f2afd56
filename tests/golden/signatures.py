"""Signatures of everything that the reference page lists, and which of them were renamed on purpose.

Run ``python -m tests.golden.signatures --write`` to record ``signatures.json`` anew.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_name("signatures.json")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"
RENAMED: dict[str, str | None] = {
    "discreet.job.Published": "discreet.pipeline.Published",
    "discreet.job.PublishedModel": "discreet.pipeline.PublishedModel",
    "discreet.job.asking.ask": "discreet.pipeline.query.query_table",
    "discreet.job.asking.price": "discreet.pipeline.query.preview_table_query",
    "discreet.privacy.in_range.in_range_epsilon": "discreet.privacy.bounded.in_range_epsilon",
    "discreet.privacy.in_range.in_range_law": "discreet.privacy.bounded.in_range_law",
    "discreet.privacy.in_range.in_range_floor": "discreet.privacy.bounded.in_range_floor",
    "discreet.Ledger.charging": "discreet.Ledger.prepare_charge",
    "discreet.Ledger.do": "discreet.Ledger.execute",
    "discreet.Ledger.keeping": "discreet.Ledger.prepare_answer",
    "discreet.privacy.ledger.Entry": "discreet.ledger.Entry",
    "discreet.release.invariant.Solution": "discreet.release.invariant.LearnerSolution",
    "discreet.report.loading.PublishedTable": "discreet.report.folder.loading.PublishedTable",
    "discreet.law.NoiseLaw": "discreet.noise_law.NoiseLaw",
    "discreet.law.NoiseLaw.sampling": "discreet.noise_law.NoiseLaw.column_sample",
    "discreet.law.ColumnLaw": "discreet.noise_law.ColumnLaw",
    "discreet.law.SampledLaw": "discreet.noise_law.SampledLaw",
    "discreet.law.JointResponseLaw": "discreet.noise_law.JointResponseLaw",
    "discreet.law.CorrelatedGaussianLaw": "discreet.noise_law.CorrelatedGaussianLaw",
    "discreet.audit.expose_rows": "discreet.audit.attack_records",
    "discreet.audit.Exposed": "discreet.audit.Reidentification",
    "discreet.audit.Rebuilt": "discreet.audit.ReconstructedColumn",
    "discreet.audit.most_right": "discreet.audit.max_success_probability",
    "discreet.audit.least_error": "discreet.audit.min_error",
    "discreet.Column.dialect": "discreet.Column.notation",
    "discreet.Schema.dialect": "discreet.Schema.notation",
    "discreet.query.LocalSums": None,  # Database takes an array
    "discreet.query.Pricing": "discreet.query.CostModel",
    "discreet.query.Pricing.fit": "discreet.query.CostModel.calibrate",
    "discreet.query.Node": "discreet.query.TreeNode",
    "discreet.query.question_from_dict": "discreet.query.aggregate_from_dict",
    "discreet.query.expression.parse": "discreet.query.language.parse",
    "discreet.query.expression.Expression": "discreet.query.language.Expression",
    "discreet.query.expression.parse_groups": "discreet.query.language.parse_groups",
    "discreet.job.sentence.read_sentence": "discreet.query.language.query.parse_query",
    "discreet.job.sentence.sentence_of": "discreet.query.language.query.build_query",
    "discreet.job.sentence.Sentence": "discreet.query.language.query.Query",
    "discreet.job.asking.answered": "discreet.query.text_query.run_query",
    "discreet.job.asking.priced": "discreet.query.text_query.preview_query",
    "discreet.job.reply.Reply": "discreet.query.results.QueryResult",
    "discreet.job.combining.combined": "discreet.query.combination.combine_results",
    "discreet.job.combining.Term": "discreet.query.combination.ResultTerm",
    "discreet.job.combining.Combined": "discreet.query.combination.CombinedResult",
    "discreet.job.dummy.dummy_rows": "discreet.query.dummy.dummy_rows",
}
"""Intended changes: recorded name -> name today, or None where it is no longer public.

A class that moves carries its methods with it. A name that stays and has other parameters on purpose stands
in ``CHANGED`` with the reason.
"""

CHANGED: dict[str, str] = {
    "discreet.Column": "`dialect` is `notation`",
    "discreet.Schema": "`dialect` is `notation`",
    "discreet.Ledger.do": "`works` is `operations`",
    "discreet.LargeMarginGaussianClassifier.plan": "`facts` is `constants`",
    "discreet.publish": "options of the key, the signature, the files and the run are grouped in four values",
    "discreet.publish_model": "takes the four values of discreet.publish",
    "discreet.query.expression.parse_groups": "takes names, expressions or one text: `names` is `groups`",
    "discreet.query.expression.Expression": "`known` and `known_place` tell where it is not unknown; "
    "`top`, the steps of its own grid, for `own_top` and `bits`",
    "discreet.job.asking.answered": "`asked` is `query`",
    "discreet.job.asking.priced": "`asked` is `query`",
    "discreet.job.reply.Reply": "one result for Database and RemoteDatabase: `axes` is `group_by`; "
    "`receipts` are ids, `charges` the receipts; `unreadable_below` for `count_margin`, `remaining` for "
    "`left`",
    "discreet.job.combining.Term": "has the `interval` and the `bounds` of its number, `sd` may be None",
    "discreet.job.combining.Combined": "`interval` for `margin`",
    "discreet.job.reply.Cell": "`lower` and `upper` for `margin`",
}
"""Names whose parameters changed on purpose, with the reason."""


def listed() -> list[str]:
    """Return the names that the reference page lists."""
    text = PAGE.read_text(encoding="utf-8")
    found: list[str] = []
    for match in re.finditer(
        r"^\.\. auto(?:class|function):: ([\w.]+)\n(   :members:(.*))?", text, re.MULTILINE
    ):
        name, has_members, members = match.groups()
        found.append(name)
        if has_members:
            chosen = [member.strip() for member in (members or "").split(",") if member.strip()]
            found += [f"{name}.{member}" for member in chosen or _public(found_at(name))]
    return found


def found_at(name: str) -> Any:
    """Return the object of a dotted name."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value: Any = import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            value = inspect.getattr_static(value, part) if inspect.isclass(value) else getattr(value, part)
        return value
    raise ImportError(name)


def _public(value: Any) -> list[str]:
    return sorted(name for name in vars(value) if not name.startswith("_"))


def parameters(name: str) -> list[str] | str:
    """Return the parameters of a function or class as ``kind name=default``, without annotations."""
    value = found_at(name)
    if isinstance(value, classmethod | staticmethod):
        value = value.__func__
    if not callable(value):
        return "attribute"
    try:
        signature = inspect.signature(value)
    except ValueError:
        return "no signature"
    told = []
    for parameter in signature.parameters.values():
        default = parameter.default
        shown = "" if default is inspect.Parameter.empty else f" = {_default(default)}"
        told.append(f"{parameter.kind.name.lower()} {parameter.name}{shown}")
    return told


def _default(value: Any) -> str:
    """Return a default as text, without addresses in memory or modules."""
    return re.sub(r" at 0x[0-9a-f]+|\bdiscreet\.[\w.]*\.", "", repr(value))


def recorded() -> dict[str, Any]:
    """Return the recorded parameters by name."""
    return dict(json.loads(RECORD.read_text(encoding="utf-8")))


def differences() -> list[str]:
    """Return a line for each recorded name that is gone or has other parameters, intended ones left out."""
    lines = []
    for name, was in recorded().items():
        today = _renamed(name)
        if today is None or name in CHANGED or today in CHANGED:
            continue
        try:
            now = parameters(today)
        except (ImportError, AttributeError):
            lines.append(f"{name} is gone; list it in RENAMED")
            continue
        if now != was:
            lines.append(f"{name} took {was}, takes {now}; list it in CHANGED with the reason")
    return lines


def _renamed(name: str) -> str | None:
    """Return the name of today: its own entry, or that of the class before its last dot."""
    if name in RENAMED:
        return RENAMED[name]
    head, _, last = name.rpartition(".")
    if head in RENAMED:
        above = RENAMED[head]
        return None if above is None else f"{above}.{last}"
    return name


if __name__ == "__main__":
    content = {name: parameters(name) for name in listed()}
    if "--write" in sys.argv:
        RECORD.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print("\n".join(differences()) or f"{len(recorded())} signatures, no difference")  # noqa: T201
