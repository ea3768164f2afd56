"""
Classes as ellipsoids
=====================

Pathak and Raj describe each class by an ellipsoid and train all of them together with a perturbed
objective, so that every row is nearer to its own class than to any other by a margin.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from sklearn.datasets import make_blobs, make_circles

from discreet import ApproxDP, LargeMarginGaussianClassifier, NoPromise

rings, inside = make_circles(2000, noise=0.08, factor=0.35, random_state=1)
heap, _ = make_blobs(
    1000, centers=[(1.3, 1.2)], cluster_std=0.25, random_state=1
)
X = np.vstack([rings, heap]).clip(-2, 2)
y = np.concatenate([inside, np.full(1000, 2)])

models = {
    "without noise": NoPromise("made-up rows"),
    "epsilon 4": ApproxDP(4, 1e-6),
    "epsilon 0.5": ApproxDP(0.5, 1e-6),
}
colors = ListedColormap(["tab:blue", "tab:orange", "tab:green"])
grid = np.stack(
    np.meshgrid(np.linspace(-2, 2, 120), np.linspace(-2, 2, 120)), axis=-1
)

fig, axes = plt.subplots(1, 3, figsize=(11, 4), sharey=True)
for ax, (title, privacy) in zip(axes, models.items(), strict=True):
    model = LargeMarginGaussianClassifier(
        privacy=privacy, bounds=(-2, 2), classes=[0, 1, 2], random_state=1
    )
    model.fit(X, y)
    regions = model.predict(grid.reshape(-1, 2)).reshape(120, 120)
    ax.pcolormesh(grid[..., 0], grid[..., 1], regions, cmap=colors, alpha=0.25)
    ax.scatter(*X[::10].T, c=y[::10], cmap=colors, s=6)
    ax.set(
        title=f"{title}: {np.mean(model.predict(X) == y):.1%} right",
        aspect="equal",
    )

# %%
# The accuracy is computed here on made-up rows. On real rows it would be one more number about the people
# in the table, and would have to be paid for: :doc:`/howto/train-without-choosing` does so. The theorem,
# and what the paper got wrong: :doc:`/explanation/theorems/large-margin-private`.
