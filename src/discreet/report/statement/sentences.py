"""Texts of a statement: sampler, lattice and theorems of each noise law, sentences on columns and promises.

A method with a law of its own adds its ``kind`` here; a test checks that none is missing. The promise of a
statement in one sentence is for reports, terminals and contracts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import scipy

from discreet import formatting
from discreet.formatting import format_factor, is_chance, name, number, percent, printable
from discreet.noise_law import Clear, InvariantLaw, MaskedLabelLaw, MaskedLaw, SyntheticLaw
from discreet.privacy import GaussianDP, PureDP
from discreet.privacy.priors import ListPrior

if TYPE_CHECKING:
    from discreet.privacy import ErrorFloor, Promise
    from discreet.privacy.priors import Prior
    from discreet.release import ColumnSummary
    from discreet.report.statement.documents import ColumnNumbers, Statement
    from discreet.report.statement.model_documents import ModelStatement
    from discreet.schema import Column

_LOCAL = (
    "Local model: each row is noised by itself before it leaves the curator, so the promises hold also "
    "against whoever reads the whole file. The curator is trusted with the rows."
)

_MASKED = (
    "Central model: one classifier was trained on all rows with noise on it, and the published rows were "
    "made up from that classifier alone. They are nobody's. The curator is trusted with the rows."
)

_SYNTHETIC = (
    "Central model: a few questions were asked about all rows and answered with noise, and all published "
    "cells but those of public columns were made up from the noisy answers alone. They are nobody's. The "
    "curator is trusted with the rows."
)

_MASKED_SAMPLER = (
    "Integers of a lattice, by the exact samplers of Gaussian, Laplace and spherical noise, added to the "
    "weights of the classifier; the points are made afterwards, from 64-bit numbers that hide nobody."
)
_MASKED_LATTICE = (
    "The weights of the classifier are rounded, before the noise, to a power of two that is small beside it."
)

DEPLOYMENT = {
    "gaussian": _LOCAL,
    "laplace": _LOCAL,
    "bounded": _LOCAL,
    "in-range": _LOCAL,
    "response": _LOCAL,
    "sampled": _LOCAL,
    "joint-response": _LOCAL,
    "spherical": _LOCAL,
    "masked": _MASKED,
    "masked-svm": _MASKED,
    "masked-label": _MASKED,
    "synthetic": _SYNTHETIC,
    "invariant": (
        "Central model: the noise was made for the whole table and for one model trained on it. The curator "
        "is trusted with the rows."
    ),
}

SAMPLERS = {
    "gaussian": (
        "Rounded Gaussian integers from an exact table sampler, within total variation 2^-117 of their law "
        "per draw."
    ),
    "laplace": (
        "Rounded Laplace integers from an exact table sampler, within total variation 2^-114 of their law "
        "per draw."
    ),
    "bounded": (
        "Lattice cells of the least informative density on a bounded support, by an inverse distribution "
        "function whose error is certified."
    ),
    "in-range": "Output cells drawn from a table of integers that is the law itself: exact.",
    "response": "Randomized response by comparing 64-bit words with an integer threshold: exact.",
    "joint-response": (
        "Randomized response on combinations of columns by comparing 64-bit words with an integer threshold: "
        "exact."
    ),
    "sampled": (
        "Randomized response by comparing 64-bit words with an integer threshold, and the columns of a row "
        "by uniform integers drawn without looking at it: exact."
    ),
    "spherical": (
        "Rounded Gaussian integers whose scale is the norm of normals, which together have the density of "
        "spherical noise; what computing the norm costs is in the promise."
    ),
    "masked": _MASKED_SAMPLER,
    "masked-svm": _MASKED_SAMPLER,
    "masked-label": "Counts of labels follow from public numbers, or have discrete Laplace noise: exact.",
    "synthetic": (
        "Rounded Gaussian integers, or discrete Laplace ones for a pure promise, from exact table samplers, "
        "added to exact counts; the rows are made afterwards, from public random words that hide nobody."
    ),
    "invariant": (
        "64-bit Gaussian numbers, projected so that the model does not notice them; no exact arithmetic, and "
        "no promise that would need it."
    ),
}

LATTICES = {
    "gaussian": (
        "Numbers with Gaussian noise are rounded, before the noise, to 2^20 steps per standard deviation of "
        "the noise, counted from the declared lower bound (after the public map, where columns have "
        "correlated noise)."
    ),
    "laplace": (
        "Numbers with Laplace noise are rounded, before the noise, to 2^20 steps per scale of the noise, "
        "counted from the declared lower bound."
    ),
    "bounded": (
        "Numbers with bounded noise are rounded, before the noise, to the cells into which the support of "
        "the noise is cut, counted from the declared lower bound."
    ),
    "spherical": (
        "Numbers with spherical noise are rounded, before the noise, to a power of two of half their range, "
        "counted from its middle."
    ),
    "masked": _MASKED_LATTICE,
    "masked-svm": _MASKED_LATTICE,
    "synthetic": (
        "Counts are whole numbers, and their noise is a whole number of steps of a power of two that is "
        "small beside it."
    ),
    "in-range": (
        "Numbers redrawn in their range are rounded, before the draw, to the equally spaced inputs of the "
        "law; what is published is the middle of an output cell."
    ),
}

TIMING_OF_QUESTIONS = (
    "Questions are asked one after another. When each was charged is on its receipt, to the minute; how long "
    "an answer took is not published. Nothing protects against somebody on the curator's own machine."
)

TIMING = (
    "Rows are noised in batches and published together: nobody sees how long a single cell took. Nothing "
    "protects against somebody on the curator's own machine."
)

THEOREMS: dict[str, dict[str, str]] = {
    "gaussian": {
        "analytic-gaussian": "the exact trade-off between epsilon and delta of Gaussian noise",
        "whitening": "what rounding to the lattice costs, and why the promise holds in floating point",
        "box-diameter": "how far two rows can be apart where columns have correlated noise",
        "lattice-sampler": "that the sampler follows its law",
    },
    "laplace": {
        "lattice-sampler": "that the sampler follows its law",
        "fisher-laplace": "what Laplace noise promises beside Gaussian noise",
    },
    "bounded": {"fisher-bounded": "the least informative noise on a bounded support, and what it excludes"},
    "in-range": {"fisher-in-range": "the pure epsilon of outputs that stay in the declared range"},
    "response": {"composition": "that the epsilons of the columns of one row add up"},
    "joint-response": {"coarse-response": "what one answer for several columns promises about each"},
    "sampled": {
        "coarse-response": "that the cells of a row add up, and that which ones it shows says nothing",
        "noise-aware": "how sums over published cells are corrected for their law",
    },
    "spherical": {
        "masked-input": "what noise without a direction promises about one row, and what it does to a model",
        "spherical-laplace": "that the sampler follows its law, and what that costs",
    },
    "masked": {
        "masked-sensitivity": "how far one row moves the classifier",
        "masked-noise": "what the noise on it promises",
        "masked-objective": "what noise on its training problem promises",
        "masked-existence": "that points exist whose classifier it is, and when",
    },
    "masked-svm": {
        "svm-objective": "how far one row moves the classifier, and what noise on its training promises",
        "masked-noise": "what the noise on it promises",
        "svm-existence": "that points exist whose classifier it is, and when",
    },
    "masked-label": {"masked-labels": "where the labels may come from, and what true ones give away"},
    "invariant": {
        "fisher-invariant": "that the model stays the same, and what that gives away",
        "fisher-cramer-rao": "what binds unbiased guesses, and no others",
    },
    "synthetic": {
        "marginals": "how far one row moves all tables and scores of a question together",
        "analytic-gaussian": "the exact trade-off between epsilon and delta of Gaussian noise",
        "lattice-sampler": "that the sampler follows its law",
    },
    "floor": {"bayes-floor": "what an error floor says, and what it does not"},
    "total": {"composition": "what several promises come to together"},
}


WARNED_EPSILON = 4.0
"""Epsilon from which on a table of noisy counts says how well a person can still be recognized."""
LARGE_EPSILON = 8.0
"""Epsilon above which a sentence adds that it says little by itself."""


def column_sentence(column: Column, summary: ColumnSummary, unit: str) -> str:
    """Return the sentence of a statement about one column.

    A floor is an average over a prior that is named in plain words, never a promise for each person.

    Reference
    ---------
    docs/explanation/theorems/bayes-floor.md
    """
    called, law = name(column.name), summary.law
    if isinstance(law, Clear):
        if column.role == "public":
            return f"{called} is declared public and published as it is."
        return f"{called} is published as it is: nothing here protects it."
    if isinstance(law, InvariantLaw):
        return (
            f"{called} carries noise that the named learner does not notice. No floor is proven for it: the "
            "model trained on this file may give it away."
        )
    if isinstance(law, MaskedLaw | MaskedLabelLaw):
        beside = f" Beside them stand {law.beside}: nothing protects those." if law.beside else ""
        return f"{called} holds {law.words()}. Its cells are nobody's.{beside}"
    if isinstance(law, SyntheticLaw):
        return f"{called} is {law.words()}. Its cells are nobody's; no error floor is promised for it."
    if summary.floor is None:
        own = "" if summary.epsilon is None else f", and costs an epsilon of {_up(summary.epsilon)}"
        return f"{called} is published with noise ({law.words()}){own}. No error floor is proven for it."
    floor = summary.floor
    whose = "a person" if unit == "person" else f"one {printable(unit)}"
    if is_chance(floor.statistic):
        least = percent(floor.error, rounding="down").replace("\u00a0", " ")
        cannot = f"no method can guess it from this file and be wrong less than {least} of the time"
    else:
        measure = floor.measure or column.unit_name
        unit_said = f" {printable(measure)}" if measure else ""
        cannot = (
            "no method can guess it from this file with a root-mean-square error below "
            f"{number(floor.error, rounding='down')}{unit_said}"
        )
    return (
        f"Whoever knows more about {whose}, such as how {called} goes with the other columns, may guess "
        f"{called} better than this: if it could equally well be {_prior_phrase(column, summary.prior)}, "
        f"{cannot}."
    )


def _prior_phrase(column: Column, prior: Prior | ListPrior | None) -> str:
    if isinstance(prior, ListPrior):
        return f"any of the {len(prior.codes)} {prior.what}"
    if column.is_calendar:
        return f"any {column.step or 'day'} from {column.lower} to {column.upper}"
    lower, upper = (number(bound, digits=17) for bound in column.range)
    every = "any whole number" if column.type == "integer" else "anything"
    return f"{every} from {lower} to {upper}"


def total_sentence(epsilon: float, delta: float | None, unit: str) -> str:
    """Return a sentence about what the epsilon of the whole row means."""
    slack = "" if delta is None else f" and adds at most {number(delta, rounding='up')} to it"
    small = " Such a large epsilon says little by itself: read the floors." if epsilon > LARGE_EPSILON else ""
    at = "" if delta is None else f" at delta {number(delta, rounding='up')}"
    return (
        f"Everything that is protected in the rows of one {printable(unit)}, taken together, has epsilon "
        f"{_up(epsilon)}{at}: replacing it by anything else that the schema allows multiplies the "
        f"probability of any published file by at most {format_factor(epsilon)}{slack}.{small}"
    )


def attacker_sentence(promise: Promise, epsilon: float | None) -> str | None:
    """Return what the best informed attacker can do about one person; None if no curve bounds it.

    The curve is that of two Gaussians ``mu`` apart, or of a pure epsilon. Its area is ``Phi(mu / sqrt(2))``
    or ``exp(eps) / (1 + exp(eps))``, its largest height above the diagonal ``2 Phi(mu / 2) - 1`` or
    ``tanh(eps / 2)``.

    Reference
    ---------
    Dong, Roth and Su 2022; docs/explanation/theorems/composition.md
    """
    if isinstance(promise, GaussianDP):
        curve = f"Phi(Phi^-1(f) + {_up(promise.mu)})"
        area, height = (
            scipy.special.ndtr(promise.mu / math.sqrt(2)),
            2 * scipy.special.ndtr(promise.mu / 2) - 1,
        )
    elif isinstance(promise, PureDP):
        factor = format_factor(promise.epsilon)
        curve = f"min({factor} f, 1 - (1 - f) / {factor})"
        area, height = scipy.special.expit(promise.epsilon), math.tanh(promise.epsilon / 2)
    else:
        return None
    warning = ""
    if epsilon is not None and epsilon > WARNED_EPSILON * (1 - 1e-6):
        warning = (
            f" WARNING: from epsilon {WARNED_EPSILON:g} on this is no longer little. Such an attacker may "
            "recognize a person; ask whether anyone could know so much."
        )
    return (
        f"Somebody who knows all other rows and tests whether one {printable(promise.unit)} has given "
        f"values, by any statistic of what is published, is right at most with probability {curve} where a "
        f"false alarm has probability f: an area under the curve of at most {_up(float(area))}, an advantage "
        f"of at most {_up(float(height))}.{warning}"
    )


def floors_sentence(promise: ErrorFloor) -> str:
    """Return a sentence about how many columns have a proven floor, and what kind of promise that is."""
    count = len(promise.columns)
    columns = "one column" if count == 1 else f"{count} columns"
    return (
        f"An error floor is proven for {columns}, each on average over a public prior that its sentence "
        f"names. It is no promise for each {printable(promise.unit)}, and no differential privacy."
    )


def _up(value: float) -> str:
    return number(value, digits=4, rounding="up")


def quote_promise(statement: Statement | ModelStatement) -> str:
    """Return the promise in one sentence that can be quoted by itself."""
    numbers, definition = statement.numbers, statement.definition
    unit = formatting.printable(statement.unit.unit)
    columns = getattr(numbers, "columns", [])
    floors = [one for one in columns if one.floor is not None]
    large = numbers.epsilon is not None and numbers.epsilon > LARGE_EPSILON
    if definition.differential_privacy and numbers.epsilon is not None and not (large and floors):
        epsilon = formatting.number(numbers.epsilon, digits=4, rounding="up")
        slack, delta = "", ""
        if numbers.delta:
            small = formatting.number(numbers.delta, rounding="up")
            slack, delta = f", but for a probability of at most {small}", f" and delta {small}"
        return (
            f"Whatever anyone knows already, replacing all that is protected about one {unit} makes no "
            f"published result more than {formatting.format_factor(numbers.epsilon)} times as "
            f"probable{slack} (differential privacy with epsilon {epsilon}{delta})."
        )
    if definition.kinds == ["no-promise"]:
        return f"Nothing is promised about any {unit} in this file."
    if not floors:
        return definition.sentences[0]
    first = next((one for one in floors if not formatting.is_chance(str(one.floor["statistic"]))), floors[0])
    others = (
        f"; {formatting.count_noun(len(floors) - 1, 'more column')} in the statement"
        if len(floors) > 1
        else ""
    )
    return (
        f"Somebody who knows nothing about a {unit} but the declared range of a column guesses it from this "
        f"file with at least the error of its floor ({formatting.name(first.column)}: "
        f"{_floor_text(first)}{others}); nothing is promised against somebody who knows more, and "
        f"{'an epsilon that large says little' if large else 'this is not differential privacy'}."
    )


def _floor_text(numbers: ColumnNumbers) -> str:
    assert numbers.floor is not None
    chance = formatting.is_chance(str(numbers.floor["statistic"]))
    error = formatting.quantity(
        float(numbers.floor["error"]), numbers.measure, chance=chance, rounding="down"
    )
    return f"wrong in {error} of cases" if chance else f"{error}, root mean square"
