"""Draw the stays of ``demo:hospital``: ``python docs/make_hospital.py`` writes the bundled file.

No person is behind a row. Everything follows from a seed, so that whoever runs it gets the same table.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow
from pyarrow import parquet

from discreet import datasets
from discreet.noise import Stream

if TYPE_CHECKING:
    from discreet._types import AnyArray, Floats

SEED = 2024
PEOPLE = 14_000
FIRST_DAY = datetime.date(2022, 1, 1)
DAYS = 1096  # three years, one of them a leap year

# Per ward: mean days in hospital, EUR for a day, and mean days until the next stay.
WARDS = {
    "surgery": (6.0, 1_150, 260),
    "medicine": (7.5, 720, 110),
    "cardiology": (5.5, 1_050, 90),
    "neurology": (8.5, 890, 180),
    "maternity": (3.5, 640, 400),
    "pediatrics": (3.0, 700, 200),
    "intensive care": (9.0, 2_400, 120),
    "geriatrics": (14.0, 610, 70),
}
ADULT = ("surgery", "medicine", "cardiology", "neurology", "intensive care")
ADULT_SHARES = (0.33, 0.62, 0.80, 0.92, 1.0)  # cumulated


class _Draws:
    """Uniform numbers from the seed."""

    def __init__(self) -> None:
        self._stream = Stream.from_seed(SEED)

    def uniform(self, n: int) -> Floats:
        words = self._stream.words(n) >> np.uint64(11)
        drawn: Floats = (words.astype(np.float64) + 0.5) * 2.0**-53
        return drawn


def draw_stays() -> dict[str, list[Any]]:
    """Return the columns of the table, ordered by the day of admission."""
    draws = _Draws()
    uniform = draws.uniform
    # People: half of them are over 55; women live longer.
    age = np.floor(100 * uniform(PEOPLE) ** 0.75).astype(int)
    female = uniform(PEOPLE) < 0.48 + 0.1 * (age > 75)
    smoker = np.where(uniform(PEOPLE) < 0.08, -1, (age > 15) & (uniform(PEOPLE) < 0.23))
    insured, lost = uniform(PEOPLE), uniform(PEOPLE) < 0.04
    spread = uniform(PEOPLE) + uniform(PEOPLE) + uniform(PEOPLE) - 1
    bmi = 19 + 0.11 * np.minimum(age, 60) + 7 * spread
    # Stays: at most four each, the first on any day, more of them in winter.
    chance = uniform(PEOPLE)
    stays = 1 + (chance > 0.66) + (chance > 0.86) + (chance > 0.95)
    start, left = _draw_first_days(uniform), np.full(PEOPLE, -999)
    last_ward = np.full(PEOPLE, "", dtype=object)
    columns: list[dict[str, AnyArray]] = []
    for stay in range(4):
        here = np.flatnonzero((stays > stay) & (start < DAYS))
        ward = _choose_wards(age[here], female[here], uniform(len(here)))
        again = (last_ward[here] != "") & (uniform(len(here)) < 0.7)
        ward = np.where(again, last_ward[here], ward)
        mean_days, daily, pause = (np.array([WARDS[name][i] for name in ward]) for i in range(3))
        planned = (uniform(len(here)) < 0.45) & (ward != "intensive care")
        # Whoever would come by plan on a weekend comes on Monday; the last day is a Tuesday.
        weekday = (start[here] + FIRST_DAY.weekday()) % 7
        start[here] += np.where(planned & (weekday > 4), 7 - weekday, 0)
        moved = ~planned & (uniform(len(here)) < 0.12)
        days = np.minimum(np.floor(-mean_days * np.log(uniform(len(here)))), 89).astype(int)
        cost = 10 * np.round((900 + daily * (days + 0.5) * (0.7 + 0.6 * uniform(len(here)))) / 10)
        end = start[here] + days
        columns.append({
            "person": here, "age": age[here], "ward": ward, "start": start[here], "end": end, "cost": cost,
            "admission": np.where(planned, "planned", np.where(moved, "transfer", "emergency")),
            "readmitted": start[here] - left[here] <= 30,
            "skipped": uniform(len(here)) < 0.12,
        })  # fmt: skip
        left[here], last_ward[here] = end, ward
        start = start + DAYS  # without another stay, beyond the end
        start[here] = end + 1 + np.floor(-pause * np.log(uniform(len(here)))).astype(int)
    joined = {name: np.concatenate([part[name] for part in columns]) for name in columns[0]}
    order = np.lexsort((joined["person"], joined["start"]))
    rows = {name: cells[order] for name, cells in joined.items()}
    person = rows["person"]
    payer = np.where(insured < 0.11, "private", np.where(insured < 0.97, "statutory", "none"))
    return {
        "patient": [f"p{1 + int(i) * 7919 % PEOPLE:05d}" for i in person],
        "age": rows["age"].tolist(),
        "sex": np.where(female[person], "female", "male").tolist(),
        "smoker": [None if x < 0 else bool(x) for x in smoker[person]],
        "bmi": _leave_out(rows["skipped"], [round(float(x), 1) for x in bmi[person]]),
        "insurance": _leave_out(lost[person], payer[person].tolist()),
        "ward": rows["ward"].tolist(),
        "admission": rows["admission"].tolist(),
        "admitted": [FIRST_DAY + datetime.timedelta(days=int(day)) for day in rows["start"]],
        "discharged": [
            FIRST_DAY + datetime.timedelta(days=int(day)) if day < DAYS else None for day in rows["end"]
        ],
        "readmitted": [bool(x) for x in rows["readmitted"]],
        "cost": rows["cost"].tolist(),
    }  # fmt: skip


def _leave_out(missing: AnyArray, cells: list[Any]) -> list[Any]:
    """Return cells, None where they are missing."""
    return [None if gone else cell for gone, cell in zip(missing, cells, strict=True)]


def _draw_first_days(uniform: Any) -> AnyArray:
    """Return the day of each person's first stay; in winter there are half as many again."""
    days = np.floor(DAYS * uniform(PEOPLE)).astype(int)
    again = np.floor(DAYS * uniform(PEOPLE)).astype(int)
    summer = np.abs(days % 365 - 200) < 80
    moved: AnyArray = np.where(summer & (uniform(PEOPLE) < 0.35), again, days)
    return moved


def _choose_wards(age: AnyArray, female: AnyArray, chance: Floats) -> AnyArray:
    """Return the ward of each stay: children, births and the very old have their own."""
    adult = np.array(ADULT, dtype=object)[np.searchsorted(ADULT_SHARES, chance)]
    ward = np.where((age >= 80) & (chance > 0.55), "geriatrics", adult)
    ward = np.where(female & (age >= 18) & (age <= 42) & (chance < 0.4), "maternity", ward)
    return np.where((age < 16) & (chance < 0.9), "pediatrics", ward)


if __name__ == "__main__":
    table = pyarrow.table(draw_stays())
    parquet.write_table(table, datasets.load("hospital").path, compression="zstd", compression_level=19)
