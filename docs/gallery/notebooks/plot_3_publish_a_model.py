"""
Train and publish a model
=========================

A classifier is trained with a promise to everyone in the table, published with a statement, and used by
someone who never saw a row.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from discreet import ApproxDP, load_model, publish_model, verify
from discreet.pipeline import ProgressBar, RunOptions

# %%
# Train
# -----
# No choices are needed: cells, stages and shrinkage follow from public facts. One question pays for the
# accuracy that the model states.

folder = Path(tempfile.mkdtemp()) / "model"
done = publish_model(
    "demo:census",
    privacy=ApproxDP(1, 1e-6),
    ledger=False,
    out=folder,
    run=RunOptions(on_progress=ProgressBar()),
)
done.statement

# %%

print(done.model.score_)

# %%
# Verify
# ------
# The statement lists every question that was asked about the rows, with its cost; ``verify`` adds them up.

found = verify(done.public)
print("nothing failed" if found.ok else found)

# %%
# Use
# ---
# A published model takes rows as they are.

model = load_model(done.public)
person = {
    "age": 40,
    "workclass": "Private",
    "education_num": 13,
    "marital_status": "Married-civ-spouse",
    "occupation": "Sales",
    "relationship": "Husband",
    "race": "White",
    "sex": "Male",
    "capital_gain": 0,
    "capital_loss": 0,
    "hours_per_week": 40,
    "native_country": "United-States",
}
hours = np.arange(1, 100)
fig, ax = plt.subplots()
for level, title in ((9, "high school"), (13, "bachelor"), (16, "doctorate")):
    people = {name: [value] * len(hours) for name, value in person.items()}
    people |= {"education_num": [level] * len(hours), "hours_per_week": hours}
    ax.plot(hours, model.predict_proba(people)[:, 1], label=title)
ax.set(
    xlabel="hours per week", ylabel="probability of over 50,000", ylim=(0, 1)
)
ax.legend()

# %%
# A score of the model on its training rows would be one more number about these people, and would have to be
# paid for. Score on rows of your own, as here on one made-up person. More in
# :doc:`/howto/train-without-choosing`.
