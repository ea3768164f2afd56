"""Words of differential privacy and of attacks, each explained in one sentence."""

from __future__ import annotations

from markupsafe import Markup

WORDS = {
    "epsilon": (
        "Bounds how much the data of one person can change what is published: no result becomes more than "
        "exp(ε) times as probable. 0 would be no change at all; about 1 is strong, above 8 it says little."
    ),
    "delta": "Probability, chosen far below 1 / rows, with which the bound of ε may fail.",
    "floor": (
        "Least error of any guess of a cell by somebody who knows only the published file and the prior, on "
        "average over the prior."
    ),
    "prior": (
        "What an attacker is assumed to know before: here, that every value of the declared range or list is "
        "equally probable."
    ),
    "linkage": "Finding a person's row in the published file from values of that person.",
    "membership": "Telling whether a person is in the table at all.",
    "attribute inference": "Guessing a value of a person from the file and the person's other values.",
    "randomized response": "Each cell is kept with a known probability, or replaced by another listed value.",
    "mechanism": "The random noise that was added to the cells of a column.",
    "ledger": "The curator's record of every charge for this table; what it lists adds up.",
}
"""Explanation of each word, as pages show it in place and list it at their end."""
_SHOWN = {"epsilon": "ε (epsilon)", "delta": "δ (delta)", "floor": "error floor"}


def term(word: str, shown: str | None = None) -> Markup:
    """Return a word with its explanation, which a pointer shows and the end of the page lists."""
    return Markup('<abbr title="{}">{}</abbr>').format(WORDS[word], shown or word)


def glossary() -> list[tuple[str, str]]:
    """Return all words with their explanations."""
    return [(_SHOWN.get(word, word), text) for word, text in WORDS.items()]
