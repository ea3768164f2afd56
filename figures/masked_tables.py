"""Twelve public tables as matrices in [-1, 1], mapped by round constants that are declared here.

The files are looked for in the folder that ``DISCREET_DATA`` names, by default ``shared/data`` beside the
repository. Ranges are round numbers around values that are usual for the quantity; what lies outside is
clipped. No number is taken from the rows, with one exception that is none of theirs: what a missing number
stands for is the middle of its range.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import AnyArray, Floats, Ints

Range = tuple[float, float]
YES_NO = (0.0, 1.0)


def data_folder() -> Path:
    """Return where the files are, if they are anywhere."""
    given = os.environ.get("DISCREET_DATA")
    return Path(given) if given else Path(__file__).parents[2] / "shared" / "data"


def say_skipped(what: str, missing: str, kept: str) -> None:
    """Say aloud that something was not made because a file is missing."""
    print("=" * 88)
    print(f"SKIPPED {what}: {missing} was not found.")
    print(f"Set DISCREET_DATA to the folder that holds it. What {kept} holds was left as it is.")
    print("=" * 88)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """How a file becomes a matrix with labels.

    Attributes
    ----------
    title : str
        For a figure.
    file : str
        Without its ending.
    target : str
        Column of labels.
    classes : tuple of tuple
        Labels of each class.
    two : tuple of tuple
        The same in two groups, for the paper's figure; empty if ``classes`` are two already.
    numbers : mapping
        Range of each number.
    lists : mapping
        Levels of each list; each becomes a column, 1 where it is there. Other levels are none of them.
    """

    title: str
    file: str
    target: str
    classes: tuple[tuple[str | float, ...], ...]
    two: tuple[tuple[str | float, ...], ...] = ()
    numbers: Mapping[str, Range] = field(default_factory=dict)
    lists: Mapping[str, tuple[str | float, ...]] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Where the file should be."""
        return data_folder() / f"{self.file}.parquet"

    def read(self, *, two_classes: bool, wide: bool = False) -> tuple[Floats, Ints]:
        """Return the matrix and the classes as integers.

        With ``wide``, ranges are twice as long upwards: bounds that are to hold everybody leave most people
        in a corner.
        """
        table: dict[str, AnyArray] = dict(duckdb.read_parquet(str(self.path)).fetchnumpy())
        columns = []
        for name, (lower, upper) in self.numbers.items():
            values = np.ma.masked_array(table[name], dtype=np.float64)
            middle, half = (lower + upper) / 2, (upper - lower) / 2
            if wide:
                middle, half = upper, upper - lower
            columns.append(np.clip((values.filled((lower + upper) / 2) - middle) / half, -1.0, 1.0))
        for name, levels in self.lists.items():
            values = table[name] if table[name].dtype == object else np.ma.filled(table[name], 255)
            columns += [np.where(values == level, 1.0, -1.0) for level in levels]
        y = np.full(len(table[self.target]), -1)
        for code, labels in enumerate(self.two if two_classes and self.two else self.classes):
            y[np.isin(table[self.target], np.array(labels, table[self.target].dtype))] = code
        assert (y >= 0).all()
        return np.column_stack(columns), y


_HEART_NUMBERS: dict[str, Range] = {
    "age": (30, 80), "sex": YES_NO, "trestbps": (80, 180), "chol": (100, 400), "fbs": YES_NO,
    "thalach": (80, 220), "exang": YES_NO, "oldpeak": (0, 4), "slope": (1, 3), "ca": (0, 3),
}  # fmt: skip
_HEART_LISTS: dict[str, tuple[str | float, ...]] = {
    "cp": (1, 2, 3, 4), "restecg": (0, 1, 2), "thal": (3, 6, 7),
}  # fmt: skip

