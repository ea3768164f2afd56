"""
A model
=======

``PrivateClassifier`` needs no choices: its cells, its stages and its shrinkage follow from public facts.
One of its questions pays for the accuracy that it states.
"""

import matplotlib.pyplot as plt
import pandas as pd

from discreet import ApproxDP, PrivateClassifier, datasets

table = datasets.load("census")
census = pd.read_parquet(table.path)
model = PrivateClassifier(
    privacy=ApproxDP(1, 1e-6), schema=table.schema, random_state=1
)
model.fit(census.drop(columns="income"), census["income"])
print(model.score_)

# %%
# The model is a sum of one function of each column. To draw the effect of a column, take one made-up
# person and change that column alone.

person = {
    "age": 40,
    "workclass": "Private",
    "education_num": 10,
    "marital_status": "Divorced",
    "occupation": "Sales",
    "relationship": "Not-in-family",
    "race": "White",
    "sex": "Female",
    "capital_gain": 0,
    "capital_loss": 0,
    "hours_per_week": 40,
    "native_country": "United-States",
}
values = {
    "age": range(17, 91),
    "education_num": range(1, 17),
    "hours_per_week": range(1, 100),
}
fig, axes = plt.subplots(
    1, 3, figsize=(11, 3.5), sharey=True, layout="constrained"
)
for ax, (name, column) in zip(axes, values.items(), strict=True):
    rows = pd.DataFrame([person | {name: value} for value in column])
    ax.step(column, model.predict_proba(rows)[:, 1], where="mid")
    ax.set(xlabel=name)
axes[0].set(ylabel="probability of over 50,000")

# %%
# :func:`discreet.publish_model` writes such a model into a folder, with a statement that anyone can
# verify, and :func:`discreet.load_model` reads it. See :doc:`/howto/train-without-choosing`.
