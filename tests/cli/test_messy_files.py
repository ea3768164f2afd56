"""Files as people have them: from the file to a verified release with the documented commands alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from discreet.tables import open_table
from tests.cli.run import discreet
from tests.draws import Draws

if TYPE_CHECKING:
    from pathlib import Path

N = 400


def german_file() -> bytes:
    """Semicolons, decimal commas, units, a currency sign, days before months, Windows-1252."""
    draws = Draws("german")
    lines = ["Patient;Geschlecht;Größe;Gewicht;Aufnahme;Kosten;Raucher;Stadt"]
    for i in range(N):
        cells = (
            f"P{i:04d}",
            draws.choice("mw"),
            f"{draws.whole(150, 199)},{draws.whole(0, 9)}",
            f"{draws.whole(50, 120)},5 kg",
            f"{draws.whole(1, 28):02d}.{draws.whole(1, 12):02d}.{draws.whole(2010, 2023)}",
            f"€ {draws.whole(1, 15)}.{draws.whole(0, 999):03d},{draws.whole(0, 99):02d}",
            draws.choice(("ja", "nein")),
            draws.choice(("München", "Köln", "Düsseldorf")),
        )
        lines.append(";".join(cells))
    return ("\r\n".join(lines) + "\r\n").encode("cp1252")


def excel_file() -> bytes:
    """A mark of UTF-8, a title, thousand separators, values below detection, trailing blanks and rows."""
    draws = Draws("excel")
    lines = ["Exported by the laboratory,,,,,", ",,,,,", "ID,Income ,Lactate,Visits,Date,"]
    for i in range(N):
        lactate = "<0.5" if draws.random() < 0.1 else f"{draws.whole(5, 60) / 10}"
        income = f'"{draws.whole(1, 90)},{draws.whole(0, 999):03d}.50"'
        date = f"{draws.whole(1, 12)}/{draws.whole(1, 28)}/2023"
        lines.append(f"{i},{income},{lactate} ,{draws.whole(0, 9)},{date},")
    lines += [",,,,,"] * 5
    return b"\xef\xbb\xbf" + ("\r\n".join(lines) + "\r\n").encode()


GERMAN = {
    "dataset": ["klinik-2024"],
    "max_rows_per_unit": ["1"],
    "proposals": ["confirmed"],
    "bounds_source": ["Kodebuch 3.1"],
    "enum": ["[m, w]", "[München, Köln, Düsseldorf]"],
    "minimum": ["2010-01-01", "0"],
    "maximum": ["2023-12-31", "20000"],
}
EXCEL = {
    "dataset": ["laboratory-2023"],
    "max_rows_per_unit": ["1"],
    "bounds_source": ["handbook of the laboratory"],
    "censored": ["half"],
    "minimum": ["0", "0", "0", "2023-01-01"],
    "maximum": ["100000", "20", "20", "2023-12-31"],
}


def fill_in(draft: str, answers: dict[str, list[str]]) -> str:
    """The draft with a person's answers in place of its marks, in order."""
    left = {key: list(values) for key, values in answers.items()}
    lines = []
    for line in draft.splitlines():
        key = line.strip().partition(":")[0]
        lines.append(line.replace("???", left[key].pop(0), 1) if ": ???" in line else line)
    return "\n".join(lines) + "\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "answers", "name_in_file"),
    [(german_file(), GERMAN, "Größe"), (excel_file(), EXCEL, "Income")],
    ids=["german", "excel"],
)
def test_a_messy_file_is_released_after_one_refusal(
    tmp_path: Path,
    content: bytes,
    answers: dict[str, list[str]],
    name_in_file: str,
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    refusals = 0
    assert discreet("init", "t.csv", cwd=tmp_path).code == 0
    # The first refusal is the draft itself, which nobody has completed.
    refusals += discreet("release", "t.csv", "--epsilon", "1", "--out", "out", cwd=tmp_path).code == 2
    schema = tmp_path / "t.schema.yaml"
    schema.write_text(fill_in(schema.read_text(), answers))
    checked = discreet("check", "t.csv", cwd=tmp_path)
    assert checked.code == 0, checked.out + checked.err
    done = discreet("release", "t.csv", "--epsilon", "1", "--out", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    assert refusals == 1
    verified = discreet("verify", "out", cwd=tmp_path)
    assert verified.code == 0, verified.out
    with open_table(tmp_path / "out" / "public" / "data.parquet") as table:
        assert table.count() > 0
        assert name_in_file in table.names
