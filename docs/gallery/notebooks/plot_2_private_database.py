"""
Private database
================

The rows stay where they are, and analysts get answers with noise until the budget is used up.
"""

import matplotlib.pyplot as plt

from discreet import ApproxDP, Database, Ledger, datasets
from discreet.errors import BudgetExceeded

# %%
# A limit for everybody
# ---------------------
# All questions, models and releases together may cost epsilon 2 for each person. The ledger is a file in real
# life; here it is in memory.

table = datasets.load("census")
ledger = Ledger.open(":memory:", limit=ApproxDP(2, 1e-6))
census = Database(
    table.path, schema=table.schema, ledger=ledger, random_state=1
)
census

# %%
# Look before you pay
# -------------------
# A preview reads no row and charges nothing.

census.preview("mean(hours_per_week) by sex", privacy=ApproxDP(0.5, 1e-6))

# %%
# Ask
# ---

census.query("mean(hours_per_week) by sex", privacy=ApproxDP(0.5, 1e-6))

# %%
# The same question again is free and has the same answer. Otherwise the average of many answers would reveal
# the truth.

again = census.query("mean(hours_per_week) by sex", privacy=ApproxDP(0.5, 1e-6))
print(again.cached)

# %%
# SQL works too.

answer = census.query(
    "SELECT count(*) FROM t WHERE income = '>50K' GROUP BY education_num",
    privacy=ApproxDP(0.5, 1e-6),
)
frame = answer.to_pandas()
fig, ax = plt.subplots()
ax.bar(
    frame["education_num"].astype(str),
    frame["value"],
    yerr=2 * frame["sd"],
    capsize=3,
)
ax.set(xlabel="level of schooling", ylabel="people who earn over 50,000")

# %%
# When the budget is used up
# --------------------------

ledger

# %%
# A question that does not fit is refused before anything is read or charged.

try:
    census.query("mean(age)", privacy=ApproxDP(1.9, 1e-6))
except BudgetExceeded as refused:
    print(refused)

# %%
# :doc:`/howto/cookbook` has thirty worked questions; :doc:`/tutorial/first-service` puts such a database
# behind a web page.
