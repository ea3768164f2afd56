"""
A synthetic table
=================

Rows that belong to no one: a few counts are asked with noise, and rows are drawn from the answers. Everything
published is covered by one epsilon, here 1.
"""

import matplotlib.pyplot as plt
import pandas as pd

from discreet import ApproxDP, SyntheticRelease, datasets

table = datasets.load("census")
census = pd.read_parquet(table.path)
made = (
    SyntheticRelease(ApproxDP(1, 1e-6), schema=table.schema, random_state=1)
    .release(census)
    .to_pandas()
)
made.head()

# %%
# Columns keep their distributions and the ways in which they go together.

fig, axes = plt.subplots(1, 2, figsize=(10, 4))
bins = range(15, 95, 5)
axes[0].hist(census["age"], bins, histtype="step", color="black", label="true")
axes[0].hist(made["age"], bins, alpha=0.6, label="synthetic")
axes[0].set(xlabel="age", ylabel="rows")
axes[0].legend()
for frame, style, label in ((census, "k-", "true"), (made, "o", "synthetic")):
    rich = (
        frame["income"]
        .eq(">50K")
        .groupby(frame["education_num"].round())
        .mean()
    )
    axes[1].plot(rich.index, rich, style, label=label)
axes[1].set(xlabel="level of schooling", ylabel="share that earns over 50,000")
axes[1].legend()

# %%
# Do not report numbers from such rows as if they were a sample: their intervals would be too narrow.
# :func:`discreet.load_release` gives statistics with true intervals. See
# :doc:`/howto/publish-a-synthetic-table`.
