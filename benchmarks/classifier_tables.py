"""Tables on which the default classifier is measured, with ranges that are round constants.

Fifteen public tables are those its rules were chosen on; the others, samples of two of them and made-up rows,
are there to see whether the rules hold elsewhere. Files are looked for where ``sulq_tables`` looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sulq_tables import Table, _read

from discreet import Column, Schema
from discreet.noise import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from discreet._types import Floats, Ints

# A pair of numbers declares a range, of whole numbers if both are int; a string of levels, or a list, is a
# category; None stands for all levels that the file documents.
Declared = tuple[float, float] | list[Any] | None

LENDING: dict[str, Declared] = {
    "loan_amnt": (0, 40_000), "term": (36, 60), "int_rate": (0.0, 30.0), "installment": (0.0, 1500.0),
    "annual_inc": (0.0, 1e6), "dti": (0.0, 30.0), "delinq_2yrs": (0, 20), "inq_last_6mths": (0, 40),
    "open_acc": (0, 50), "pub_rec": (0, 10), "revol_bal": (0.0, 1e6), "revol_util": (0.0, 120.0),
    "total_acc": (0, 100), "grade": None, "emp_length": None, "home_ownership": None,
    "verification_status": None, "purpose": None,
}  # fmt: skip
HEART: dict[str, Declared] = {
    "age": (20, 90), "sex": [0, 1], "cp": [1, 2, 3, 4], "trestbps": (80, 220), "chol": (100, 600),
    "fbs": [0, 1], "restecg": [0, 1, 2], "thalach": (60, 220), "exang": [0, 1], "oldpeak": (0.0, 10.0),
    "slope": [1, 2, 3], "ca": (0, 3), "thal": [3, 6, 7],
}  # fmt: skip
SEGMENT: dict[str, Declared] = {
    "region_centroid_col": (0, 255), "region_centroid_row": (0, 255), "short_line_density_5": (0.0, 0.5),
    "short_line_density_2": (0.0, 0.5), "vedge_mean": (0.0, 30.0), "vedge_sd": (0.0, 1000.0),
    "hedge_mean": (0.0, 50.0), "hedge_sd": (0.0, 1500.0), "intensity_mean": (0.0, 150.0),
    "rawred_mean": (0.0, 150.0), "rawblue_mean": (0.0, 150.0), "rawgreen_mean": (0.0, 150.0),
    "exred_mean": (-50.0, 10.0), "exblue_mean": (-20.0, 90.0), "exgreen_mean": (-40.0, 30.0),
    "value_mean": (0.0, 150.0), "saturation_mean": (0.0, 1.0), "hue_mean": (-3.2, 3.2),
}  # fmt: skip
WDBC = {
    "radius": (5, 3, 40), "texture": (5, 5, 50), "perimeter": (40, 25, 260), "area": (0, 600, 4500),
    "smoothness": (0.04, 0.04, 0.24), "compactness": (0, 0.15, 1.1), "concavity": (0, 0.4, 1.3),
    "concave_points": (0, 0.06, 0.3), "symmetry": (0.1, 0.08, 0.7), "fractal_dimension": (0.04, 0.03, 0.22),
}  # fmt: skip
"""Lower bound of means and worst values, upper bound of standard errors, upper bound of worst values."""


def declare(rows: Any, target: str, declared: Mapping[str, Declared]) -> Schema:
    """Return the schema of a frame, and make its cells what is declared.

    Parameters
    ----------
    rows : DataFrame
        Rows with the declared columns and the target; whole numbers and levels are converted in place.
    target : str
        Name of the column of the labels.
    declared : mapping of str to pair, list or None
        A range, the levels of a category, or None for every level that occurs, in each case public here.
    """
    columns = []
    for name, known in declared.items():
        missing = bool(rows[name].isna().any())
        if isinstance(known, tuple):
            whole = all(isinstance(bound, int) for bound in known)
            rows[name] = rows[name].astype(np.float64)
            columns.append(
                Column(
                    name,
                    type="integer" if whole else "number",
                    lower=known[0],
                    upper=known[1],
                    required=not missing,
                )
            )
            continue
        levels = sorted(rows[name].dropna().unique()) if known is None else known
        rows[name] = [None if v is None or v != v else str(int(v) if known else v) for v in rows[name]]
        columns.append(Column(name, values=tuple(str(v) for v in levels), closed=True, required=not missing))
    rows[target] = rows[target].astype(str)
    labels = tuple(sorted(rows[target].unique()))
    return Schema(columns=[*columns, Column(target, values=labels, role="target")])


def _table(name: str, file: str, target: str, declared: Mapping[str, Declared], **rest: Any) -> Table:
    rows = _read(file)[[*declared, target]].copy()
    return Table(name, rows, declare(rows, target, declared), **rest)


def german() -> Table:
    """1,000 loans, 13 categories and 7 numbers."""
    numbers: dict[str, Declared] = {
        "duration_months": (0, 72), "credit_amount": (0, 20_000), "installment_rate_pct": (1, 4),
        "residence_since": (1, 4), "age": (18, 80), "existing_credits": (1, 4), "people_liable": (1, 2),
    }  # fmt: skip
    names = [name for name in _read("german_credit") if name != "class"]
    return _table("german", "german_credit", "class", {name: numbers.get(name) for name in names})


def australian() -> Table:
    """690 applications for credit cards, 8 categories and 6 numbers."""
    numbers: dict[str, Declared] = {
        "A2": (0.0, 100.0), "A3": (0.0, 30.0), "A7": (0.0, 30.0), "A10": (0, 70), "A13": (0, 2000),
        "A14": (0, 100_001),
    }  # fmt: skip
    declared = {f"A{i}": numbers.get(f"A{i}") for i in range(1, 15)}
    return _table("australian", "australian_credit", "class", declared)


def pima() -> Table:
    """768 women, 8 numbers."""
    declared: dict[str, Declared] = {
        "pregnancies": (0, 20), "plasma_glucose": (0, 200), "diastolic_bp": (0, 150),
        "triceps_skinfold": (0, 100), "serum_insulin": (0, 900), "bmi": (0.0, 70.0),
        "diabetes_pedigree": (0.0, 2.5), "age": (20, 90),
    }  # fmt: skip
    return _table("pima", "pima_diabetes", "class", declared)


def blood() -> Table:
    """748 donors, 4 numbers of which two are proportional."""
    declared: dict[str, Declared] = {
        "recency_months": (0, 100), "frequency_times": (0, 50), "monetary_cc_blood": (0, 12_500),
        "time_months": (0, 100),
    }  # fmt: skip
    return _table("blood", "blood_transfusion", "donated_march_2007", declared)


def mammo() -> Table:
    """961 screenings: age, shape, margin and density, with missing cells."""
    declared: dict[str, Declared] = {
        "age": (0, 100), "shape": [1, 2, 3, 4], "margin": [1, 2, 3, 4, 5], "density": (1, 4),
    }  # fmt: skip
    return _table("mammo", "mammographic_masses", "severity", declared)


def abalone() -> Table:
    """4,177 shells; whether they have ten rings or more, by sex and 7 lengths and weights."""
    rows = _read("abalone")
    rows["old"] = (rows.pop("rings") >= 10).astype(int)
    declared: dict[str, Declared] = {
        "sex": None, "length": (0.0, 1.0), "diameter": (0.0, 1.0), "height": (0.0, 1.5),
        "whole_weight": (0.0, 3.0), "shucked_weight": (0.0, 2.0), "viscera_weight": (0.0, 1.0),
        "shell_weight": (0.0, 1.5),
    }  # fmt: skip
    return Table("abalone", rows, declare(rows, "old", declared))


def breast() -> Table:
    """699 biopsies, 9 numbers from 1 to 10."""
    names = [n for n in _read("breast_cancer_wisconsin") if n not in ("class", "sample_code_number")]
    return _table("breast", "breast_cancer_wisconsin", "class", dict.fromkeys(names, (1, 10)))


def heart() -> Table:
    """270 patients, 13 columns."""
    return _table("heart", "heart_statlog", "class", HEART)


def cleveland() -> Table:
    """303 patients, 13 columns with missing cells; whether any vessel is narrowed."""
    rows = _read("heart_cleveland")
    rows["num"] = (rows["num"] > 0).astype(int)
    return Table("cleveland", rows, declare(rows, "num", HEART))


def wdbc() -> Table:
    """569 biopsies, 30 numbers in ranges that cover what is documented."""
    declared: dict[str, Declared] = {}
    for kind in ("mean", "se", "worst"):
        for name, (lower, error, upper) in WDBC.items():
            span = (0.0, float(error)) if kind == "se" else (float(lower), float(upper))
            declared[f"{name}_{kind}"] = span
    return _table("wdbc", "wdbc", "diagnosis", declared)


def waveform() -> Table:
    """5,000 noisy curves of three kinds, 21 numbers from -5 to 11."""
    return _table("waveform", "waveform", "class", {f"x{i}": (-5.0, 11.0) for i in range(1, 22)})


def segment() -> Table:
    """2,310 patches of photographs of seven kinds, 18 numbers."""
    return _table("segment", "segment", "class", SEGMENT)


def splice() -> Table:
    """3,190 pieces of DNA of three kinds, 60 letters."""
    names = [n for n in _read("splice") if n not in ("class", "instance")]
    return _table("splice", "splice", "class", dict.fromkeys(names))


def spliceb() -> Table:
    """3,175 pieces of DNA of two kinds, letters as whole numbers from 1 to 4."""
    frame = _read("splice_libsvm_binary")
    names = [n for n in frame if n not in ("class", "split")]
    return _table("spliceb", "splice_libsvm_binary", "class", dict.fromkeys(names, (1, 4)))


def adult() -> Table:
    """1994 census, 12 columns, parted as those who published it did."""
    declared: dict[str, Declared] = {
        "age": (17, 90), "workclass": None, "education": None, "marital-status": None, "occupation": None,
        "relationship": None, "race": None, "sex": None, "capital-gain": (0, 99_999),
        "capital-loss": (0, 4356), "hours-per-week": (1, 99), "native-country": None,
    }  # fmt: skip
    return _table("adult", "adult", "income", declared, training=32_561)


def lending() -> Table:
    """42,535 loans of 2007 to 2011; whether they were lost, by 13 numbers and 5 categories."""
    rows = _read("lending_club_2007_2011")
    rows["lost"] = rows.pop("loan_status").str.contains("Charged Off").astype(int)
    rows = rows[[*LENDING, "lost"]].copy()
    return Table("lending", rows, declare(rows, "lost", LENDING))


def sample(make: Callable[[], Table], size: int, seed: int = 7) -> Table:
    """Return some rows of a table under its declaration."""
    whole = make()
    order = Stream.from_seed(seed).generator().permutation(len(whole.rows))[:size]
    return Table(f"{whole.name}-{size}", whole.rows.iloc[order].reset_index(drop=True), whole.schema)


def _numbers(name: str, X: Floats, labels: Ints, bounds: tuple[float, float]) -> Table:
    rows = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
    rows["label"] = labels
    declared: dict[str, Declared] = {str(column): bounds for column in rows if column != "label"}
    return Table(name, rows, declare(rows, "label", declared))


def zeros() -> Table:
    """5,000 rows of 40 columns that are mostly at their lower bound."""
    draws = Stream.from_seed(21).generator()
    labels = (draws.random(5000) < 0.4).astype(np.int64)
    share = np.full((5000, 40), 0.2)
    share[labels == 1, :10] = 0.45
    X = np.where(draws.random((5000, 40)) < share, np.exp(draws.standard_normal((5000, 40)) - 1), 0.0)
    return _numbers("zeros", np.minimum(X, 20.0), labels, (0.0, 20.0))


def linear(n: int = 2000, d: int = 5) -> Table:
    """Numbers of a normal law, labels of a logistic one."""
    draws = Stream.from_seed(22 + d).generator()
    X = draws.standard_normal((n, d)).clip(-4, 4)
    slope = np.linspace(1.5, -1.0, d)
    labels = (draws.random(n) < 1 / (1 + np.exp(-X @ slope))).astype(np.int64)
    return _numbers(f"linear-{d}", X, labels, (-4.0, 4.0))


def repeated(n: int = 3000) -> Table:
    """Ten numbers, seven of which repeat the first three with some noise; the truth is a plane."""
    draws = Stream.from_seed(23).generator()
    base = draws.standard_normal((n, 3))
    mixed = base[:, draws.integers(0, 3, 7)] + 0.3 * draws.standard_normal((n, 7))
    X = np.hstack([base, mixed]).clip(-4, 4) / 8 + 0.5
    labels = (draws.random(n) < 1 / (1 + np.exp(-2 * base[:, 0] + base[:, 1]))).astype(np.int64)
    return _numbers("repeated", X, labels, (0.0, 1.0))


def additive(n: int = 4000) -> Table:
    """Six numbers with curved effects."""
    draws = Stream.from_seed(24).generator()
    X = draws.random((n, 6))
    score = 2 * np.sin(6 * X[:, 0]) + 4 * (X[:, 1] - 0.5) ** 2 * 4 - 2 + 2 * (X[:, 2] > 0.7) + X[:, 3]
    labels = (draws.random(n) < 1 / (1 + np.exp(-1.5 * score + 1.2))).astype(np.int64)
    return _numbers("additive", X, labels, (0.0, 1.0))


def crossed(n: int = 4000) -> Table:
    """Four numbers, labels by the sign of a product: no additive model beats the vote."""
    draws = Stream.from_seed(25).generator()
    X = draws.uniform(-1, 1, (n, 4))
    labels = ((X[:, 0] * X[:, 1] > 0) ^ (draws.random(n) < 0.1)).astype(np.int64)
    return _numbers("crossed", X, labels, (-1.0, 1.0))


def many(n: int = 6000) -> Table:
    """Ten classes around centers in eight columns."""
    draws = Stream.from_seed(26).generator()
    labels = draws.integers(0, 10, n)
    X = (draws.standard_normal((10, 8))[labels] + 0.7 * draws.standard_normal((n, 8))).clip(-4, 4)
    return _numbers("many", X, labels, (-4.0, 4.0))


def skewed(n: int = 5000) -> Table:
    """Six lognormal amounts declared far above most of them; labels by their logarithms."""
    draws = Stream.from_seed(27).generator()
    Z = draws.standard_normal((n, 6))
    labels = (draws.random(n) < 1 / (1 + np.exp(-1.2 * Z @ [1, -1, 0.5, 0.5, 0, 0]))).astype(np.int64)
    return _numbers("skewed", np.exp(1.2 * Z + 3).clip(0, 10_000), labels, (0.0, 10_000.0))


def mnist() -> Table:
    """10,000 handwritten digits, 25 means of 4 by 4 pixels."""
    frame = _read("mnist_test")
    images = np.frombuffer(b"".join(frame["image"]), np.uint8).reshape(-1, 28, 28)[:, 4:24, 4:24]
    means = images.reshape(-1, 5, 4, 5, 4).mean(axis=(2, 4)).reshape(-1, 25)
    return _numbers("mnist-25", means, frame["label"].to_numpy(), (0.0, 255.0))


def threes() -> Table:
    """Threes against eights of the above."""
    whole = mnist()
    rows = whole.rows[whole.rows["label"].isin(["3", "8"])].reset_index(drop=True)
    declared: dict[str, Declared] = {str(column): (0.0, 255.0) for column in rows if column != "label"}
    return Table("threes", rows, declare(rows, "label", declared))


CHOSEN_ON: dict[str, Callable[[], Table]] = {
    make.__name__: make
    for make in (
        german, australian, pima, blood, mammo, abalone, breast, heart, wdbc, waveform, segment, splice,
        spliceb, adult, lending,
    )
}  # fmt: skip
OTHERS: dict[str, Callable[[], Table]] = {
    "cleveland": cleveland,
    "adult-1000": lambda: sample(adult, 1000),
    "adult-5000": lambda: sample(adult, 5000),
    "lending-5000": lambda: sample(lending, 5000),
    "waveform-1000": lambda: sample(waveform, 1000),
    "zeros": zeros,
    "linear-5": linear,
    "linear-20": lambda: linear(4000, 20),
    "repeated": repeated,
    "additive": additive,
    "crossed": crossed,
    "many": many,
    "skewed": skewed,
    "mnist-25": mnist,
    "threes": threes,
}
TABLES = CHOSEN_ON | OTHERS
