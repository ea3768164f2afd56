"""
Answers to questions
====================

Often a few numbers are enough. Then the noise goes on the answer and not on every row, and it is smaller
by orders of magnitude. The bundled table holds 48,842 adults.
"""

import matplotlib.pyplot as plt

from discreet import ApproxDP, Database, Ledger, datasets

table = datasets.load("census")
ledger = Ledger.open(":memory:", limit=ApproxDP(3, 1e-6))
census = Database(
    table.path, schema=table.schema, ledger=ledger, random_state=1
)

hours = census.query(
    "mean(hours_per_week) by age (25, 35, 45, 55, 65)",
    privacy=ApproxDP(1, 1e-6),
)
print(hours)

# %%
# Every group comes with a 95 % interval for its noise. Groups are declared in the question, never read
# from the rows.

frame = hours.to_pandas()
fig, ax = plt.subplots(figsize=(9, 4))
ax.errorbar(
    range(len(frame)),
    frame["value"],
    yerr=[frame["value"] - frame["lower"], frame["upper"] - frame["value"]],
    fmt="o",
    capsize=4,
)
ax.set_xticks(range(len(frame)), frame["age"].astype(str))
ax.set(xlabel="age", ylabel="hours per week")

# %%
# The ledger was charged before the noise was drawn. The same question again is free, and has the same
# answer.

again = census.query(
    "mean(hours_per_week) by age (25, 35, 45, 55, 65)",
    privacy=ApproxDP(1, 1e-6),
)
print(
    f"{len(ledger.entries())} charge, epsilon {ledger.spent().epsilon_at(1e-6):.3g} at delta 1e-6"
)

# %%
# :doc:`/howto/cookbook` has thirty worked questions, :doc:`/tutorial/first-database` starts at the
# beginning.
