"""The second paper's figures 3 and 4: one of three handwritten digits is masked behind another one.

Rows are images in 25 dimensions. The axes, the center and the norm bound are computed on the test file of
MNIST, which is public here and of which no row is masked; rows to be masked come from the training file.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import numpy as np
from masked import NO_NOISE, OUT, accuracy, save, save_numbers, train
from masked_tables import data_folder, say_skipped
from matplotlib import pyplot as plt

from discreet import ApproxDP, PureDP
from discreet.errors import PromiseError
from discreet.release import MaskedRelease

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from masked import Value
    from matplotlib.figure import SubFigure

    from discreet import NoPromise
    from discreet._types import AnyArray, Floats, Ints

DIMENSION, PENALTY = 25, 0.05
ROWS, POINTS = 500, 1000
"""True rows of each digit, and points that mask the sensitive one."""
MANY = 5000
"""True rows of each digit where a promise is to be kept."""
TESTS, REPETITIONS = 800, 5


def read_digits(path: Path) -> tuple[Floats, Ints]:
    """Return images as rows of 784 numbers from 0 to 1, and their digits."""
    columns: dict[str, AnyArray] = duckdb.read_parquet(str(path)).fetchnumpy()
    pixels = np.frombuffer(b"".join(columns["image"]), np.uint8).reshape(-1, 784)
    return pixels / 255.0, np.asarray(columns["label"], np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The public map from an image to 25 numbers and back."""

    center: Floats
    axes: Floats
    norm_bound: float

    @classmethod
    def of(cls, images: Floats) -> View:
        """Compute it on public images: their principal axes, and the norm that 95 of 100 stay below."""
        center = images.mean(axis=0)
        axes = np.linalg.eigh(np.cov(images, rowvar=False))[1][:, ::-1][:, :DIMENSION]
        norms = np.linalg.norm((images - center) @ axes, axis=1)
        return cls(center=center, axes=axes, norm_bound=float(np.quantile(norms, 0.95)))

    def rows(self, images: Floats) -> Floats:
        """Return the coordinates of images, shortened to the norm bound."""
        coordinates = (images - self.center) @ self.axes
        size = np.linalg.norm(coordinates, axis=1, keepdims=True)
        return coordinates * np.minimum(1.0, self.norm_bound / size)

    def images(self, coordinates: Floats) -> Floats:
        """Return the images of coordinates."""
        return (self.center + coordinates @ self.axes.T).reshape(-1, 28, 28)

    def weights(self, weights: Floats) -> Floats:
        """Return weights as images: what each pixel does for the score of a class."""
        return (weights @ self.axes.T).reshape(-1, 28, 28)


@dataclass(frozen=True, slots=True, kw_only=True)
class Digits:
    """Rows of the digits at hand: for training, as a stand-in, and for testing."""

    X: Floats
    y: Ints
    fake: Floats
    test: tuple[Floats, Ints]


def choose(view: View, images: Floats, labels: Ints, kept: Sequence[int], fake: int, n: int) -> Digits:
    """Take the first rows of each digit for training and the last ones for testing."""
    places = [np.flatnonzero(labels == digit) for digit in kept]
    first, last = [p[:n] for p in places], [p[-TESTS:] for p in places]
    codes = np.repeat(np.arange(len(kept)), [len(p) for p in first])
    return Digits(
        X=view.rows(images[np.concatenate(first)]),
        y=codes,
        fake=view.rows(images[np.flatnonzero(labels == fake)[:n]]),
        test=(view.rows(images[np.concatenate(last)]), np.repeat(np.arange(len(kept)), TESTS)),
    )


def mask(
    digits: Digits, view: View, privacy: NoPromise | PureDP | ApproxDP, points: int, *, fake: bool, seed: int
) -> tuple[MaskedRelease, Floats]:
    """Mask the third digit beside true rows of the others; return the method and the points."""
    method = MaskedRelease(
        privacy=privacy, regularization=PENALTY, norm_bound=view.norm_bound, classes=[0, 1, 2],
        sensitive=2, n_records=points, fit_intercept=False, random_state=seed,
        initial=(digits.fake, np.full(len(digits.fake), 2)) if fake else None,
    )  # fmt: skip
    made = np.asarray(method.release(digits.X, digits.y).data)
    return method, view.norm_bound * made[len(made) - points :]


def samples(part: SubFigure, images: Floats, title: str) -> None:
    """Draw images side by side."""
    axes = part.subplots(3, 6, gridspec_kw={"wspace": 0.06, "hspace": 0.06})
    for axis, image in zip(axes.flat, images, strict=False):
        axis.imshow(image, cmap="gray_r", vmin=0, vmax=1)
        axis.axis("off")
    part.suptitle(title, fontsize=10.5)


def classifier(part: SubFigure, images: Floats, kept: Sequence[int], title: str) -> None:
    """Draw the weights of each class."""
    axes = part.subplots(1, 3, gridspec_kw={"wspace": 0.08})
    for axis, image, digit in zip(axes, images, kept, strict=True):
        reach = float(np.abs(image).max())
        axis.imshow(image, cmap="RdBu_r", vmin=-reach, vmax=reach)
        axis.set_title(f"for {digit}", fontsize=9, pad=3)
        axis.axis("off")
    part.suptitle(title, fontsize=10.5)


