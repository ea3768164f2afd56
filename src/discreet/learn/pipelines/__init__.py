"""Learners inside pipelines and searches of scikit-learn: what voids a promise, and how to keep it.

``steps`` tells which steps learn from rows without a promise, ``enclosing`` finds what surrounds a learner
when it is fitted, ``private_pipeline`` has pipelines that are checked beforehand and add their promises up.
"""
