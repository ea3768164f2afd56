"""A small survey to ask questions of, with columns whose names are words of the language."""

from __future__ import annotations

import datetime

from discreet import Column, Schema

N = 4000
SCHEMA = Schema(
    dataset="survey",
    columns=[
        Column("age", type="integer", lower=17, upper=90, measure="years"),
        Column("hours-per-week", lower=0, upper=100),
        Column("sex", values=("f", "m", "x"), closed=True),
        Column("smoker", values=(False, True)),
        Column("change", lower=-3, upper=2, required=False),
        Column("admitted", lower=datetime.date(2020, 1, 1), upper=datetime.date(2020, 12, 31)),
        # Words of a sentence and of SQL.
        Column("where", type="integer", lower=0, upper=9),
        Column("by", values=(False, True)),
        Column("limit", lower=0, upper=1),
        Column("select", values=("from", "group by", "it's")),
    ],
)
FIRST_DAY = datetime.date(2020, 1, 1)
ROWS: dict[str, list[object]] = {
    "age": [17 + 7 * i % 73 for i in range(N)],
    "hours-per-week": [float(13 * i % 100) for i in range(N)],
    "sex": ["fm"[i % 4 == 0] for i in range(N)],
    "smoker": [i % 3 == 0 for i in range(N)],
    "change": [None if i % 5 == 0 else i % 4 - 2.0 for i in range(N)],
    "admitted": [str(FIRST_DAY + datetime.timedelta(days=i % 366)) for i in range(N)],
    "where": [i % 10 for i in range(N)],
    "by": [i % 2 == 0 for i in range(N)],
    "limit": [i % 2 / 2 for i in range(N)],
    "select": [("from", "group by", "it's")[i % 3] for i in range(N)],
}
