"""What stands behind each law: sampler, lattice and theorem, in words for a statement.

A method with a law of its own adds its ``kind`` here; what is missing is left out of the statement, and a
test asks for it.
"""

from __future__ import annotations

_LOCAL = (
    "Local model: each row is noised by itself before it leaves the curator, so the promises hold also "
    "against whoever reads the whole file. The curator is trusted with the rows."
)

_MASKED = (
    "Central model: one classifier was trained on all rows with noise on it, and the published rows were "
    "made up from that classifier alone. They are nobody's. The curator is trusted with the rows."
)

DEPLOYMENT = {
    "gaussian": _LOCAL,
    "laplace": _LOCAL,
    "bounded": _LOCAL,
    "in-range": _LOCAL,
    "response": _LOCAL,
    "sampled": _LOCAL,
    "joint-response": _LOCAL,
    "spherical": _LOCAL,
    "masked": _MASKED,
    "masked-label": _MASKED,
    "invariant": (
        "Central model: the noise was made for the whole table and for one model trained on it. The curator "
        "is trusted with the rows."
    ),
}

SAMPLERS = {
    "gaussian": (
        "Rounded Gaussian integers from an exact table sampler, within total variation 2^-117 of their law "
        "per draw."
    ),
    "laplace": (
        "Rounded Laplace integers from an exact table sampler, within total variation 2^-114 of their law "
        "per draw."
    ),
    "bounded": (
        "Lattice cells of the least informative density on a bounded support, by an inverse distribution "
        "function whose error is certified."
    ),
    "in-range": "Output cells drawn from a table of integers that is the law itself: exact.",
    "response": "Randomized response by comparing 64-bit words with an integer threshold: exact.",
    "joint-response": (
        "Randomized response on combinations of columns by comparing 64-bit words with an integer threshold: "
        "exact."
    ),
    "sampled": (
        "Randomized response by comparing 64-bit words with an integer threshold, and the columns of a row "
        "by uniform integers drawn without looking at it: exact."
    ),
    "spherical": (
        "Rounded Gaussian integers whose scale is the norm of normals, which together have the density of "
        "spherical noise; what computing the norm costs is in the promise."
    ),
    "masked": (
        "Integers of a lattice, by the exact samplers of Gaussian, Laplace and spherical noise, added to the "
        "weights of the classifier; the points are made afterwards, from 64-bit numbers that hide nobody."
    ),
    "masked-label": "Counts of labels follow from public numbers, or have discrete Laplace noise: exact.",
    "invariant": (
        "64-bit Gaussian numbers, projected so that the model does not notice them; no exact arithmetic, and "
        "no promise that would need it."
    ),
}

LATTICES = {
    "gaussian": (
        "Numbers with Gaussian noise are rounded, before the noise, to 2^20 steps per standard deviation of "
        "the noise, counted from the declared lower bound (after the public map, where columns have "
        "correlated noise)."
    ),
    "laplace": (
        "Numbers with Laplace noise are rounded, before the noise, to 2^20 steps per scale of the noise, "
        "counted from the declared lower bound."
    ),
    "bounded": (
        "Numbers with bounded noise are rounded, before the noise, to the cells into which the support of "
        "the noise is cut, counted from the declared lower bound."
    ),
    "spherical": (
        "Numbers with spherical noise are rounded, before the noise, to a power of two of half their range, "
        "counted from its middle."
    ),
    "masked": (
        "The weights of the classifier are rounded, before the noise, to a power of two that is small beside "
        "it."
    ),
    "in-range": (
        "Numbers redrawn in their range are rounded, before the draw, to the equally spaced inputs of the "
        "law; what is published is the middle of an output cell."
    ),
}

TIMING = (
    "Rows are noised in batches and published together: nobody sees how long a single cell took. Nothing "
    "protects against somebody on the curator's own machine."
)

THEOREMS: dict[str, dict[str, str]] = {
    "gaussian": {
        "analytic-gaussian": "the exact trade-off between epsilon and delta of Gaussian noise",
        "whitening": "what rounding to the lattice costs, and why the promise holds in floating point",
        "box-diameter": "how far two rows can be apart where columns have correlated noise",
        "lattice-sampler": "that the sampler follows its law",
    },
    "laplace": {
        "lattice-sampler": "that the sampler follows its law",
        "fisher-laplace": "what Laplace noise promises beside Gaussian noise",
    },
    "bounded": {"fisher-bounded": "the least informative noise on a bounded support, and what it excludes"},
    "in-range": {"fisher-in-range": "the pure epsilon of outputs that stay in the declared range"},
    "response": {"composition": "that the epsilons of the columns of one row add up"},
    "joint-response": {"coarse-response": "what one answer for several columns promises about each"},
    "sampled": {
        "coarse-response": "that the cells of a row add up, and that which ones it shows says nothing",
        "noise-aware": "how sums over published cells are corrected for their law",
    },
    "spherical": {
        "masked-input": "what noise without a direction promises about one row, and what it does to a model",
        "spherical-laplace": "that the sampler follows its law, and what that costs",
    },
    "masked": {
        "masked-sensitivity": "how far one row moves the classifier",
        "masked-noise": "what the noise on it promises",
        "masked-objective": "what noise on its training problem promises",
        "masked-existence": "that points exist whose classifier it is, and when",
    },
    "masked-label": {"masked-labels": "where the labels may come from, and what true ones give away"},
    "invariant": {
        "fisher-invariant": "that the model stays the same, and what that gives away",
        "fisher-cramer-rao": "what binds unbiased guesses, and no others",
    },
    "floor": {"bayes-floor": "what an error floor says, and what it does not"},
    "total": {"composition": "what several promises come to together"},
}
