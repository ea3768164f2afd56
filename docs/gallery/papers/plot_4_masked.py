"""
Masked records
==============

Pham et al. publish records that belong to no one: points on which a classifier, trained with privacy on
the true rows, has a vanishing gradient. Training on the published points returns this classifier exactly.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_blobs

from discreet import MaskedRelease, PureDP

X, y = make_blobs(
    3000, centers=[(-1, -0.5), (1, 0.8)], cluster_std=0.6, random_state=2
)
X = X.clip(-3, 3)

method = MaskedRelease(
    privacy=PureDP(2),
    classes=[0, 1],
    bounds=(-3, 3),
    regularization=0.05,
    n_records=200,
    random_state=1,
)
release = method.release(X, y)
points, labels = release.data, release.target

fig, axes = plt.subplots(1, 2, figsize=(9, 4), sharex=True, sharey=True)
axes[0].scatter(*X[:600].T, c=y[:600], cmap="coolwarm", s=8)
axes[0].set(title="true rows")
axes[1].scatter(*points.T, c=labels, cmap="coolwarm", s=8)
axes[1].set(title="published points")

# %%
# The points look nothing like people, and that is intended: they carry one linear classifier and nothing
# else.

print("\n".join(str(promise) for promise in release.promises))

# %%
# :doc:`/explanation/masked-data` says what can be learned from such points and what cannot; the theorem
# is :doc:`/explanation/theorems/masked-gradient`.
