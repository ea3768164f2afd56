"""
Gaussian noise for an error floor
=================================

Farokhi's first result: of all noise with a given variance, Gaussian noise carries the least Fisher
information. To keep an adversary's error above a floor at the least cost to learners, add Gaussian noise.
Here the floor is nine years for the ages of 48,842 adults.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from discreet import Column, ErrorFloor, GaussianRelease, Schema, datasets

census = pd.read_parquet(datasets.load("census").path)[["age"]]
schema = Schema(
    columns=[Column("age", type="integer", lower=17, upper=90, measure="years")]
)

release = GaussianRelease(
    privacy=ErrorFloor(age=9), schema=schema, random_state=1
).release(census, shuffle=False)
(age,) = release.noise_law().columns
sd = age.law.variance**0.5
print(f"noise with a standard deviation of {sd:.1f} years")

# %%
# The published ages leave the declared range, but their mean and their distribution can still be
# estimated, because the law of the noise is public.

true, noised = (
    census["age"].to_numpy(float),
    release.to_pandas()["age"].to_numpy(),
)
fig, ax = plt.subplots()
bins = np.arange(-20, 130, 5)
ax.hist(noised, bins, color="tab:blue", alpha=0.6, label="published")
ax.hist(true, bins, histtype="step", color="black", label="true")
ax.set(xlabel="age in years", ylabel="rows")
ax.legend()

# %%
# What can an adversary do with one published age? Someone who knows only the declared range weighs each
# possible age by how likely it makes the published number, and takes the mean. If every age is equally
# likely, no guess has a smaller root-mean-square error, and the floor is its error. The ages of the
# census are not equally likely, so its error on them differs a little.

ages = np.arange(17, 91)
weights = np.exp(-0.5 * ((noised[:5000, None] - ages) / sd) ** 2)
guess = weights @ ages / weights.sum(axis=1)
error = np.sqrt(np.mean((guess - true[:5000]) ** 2))

fig, ax = plt.subplots()
ax.scatter(true[:1000], guess[:1000], s=6, alpha=0.5)
ax.plot([17, 90], [17, 90], color="black", linewidth=1)
ax.set(
    xlabel="true age",
    ylabel="best guess",
    title=f"Error of the guess: {error:.1f} years",
)

# %%
# A floor is not differential privacy: someone who knows more about a person can guess better. See
# :doc:`/explanation/limits`, and :doc:`/explanation/theorems/bayes-floor` for the theorem.
