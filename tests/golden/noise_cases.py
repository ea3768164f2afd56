"""Draws of every sampler, and values of the calibration functions, under fixed seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from discreet import noise, privacy
from discreet.noise import Stream
from discreet.privacy import (
    ZCDP,
    ApproxDP,
    ErrorFloor,
    GaussianDP,
    NoPromise,
    PosteriorOdds,
    PureDP,
    promise_from_dict,
)
from tests.golden.digests import of_array, of_json, rounded

if TYPE_CHECKING:
    from discreet.privacy import Promise

PROMISES: dict[str, Promise] = {
    "pure": PureDP(epsilon=1.5),
    "approximate": ApproxDP(epsilon=1.5, delta=1e-6),
    "concentrated": ZCDP(rho=0.25),
    "gaussian": GaussianDP(mu=0.7),
    "floor": ErrorFloor(age=9.0, income=2000.0),
    "none": NoPromise("the rows are made up"),
    "odds": PosteriorOdds(epsilon=0.5, delta=1e-3, queries=100),
}


def stream() -> Stream:
    """Return the stream that every draw here starts from."""
    return Stream.from_seed(7)


def sampler_cases() -> dict[str, Any]:
    """Return a digest of draws of every sampler of the package of noise."""
    found = {
        "rounded_gaussian large": of_array(noise.rounded_gaussian(2**20, 10_000, stream())),
        "rounded_gaussian small": of_array(noise.rounded_gaussian(0.4, (100, 7), stream())),
        "discrete_laplace large": of_array(noise.discrete_laplace(1000.0, 10_000, stream())),
        "discrete_laplace small": of_array(noise.discrete_laplace(0.3, (50, 4), stream())),
        "rounded_laplace large": of_array(noise.rounded_laplace(2.0**20, 10_000, stream())),
        "rounded_laplace small": of_array(noise.rounded_laplace(0.8, 500, stream())),
        "spherical_laplace": of_array(noise.spherical_laplace(2.0, 5, 1000, stream())),
        "spherical_laplace line": of_array(noise.spherical_laplace(0.1, 1, 300, stream())),
        "spherical integers": of_array(noise.SphericalLaplace(rate=3.0, dimension=3).integers(200, stream())),
        "standard_normal": of_array(noise.standard_normal((1000, 3), stream())),
        "standard_maxwell": of_array(noise.standard_maxwell(1000, stream())),
        "permutation": of_array(noise.permutation(1000, stream())),
        "subsample": of_array(noise.subsample(1000, 40, stream())),
        "subsets": of_array(noise.subsets(9, 3, 200, stream())),
        "uniform_integers": of_array(noise.uniform_integers(12_345, 1000, stream())),
        "response_threshold": int(noise.response_threshold(0.8, 5)),
        "randomized_response": of_array(
            noise.randomized_response(np.arange(1000) % 5, 5, noise.response_threshold(0.8, 5), stream())
        ),
        "stream words": of_array(stream().words(1000)),
        "stream integer": str(stream().integer(192)),
        "stream derived": of_array(stream().derive("somewhere").words(100)),
        "stream spawned": of_array(stream().spawn().words(100)),
        "stream salt": stream().salt("somewhere"),
        "stream commitment": stream().commitment,
        "stream of a key": of_array(Stream.for_replay(bytes(range(32))).words(100)),
    }
    for name, shape in (("plain", {}), ("regularized", {"regularization": 0.5, "weight": 2.0})):
        density = noise.BoundedDensity(lower=-2.0, upper=3.0, **shape)
        found[f"bounded {name}"] = of_array(density.integers(2000, stream()))
        found[f"bounded {name} values"] = of_array(density.values(density.integers(200, stream())), step=1e-9)
        found[f"bounded {name} density"] = of_array(density.pdf(np.linspace(-2.0, 3.0, 31)), step=1e-9)
    lower, upper, weights = np.array([-1.0, -2.0]), np.array([1.0, 2.0]), np.array([1.0, 0.5])
    box = noise.BoxDensity(lower=lower, upper=upper, weights=np.array([[1.0, 0.2], [0.2, 0.5]]))
    found["box"] = of_array(box.values(box.integers(300, stream())), step=1e-9)
    found["box density"] = of_array(box.pdf(np.array([[0.1, 0.2], [0.9, -1.9]])), step=1e-9)
    found["product density"] = [
        of_array(part.integers(100, stream()))
        for part in noise.product_density(lower, upper, weights=weights)
    ]
    inside = noise.InRange(lower=0.0, upper=10.0, regularization=0.02)
    found["in range"] = of_array(inside.draw(np.linspace(0.0, 10.0, 1000), stream()), step=1e-9)
    found["in range cells"] = of_array(inside.draw_cells(np.arange(513), stream()))
    sampler = noise.NormalSampler(100, stream())
    out = np.empty(100)
    sampler.fill(out)
    found["normal sampler"] = of_array(out)
    rows = np.column_stack([np.sin(np.arange(200.0)), 5 + 5 * np.cos(np.arange(200.0))])
    whitening = noise.Whitening.diagonal(np.array([-1.0, 0.0]), np.array([1.0, 10.0]), np.array([0.5, 3.0]))
    found["whitened rows"] = of_array(whitening.release(rows, stream()))
    found["whitened integers"] = of_array(whitening.quantize(rows))
    return found


def privacy_cases() -> dict[str, Any]:
    """Return values of the calibration functions, and every promise as others see it."""
    found: dict[str, Any] = {
        f"gaussian_delta({epsilon}, {mu})": rounded(privacy.gaussian_delta(epsilon, mu))
        for epsilon in (0.0, 0.5, 8.0)
        for mu in (0.1, 1.0, 5.0)
    }
    for delta in (1e-3, 1e-6, 1e-12):
        found[f"gaussian_mu(1.0, {delta})"] = rounded(privacy.gaussian_mu(1.0, delta))
        found[f"gaussian_epsilon(0.5, {delta})"] = rounded(privacy.gaussian_epsilon(0.5, delta))
        found[f"zcdp_epsilon(0.3, {delta})"] = rounded(privacy.zcdp_epsilon(0.3, delta))
        found[f"zcdp_rho(2.0, {delta})"] = rounded(privacy.zcdp_rho(2.0, delta))
    for name, promise in PROMISES.items():
        values = promise.to_dict()
        assert promise_from_dict(values) == promise
        found[f"promise {name}"] = of_json(values)
        found[f"promise {name} sentence"] = promise.sentence()
        found[f"promise {name} kind"] = promise.kind
    for name in ("pure", "approximate", "concentrated", "gaussian"):
        found[f"promise {name} curve"] = rounded([PROMISES[name].delta_at(e) for e in (0.0, 1.0, 2.0)])
        found[f"promise {name} group"] = of_json(rounded(PROMISES[name].group(3).to_dict()))
    return found
