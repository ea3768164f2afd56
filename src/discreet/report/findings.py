"""Findings of the curator about a release: attacks on real rows, learning, comparisons; all of it internal.

:class:`Findings` is the content of ``internal/attacks.json``. The internal report is drawn from it and from
the statement, so that it can be made again without the rows.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from discreet.report.noisy_tables import MeasuredTables  # noqa: TC001 - a field of a record
from discreet.report.statement.documents import Record


class Stage(Record):
    """One stage of a job: what it did, and how long it took."""

    name: str
    said: str
    seconds: float


class Score(Record):
    """Quality of one model on the target.

    Attributes
    ----------
    trained_on : str
        Training rows: "original", "release", "aware" (the release too, by a learner that corrects for its
        published noise law) or "majority" (the best guess without any row).
    tested_on : str
        Test rows: "original" or "release"; the same people either way, none of whom was trained on (an
        invariant release keeps its model on the whole table alone, so there everyone was, and
        :attr:`Learning.note` says so).
    train_rows : int or None
        Number of training rows, where models had different numbers of them; else None.
    accuracy, lower, upper : float or None
        Accuracy of a classifier with its 95 % interval, as shares; None for a regression.
    auc : float or None
        Area under the ROC curve; averaged one against the rest for several classes.
    r2, rmse : float or None
        Quality of a regression, ``rmse`` in the unit of the target; None for a classifier.
    calibration : list of (predicted, observed, share of rows)
        Calibration of the last class; empty where there is none.
    """

    trained_on: Literal["original", "release", "aware", "majority"]
    tested_on: Literal["original", "release"]
    train_rows: int | None = None
    accuracy: float | None = None
    lower: float | None = None
    upper: float | None = None
    auc: float | None = None
    r2: float | None = None
    rmse: float | None = None
    calibration: list[tuple[float, float, float]] = Field(default_factory=list)


class Subgroup(Record):
    """Accuracy (or R2) within one level of one column."""

    column: str
    level: str
    rows: int
    original: float
    release: float


class Learning(Record):
    """Value of the release for training a model on it.

    Attributes
    ----------
    equals_share : float or None
        Share of the original training rows that give as good a model as the release; 1 where it is as good as
        all of them, None where even the smallest share tried is better or more rows hardly help.
    curve : list of (share, accuracy or R2)
        Learning curve from which ``equals_share`` was computed.
    note : str
        Remark that the reader needs, such as "the target has one class in these rows".
    """

    target: str
    task: Literal["classification", "regression"]
    model: str
    train_rows: int
    test_rows: int
    scores: list[Score]
    equals_share: float | None = None
    curve: list[tuple[float, float]] = Field(default_factory=list)
    subgroups: list[Subgroup] = Field(default_factory=list)
    note: str = ""


class WhatIf(Record):
    """One position of the what-if slider.

    Attributes
    ----------
    factor : float
        Factor on the chosen noise: 1 is the release as it is. The noise of numbers is multiplied by it; the
        log odds of keeping a cell of a list, and the epsilon of an in-range column, are divided by it.
    noise : mapping of str to float
        Standard deviation of the noise in each number's unit (in range: root-mean-square distance of what
        is published from the truth, over the range); for a list, how often a cell is changed.
    floors : mapping of str to float
        Proven floor of each column, in its unit; a column without one is left out.
    epsilon : float or None
        Epsilon of the whole row at ``delta``; None where no differential privacy is promised at that delta.
    accuracy : float or None
        Accuracy of the model of the learning section (R2 for a regression), on the rows of the curator; in a
        plan made before a cell was read, on rows drawn from the schema or on a public sample; None if not
        measured.
    regularization : float or None
        Weight lambda that gives the same Gaussian noise; None for other methods.
    """

    factor: float
    noise: dict[str, float]
    floors: dict[str, float]
    epsilon: float | None = None
    delta: float | None = None
    accuracy: float | None = None
    regularization: float | None = None


class ColumnComparison(Record):
    """Distribution of one column before and after the release.

    Attributes
    ----------
    distance : float
        Largest difference between the two distribution functions, or half the sum of absolute differences
        of the shares of a list: 0 is equal, 1 as far apart as possible. Reports show the worst first.
    labels : list of str
        Names of the bars: levels of a list, or the middles of bins over the declared range, with one bin
        on either side for what left the range.
    original, release : list of float
        Share of the rows in each bar.
    outside : float
        Share of released cells outside the declared range.
    """

    column: str
    kind: Literal["number", "list"]
    measure: str | None = None
    distance: float
    labels: list[str]
    original: list[float]
    release: list[float]
    original_mean: float | None = None
    original_sd: float | None = None
    release_mean: float | None = None
    release_sd: float | None = None
    outside: float = 0.0
    missing_original: float = 0.0
    missing_release: float = 0.0


class Correlations(Record):
    """Correlations of the numbers, before and after, over the rows compared."""

    columns: list[str]
    original: list[list[float]]
    release: list[list[float]]


class TableQuality(Record):
    """Distances between a synthetic table and the rows it was made from, in the cells of the release.

    A distance is in total variation: the share of rows that would have to move to other cells.

    Attributes
    ----------
    measured : MeasuredTables
        What the published answers measure; the distances are in the order of its ``names``.
    rows, made_rows : int
        Numbers of true and of published rows.
    one_way : list of float
        Distance of each column.
    one_way_chance : list of float
        Distance of each column to expect if the true rows were drawn again with replacement.
    two_way : list of lists of float
        Distance of each pair: the list of a column has one for every column before it.
    two_way_chance : float
        Mean over pairs of the distance to expect if the true rows were drawn again with replacement.
    means : mapping of str to float
        Error of the mean of each number, in its standard deviations.
    correlation_error : float or None
        Mean absolute error of the correlations of numbers; None with fewer than two.
    """

    measured: MeasuredTables
    rows: int
    made_rows: int
    one_way: list[float]
    one_way_chance: list[float]
    two_way: list[list[float]]
    two_way_chance: float
    means: dict[str, float] = Field(default_factory=dict)
    correlation_error: float | None = None


class Findings(Record):
    """Everything the internal report shows beyond the statement.

    Attributes
    ----------
    guesses : list of mappings
        Every attack on a column, as :meth:`discreet.audit.Guess.to_dict` writes it, whether on records
        drawn from the prior, on the published file or on real rows.
    audits : list of mappings
        Attacks on other promises, as :meth:`discreet.audit.AuditResult.to_dict` writes them.
    exposures : list of mappings
        Linkage and membership on real rows, as :meth:`discreet.audit.Reidentification.to_dict` writes them.
    members : list of mappings
        Attacks on the people in synthetic and masked tables, as
        :meth:`discreet.audit.MemberComparison.to_dict` writes them.
    quality : TableQuality or None
        Distances of a synthetic table from the rows it was made from; None for other releases.
    compared_rows : int
        Number of rows that the attacks and comparisons on real rows used, drawn at random.
    command : str
        Command line that repeats the job.
    composition : str
        Text about everything charged for the same table so far.
    """

    kind: Literal["discreet-findings"] = "discreet-findings"
    guesses: list[dict[str, Any]] = Field(default_factory=list)
    audits: list[dict[str, Any]] = Field(default_factory=list)
    exposures: list[dict[str, Any]] = Field(default_factory=list)
    members: list[dict[str, Any]] = Field(default_factory=list)
    learning: Learning | None = None
    what_if: list[WhatIf] = Field(default_factory=list)
    columns: list[ColumnComparison] = Field(default_factory=list)
    correlations: Correlations | None = None
    quality: TableQuality | None = None
    compared_rows: int = 0
    stages: list[Stage] = Field(default_factory=list)
    command: str = ""
    composition: str = ""
