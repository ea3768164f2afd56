"""
A decision tree on noisy counts
===============================

ID3 splits where the information gain is largest, and gains need counts only. ``PrivateID3Classifier``
asks for noisy counts of all columns of a level at once. Here it predicts from two columns of the census
who earns more than 50,000 USD a year.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from discreet import ApproxDP, PrivateID3Classifier, Schema, datasets

table = datasets.load("census")
schema = Schema(
    columns=[table.schema.column(name) for name in ("age", "education_num")]
)
census = pd.read_parquet(table.path)
X, y = census[["age", "education_num"]], census["income"]

ages, schooling = np.arange(17, 91), np.arange(1, 17)
grid = pd.DataFrame(
    [(age, level) for level in schooling for age in ages], columns=X.columns
)

fig, axes = plt.subplots(
    1, 2, figsize=(10, 4), sharey=True, layout="constrained"
)
for ax, epsilon in zip(axes, (1, 0.01), strict=True):
    model = PrivateID3Classifier(
        privacy=ApproxDP(epsilon, 1e-6),
        schema=schema,
        classes=["<=50K", ">50K"],
        random_state=1,
    ).fit(X, y)
    shares = model.predict_proba(grid)[:, 1].reshape(len(schooling), len(ages))
    picture = ax.pcolormesh(
        ages, schooling, shares, cmap="viridis", vmin=0, vmax=1
    )
    ax.set(
        title=f"epsilon {epsilon}: {len(model.tree_.nodes)} nodes",
        xlabel="age",
        ylabel="level of schooling",
    )
fig.colorbar(picture, ax=axes, label="share that earns over 50,000")

# %%
# With less budget the tree stops earlier: a branch whose counts would drown in noise is not split. The
# theorem, and what the paper got wrong: :doc:`/explanation/theorems/sulq-id3`.
