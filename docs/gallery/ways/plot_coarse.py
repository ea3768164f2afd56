"""
A coarse table
==============

Here every row gets noise of its own. At a small epsilon numbers would drown in it, so ``CoarseRelease``
publishes few values of each column, randomized, and only a few columns of each row. A learner that knows
the law of the noise can still learn from it.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from discreet import (
    CoarseRelease,
    NoiseAwareClassifier,
    PureDP,
    Schema,
    datasets,
)

table = datasets.load("census")
names = ["age", "education_num", "marital_status", "hours_per_week", "income"]
schema = Schema(
    columns=[table.schema.column(name) for name in names], target="income"
)
census = pd.read_parquet(table.path)[names]
cuts = {
    "age": [25, 35, 45, 55, 65],
    "education_num": [9, 10, 13],
    "hours_per_week": [35, 41, 50],
}

release = CoarseRelease(
    privacy=PureDP(4), cuts=cuts, schema=schema, random_state=1
).release(census)
published = release.to_pandas()
published.head()

# %%
# Each row shows one column and the income, and either may be false. The law of the noise is public: an
# age group is kept with probability ``keep``, and otherwise replaced by any other with equal chances.
# This can be inverted.

age = release.noise_law().columns[0]
groups, keep = list(age.levels), age.cell_law.keep
swap = (1 - keep) / (len(groups) - 1)
shown = published.loc[published["age"] != "not published", "age"].value_counts(
    normalize=True
)[groups]
shares = {
    "true": np.histogram(census["age"], [17, *cuts["age"], 91])[0]
    / len(census),
    "published": shown,
    "corrected": (shown - swap) / (keep - swap),
}

fig, ax = plt.subplots(figsize=(8, 4))
for i, (label, share) in enumerate(shares.items()):
    ax.bar(np.arange(len(groups)) + 0.27 * (i - 1), share, 0.25, label=label)
ax.set_xticks(range(len(groups)), groups)
ax.set(xlabel="age", ylabel="share of rows")
ax.legend()

# %%
# A noise-aware learner does the same with the sums that it needs.

model = NoiseAwareClassifier().fit(release)
people = {
    "age": ["25 to 34", "45 to 54"],
    "education_num": ["1 to 8", "13 to 16"],
    "marital_status": ["Never-married", "Married-civ-spouse"],
    "hours_per_week": ["1 to 34", "50 to 99"],
}
print(model.predict_proba(people)[:, 1].round(2))

# %%
# See :doc:`/howto/learn-from-a-release`, and :doc:`/explanation/theorems/coarse-response` for the
# theorem.