SOURCES: dict[str, Source] = {
    "abalone": Source(
        title="Age of abalone: 10 rings or more", file="abalone", target="rings",
        classes=(tuple(range(1, 10)), tuple(range(10, 30))),
        numbers={
            "length": (0, 1), "diameter": (0, 0.8), "height": (0, 0.3), "whole_weight": (0, 2),
            "shucked_weight": (0, 0.8), "viscera_weight": (0, 0.4), "shell_weight": (0, 0.5),
        },
        lists={"sex": ("F", "I", "M")},
    ),
    "waveform": Source(
        title="Waveform: the first class or not", file="waveform", target="class",
        classes=((0,), (1,), (2,)), two=((0,), (1, 2)),
        numbers={f"x{j}": (-4.0, 8.0) for j in range(1, 22)},
    ),
    "australian": Source(
        title="Australian credit", file="australian_credit", target="class", classes=((0,), (1,)),
        numbers={
            "A1": YES_NO, "A2": (10, 60), "A3": (0, 10), "A7": (0, 5), "A8": YES_NO, "A9": YES_NO,
            "A10": (0, 5), "A11": YES_NO, "A13": (0, 400), "A14": (0, 2000),
        },
        lists={"A4": (1, 2, 3), "A5": tuple(range(1, 15)), "A6": tuple(range(1, 10)), "A12": (1, 2, 3)},
    ),
    "breast": Source(
        title="Breast cancer: nine grades", file="breast_cancer_wisconsin", target="class",
        classes=((2,), (4,)),
        numbers=dict.fromkeys(
            ("clump_thickness", "uniformity_cell_size", "uniformity_cell_shape", "marginal_adhesion",
             "single_epithelial_cell_size", "bare_nuclei", "bland_chromatin", "normal_nucleoli", "mitoses"),
            (1.0, 10.0),
        ),
    ),
    "transfusion": Source(
        title="Blood transfusion", file="blood_transfusion", target="donated_march_2007",
        classes=((0,), (1,)),
        numbers={
            "recency_months": (0, 24), "frequency_times": (0, 12), "monetary_cc_blood": (0, 3000),
            "time_months": (0, 72),
        },
    ),
    "cleveland": Source(
        title="Heart disease (Cleveland)", file="heart_cleveland", target="num",
        classes=((0,), (1, 2, 3, 4)), numbers=_HEART_NUMBERS, lists=_HEART_LISTS,
    ),
    "mammographic": Source(
        title="Mammographic masses", file="mammographic_masses", target="severity", classes=((0,), (1,)),
        numbers={"age": (20, 90), "density": (1, 4)},
        lists={"shape": (1, 2, 3, 4), "margin": (1, 2, 3, 4, 5)},
    ),
    "splice": Source(
        title="Splice DNA: a junction or none", file="splice", target="class",
        classes=(("EI",), ("IE",), ("N",)), two=(("N",), ("EI", "IE")),
        lists={
            f"pos_{side}{j}": ("A", "C", "G", "T")
            for side, places in (("m", range(30, 0, -1)), ("p", range(1, 31)))
            for j in places
        },
    ),
    "segment": Source(
        title="Image: built or grown", file="segment", target="class",
        classes=(("BRICKFACE",), ("CEMENT",), ("FOLIAGE",), ("GRASS",), ("PATH",), ("SKY",), ("WINDOW",)),
        two=(("BRICKFACE", "CEMENT", "PATH", "WINDOW"), ("FOLIAGE", "GRASS", "SKY")),
        numbers={
            "region_centroid_col": (0, 255), "region_centroid_row": (0, 255),
            "short_line_density_5": (0, 0.2), "short_line_density_2": (0, 0.2), "vedge_mean": (0, 5),
            "vedge_sd": (0, 5), "hedge_mean": (0, 5), "hedge_sd": (0, 5), "intensity_mean": (0, 128),
            "rawred_mean": (0, 128), "rawblue_mean": (0, 128), "rawgreen_mean": (0, 128),
            "exred_mean": (-40, 10), "exblue_mean": (-10, 60), "exgreen_mean": (-30, 20),
            "value_mean": (0, 128), "saturation_mean": (0, 1), "hue_mean": (-3.15, 3.15),
        },
    ),
    "pima": Source(
        title="Pima diabetes", file="pima_diabetes", target="class", classes=((0,), (1,)),
        numbers={
            "pregnancies": (0, 10), "plasma_glucose": (50, 200), "diastolic_bp": (40, 110),
            "triceps_skinfold": (0, 60), "serum_insulin": (0, 300), "bmi": (15, 50),
            "diabetes_pedigree": (0, 1.5), "age": (20, 60),
        },
    ),
    "german": Source(
        title="German credit", file="german_credit", target="class", classes=((1,), (2,)),
        numbers={
            "duration_months": (0, 48), "credit_amount": (0, 8000), "installment_rate_pct": (1, 4),
            "residence_since": (1, 4), "age": (20, 60), "existing_credits": (1, 4), "people_liable": (1, 2),
        },
        lists={
            "checking_status": ("A11", "A12", "A13", "A14"),
            "credit_history": ("A30", "A31", "A32", "A33", "A34"),
            "purpose": ("A40", "A41", "A42", "A43", "A44", "A45", "A46", "A48", "A49", "A410"),
            "savings_status": ("A61", "A62", "A63", "A64", "A65"),
            "employment_since": ("A71", "A72", "A73", "A74", "A75"),
            "personal_status_sex": ("A91", "A92", "A93", "A94"),
            "other_debtors": ("A101", "A102", "A103"), "property": ("A121", "A122", "A123", "A124"),
            "other_installment_plans": ("A141", "A142", "A143"), "housing": ("A151", "A152", "A153"),
            "job": ("A171", "A172", "A173", "A174"), "telephone": ("A192",), "foreign_worker": ("A201",),
        },
    ),
    "statlog": Source(
        title="Heart (Statlog)", file="heart_statlog", target="class", classes=((1,), (2,)),
        numbers=_HEART_NUMBERS, lists=_HEART_LISTS,
    ),
}  # fmt: skip
"""The nine tables that the paper's figure names, and three more to make its twelve."""
