"""
K-means on noisy sums
=====================

Each step of k-means needs the number of rows in every cluster and their sums. ``PrivateKMeans`` asks for
both with noise, a fixed number of times, and the steps share one budget.
"""

import matplotlib.pyplot as plt
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs

from discreet import ApproxDP, PrivateKMeans

X, _ = make_blobs(
    5000,
    centers=[(2, 2), (3, 7), (7, 3), (8, 8)],
    cluster_std=0.8,
    random_state=6,
)
X = X.clip(0, 10)

fig, axes = plt.subplots(1, 3, figsize=(11, 4), sharey=True)
models = {"exact": KMeans(4, random_state=1)} | {
    f"epsilon {epsilon}": PrivateKMeans(
        n_clusters=4,
        privacy=ApproxDP(epsilon, 1e-6),
        bounds=(0, 10),
        random_state=1,
    )
    for epsilon in (1, 0.1)
}
for ax, (title, model) in zip(axes, models.items(), strict=True):
    model.fit(X)
    ax.scatter(*X[::5].T, c=model.predict(X[::5]), cmap="tab10", s=5)
    ax.scatter(
        *model.cluster_centers_.T,
        marker="X",
        s=120,
        color="black",
        edgecolor="white",
    )
    ax.set(title=title)

# %%
# The centers are what is published. The start must not depend on the rows: it is drawn from the declared
# bounds. See :doc:`/explanation/theorems/sulq-sensitivity`.
