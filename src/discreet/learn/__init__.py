"""Rows in, a fitted model out. ``METHODS`` is the list that everything else reads."""

from __future__ import annotations

from discreet.learn.base import Learner
from discreet.learn.closeness import Closeness, local_constant, measure_closeness
from discreet.learn.svm import Certificate, RegularizedSVM

METHODS: dict[str, type[Learner]] = {method.name: method for method in (RegularizedSVM,)}

__all__ = [
    "METHODS",
    "Certificate",
    "Closeness",
    "Learner",
    "RegularizedSVM",
    "local_constant",
    "measure_closeness",
]
