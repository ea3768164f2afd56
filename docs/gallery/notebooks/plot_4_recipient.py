"""
The recipient's side
====================

You were given the folder of a release. What can you learn from it, and what must you not do with it?
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from discreet import (
    NoiseAwareClassifier,
    PureDP,
    Schema,
    datasets,
    load_release,
    publish,
    verify,
)

# %%
# First someone has to publish it. This part is the curator's.

table = datasets.load("census")
names = ["age", "education_num", "marital_status", "hours_per_week", "income"]
schema = Schema(
    columns=[table.schema.column(name) for name in names],
    target="income",
    dataset="extract",
)
rows = pd.read_parquet(table.path)[names]
cuts = {
    "age": [25, 35, 45, 55, 65],
    "education_num": [9, 10, 13],
    "hours_per_week": [35, 41, 50],
}
folder = Path(tempfile.mkdtemp()) / "release"
public = publish(
    rows.head(20_000),
    schema=schema,
    method="coarse",
    privacy=PureDP(4),
    cuts=cuts,
    ledger=False,
    out=folder,
).public

# %%
# Check what you got
# ------------------

print("nothing failed" if verify(public).ok else "something failed")
release = load_release(public)
release.statement

# %%
# Count
# -----
# The rows are randomized, so a count of the published cells is wrong. ``release`` corrects for the noise, and
# its intervals include it.

groups = release.count(by=["age"])
groups

# %%

published = pd.read_parquet(public / "data.parquet")
frame = groups.to_pandas()
labels = frame["age"].astype(str)
shown = published["age"].value_counts().reindex(labels)
fig, ax = plt.subplots(figsize=(8, 4))
ax.errorbar(
    labels,
    frame["value"],
    yerr=[frame["value"] - frame["lower"], frame["upper"] - frame["value"]],
    fmt="o",
    capsize=4,
    label="corrected",
)
ax.plot(
    labels,
    shown / shown.sum() * 20_000,
    "x",
    label="published cells, scaled up",
)
true = np.histogram(rows["age"].head(20_000), [17, *cuts["age"], 91])[0]
ax.plot(labels, true, "_", markersize=30, color="black", label="true")
ax.set(xlabel="age", ylabel="people")
ax.legend()

# %%
# Learn
# -----
# A noise-aware learner corrects its sums in the same way. It predicts true people.

model = NoiseAwareClassifier().fit(release)
fresh = rows.tail(20_000)
right = np.mean(
    model.predict(release.coarsen(fresh[names[:-1]]))
    == fresh["income"].to_numpy()
)
majority = fresh["income"].eq("<=50K").mean()
print(
    f"{model.status_}: {right:.1%} right; the most common class is {majority:.1%}"
)

# %%
# What not to do: count published cells as if they were people, publish intervals that ignore the noise, or
# try to find someone. :doc:`/howto/use-a-release` has a table of what each kind of release supports.
