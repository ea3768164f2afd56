"""
Audit a claim
=============

Someone claims that a program is differentially private. An attack cannot prove this, but it can refute it,
with a stated probability of a false alarm.
"""

import matplotlib.pyplot as plt
import numpy as np

from discreet import PureDP, run_audit
from discreet.audit import MechanismPair, max_success_probability
from discreet.noise import Stream, discrete_laplace

# %%
# Two programs
# ------------
# Both add Laplace noise to a count and claim epsilon 1. The second adds half of the noise that it needs.
# An audit needs a mechanism, two neighboring inputs (here: 100 and 101 people) and the claim.

programs = {
    name: MechanismPair(
        mechanism=lambda count, stream, scale=scale: (
            count + discrete_laplace(scale, 20_000, stream)
        ),
        a=100,
        b=101,
        claim=PureDP(1),
        n=20_000,
        name=name,
    )
    for name, scale in {"honest": 1.0, "half the noise": 0.5}.items()
}

# %%
# What the promise allows
# -----------------------
# Epsilon 1 means that no result may become more than e = 2.72 times as likely when one person is replaced.

fig, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
for ax, (name, pair) in zip(axes, programs.items(), strict=True):
    first, second = (
        np.bincount(pair.collect(n, Stream.from_seed(n)).ravel(), minlength=120)
        for n in (100, 101)
    )
    often = (first > 50) & (second > 50)
    ax.plot(np.flatnonzero(often), (first / np.maximum(second, 1))[often], "o")
    ax.axhspan(np.exp(-1), np.e, alpha=0.15)
    ax.set(title=name, xlabel="published count", yscale="log")
axes[0].set(ylabel="how much likelier with 100 people")

# %%
# Run the attacks
# ---------------
# The attacker chooses events on one half of the runs and tests them on the other. "Broken" is wrong at most
# once in a million audits; "holds" means only that these attacks failed.

for name, pair in programs.items():
    result = run_audit(pair, stream=Stream.from_seed(7))
    print(f"{name}: {result.verdict}. {result.reason}")

# %%
# What a promise means for a person
# ---------------------------------
# How often can anybody guess a yes-or-no fact right, who knows all other rows and finds both answers equally
# likely at first?

epsilons = np.linspace(0.05, 6, 60)
fig, ax = plt.subplots()
ax.plot(
    epsilons,
    [
        max_success_probability(PureDP(epsilon), [0.5, 0.5])
        for epsilon in epsilons
    ],
)
ax.set(
    xlabel="epsilon", ylabel="largest chance of a right guess", ylim=(0.5, 1)
)

# %%
# discreet runs such audits on every release before it is charged, and its tests keep a broken twin of each
# mechanism that the audit must catch: :doc:`/explanation/attacks`.
