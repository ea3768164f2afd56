"""Objective and output perturbation of regularized minimizers, for logistic regression and large margins.

``base`` has the classifiers' base class and the public map of rows to the unit ball; ``noise`` draws vectors
on the lattice and says what they promise; ``mechanisms`` calibrates noise from the public constants of a
learning problem; ``_solvers`` has the minimizers; ``defaults`` chooses promise and tolerance without a row.
"""
