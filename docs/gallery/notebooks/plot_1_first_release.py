"""
First release
=============

A table is declared, published and verified. The rows are the first 4,000 of the bundled census.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

from discreet import Column, Schema, datasets, load_release, publish, verify
from discreet.pipeline import ProgressBar, RunOptions

names = ["age", "education_num", "hours_per_week", "income"]
rows = pd.read_parquet(datasets.load("census").path)[names].head(4000)

# %%
# Declare
# -------
# The schema says what the table may hold. It is public, and it is written down before anyone looks at the
# rows: a bound that is read off the data is a fact about the person who has that value.

schema = Schema(
    title="Adult census, an extract",
    dataset="census-extract",
    columns=[
        Column("age", type="integer", lower=17, upper=90, measure="years"),
        Column(
            "education_num", type="integer", lower=1, upper=16, measure="levels"
        ),
        Column(
            "hours_per_week", type="integer", lower=1, upper=99, measure="hours"
        ),
        Column("income", values=("<=50K", ">50K")),
    ],
    target="income",
)
schema

# %%
# Publish
# -------
# No method may guess an age from the file with a root-mean-square error below 14 years. The other
# columns get noise as well. Before anything is charged the release is attacked on made-up people;
# ``ledger=False`` records no charge, which is for trying things out only.

folder = Path(tempfile.mkdtemp()) / "release"
done = publish(
    rows,
    schema=schema,
    protect={"age": 14},
    ledger=False,
    out=folder,
    run=RunOptions(on_progress=ProgressBar()),
)
print(*sorted(path.name for path in done.public.iterdir()), sep="\n")

# %%
# Everything in ``public`` may be given away. ``internal`` stays with the curator: its report shows attacks
# on the true rows.

release = load_release(done.public)
release.statement

# %%
# Verify
# ------
# Anyone can check the folder: that its files are the published ones, and that each number in the statement
# follows from the declared parameters.

found = verify(done.public)
print("nothing failed" if found.ok else found)

# %%
# Compare
# -------
# Only the curator can draw this picture.

published = pd.read_parquet(done.public / "data.parquet")
fig, ax = plt.subplots()
ax.hist(published["age"], 60, alpha=0.6, label="published")
ax.hist(rows["age"], 30, histtype="step", color="black", label="true")
ax.set(xlabel="age", ylabel="rows")
ax.legend()

# %%
# What readers of the file can compute from it is the subject of the fourth notebook. An error floor is not
# differential privacy: :doc:`/explanation/limits` says what it leaves open, and
# :doc:`/howto/which-way-to-publish` when a synthetic table is the better choice.
