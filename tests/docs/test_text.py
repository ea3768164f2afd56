"""Spelling, links and paragraphs of every page for people."""

from __future__ import annotations

import re
import warnings
from functools import cache
from pathlib import Path

import pytest
from spylls.hunspell import Dictionary

ROOT = Path(__file__).parents[2]
WORDS = ROOT / "docs" / "words.txt"
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "figures/*.md", "examples/**/*.md", "src/**/*.md")
    for page in ROOT.glob(pattern)
    if not {"_build", "generated"} & set(page.relative_to(ROOT).parts)
)
BLOCK = re.compile(r"^( *)(```+|~~~+).*?^\1\2[ \t]*$", re.DOTALL | re.MULTILINE)
FORMULA = re.compile(r"\$\$.*?\$\$|\$[^$\n]+\$", re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def prose(text: str) -> str:
    """Return the text of a page without its programs, formulas, names and targets of links."""
    text = FORMULA.sub("", BLOCK.sub("", text))
    text = re.sub(r"`[^`]*`", "", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return re.sub(r"https?://\S+|<[^>]+>|\{[^}]*\}|^:::.*$", "", text, flags=re.MULTILINE)


def words(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w\\.-])[A-Za-z][A-Za-zé]*(?:'[a-z]+)?(?![\w-]*[_=(])", prose(text)))


@cache
def dictionary() -> Dictionary:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves its files to the collector
        return Dictionary.from_files("en_US")


def misspelled(text: str, known: set[str]) -> list[str]:
    return sorted(word for word in words(text) - known if not dictionary().lookup(word))


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub and MyST make them."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} (.+)$", BLOCK.sub("", text), re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)|[`*$]", "", heading).lower())
        found.add(plain.strip().replace(" ", "-"))
    return found


def broken_links(page: Path, text: str) -> list[str]:
    """Return the links of a page that lead nowhere; those to other sites are not followed."""
    broken = []
    for target in LINK.findall(re.sub(r"`[^`]*`", "", BLOCK.sub("", text))):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = (page.parent / path).resolve() if path else page
        if path.endswith("examples/index.rst"):  # made by the build
            continue
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file.read_text())):
            broken.append(target)
    return broken


def fragments(text: str) -> list[str]:
    """Return paragraphs that do not end like a sentence, and words that stand twice in a row."""
    text = re.sub(r"\A---\n.*?^---\n", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(
        r"^ *\$\$.*?\$\$", "\n\n%\n\n", BLOCK.sub("\n\n%\n\n", text), flags=re.DOTALL | re.MULTILINE
    )
    text = FORMULA.sub("(x)", text)
    found = re.findall(r"(?<![-'\w])(\w+) \1\b", re.sub(r"`[^`]*`|\|", ".", text))
    found = [word for word in found if word.isalpha() and word not in {"that", "had"}]
    paragraphs = re.split(r"\n\s*\n", text)
    for paragraph, following in zip(paragraphs, [*paragraphs[1:], ""], strict=True):
        if re.match(r"%|- |\d+\. ", following.strip()) or paragraph.startswith("    "):
            continue  # a formula, a program or a list goes on with the sentence
        lines = paragraph.strip().splitlines()
        if not lines or re.match(r"[#|>%:<!\[(]|\s*([-*]|\d+\.) |\*\*|\$", lines[0].strip()):
            continue
        if len(paragraph.split()) > 6 and not re.search(r"[.:!?;,)*`$|>]$", lines[-1].strip()):
            found.append(lines[-1])
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_is_spelled_linked_and_written_in_sentences(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    known = set(WORDS.read_text(encoding="utf-8").split())
    assert misspelled(text, known) == [], "mend the word, or add it to docs/words.txt"
    assert broken_links(page, text) == []
    assert fragments(text) == []


def test_the_checks_find_what_is_wrong() -> None:
    assert misspelled("A tabel of `tabel` and $tabel$.\n\n```\ntabel\n```\n", set()) == ["tabel"]
    page = ROOT / "README.md"
    assert broken_links(page, "[a](nowhere.md) [b](README.md#documentation) [c](README.md#nowhere)") == [
        "nowhere.md", "README.md#nowhere",
    ]  # fmt: skip
    assert fragments("A paragraph that ends as if somebody had been called away\n") != []
    assert fragments("It is is wrong.\n") == ["is"]


def test_the_word_list_is_sorted_and_used() -> None:
    listed = WORDS.read_text(encoding="utf-8").split()
    assert listed == sorted(set(listed), key=lambda word: (word.lower(), word))
    used = set().union(*(words(page.read_text(encoding="utf-8")) for page in PAGES))
    assert set(listed) - used == set()
    assert [word for word in listed if dictionary().lookup(word)] == []
