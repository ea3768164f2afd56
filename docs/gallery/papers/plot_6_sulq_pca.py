"""
Principal components from noisy sums
====================================

SuLQ answers sums with noise, and learners ask it for sums. ``PrivatePCA`` needs one question: the sums of
all products of two columns. The table holds 1,797 handwritten digits, 64 pixels each.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from discreet import ApproxDP, PrivatePCA

X, y = load_digits(return_X_y=True)

fig, axes = plt.subplots(1, 3, figsize=(11, 4))
exact = PCA(2).fit_transform(X)
axes[0].scatter(*exact.T, c=y, cmap="tab10", s=6)
axes[0].set(title="exact")
for ax, epsilon in zip(axes[1:], (10, 1), strict=True):
    model = PrivatePCA(
        n_components=2,
        privacy=ApproxDP(epsilon, 1e-6),
        bounds=(0, 16),
        random_state=1,
    ).fit(X)
    ax.scatter(*model.transform(X).T, c=y, cmap="tab10", s=6)
    ax.set(title=f"epsilon {epsilon}")

# %%
# Noise is the same however many rows there are, so the axes get better with every row: 1,797 rows of 64
# columns are few for epsilon 1. The points drawn here are true rows, projected; a curator may look at
# them, and publishes the axes only. See :doc:`/explanation/theorems/sulq-sensitivity`.
