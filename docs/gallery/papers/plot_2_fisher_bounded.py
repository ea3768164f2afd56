"""
Bounded noise
=============

Gaussian noise can be arbitrarily large. If values must stay near the truth, Farokhi's second result gives
the noise of least Fisher information on an interval: a squared cosine. ``BoundedRelease`` adds it.
"""

import matplotlib.pyplot as plt
import numpy as np

from discreet import BoundedRelease, Column, ErrorFloor, Schema
from discreet.noise import BoundedDensity

density = BoundedDensity(lower=-20, upper=20)
x = np.linspace(-30, 30, 601)
fig, ax = plt.subplots()
sd = density.variance**0.5
ax.plot(x, density.pdf(x), label="bounded")
ax.plot(
    x,
    np.exp(-0.5 * (x / sd) ** 2) / (sd * np.sqrt(2 * np.pi)),
    "--",
    label="Gaussian",
)
ax.set(
    xlabel="noise", ylabel="density", title="Two densities of the same variance"
)
ax.legend(loc="upper left")

# %%
# Its Fisher information is larger than the Gaussian's. That is the price of the bound.

print(
    f"bounded {density.fisher_information:.4f}, Gaussian {1 / density.variance:.4f}"
)

# %%
# A release that keeps every guess of a stay at least four days off:

schema = Schema(columns=[Column("stay", lower=0, upper=30, measure="days")])
stays = {"stay": np.repeat([2.0, 7.0, 14.0, 25.0], 2000)}
release = BoundedRelease(
    privacy=ErrorFloor(stay=4), schema=schema, random_state=1
).release(stays, shuffle=False)
published = release.to_pandas()["stay"].to_numpy().reshape(4, -1)

fig, ax = plt.subplots()
for row, value in zip(published, (2, 7, 14, 25), strict=True):
    ax.hist(row, 60, histtype="step", label=f"{value} days")
ax.set(xlabel="published stay", ylabel="rows")
ax.legend(title="true stay")

# %%
# No published stay is farther from the truth than the support of the noise. This excludes values, so the
# promise is a floor and not an epsilon; with ``in_range=True`` outputs stay inside the declared range,
# and there is an epsilon. The theory: :doc:`/explanation/theorems/fisher-bounded`.
