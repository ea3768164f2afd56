"""More tables for the default classifier: other targets of public tables, and made-up rows.

``PRACTICE`` was looked at while rules were changed; ``UNSEEN`` was run once, after the constants were frozen.
When rules were changed again, which of these fell short had been seen; ``LATER`` was made and run after that.
``FRESH`` was made after the second stage was changed and frozen, and run once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from classifier_tables import LENDING, Declared, _numbers, adult, declare, sample
from sklearn import datasets
from sulq_tables import Table, _read

from discreet.noise import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import Floats, Ints

MIXED: dict[str, Declared] = {f"c{i}": [0, 1, 2, 3, 4] for i in range(4)}


def _bundled(name: str, found: Any, bounds: list[tuple[float, float]], labels: Ints) -> Table:
    rows = pd.DataFrame(found.data, columns=[f"x{i}" for i in range(found.data.shape[1])])
    rows["label"] = labels
    return Table(name, rows, declare(rows, "label", {f"x{i}": pair for i, pair in enumerate(bounds)}))


def iris() -> Table:
    """150 flowers of three kinds, 4 lengths."""
    found = datasets.load_iris()
    return _bundled("iris", found, [(0.0, 10.0), (0.0, 10.0), (0.0, 10.0), (0.0, 5.0)], found.target)


def wine() -> Table:
    """178 wines of three makers, 13 measurements."""
    found = datasets.load_wine()
    tops = (20, 10, 5, 40, 200, 5, 10, 1, 5, 20, 2, 5, 2000)
    return _bundled("wine", found, [(0.0, float(top)) for top in tops], found.target)


def diabetes() -> Table:
    """442 patients, 10 measurements; whether the disease progresses more than 140."""
    found = datasets.load_diabetes(scaled=False)
    tops = (100, 2, 60, 200, 500, 400, 120, 12, 10, 200)
    return _bundled("diabetes", found, [(0.0, float(top)) for top in tops], found.target > 140)


def digits() -> Table:
    """1,797 handwritten digits, 64 pixels."""
    found = datasets.load_digits()
    return _bundled("digits", found, [(0.0, 16.0)] * 64, found.target)


def pixels(name: str, keep: tuple[int, ...], side: int, size: int) -> Table:
    """Handwritten digits of some kinds as means of squares of pixels."""
    frame = _read("mnist_test")
    images = np.frombuffer(b"".join(frame["image"]), np.uint8).reshape(-1, 28, 28)[:, 4:24, 4:24]
    parts = 20 // side
    means = images.reshape(-1, parts, side, parts, side).mean(axis=(2, 4)).reshape(len(images), -1)
    labels = frame["label"].to_numpy()
    chosen = np.flatnonzero(np.isin(labels, keep))[:size]
    return _numbers(name, means[chosen], labels[chosen], (0.0, 255.0))


def census(target: str, size: int, drop: tuple[str, ...] = ()) -> Table:
    """Return some rows of the census with another target; the income is a column."""
    whole = sample(adult, size, seed=11)
    numbers: dict[str, Declared] = {
        "age": (17, 90), "capital-gain": (0, 99_999), "capital-loss": (0, 4356), "hours-per-week": (1, 99),
    }  # fmt: skip
    rows = whole.rows.drop(columns=list(drop))
    rows = rows[rows[target].notna()].reset_index(drop=True)
    names = [name for name in rows if name != target]
    return Table(f"census-{target}", rows, declare(rows, target, {n: numbers.get(n) for n in names}))


def loans(target: str, size: int, drop: tuple[str, ...] = ()) -> Table:
    """Return some loans with another target."""
    rows = _read("lending_club_2007_2011")[list(LENDING)].drop(columns=list(drop))
    order = Stream.from_seed(12).generator().permutation(len(rows))[:size]
    rows = rows.iloc[order]
    common = rows[target].value_counts().head(7).index
    rows = rows[rows[target].isin(common)].reset_index(drop=True)
    declared = {name: known for name, known in LENDING.items() if name in rows and name != target}
    return Table(f"loans-{target}", rows, declare(rows, target, declared))


def shells(target: str) -> Table:
    """4,177 shells: their sex, or their age in three parts."""
    rows = _read("abalone")
    rows["age"] = np.digitize(rows.pop("rings"), [9, 11])
    declared: dict[str, Declared] = {
        "sex": None, "length": (0.0, 1.0), "diameter": (0.0, 1.0), "height": (0.0, 1.5),
        "whole_weight": (0.0, 3.0), "shucked_weight": (0.0, 2.0), "viscera_weight": (0.0, 1.0),
        "shell_weight": (0.0, 1.5), "age": (0, 2),
    }  # fmt: skip
    declared.pop(target)
    if target == "age":
        return Table("shells-age", rows, declare(rows, "age", declared))
    return Table("shells-sex", rows, declare(rows, "sex", declared))


def patches(name: str = "patches", kinds: tuple[str, ...] = ("grass", "path", "sky")) -> Table:
    """2,310 patches of photographs, whether of some kinds; 9 of the columns."""
    declared: dict[str, Declared] = {
        "region_centroid_row": (0, 255), "vedge_mean": (0.0, 30.0), "hedge_mean": (0.0, 50.0),
        "intensity_mean": (0.0, 150.0), "exred_mean": (-50.0, 10.0), "exblue_mean": (-20.0, 90.0),
        "exgreen_mean": (-40.0, 30.0), "saturation_mean": (0.0, 1.0), "hue_mean": (-3.2, 3.2),
    }  # fmt: skip
    rows = _read("segment")[[*declared, "class"]].copy()
    rows["class"] = rows["class"].astype(str).str.lower().isin(kinds).astype(int)
    return Table(name, rows, declare(rows, "class", declared))


def letters(width: int) -> Table:
    """3,190 pieces of DNA of three kinds, the letters in the middle."""
    frame = _read("splice")
    names = [n for n in frame if n not in ("class", "instance")]
    names = names[30 - width // 2 : 30 + width // 2]
    rows = frame[[*names, "class"]].copy()
    return Table(f"letters-{width}", rows, declare(rows, "class", dict.fromkeys(names)))


def waves(name: str = "waves", without: str = "0") -> Table:
    """Two of the three kinds of noisy curves."""
    rows = _read("waveform")
    rows = rows[rows["class"].astype(str) != without].reset_index(drop=True)
    return Table(name, rows, declare(rows, "class", {f"x{i}": (-5.0, 11.0) for i in range(1, 22)}))


def made(name: str, n: int, d: int, classes: int, seed: int, **given: Any) -> Table:
    """Rows of scikit-learn's make_classification."""
    X, labels = datasets.make_classification(
        n, d, n_classes=classes, n_clusters_per_class=given.pop("clusters", 1), random_state=seed, **given
    )
    return _numbers(name, X.clip(-6, 6), labels, (-6.0, 6.0))