def figure_digits(
    number: int, kept: Sequence[int], fake: int, view: View, images: Floats, labels: Ints, n: int = ROWS
) -> list[Sequence[Value]]:
    """Draw one figure: rows above, classifiers below, for true rows, initial records and masked ones."""
    digits = choose(view, images, labels, kept, fake, n)
    radius = view.norm_bound
    others = digits.y < 2
    initial = (
        np.vstack([digits.X[others], digits.fake]),
        np.concatenate([digits.y[others], np.full(len(digits.fake), 2)]),
    )
    true = train(digits.X, digits.y, PENALTY, radius)
    alone = train(*initial, PENALTY, radius)
    method, points = mask(digits, view, NO_NOISE, 2 * n, fake=True, seed=number)
    assert method.model_ is not None
    models = (true, alone, method.model_)
    scores = [accuracy(weights, *digits.test) for weights in models]

    figure = plt.figure(figsize=(13.2, 5.0), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=[1.3, 1], hspace=0.0)
    mixed = np.arange(18) % 3 * n + np.arange(18) // 3
    shown = (digits.X[mixed], initial[0][mixed], points[:: max(1, len(points) // 18)])
    titles = (
        f"(a) true rows: {kept[0]}, {kept[1]} and {kept[2]}",
        f"(b) initial records: {fake} stands in for {kept[2]}",
        f"(c) points of nobody, labeled {kept[2]}",
    )
    for part, rows, title in zip(top.subfigures(1, 3, wspace=0.04), shown, titles, strict=True):
        samples(part, view.images(rows), title)
    for part, weights, letter, score in zip(
        bottom.subfigures(1, 3, wspace=0.04), models, "def", scores, strict=True
    ):
        classifier(part, view.weights(weights), kept, f"({letter}) its classifier, {score:.3f} right")
    figure.suptitle(
        f"Fig. {number}: {kept[2]} is sensitive; images are seen through {DIMENSION} public axes",
        fontsize=11.5,
    )
    save(figure, f"fig{number}")
    name = f"{kept[2]} behind {fake}"
    words = ("true rows", "initial records alone", f"initial records and {len(points)} points")
    shortened = (1.0, 1.0, float(method.scale_ or 0))
    rows: list[Sequence[Value]] = [
        (name, 3.0 * n, what, "none", score, factor, cosine(weights, true), 1.0)
        for what, score, factor, weights in zip(words, scores, shortened, models, strict=True)
    ]
    return rows + promised(name, kept, fake, view, images, labels, n)


def promised(
    name: str, kept: Sequence[int], fake: int, view: View, images: Floats, labels: Ints, n: int
) -> list[Sequence[Value]]:
    """Measure masked digits that keep a promise, without a stand-in."""
    rows: list[Sequence[Value]] = []
    for size in sorted({n, MANY} if n == ROWS else {n}):
        digits = choose(view, images, labels, kept, fake, size)
        exact = train(digits.X, digits.y, PENALTY, view.norm_bound)
        for privacy, words in (
            (PureDP(epsilon=1), "epsilon 1"),
            (PureDP(epsilon=10), "epsilon 10"),
            (ApproxDP(epsilon=1, delta=1e-6), "epsilon 1, delta 1e-6"),
        ):
            found = []
            for seed in range(REPETITIONS):
                with contextlib.suppress(PromiseError):  # no points beside these true rows
                    method, _ = mask(digits, view, privacy, size, fake=False, seed=seed)
                    assert method.model_ is not None
                    right = accuracy(method.model_, *digits.test)
                    found.append((right, method.scale_, cosine(method.model_, exact)))
            mean = np.array(found, np.float64).mean(axis=0) if found else np.full(3, np.nan)
            share = len(found) / REPETITIONS
            rows.append((name, 3.0 * size, f"{size} points, no stand-in", words, *map(float, mean), share))
    return rows


def cosine(one: Floats, other: Floats) -> float:
    """Return the cosine of the angle between two classifiers."""
    return float(np.sum(one * other) / (np.linalg.norm(one) * np.linalg.norm(other)))


def main() -> None:
    """Draw both figures, or say aloud that their table is missing."""
    paths = [data_folder() / f"mnist_{part}.parquet" for part in ("test", "train")]
    for path in paths:
        if not path.is_file():
            say_skipped("figures 3 and 4", path.name, f"figures/{OUT.name}/")
            return
    start = time.perf_counter()
    view = View.of(read_digits(paths[0])[0])
    images, labels = read_digits(paths[1])
    rows = figure_digits(3, (0, 1, 3), 6, view, images, labels)
    rows += figure_digits(4, (0, 1, 4), 8, view, images, labels)
    save_numbers(
        "fig3_fig4",
        ("digits", "true_rows", "trained_on", "promise", "accuracy", "weights_shortened_to",
         "cosine_with_true_classifier", "share_with_points"),
        rows,
    )  # fmt: skip
    print(f"wrote figures 3 and 4 to figures/{OUT.name}/ in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
