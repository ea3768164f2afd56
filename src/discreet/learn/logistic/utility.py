"""Bounds on the loss of utility of a noisy classifier that hold with a stated probability.

They are for planning and for comparison with the paper. No promise depends on them, and both are far above
the usual loss.
"""

from __future__ import annotations

import math

from scipy import special

from discreet.errors import ParameterError
from discreet.learn.logistic.sensitivity import (
    gradient_change,
    largest_gain,
    largest_gradient_change,
    largest_norm,
)
from discreet.learn.perturbation.mean_loss_constants import minimizer_sensitivity

__all__ = ["input_utility", "output_utility", "printed_input_utility", "printed_output_utility"]

_UP = 1 + 2.0**-40


def printed_output_utility(
    *, n_rows: int, dimension: int, regularization: float, epsilon: float, failure: float
) -> float:
    """Return the bound of Proposition 2 as it is printed.

    ``(2 d log(d / failure) / (lambda N epsilon))**2 (lambda + 1) / 2``. Valid for two classes, and about 50
    times what is needed in 30 dimensions.

    Parameters
    ----------
    n_rows, dimension : int
        Numbers of rows and columns of the table, in the unit ball.
    regularization, epsilon : float
        Weight of the penalty and promise, both above 0.
    failure : float
        Probability with which more may be lost.

    Privacy
    -------
    Depends on public numbers alone.

    Reference
    ---------
    Pham et al., Proposition 2. docs/explanation/theorems/masked-utility.md
    """
    _check(n_rows, dimension, regularization, epsilon, failure)
    far = 2 * dimension * math.log(dimension / failure) / (regularization * n_rows * epsilon)
    return far**2 * (regularization + 1) / 2


def output_utility(
    *,
    n_rows: int,
    dimension: int,
    regularization: float,
    epsilon: float,
    failure: float,
    n_classes: int = 2,
    tight: bool = False,
) -> float:
    """Return how much larger the objective can be at the classifier with noise than at its minimum.

    Parameters
    ----------
    n_rows, dimension : int
        Numbers of rows and columns of the table, in the unit ball.
    regularization, epsilon : float
        Weight of the penalty and promise, both above 0.
    failure : float
        Probability with which more may be lost.
    n_classes : int
        Number of classes, at least 2.
    tight : bool
        Whether the noise is for the tight constant of the sensitivity; by default it is for the paper's 2, or
        for ``2 sqrt(2)`` with more classes.

    Returns
    -------
    float
        ``(q D / epsilon)**2 (lambda + 1/4) / 2`` with ``q`` the quantile of the norm's Gamma law and ``D``
        the sensitivity; 1/2 in place of 1/4 for more than two classes.

    Privacy
    -------
    Depends on public numbers alone.

    Reference
    ---------
    Pham et al., Proposition 2, corrected. docs/explanation/theorems/masked-utility.md
    """
    _check(n_rows, dimension, regularization, epsilon, failure)
    size = (n_classes - 1) * dimension
    # Noise of rate epsilon / D: its norm has a Gamma law of shape `size`.
    apart = minimizer_sensitivity(
        gradient_change(n_classes, regularization, tight=tight), regularization, n_rows, 0.0
    )
    far = float(special.gammainccinv(size, failure)) * apart / epsilon
    return far**2 * (regularization + _bend(n_classes)) / 2 * _UP


def printed_input_utility(*, dimension: int, regularization: float, epsilon: float, failure: float) -> float:
    """Return the bound of Proposition 5 as it is printed.

    ``(2 d log(d / failure) / (lambda epsilon))**2 (lambda + 1) / 2``. Its proof takes two steps that are not
    valid, and what it says of the mean of the norms is false for one column and a failure above 1/e.

    Parameters
    ----------
    dimension : int
        Number of columns of the table.
    regularization, epsilon : float
        Weight of the penalty and promise, both above 0.
    failure : float
        Probability with which more may be lost.

    Privacy
    -------
    Depends on public numbers alone.

    Reference
    ---------
    Pham et al., Proposition 5. docs/explanation/theorems/masked-utility.md
    """
    _check(1, dimension, regularization, epsilon, failure)
    far = 2 * dimension * math.log(dimension / failure) / (regularization * epsilon)
    return far**2 * (regularization + 1) / 2


def input_utility(
    *,
    n_rows: int,
    dimension: int,
    regularization: float,
    epsilon: float,
    failure: float,
    n_classes: int = 2,
    norm: float | None = None,
) -> float:
    """Return how much larger the objective can be at the classifier trained on rows with noise.

    Parameters
    ----------
    n_rows, dimension : int
        Numbers of rows and columns of the table, in the unit ball; each row has noise of density
        ``exp(-epsilon |x| / 2)``.
    regularization, epsilon : float
        Weight of the penalty and promise, both above 0.
    failure : float
        Probability with which more may be lost.
    n_classes : int
        Number of classes, at least 2.
    norm : float, optional
        Norm of the weights trained without noise; None for the largest that they can have.

    Returns
    -------
    float
        ``(f 2 q / (epsilon N lambda))**2 (lambda + 1/4) / 2`` with ``f = 1 + norm / 4`` and ``q`` the
        quantile of the Gamma law of ``N d`` that the sum of all norms has. For more than two classes ``f =
        sqrt(2) + norm / 2``, and 1/2 in place of 1/4.

    Privacy
    -------
    Depends on public numbers alone, unless a norm is given.

    Reference
    ---------
    Pham et al., Proposition 5, corrected. docs/explanation/theorems/masked-utility.md
    """
    _check(n_rows, dimension, regularization, epsilon, failure)
    if norm is None:
        norm = (
            largest_norm(regularization)
            if n_classes == 2
            else math.sqrt(largest_gain(n_classes) / regularization)
        )
    # Half of what two residuals can differ by bounds one of them.
    steep = largest_gradient_change(n_classes) / 2 + norm * _bend(n_classes)
    # Norms are independent Gamma variables, and so is their sum.
    mean = float(special.gammainccinv(n_rows * dimension, failure)) * 2 / (epsilon * n_rows)
    far = steep * mean / regularization
    return far**2 * (regularization + _bend(n_classes)) / 2 * _UP


def _bend(n_classes: int) -> float:
    """Return the largest second derivative of the loss in its scores."""
    return 0.25 if n_classes == 2 else 0.5


def _check(n_rows: int, dimension: int, regularization: float, epsilon: float, failure: float) -> None:
    """Refuse numbers for which no utility bound is proven."""
    for name, value in (("n_rows", n_rows), ("dimension", dimension)):
        if value < 1:
            raise ParameterError(f"{name} of a utility bound must be at least 1, was {value!r}.")
    for name, number in (("regularization", regularization), ("epsilon", epsilon)):
        if not 0 < number < math.inf:
            raise ParameterError(f"{name} of a utility bound must be finite and above 0, was {number!r}.")
    if not 0 < failure < 1:
        raise ParameterError(
            f"failure of a utility bound must be a probability above 0 and below 1, was {failure!r}."
        )
