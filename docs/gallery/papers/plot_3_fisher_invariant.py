"""
Noise that a model does not notice
==================================

Farokhi's third result: noise can be chosen so that a support vector machine trained on the published rows
is the one trained on the true rows. The table is changed, and the model is not.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from discreet import InvariantRelease, RegularizedSVM

X, y = make_blobs(
    200, centers=[(2, 2), (5, 5)], cluster_std=1.1, random_state=3
)
X, y = X.clip(0, 8), 2 * y - 1

release = InvariantRelease(
    learner="svm", variance=1.0, bounds=(0, 8), random_state=1
).release(X, y)

true, published = (
    RegularizedSVM().fit(X, y),
    RegularizedSVM().fit(release.data, release.target),
)
print(
    "largest difference of the coefficients:",
    np.abs(true.coef_ - published.coef_).max(),
)

# %%

fig, axes = plt.subplots(1, 2, figsize=(9, 4), sharex=True, sharey=True)
line = np.array([-3.0, 11.0])
for ax, rows, labels, model, title in (
    (axes[0], X, y, true, "true rows"),
    (axes[1], release.data, release.target, published, "published rows"),
):
    ax.scatter(*rows.T, c=labels, cmap="coolwarm", s=12)
    (a, b), c = model.coef_.ravel(), model.intercept_
    ax.plot(line, -(a * line + c) / b, color="black")
    ax.set(title=title, xlim=(-2, 10), ylim=(-2, 10))

# %%
# **This protects no one from an informed adversary.** It publishes the trained model and the exact score
# of every row, so it carries no promise, and the report says which rows are exposed. Use it only where
# the model may be known anyway; see :doc:`/explanation/limits` and
# :doc:`/explanation/theorems/fisher-invariant`.
