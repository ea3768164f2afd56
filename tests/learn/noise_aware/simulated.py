"""Published rows made up for tests and benchmarks: randomized lists, m of d columns, noised numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.noise import Stream, randomized_response, response_threshold
from discreet.noise_law import Clear, ColumnLaw, GaussianLaw, NoiseLaw, ResponseLaw, SampledLaw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray, Floats


def keep(epsilon: float, levels: int) -> float:
    """Return how often randomized response with that epsilon keeps a level."""
    return 1 / (1 + (levels - 1) * math.exp(-epsilon))


def respond(codes: AnyArray, levels: int, epsilon: float, stream: Stream) -> AnyArray:
    return randomized_response(codes, levels, response_threshold(keep(epsilon, levels), levels), stream)


def picked(n: int, m: int, d: int, stream: Stream) -> AnyArray:
    """Say which m of d columns each row shows, all choices alike."""
    words = stream.words(n * d).reshape(n, d)
    return np.argsort(np.argsort(words, axis=1), axis=1) < m


def coarse(
    codes: AnyArray,
    levels: Sequence[int],
    *,
    epsilon: float,
    m: int,
    stream: Stream,
    classes: int,
    label_epsilon: float | None = None,
    labels: AnyArray,
) -> tuple[AnyArray, AnyArray, NoiseLaw]:
    """Publish rows of codes: m of d columns by randomized response at epsilon / m each, and their label."""
    n, d = codes.shape
    shown = picked(n, m, d, stream.derive("columns")) if m < d else np.ones((n, d), bool)
    published = np.empty_like(codes)
    columns = []
    for j, k in enumerate(levels):
        cells = respond(codes[:, j], k, epsilon / m, stream.derive(f"column {j}"))
        published[:, j] = np.where(shown[:, j], cells, k)
        law: Any = ResponseLaw(levels=k, keep=keep(epsilon / m, k))
        law = SampledLaw(law=law, picked=m, among=d, unpublished=k) if m < d else law
        columns.append(ColumnLaw(name=f"c{j}", type="category", levels=tuple(range(k)), law=law))
    label: Any = Clear()
    if label_epsilon is not None:
        labels = respond(labels, classes, label_epsilon, stream.derive("label"))
        label = ResponseLaw(levels=classes, keep=keep(label_epsilon, classes))
    columns.append(
        ColumnLaw(name="label", type="category", levels=tuple(range(classes)), role="target", law=label)
    )
    return published, labels, NoiseLaw(columns=tuple(columns))


def noised(
    rows: Floats, scale: float, stream: Stream, *, target: bool | None = None
) -> tuple[Floats, NoiseLaw]:
    """Add Gaussian noise to numbers in [0, 1]; with `target`, the last column is one, noised or not."""
    n, d = rows.shape
    noise = scale * stream.generator().standard_normal((n, d))
    columns = []
    for j in range(d):
        last = target is not None and j == d - 1
        clear = last and not target
        if clear:
            noise[:, j] = 0.0
        law: Any = Clear() if clear else GaussianLaw(variance=scale**2)
        columns.append(
            ColumnLaw(name=f"x{j}", lower=0.0, upper=1.0, law=law, role="target" if last else "sensitive")
        )
    return rows + noise, NoiseLaw(columns=tuple(columns))
