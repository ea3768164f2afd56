"""How many rows, or which epsilon: the planner's law against the reference numbers, and its sentences."""

from __future__ import annotations

import math

import numpy as np
import pytest

from discreet import (
    ApproxDP,
    BoundedRelease,
    CoarseRelease,
    Column,
    ErrorFloor,
    GaussianRelease,
    MaskedRelease,
    NoiseAwareClassifier,
    PureDP,
    Schema,
)
from discreet.errors import ParameterError
from discreet.evaluation.noise_aware import published_law
from discreet.evaluation.what_if import (
    SampleSizeEstimate,
    SignalEvidence,
    estimate_sample_size,
    signal_evidence,
)
from discreet.noise import Stream
from discreet.pipeline.plan import plan_noise_levels
from discreet.pipeline.plan_basis import PlanBasis

CENSUS = Schema(
    columns=[*(Column(f"x{j}", lower=0, upper=1) for j in range(14)), Column("income", values=(0, 1))],
    target="income",
)
SIGNAL = 0.0272  # of the census table: shares of the classes times the squared distance of their means
ROWS = 32_561


def gaussian(epsilon: float) -> GaussianRelease:
    return GaussianRelease(privacy=ApproxDP(epsilon=epsilon, delta=1e-5), label="clear", schema=CENSUS)


def prospect(epsilon: float, n_rows: int = ROWS) -> SampleSizeEstimate:
    found = estimate_sample_size(gaussian(epsilon), CENSUS, n_rows, explained=12 * SIGNAL)
    assert found is not None
    return found


@pytest.mark.parametrize(("epsilon", "predicted"), [(4, 4.9), (8, 13.5)])
def test_the_law_predicts_what_was_measured_on_the_census(epsilon: float, predicted: float) -> None:
    # The reference leaves out the variance of the columns beside that of the noise: one or two parts in 100.
    assert prospect(epsilon).ratio == pytest.approx(predicted, rel=0.02)


@pytest.mark.parametrize(
    ("epsilon", "mu", "firm", "far"),
    [
        (1, 0.268, 4.0e5, 3.4e6),
        (2, 0.502, 1.1e5, 9.7e5),
        (4, 0.925, 3.4e4, 2.9e5),
        (8, 1.666, 1.0e4, 8.8e4),
        (16, 2.905, 3.4e3, 2.9e4),
    ],
)
def test_rows_needed_are_those_of_the_reference(epsilon: float, mu: float, firm: float, far: float) -> None:
    evidence = signal_evidence(published_law(gaussian(epsilon).plan(CENSUS, ROWS)))
    assert evidence is not None
    assert evidence.rank == 14
    assert evidence.kept == pytest.approx(1 / (1 + 12 * 14 / mu**2), rel=0.005)
    # Two digits are printed there, and at the largest epsilon the columns' own variance counts 5 %.
    assert evidence.rows_for(5, 12 * SIGNAL) == pytest.approx(firm, rel=0.07)
    assert evidence.rows_for(35, 12 * SIGNAL) == pytest.approx(far, rel=0.07)


def test_rows_and_ratio_are_each_other_s_inverse() -> None:
    evidence = SignalEvidence(kept=0.01, rank=20)
    assert evidence.ratio(evidence.rows_for(7.5, 0.3), 0.3) == pytest.approx(7.5)
    assert evidence.rows_for(7.5, 0.3) == pytest.approx(6.5 * 20 / (0.3 * 0.01))
    assert SignalEvidence(kept=0.0, rank=3).rows_for(5, 0.3) == math.inf


def test_the_epsilon_for_these_rows_is_enough_and_little_less_is_not() -> None:
    found = prospect(4, 10_000)
    assert found.status == "refused"
    epsilon = found.epsilon_to_learn
    assert epsilon is not None
    assert epsilon == pytest.approx(8.2, rel=0.05)  # 1.0e4 rows for epsilon 8, in the reference
    assert prospect(epsilon, 10_000).ratio >= 5
    assert prospect(0.95 * epsilon, 10_000).ratio < 5


