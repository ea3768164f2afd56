"""Rules of the classifier: which stages run, on which cells and for which share, by public facts alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from discreet.errors import ParameterError
from discreet.learn._bins import grid_level
from discreet.learn.paid_score import SCORE_SHARE, TOO_FEW_ROWS, is_worth_asking

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import Floats
    from discreet.privacy.budget_split import Privacy

TWO_STAGES, FEW_NUMBERS_STAGES, MANY_CLASSES_STAGES = 40.0, 150.0, 50.0
"""Least signal for a second stage of two classes, if half of the columns are numbers and if fewer are; and of
more classes, times two over their number."""
SIGNAL_OF_A_COLUMN, ROWS_OF_A_COLUMN = 1.5, 25.0
"""Least signal and number of rows for each column, for a second stage: it has two weights for a number."""
FIRST_SHARE = 0.5
"""Share of the model's promise that the first of two stages gets."""
PRODUCTS_SHARE = 0.15
"""Share of the second stage's promise that the matrix of products gets."""
ROUNDS = 5
"""Number of gradients of the second stage."""
LEAST_COUNT_SHARE, MOST_COUNT_SHARE, UNKNOWN_COUNT_SHARE = 0.03, 0.5, 0.1
"""Limits of the class counts' share of the first stage, and the share where the number of rows is private."""
COUNT_PRECISION = 100.0
"""The class counts' share is this over ``(rows * mu)**2``: a tenth of the rows for a standard deviation."""
STRENGTHS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Variances of a curve's relative effects between which the first stage chooses."""
STRENGTH_SHARES = (0.25, 0.08, 0.10, 0.25, 0.22, 0.06, 0.04)
"""How often columns of other tables had each of them."""
POOLED_COLUMNS = 3.0
"""Number of columns that this is worth beside those of the table."""
LINEAR_PART, SMOOTH_PART, ROUGH_PART, SMOOTH_LENGTH = 0.45, 0.35, 0.2, 0.25
"""Parts of a number's curve that are a line, smooth and rough; and the part of the range that is alike."""
LARGEST_WEIGHT, CAUTION = 0.6, 12.0
"""Weight of every curve in one stage of two classes at most, as columns repeat each other; and the signal
that halves it. With more classes, of which none has half of the rows, it is 1: curves then have to stand up
to the prior of common classes."""
TRIED_WEIGHTS, TRIAL_SHARE, LARGEST_TRIAL_SD = (0.6, 1.0), 0.05, 0.02
"""Weights of curves in one stage, between which counts of right rows decide; the share of the promise for the
counts; and the noise on one, as a part of the rows, above which they are not asked for."""
UNBALANCED = 0.15
"""Share by which a vote is better than a guess, from which on there is enough to lose for full caution."""
AVERAGE_WEIGHT, MANY_CLASSES_WEIGHT = 0.5, 0.35
"""Weight of curves at which the second stage starts with two classes; with more, at which it keeps them."""
LEAST_KNOWN_VOTE = 15.0
"""Rows times mu below which the most common class itself may be named wrongly."""
WEAK_SIGNAL, MIDDLE_SIGNAL = 5.0, 20.0
"""Signals below which nothing but the most common class is to be expected, and weak effects are lost."""
PRIOR_WIDTH = 0.5
"""Standard deviation of weights about their start in the second stage."""
FEW_LINES_SCALE = 0.35
"""Length of a number's standard deviation in a row where fewer than half of the columns are numbers."""
BENT_PART = 0.3
"""Part of a number's curve, as variance over the rows, that its line must leave to be weighed beside it."""
LEAST_LINEAR_PART = 0.2
"""Part of all curves that lines and levels of categories must explain for a second stage."""
CONSTANT = 0.5
"""Last coordinate of every row in the second stage."""

MOST_CELLS_OF_A_COLUMN, MOST_CELLS_IN_ALL = 2000, 10**6
"""Largest number of cells times classes, of one column and of all columns together."""


