"""
A perceptron on noisy sums
==========================

The perceptron moves its line by the mean of the rows that it gets wrong. ``PrivatePerceptron`` asks for
this mean with noise, a fixed number of rounds.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from discreet import ApproxDP, PrivatePerceptron

X, y = make_blobs(
    4000, centers=[(3, 3), (7, 6.5)], cluster_std=1.1, random_state=4
)
X = X.clip(0, 10)

fig, ax = plt.subplots()
ax.scatter(*X[::8].T, c=y[::8], cmap="coolwarm", s=6)
line = np.array([0.0, 10.0])
for epsilon in (0.1, 1, 10):
    model = PrivatePerceptron(
        privacy=ApproxDP(epsilon, 1e-6),
        bounds=(0, 10),
        classes=[0, 1],
        rounds=50,
        step="constant",
        random_state=1,
    ).fit(X, y)
    (a, b), c = model.coef_.ravel(), np.ravel(model.intercept_)[0]
    right = np.mean(model.predict(X) == y)
    ax.plot(
        line, -(a * line + c) / b, label=f"epsilon {epsilon}: {right:.1%} right"
    )
ax.set(xlim=(0, 10), ylim=(0, 10))
ax.legend()

# %%
# For real tables :class:`discreet.PrivateClassifier` is better: the perceptron spends its budget on many
# rounds. See :doc:`/explanation/theorems/sulq-2`.