def test_randomized_cells_say_as_much_as_the_law_predicts() -> None:
    """Measure T2 on a table of which the planner's assumptions are true."""
    columns = [Column(f"c{j}", values=(0, 1, 2, 3)) for j in range(6)]
    schema = Schema(columns=[*columns, Column("y", values=(0, 1))], target="y")
    generator = Stream.from_seed(7).generator()
    n, tilt = 40_000, 0.08
    y = generator.integers(0, 2, n)
    # Each column leans to its first half or second half with the label.
    odds = {j: generator.random(n) < 0.5 + tilt * (2 * y - 1) for j in range(6)}
    rows = {f"c{j}": 2 * odds[j] + generator.integers(0, 2, n) for j in range(6)} | {"y": y}
    explained = 6 * (2 * tilt) ** 2  # small: the squared correlations add up
    for options in ({"label": "clear"}, {"label": "clear", "per_row": 3}, {}):
        method = CoarseRelease(privacy=PureDP(epsilon=4), schema=schema, random_state=3, **options)
        found = estimate_sample_size(method, schema, n, explained=explained)
        assert found is not None
        model = NoiseAwareClassifier(on_weak="rank").fit(method.release(rows))
        assert model.p_ == 18
        spread = math.sqrt(2 * (2 * found.ratio - 1) / 18)  # of a noncentral chi-square over its degrees
        assert abs(model.T2_ / model.p_ - found.ratio) < 4 * spread


def test_one_answer_for_column_and_label_keeps_more_than_two_answers() -> None:
    schema = Schema(columns=[Column("a", values=(0, 1)), Column("y", values=(0, 1))], target="y")
    apart = signal_evidence(
        published_law(CoarseRelease(privacy=PureDP(epsilon=1), schema=schema).plan(schema, 10))
    )
    joint = CoarseRelease(privacy=PureDP(epsilon=1), joint=("a", "y"), schema=schema)
    together = signal_evidence(published_law(joint.plan(schema, 10)))
    assert apart is not None
    assert together is not None
    gap = (math.e - 1) / (math.e + 3)
    assert together.kept == pytest.approx(gap**2, rel=1e-6)
    assert together.kept > 10 * apart.kept


def test_the_estimate_names_rows_and_epsilon_in_sentences() -> None:
    found = estimate_sample_size(gaussian(4), CENSUS, 10_000, explained=12 * SIGNAL)
    assert found is not None
    expects, needs = found.sentences
    assert "explain 33% of the variance of income" in expects
    assert "10,000 rows of this gaussian release at epsilon 4 has to refuse" in expects
    assert "34,000 rows to learn" in needs
    assert "for 10,000 rows an epsilon of about" in needs
    enough = estimate_sample_size(gaussian(4), CENSUS, 10**6)
    assert enough is not None
    assert "can learn probabilities" in enough.sentences[0]


def test_nothing_is_said_where_nothing_can_be() -> None:
    no_target = Schema(columns=CENSUS.columns[:3])
    assert estimate_sample_size(GaussianRelease(scale=1.0, schema=no_target), no_target, 100) is None
    # Numbers that are redrawn in their range cannot be corrected for, and points of nobody are no rows.
    inside = BoundedRelease(privacy=PureDP(epsilon=4), in_range=True, schema=CENSUS)
    assert estimate_sample_size(inside, CENSUS, 1000) is None
    masked = MaskedRelease(privacy=PureDP(epsilon=4), regularization=0.1, schema=CENSUS)
    assert estimate_sample_size(masked, CENSUS, 1000) is None
    with pytest.raises(ParameterError, match="explained"):
        estimate_sample_size(gaussian(1), CENSUS, 100, explained=0.0)


def test_a_floor_has_a_number_of_rows_and_no_epsilon() -> None:
    method = GaussianRelease(privacy=ErrorFloor(x0=0.25), schema=CENSUS)
    found = estimate_sample_size(method, CENSUS, 50_000)
    assert found is not None
    assert found.rows_to_learn is not None
    assert found.epsilon_to_learn is None


@pytest.mark.slow
def test_a_plan_carries_the_estimate_and_reads_no_cell() -> None:
    rows = {c.name: np.zeros(3) for c in CENSUS.columns} | {"income": np.array([0, 0, 0])}
    found = plan_noise_levels(
        rows,
        schema=CENSUS,
        method="coarse",
        privacy=PureDP(epsilon=4),
        basis=PlanBasis(n_rows=50_000),
        label="clear",
    )
    assert found.sample_size is not None
    assert found.sample_size.n_rows == 50_000
    assert found.sample_size.to_dict()["sentences"] == list(found.sample_size.sentences)
    other = {name: values + 1 if name != "income" else values for name, values in rows.items()}
    again = plan_noise_levels(
        other,
        schema=CENSUS,
        method="coarse",
        privacy=PureDP(epsilon=4),
        basis=PlanBasis(n_rows=50_000),
        label="clear",
    )
    assert again.sample_size == found.sample_size