@dataclass(frozen=True, slots=True)
class PublicFacts:
    """What is known about a table and a promise before anything is paid for, or from the paid class counts.

    Attributes
    ----------
    n_rows : float
        Number of rows, public or estimated; infinite while it is private.
    n_classes : int
        Number of declared classes.
    mu : float
        Strength of the whole promise: standard deviations by which one unit can move a count; infinite
        without noise.
    signal : float
        Number of rows over the standard deviation that the noise on one cell has if the tables get all of the
        model's promise: ``S`` of the documentation. Infinite without noise.
    score_sd : float
        Standard deviation of the noise on the score, in rows.
    n_columns : int
        Number of columns that the model reads.
    lines : bool
        Whether at least half of the columns are numbers, which have lines in a second stage.
    gaussian : bool
        Whether noise is Gaussian, or there is none; under pure promises a second stage is too expensive.
    """

    n_rows: float
    n_classes: int
    mu: float
    signal: float
    score_sd: float
    n_columns: int
    lines: bool
    gaussian: bool

    @property
    def affords_second_stage(self) -> bool:
        """Whether weights are worth what they cost the curves."""
        # A gradient has many entries: its L1 sensitivity, which Laplace noise follows, far exceeds its L2
        # one.
        if not self.gaussian or self.n_rows < ROWS_OF_A_COLUMN * self.n_columns:
            return False
        if self.n_classes == 2:
            least = TWO_STAGES if self.lines else FEW_NUMBERS_STAGES
            return self.signal >= max(least, SIGNAL_OF_A_COLUMN * self.n_columns)
        return self.lines and 2 * self.signal / self.n_classes >= MANY_CLASSES_STAGES

    @property
    def affords_trials(self) -> bool:
        """Whether a few counts of right rows are precise enough to choose the weight of curves by them."""
        if not self.gaussian or math.isinf(self.mu):
            return False
        # Shares are of mu squared, and every trial has an equal part of theirs.
        sd = math.sqrt(len(TRIED_WEIGHTS) / TRIAL_SHARE) / self.mu
        return sd <= LARGEST_TRIAL_SD * self.n_rows

    @property
    def affords_score(self) -> bool:
        """Whether the interval of a score is short enough to say something."""
        return is_worth_asking(self.score_sd, self.n_rows, "gaussian" if self.gaussian else "laplace")


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be asked.

    Attributes
    ----------
    stages : int
        1 for curves alone, 2 for curves and their weights.
    level : int
        Level of the public grid.
    scored : bool
        Whether the score is asked.
    shares : dict of str to float
        Share of the promise that each query gets.
    """

    stages: int
    level: int
    scored: bool
    shares: dict[str, float]


def make_plan(facts: PublicFacts, *, wants_score: bool, count_share: float | None = None) -> Plan:
    """Return the queries of a fit and their shares.

    Parameters
    ----------
    facts : PublicFacts
        Facts on which all rules are.
    wants_score : bool
        Whether the score is wanted; it is left out where it would tell nothing.
    count_share : float, optional
        Share of the first stage that the class counts get; None chooses it by the number of rows.
    """
    scored = wants_score and facts.affords_score
    stages = 2 if facts.affords_second_stage else 1
    tried = stages == 1 and facts.affords_trials
    model = 1.0 - (SCORE_SHARE if scored else 0.0) - (TRIAL_SHARE if tried else 0.0)
    first = model * (FIRST_SHARE if stages == 2 else 1.0)
    if count_share is None:
        count_share = count_share_for(facts.n_rows, facts.mu * math.sqrt(first))
    shares = {"classes": first * count_share, "tables": first * (1 - count_share)}
    if stages == 2:
        second = model - first
        shares["products"] = second * PRODUCTS_SHARE
        for name in gradient_names():
            shares[name] = second * (1 - PRODUCTS_SHARE) / ROUNDS
    if tried:
        shares |= dict.fromkeys(trial_names(), TRIAL_SHARE / len(TRIED_WEIGHTS))
    if scored:
        shares["score"] = SCORE_SHARE
    # The signal is for the whole promise of the model, of which the first of two stages has a part.
    level = grid_level(facts.signal * math.sqrt(first / model), facts.n_classes)
    return Plan(stages, level, scored, shares)


def check_cells(sizes: Mapping[str, int]) -> None:
    """Refuse columns with too many cells times classes, by their number in each column."""
    name, largest = max(sizes.items(), key=lambda item: item[1])
    total = sum(sizes.values())
    if largest <= MOST_CELLS_OF_A_COLUMN and total <= MOST_CELLS_IN_ALL:
        return
    where, found, most = (
        (f"column {name!r}", largest, MOST_CELLS_OF_A_COLUMN)
        if largest > MOST_CELLS_OF_A_COLUMN
        else ("all columns", total, MOST_CELLS_IN_ALL)
    )
    raise ParameterError(
        f"cells times classes of PrivateClassifier must be at most {most:,}, and are {found:,} in {where}. "
        "List fewer levels, or leave columns out."
    )


def largest_weight(totals: Floats) -> float:
    """Return the weight of all curves in one stage where nothing has to be lost by caution.

    Parameters
    ----------
    totals : array of shape (n_classes,)
        Number of rows of each class, as far as it is known.
    """
    return LARGEST_WEIGHT if len(totals) == 2 or totals.max() > totals.sum() / 2 else 1.0


def curve_weight(signal: float, totals: Floats, largest: float) -> float:
    """Return the weight of all curves in one stage, the smaller the more a good vote has to lose.

    Parameters
    ----------
    signal : float
        Number of rows over the noise on one cell.
    totals : array of shape (n_classes,)
        Number of rows of each class, as far as it is known.
    largest : float
        Weight where nothing has to be lost by caution.
    """
    better = float(totals.max() / totals.sum()) - 1 / len(totals)
    caution = CAUTION * min(max(better / UNBALANCED, 0.0), 1.0)
    return largest if math.isinf(signal) else min(largest, signal / (signal + caution))


def gradient_names() -> list[str]:
    """Return the names of the passes that ask for gradients."""
    return [f"gradient {i + 1}" for i in range(ROUNDS)]


def trial_names() -> list[str]:
    """Return the names of the passes that count the right rows under each weight that is tried."""
    return [f"weight {weight:g}" for weight in TRIED_WEIGHTS]


def count_share_for(n_rows: float, mu: float) -> float:
    """Return the share of the first stage for the class counts, the larger the fewer rows there are."""
    # Divided before it is squared, which cannot overflow under the weakest of promises.
    wanted = (math.sqrt(COUNT_PRECISION) / (mu * n_rows)) ** 2
    return min(max(LEAST_COUNT_SHARE, wanted), MOST_COUNT_SHARE)


def expectation(facts: PublicFacts, privacy: Privacy) -> str:
    """Return what to expect of the model, in words, from public facts."""
    if math.isinf(facts.signal):
        return "Without noise, expect the effect of each column to be found."
    strength = next(f"{name} {getattr(privacy, name):g}" for name in _STRENGTHS if hasattr(privacy, name))
    rows = f"With {facts.n_rows:,.0f} rows and {strength}"
    if facts.n_rows * facts.mu < LEAST_KNOWN_VOTE:
        return f"{rows} even the most common class may be named wrongly. Expect no better than a guess."
    if facts.signal < WEAK_SIGNAL:
        return f"{rows} expect the most common class for everyone: noise hides all but very strong effects."
    if facts.signal < MIDDLE_SIGNAL:
        return f"{rows} expect strong effects of single columns to be found, and weak ones to be lost."
    return f"{rows} expect the effect of each column to be found."


def describe_plan(
    facts: PublicFacts, plan: Plan, privacy: Privacy, *, wants_score: bool, floor: bool, again: bool = False
) -> str:
    """Return what to expect of the model and what was asked, in words.

    Parameters
    ----------
    facts : PublicFacts
        Facts on which all rules are.
    plan : Plan
        Queries that are asked.
    privacy : Privacy
        Promise of the whole model.
    wants_score : bool
        Whether the score is wanted.
    floor : bool
        Whether curves fall back to the most common class where noise explains them.
    again : bool
        Whether the second stage was left out by the noisy curves, and the tables were asked for again.
    """
    words = [expectation(facts, privacy)]
    if again:
        words.append(
            "One stage: curves of the columns, counted twice, as they are too bent for lines to help."
        )
    elif plan.stages == 2:
        words.append("Two stages: curves of the columns, then their weights.")
    else:
        words.append("One stage: curves of the columns, all with the same weight.")
    if wants_score and not plan.scored:
        words.append(TOO_FEW_ROWS)
    if not floor:
        words.append("The floor is off: the model may be worse than naming the most common class.")
    return " ".join(words)


_STRENGTHS = ("epsilon", "rho", "mu")
