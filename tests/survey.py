"""A survey as people have them: 40 columns, codes 99 and 999 for missing answers, an id, free text."""

from __future__ import annotations

import csv
import io

import numpy as np

from discreet.noise import Stream

QUESTIONS = tuple(f"q{i}" for i in range(1, 31))
NAMES = (
    "respondent_id", "email", "age", "gender", "region", "education", "income", "hours_per_week", "comments",
    "satisfied", *QUESTIONS,
)  # fmt: skip
GENDERS = ("female", "male", "diverse")
REGIONS = ("north", "south", "east", "west")
SCHOOLS = ("none", "school", "college", "university")


def survey_rows(n: int, seed: int = 40) -> list[tuple[str, ...]]:
    """Rows of the survey as texts: answers depend on a person's mood, and one in twenty-five is missing."""
    words = Stream.from_seed(seed).words(n * 80) >> np.uint64(11)
    u = words.astype(np.float64).reshape(n, 80) * 2.0**-53
    rows = []
    for i, draw in enumerate(u):
        mood = draw[0]
        answers = [1 + int(4.999 * (0.6 * mood + 0.4 * x)) for x in draw[10:40]]
        codes = ["99" if x < 0.04 else str(answer) for answer, x in zip(answers, draw[40:70], strict=True)]
        age = "999" if draw[2] < 0.03 else str(18 + int(70 * draw[1]))
        rows.append(
            (
                f"R{i:05d}",
                f"person{i}@example.org",
                age,
                GENDERS[int(2.1 * draw[3])],
                REGIONS[int(4 * draw[4])],
                SCHOOLS[int(4 * draw[5])],
                str(500 * int(np.exp(1 + 3 * draw[6]))),
                str(int(50 * draw[7])),
                f"Answer {i}, in my own words",
                "yes" if mood + 0.3 * draw[8] > 0.6 else "no",
                *codes,
            )
        )
    return rows


def survey_csv(n: int) -> str:
    """The survey as a text file."""
    text = io.StringIO()
    csv.writer(text).writerows([NAMES, *survey_rows(n)])
    return text.getvalue()
