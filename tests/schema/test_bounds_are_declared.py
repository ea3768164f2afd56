"""No bound, list or scale is read off the rows, anywhere in the package.

The scan is coarse on purpose. A call that reduces an array to an extreme, a quantile, a spread or a
list of its values either happens where there are no rows, or stands on the list below with a reason
that a reviewer can weigh.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import discreet

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(discreet.__file__).parent

REDUCTIONS = frozenset(
    (
        *("min", "max", "amin", "amax", "nanmin", "nanmax", "ptp"),
        *("quantile", "nanquantile", "percentile", "nanpercentile", "median", "nanmedian"),
        *("std", "nanstd", "var", "nanvar", "histogram", "describe"),
        *("unique", "value_counts", "n_unique", "nunique"),
    )
)
SQL = re.compile(
    r"\b(min|max|quantile\w*|median|stddev\w*|var_\w+|variance|approx_quantile|mode|mad"
    r"|approx_count_distinct|summarize)\b\s*\(|\bsummarize\b|count\s*\(\s*distinct",
    re.IGNORECASE,
)

# Rooms from which no number can reach a bound, because of what they may import and who imports them.
EXEMPT_ROOMS = {
    "noise": "sees no row: arrays are random draws, tables of probabilities or public lattice points",
    "privacy": "sees no row: arrays are privacy curves over declared parameters",
    "audit": "an attacker may learn from all that he gets; nothing that draws noise imports an attack",
}

# "module:function" -> why what it computes never becomes a bound, a list or a scale.
ALLOWED = {
    "learn.classifier._rules:largest_weight": "noisy totals of the classes, which were paid for",
    "server.access_database:_PostgresAccess": "the last number of a token, not a row",
    "server.jobs:JobStore.end": "the number of steps of a job, not of rows",
    "ledger.postgres_log:PostgresLog.rotate": "over the numbers of lines of an audit log, not over rows",
    "server.upgrade:_name_datasets": "over the scopes of tokens, not over rows",
    **{
        f"query.interface:PrivateTable.{verb}": "the word of a noisy statistic in a query, not SQL"
        for verb in ("count_distinct", "median", "quantile", "stddev", "variance")
    },
    **{
        f"query.language.{place}": "words of the query language in a table or a message, not SQL"
        for place in (
            "_select:",
            "_statistic:",
            "_statistic:_build_distinct",
            "_statistic:_build_quantile",
            "_statistic:_wrong_arguments",
            "vocabulary:refused_aggregate",
        )
    },
    "query.language._program:_result": "over the codes that a condition names, not over rows",
    "report.pages._columns:_comparison": "draws a picture of a histogram that was computed already",
    "query.results:QueryResult.group_words": "a sentence about a result",
    "cli.query:query": "the help text of a command",
    "query.range_cells:estimate_range": "over the places of public cells, chosen by noisy counts",
    "query.answers:Answer.merge": "over the public noise of several answers, not over rows",
    "tables.writers:_is_within": "checks that codes about to be written are inside their list",
    "tables.check:_count_broken": "first rows that a check names, to the owner of the table alone",
    "learn._closeness:_Derivative.__init__": "the conditioning of a linear system, not a scale of rows",
    "learn._smooth_problem:SmoothProblem._predict": "keeps powers finite; a number for the curator alone",
    "learn.exact_svm._model:RegularizedSVM._check_rows": "refuses cells too large to square",
    "learn.exact_svm._model:RegularizedSVM._two_classes": "a model without any promise",
    "learn.exact_svm._solver:SvmProblem.residual": "how well the solver solved; part of its certificate",
    "release.gaussian:GaussianRelease.numbers_for_errors": "over declared columns, not over rows",
    "ranks:rank_values": "of scores of attacks and models, not of what is declared",
    "release.mechanism:check_weights": "checks that given weights are positive and symmetric",
    "release.invariant._learners:largest_share": "a refusal to the curator; promises nothing",
    "release.invariant._noise:orthonormal_basis": "the rank of the model's weights; promises nothing",
    "release.invariant.plan:Exposure.smallest_bound": "shown to the curator alone; promises nothing",
    "learn.large_margin._problem:common_shift": "over eigenvalues of released matrices",
    "learn.large_margin._bounds:_largest": "over how many rivals are active, not over rows",
    "learn.perturbation.embedding:Embedding.rows": "keeps squares of huge cells finite; rows are clipped",
    "learn.logistic.sensitivity:binary_change": "over public norm bounds and penalties, not over rows",
    "learn._centering:spectral_edge": "over the standard deviations of noise, which are public",
    "learn._id3:PrivateID3Classifier._learn": "over the standard deviations of noise, which are public",
    "learn._id3:PrivateID3Classifier._plan_levels": "over the standard deviations of noise, which are public",
    "learn._kmeans:PrivateKMeans.score": "how well given rows fit a finished model",
    "learn._kmeans:merge_centers": "over noisy centers, which were paid for",
    "learn._gradient_logistic:PrivateGradientLogistic._descend": "over the standard deviations of noise",
    "learn.classifier._curves:make_curves": "over noisy evidence, which was paid for",
    "learn.classifier._model:PrivateClassifier._learn": "over the standard deviations of noise",
    "learn.classifier._model:PrivateClassifier._learn_curves": "over the standard deviations of noise",
    "learn.classifier._model:PrivateClassifier._public_facts": "over the standard deviations of noise",
    "learn.paid_score:ModelScore.from_counts": "over class counts, which were paid for",
    "learn.classifier._rules:curve_weight": "over class totals, which were paid for",
    "learn.classifier._weights:WeightQueries._descend": "over the standard deviations of noise",
    "query.aggregates._predictions:ClassGradientPass.parts": "over the scores of one row, of a public model",
    "learn._naive_bayes:PrivateNaiveBayes._learn": "over the standard deviations of noise",
    "learn._naive_bayes:PrivateNaiveBayes._choose_query": "over the standard deviations of noise",
    "learn.arguments:declared_classes": "of rows only where nothing is promised",
    "learn._centering:Centering.count_query": "over the weights of a private model",
    "learn._sums_base:SumsClassifier._is_scored": "over the standard deviations of noise, which are public",
    "learn._sums_base:SumsClassifier._take_levels": "of the declared classes",
    "learn._sums_base:SumsEstimator._schema_from_bounds": "only where nothing is promised",
    "learn.noise_aware._learners:NoiseAwareClassifier._label": "of labels that were published already",
    "learn.noise_aware.estimators:_inverse_root": "over moments of rows that were published already",
    "learn.noise_aware.estimators:diagonal_slopes": "over moments of rows that were published already",
    "learn.noise_aware.base:clear_law": "units of rows that were published as they are",
    "learn.noise_aware.rows:check_unrounded": "whether published cells were rounded; a refusal",
    "learn.noise_aware.estimators:measure_evidence": "the class of which published rows say most",
    "learn._pca:_radius": "over the standard deviations of noise, which are public",
    "learn._pca:noise_floor": "over the standard deviations of noise, which are public",
    "learn._quantiles:_count_between": "over the standard deviations of noise, which are public",
    "learn._quantiles:_interval_cuts": "over comparisons of noisy counts, which were paid for",
    "learn._quantiles:private_quantiles": "over the standard deviations of noise, which are public",
    "query.quantiles:_excess_noise": "over weights of noisy counts, which follow from the shape of a tree",
    "query.quantiles:_last_passed": "over comparisons of noisy counts, which were paid for",
    "query.quantiles:_margins": "over weights of noisy counts, which follow from the shape of a tree",
    "query.quantiles:estimate_quantiles": "over the standard deviations of noise, which are public",
    "query.quantiles:expected_rank_error": "over the standard deviations of noise, which are public",
    "learn._centering:Region.spread": "over noisy means, which were paid for",
    "learn._ridge:PrivateRidge._local_target": "only where nothing is promised",
    "release.masked._points:binary_points": "over points that are made up for a private model",
    "release.masked._equations:PointEquations._improve": "over points that are made up for a private model",
    "release.masked._equations:_largest_factor": "over points that are made up for a private model",
    "release.masked._equations:_project": "over points that are made up for a private model",
    "release.masked.construction:_settle_intercept": "over the weights of a private model",
    "release.masked._arguments:read_labeled_matrix": "of the declared classes",
    "evaluation.columns:_compare_number": "distance of two histograms, shown to the curator",
    "evaluation._models:LinearModel.distance": "how far two trained models are apart, shown to the curator",
    "evaluation.tallies:PairedSample._choose": "over random words that choose the curator's sample",
    "report.verify._noise_tests:AdditiveTest.update": "a stranger checks the published file",
    "report.verify._noise_tests:InRangeTest.__init__": "over a public table of probabilities",
    "report.pages._declared:code_example": "the text of a program for analysts of the published file",
    "release.invariant.plan:InvariantPlan._check_noise": "a refusal to the curator; promises nothing",
    "tables.fingerprint:sample_rows": "keyed digests that identify a table to its curator",
    "tables.fingerprint:merge_samples": "keyed digests that identify a table to its curator",
    "release._bounded:BoundedNumbers.repeat_chance": "over a public table of probabilities",
    "release._bounded_numbers:InRangeNumbers.repeat_chance": "over a public table of probabilities",
    "release.gaussian:GaussianNumbers.repeat_chance": "over the standard deviations of noise",
    "release.statistics.tables:ModelRows.correlation": "over made-up rows that were published",
    "release.statistics._published_counts:_merge": "over the variances of noise",
    "report.statement.sentences:attacker_sentence": "the smaller of two formulas, for a sentence",
    "report.verify._noise_tests:RepeatTest.faults": "a stranger checks the published file",
    "report.verify.cells:_find_differences": "a stranger checks the published file",
}


def reduction(node: ast.AST) -> str | None:
    """Return the name of the reduction that a node calls, or passes on as ``np.max``."""
    if isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Attribute):
            ufunc = function.value.attr
            if function.attr in ("reduce", "accumulate") and ufunc in ("minimum", "maximum"):
                return f".{ufunc}.{function.attr}"
        if isinstance(function, ast.Attribute) and function.attr in REDUCTIONS:
            return f".{function.attr}"
        return None
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return None
    passed_on = node.value.id in ("np", "numpy") and node.attr in REDUCTIONS
    return f"np.{node.attr}" if passed_on else None


def reductions(tree: ast.AST, module: str) -> Iterator[tuple[str, str]]:
    """Yield (module:function, what) for every suspicious call and every suspicious piece of SQL."""
    stack: list[tuple[ast.AST, str]] = [(tree, "")]
    while stack:
        node, where = stack.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            where = f"{where}.{node.name}" if where else node.name
            docstring = ast.get_docstring(node, clean=False)
        elif isinstance(node, ast.Module):
            docstring = ast.get_docstring(node, clean=False)
        else:
            docstring = None
        name = reduction(node)
        if name:
            yield f"{module}:{where}", name
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.search(node.value):
            yield f"{module}:{where}", "SQL"
        for child in ast.iter_child_nodes(node):
            is_docstring = (
                isinstance(child, ast.Expr)
                and isinstance(child.value, ast.Constant)
                and child.value.value == docstring
            )
            if not is_docstring:
                stack.append((child, where))


@functools.cache
def scan(folder: Path) -> set[tuple[str, str]]:
    found = set()
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if parts[0] not in EXEMPT_ROOMS:
            found |= set(reductions(ast.parse(path.read_text("utf-8")), ".".join(parts)))
    return found


def test_every_reduction_of_an_array_is_argued_for() -> None:
    unargued = {f"{where} ({what})" for where, what in scan(PACKAGE) if where not in ALLOWED}
    assert not unargued, (
        "Bounds, lists and scales are declared, never computed from rows. If this is no such thing, "
        f"say why in ALLOWED: {sorted(unargued)}"
    )


def test_every_argument_is_still_needed() -> None:
    assert set(ALLOWED) <= {where for where, _ in scan(PACKAGE)}


@pytest.mark.parametrize(
    "code",
    [
        "def f(X): return X.min(axis=0), X.max(axis=0)",
        "def f(X): return np.quantile(X, 0.99)",
        "def f(X): return np.apply_along_axis(np.nanmax, 0, X)",
        "def f(X): return np.maximum.reduce(X)",
        "def f(X): return (X - X.mean(0)) / X.std(0)",
        "def f(y): return np.unique(y)",
        "def f(con): return con.execute('SELECT min(age), max(age) FROM t')",
        "def f(con): return con.execute(f'SUMMARIZE {name}')",
        "class A:\n    async def f(self, rows): return rows['age'].max()",
    ],
)
def test_the_scan_catches_bounds_that_are_read_off_rows(code: str) -> None:
    assert list(reductions(ast.parse(code), "twin"))


@pytest.mark.parametrize(
    "code",
    [
        '"""Never calls min() or X.max()."""',
        'def f():\n    """Take no quantile(x) of rows."""',
        "LARGEST = np.iinfo(np.int64).max",
        "def f(a, b): return np.minimum(np.maximum(a, 0), b)",
        "def f(a): return min(a, 3)",
        "LAST = datetime.date.max.toordinal()",
    ],
)
def test_the_scan_lets_pass_what_reduces_no_array(code: str) -> None:
    assert not list(reductions(ast.parse(code), "twin"))