def friedman(kind: int, n: int, seed: int) -> Table:
    """Rows of one of Friedman's regressions, labels above the middle."""
    make = (datasets.make_friedman1, datasets.make_friedman2, datasets.make_friedman3)[kind - 1]
    X, y = make(n, noise=(2.0, 100.0, 0.2)[kind - 1], random_state=seed)
    tops = [1.0] * 10 if kind == 1 else [100.0, 560 * np.pi, 1.0, 11.0]
    labels = (y > np.median(y)).astype(np.int64)
    return _numbers(f"friedman-{kind}-{n}", X / tops, labels, (0.0, 1.0))


def rings(n: int, d: int, classes: int, seed: int) -> Table:
    """Shells around the origin."""
    X, labels = datasets.make_gaussian_quantiles(
        n_samples=n, n_features=d, n_classes=classes, random_state=seed
    )
    return _numbers(f"rings-{d}-{classes}", X.clip(-4, 4), labels, (-4.0, 4.0))


def mixture(n: int, d: int, classes: int, parts: int, seed: int) -> Table:
    """Each class a mixture of clouds of their own widths."""
    draws = Stream.from_seed(seed).generator()
    labels, which = draws.integers(0, classes, n), draws.integers(0, parts, n)
    centers, widths = draws.standard_normal((classes, parts, d)), draws.uniform(0.5, 1.3, (classes, parts))
    X = centers[labels, which] + widths[labels, which][:, None] * draws.standard_normal((n, d))
    return _numbers(f"mixture-{d}-{classes}", X.clip(-5, 5), labels, (-5.0, 5.0))


def categories(n: int, d: int, classes: int, strength: float, seed: int) -> Table:
    """Columns of 2 to 8 levels alone, with effects of their own."""
    draws = Stream.from_seed(seed).generator()
    sizes = draws.integers(2, 9, d)
    codes = np.column_stack([draws.integers(0, size, n) for size in sizes])
    score = draws.gumbel(size=(n, classes))
    for column, size in zip(codes.T, sizes, strict=True):
        score += (strength * draws.standard_normal((size, classes)))[column]
    rows = pd.DataFrame(codes, columns=[f"c{i}" for i in range(d)])
    rows["label"] = score.argmax(axis=1)
    declared: dict[str, Declared] = {f"c{i}": list(range(int(size))) for i, size in enumerate(sizes)}
    return Table(f"categories-{d}-{classes}", rows, declare(rows, "label", declared))


def counts(n: int, d: int, classes: int, seed: int) -> Table:
    """Return counts that are mostly 0, with rates for each class in a third of the columns."""
    draws = Stream.from_seed(seed).generator()
    labels = draws.integers(0, classes, n)
    rates = np.repeat(draws.uniform(0.1, 0.6, (1, d)), classes, axis=0)
    rates[:, : d // 3] *= draws.lognormal(0, 0.6, (classes, d // 3))
    rows = pd.DataFrame(draws.poisson(rates[labels]).clip(0, 50), columns=[f"x{i}" for i in range(d)])
    rows["label"] = labels
    declared: dict[str, Declared] = {f"x{i}": (0, 50) for i in range(d)}
    return Table(f"counts-{d}-{classes}", rows, declare(rows, "label", declared))


def rare(n: int, share: float, seed: int) -> Table:
    """One class of a small share, by numbers, amounts and categories."""
    draws = Stream.from_seed(seed).generator()
    Z = draws.standard_normal((n, 6))
    codes = draws.integers(0, 5, (n, 4))
    effects = draws.standard_normal((4, 5)) * 0.6
    score = Z @ [1.0, -0.8, 0.6, 0.5, 0.0, 0.0] + sum(effects[j][codes[:, j]] for j in range(4))
    score = score + draws.logistic(size=n)
    rows = pd.DataFrame(Z.clip(-4, 4), columns=[f"x{i}" for i in range(6)])
    rows["x1"] = np.exp(2 + Z[:, 1]).clip(0, 500)
    for j in range(4):
        rows[f"c{j}"] = codes[:, j]
    rows["label"] = (score > np.quantile(score, 1 - share)).astype(np.int64)
    numbers: dict[str, Declared] = {f"x{i}": (-4.0, 4.0) for i in range(6)}
    return Table(f"rare-{share:g}", rows, declare(rows, "label", numbers | {"x1": (0.0, 500.0)} | MIXED))


def plane(n: int, d: int, slope: float, alike: float, seed: int) -> Table:
    """Return a few numbers that go together, and labels by a plane."""
    draws = Stream.from_seed(seed).generator()
    X = draws.standard_normal((n, d)) + alike * draws.standard_normal((n, 1))
    X = X / np.sqrt(1 + alike**2)
    weights: Floats = slope * np.sign(draws.standard_normal(d)) * draws.uniform(0.3, 1.0, d)
    labels = (X @ weights + draws.logistic(size=n) > 0).astype(np.int64)
    return _numbers(f"plane-{d}-{n}", X.clip(-4, 4), labels, (-4.0, 4.0))


PRACTICE: dict[str, Callable[[], Table]] = {
    "made-10": lambda: made("made-10", 3000, 10, 2, 31, n_informative=5, n_redundant=3),
    "made-20": lambda: made("made-20", 4000, 20, 3, 32, n_informative=8, n_redundant=4, class_sep=1.5),
    "hastie-5000": lambda: rings(5000, 8, 2, 33),
    "friedman-1": lambda: friedman(1, 3000, 34),
    "friedman-3": lambda: friedman(3, 2000, 35),
    "categories-10-2": lambda: categories(3000, 10, 2, 0.6, 36),
    "categories-8-4": lambda: categories(5000, 8, 4, 0.8, 37),
    "rare-0.1": lambda: rare(6000, 0.1, 38),
    "counts-20-2": lambda: counts(3000, 20, 2, 39),
    "mixture-6-4": lambda: mixture(4000, 6, 4, 2, 40),
    "plane-4": lambda: plane(1000, 4, 1.5, 0.0, 41),
    "plane-8": lambda: plane(2000, 8, 2.0, 1.0, 42),
    "waves": waves,
    "census-relationship": lambda: census("relationship", 5000, ("marital-status", "sex")),
    "loans-term": lambda: loans("term", 5000, ("installment",)),
    "sevens": lambda: pixels("sevens", (1, 7), 5, 4000),
    "zero-or-six": lambda: pixels("zero-or-six", (0, 6), 5, 2500),
    "seven-or-nine": lambda: pixels("seven-or-nine", (7, 9), 4, 3500),
    "one-four-eight": lambda: pixels("one-four-eight", (1, 4, 8), 5, 4000),
    "waves-without-2": lambda: waves("waves-without-2", "2"),
    "walls": lambda: patches("walls", ("brickface", "cement", "window")),
    "census-race": lambda: census("race", 6000, ("native-country",)),
    "loans-purpose": lambda: loans("purpose", 5000),
    "made-7": lambda: made("made-7", 2200, 7, 2, 121, n_informative=4, n_redundant=1),
    "made-14": lambda: made("made-14", 3000, 14, 2, 122, n_informative=5, n_redundant=4, clusters=2),
    "made-9": lambda: made("made-9", 3500, 9, 3, 123, n_informative=6, class_sep=1.2),
    "friedman-1-2600": lambda: friedman(1, 2600, 124),
    "friedman-2-3000": lambda: friedman(2, 3000, 125),
    "friedman-3-2800": lambda: friedman(3, 2800, 126),
    "rings-7-2": lambda: rings(4000, 7, 2, 127),
    "rings-4-3": lambda: rings(3000, 4, 3, 128),
    "categories-11-2": lambda: categories(3500, 11, 2, 0.5, 129),
    "rare-0.15": lambda: rare(5000, 0.15, 130),
    "counts-12-2": lambda: counts(2800, 12, 2, 131),
    "mixture-8-2": lambda: mixture(3200, 8, 2, 2, 132),
    "plane-6": lambda: plane(1500, 6, 1.3, 0.6, 133),
    "plane-9": lambda: plane(2500, 9, 1.0, 0.2, 134),
    "plane-15": lambda: plane(4000, 15, 1.2, 0.9, 135),
    "five-or-six": lambda: pixels("five-or-six", (5, 6), 4, 3000),
    "eight-or-nine": lambda: pixels("eight-or-nine", (8, 9), 5, 2800),
    "two-three-seven": lambda: pixels("two-three-seven", (2, 3, 7), 5, 4500),
    "waves-without-1": lambda: waves("waves-without-1", "1"),
    "leaves": lambda: patches("leaves", ("foliage", "grass")),
    "census-workclass": lambda: census("workclass", 7000, ("native-country", "race")),
    "loans-verification_status": lambda: loans("verification_status", 5500),
    "made-5": lambda: made("made-5", 2400, 5, 2, 151, n_informative=3, n_redundant=1),
    "made-16": lambda: made("made-16", 3600, 16, 2, 152, n_informative=8, n_redundant=3, clusters=2),
    "made-11": lambda: made("made-11", 3800, 11, 4, 153, n_informative=7, class_sep=1.4),
    "friedman-1-3300": lambda: friedman(1, 3300, 154),
    "friedman-2-2200": lambda: friedman(2, 2200, 155),
    "friedman-3-4000": lambda: friedman(3, 4000, 156),
    "rings-6-2": lambda: rings(3500, 6, 2, 157),
    "rings-5-3": lambda: rings(4000, 5, 3, 158),
    "categories-13-2": lambda: categories(3200, 13, 2, 0.6, 159),
    "categories-7-3": lambda: categories(3600, 7, 3, 0.7, 160),
    "rare-0.3": lambda: rare(3500, 0.3, 161),
    "counts-18-2": lambda: counts(3400, 18, 2, 162),
    "mixture-9-2": lambda: mixture(3800, 9, 2, 3, 163),
    "mixture-4-3": lambda: mixture(2600, 4, 3, 2, 164),
    "plane-7": lambda: plane(1800, 7, 1.4, 0.4, 165),
    "plane-11": lambda: plane(3200, 11, 1.1, 1.0, 166),
    "plane-14": lambda: plane(4500, 14, 0.9, 0.5, 167),
}
UNSEEN: dict[str, Callable[[], Table]] = {
    "iris": iris,
    "wine": wine,
    "diabetes": diabetes,
    "digits": digits,
    "nines": lambda: pixels("nines", (4, 9), 4, 4000),
    "five-digits": lambda: pixels("five-digits", (0, 2, 5, 6, 9), 5, 6000),
    "census-sex": lambda: census("sex", 6000, ("relationship",)),
    "census-marital-status": lambda: census("marital-status", 8000, ("relationship",)),
    "loans-grade": lambda: loans("grade", 6000, ("int_rate",)),
    "loans-home_ownership": lambda: loans("home_ownership", 4000),
    "shells-age": lambda: shells("age"),
    "shells-sex": lambda: shells("sex"),
    "patches": patches,
    "letters-20": lambda: letters(20),
    "made-12": lambda: made("made-12", 2500, 12, 2, 61, n_informative=6, n_redundant=2, clusters=2),
    "made-8": lambda: made("made-8", 3000, 8, 4, 62, n_informative=6, class_sep=1.5),
    "friedman-1-4000": lambda: friedman(1, 4000, 63),
    "friedman-2": lambda: friedman(2, 2500, 64),
    "categories-15-2": lambda: categories(2500, 15, 2, 0.5, 65),
    "categories-6-3": lambda: categories(4000, 6, 3, 0.7, 66),
    "rare-0.05": lambda: rare(8000, 0.05, 67),
    "counts-30-3": lambda: counts(5000, 30, 3, 68),
    "mixture-5-3": lambda: mixture(3000, 5, 3, 2, 69),
    "plane-3": lambda: plane(800, 3, 1.5, 0.5, 70),
    "plane-12": lambda: plane(5000, 12, 1.0, 0.7, 71),
}
LATER: dict[str, Callable[[], Table]] = {
    "two-or-seven": lambda: pixels("two-or-seven", (2, 7), 4, 3000),
    "three-or-five": lambda: pixels("three-or-five", (3, 5), 5, 3500),
    "made-6": lambda: made("made-6", 2000, 6, 2, 91, n_informative=3, n_redundant=2),
    "made-15": lambda: made("made-15", 3500, 15, 2, 92, n_informative=7, n_redundant=5, class_sep=0.8),
    "friedman-1-2000": lambda: friedman(1, 2000, 94),
    "friedman-3-3500": lambda: friedman(3, 3500, 95),
    "rings-5-2": lambda: rings(3000, 5, 2, 96),
    "categories-12-2": lambda: categories(4000, 12, 2, 0.6, 97),
    "categories-9-3": lambda: categories(3000, 9, 3, 0.9, 98),
    "rare-0.2": lambda: rare(4000, 0.2, 99),
    "counts-15-2": lambda: counts(2500, 15, 2, 100),
    "mixture-7-2": lambda: mixture(3500, 7, 2, 3, 101),
    "plane-5": lambda: plane(1200, 5, 1.2, 0.3, 102),
    "plane-10": lambda: plane(3000, 10, 1.5, 0.8, 103),
}
FRESH: dict[str, Callable[[], Table]] = {
    "zero-or-five": lambda: pixels("zero-or-five", (0, 5), 4, 2600),
    "four-or-seven": lambda: pixels("four-or-seven", (4, 7), 5, 3200),
    "three-six-eight": lambda: pixels("three-six-eight", (3, 6, 8), 5, 4200),
    "sky-or-window": lambda: patches("sky-or-window", ("sky", "window")),
    "census-occupation": lambda: census("occupation", 8000, ("native-country",)),
    "loans-emp_length": lambda: loans("emp_length", 6000),
    "made-4": lambda: made("made-4", 2300, 4, 2, 171, n_informative=3, n_redundant=0),
    "made-13": lambda: made("made-13", 3400, 13, 2, 172, n_informative=6, n_redundant=4),
    "made-18": lambda: made("made-18", 4200, 18, 2, 173, n_informative=7, n_redundant=2, clusters=2),
    "made-17": lambda: made("made-17", 4000, 17, 3, 174, n_informative=8, class_sep=1.3),
    "friedman-1-3700": lambda: friedman(1, 3700, 175),
    "friedman-2-3400": lambda: friedman(2, 3400, 176),
    "friedman-3-3100": lambda: friedman(3, 3100, 177),
    "rings-9-2": lambda: rings(4500, 9, 2, 178),
    "rings-6-3": lambda: rings(4200, 6, 3, 179),
    "categories-14-2": lambda: categories(3800, 14, 2, 0.5, 180),
    "categories-5-3": lambda: categories(3000, 5, 3, 0.8, 181),
    "categories-9-5": lambda: categories(4500, 9, 5, 0.7, 182),
    "rare-0.25": lambda: rare(3800, 0.25, 183),
    "counts-24-2": lambda: counts(3600, 24, 2, 184),
    "mixture-10-2": lambda: mixture(3600, 10, 2, 2, 185),
    "mixture-6-3": lambda: mixture(3000, 6, 3, 3, 186),
    "plane-4-1600": lambda: plane(1600, 4, 1.2, 0.8, 187),
    "plane-8-2400": lambda: plane(2400, 8, 1.5, 0.5, 188),
    "plane-13": lambda: plane(4200, 13, 1.0, 1.0, 189),
}
