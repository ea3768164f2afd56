"""Guesses from the name of a column, in English, German and some French: its role, and a well-known range.

A guess depends on a name and a type alone, never on a cell. What looks like an identifier of a person is not
published until somebody says otherwise; a range is a proposal that somebody has to confirm.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

_FOLDED = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"})
_WHO = (
    "person|patient|participant|respondent|subject|customer|client|user|member|employee|student|pupil|case|record|"
    "personen|patienten|teilnehmer|probanden|kunden|mitglieds?|mitarbeiter|personal|matrikel|fall|versicherten?"
)
_IDENTIFIERS = (
    rf"id|uid|uuid|guid|identifier|kennung|mrn|pseudonym|(?:{_WHO})_?(?:id|nr|no|num|number|nummer|code|key|kennung)|"
    rf"(?:n|no|nr|num|numero)_(?:d[eu]_)?(?:{_WHO}|adherent|assure|salarie|eleve|dossier)|matricule|identifiant|"
    r"participant|respondent|proband|matrikelnummer"
)
# Only as the whole name: cost_per_patient is a number.
_PEOPLE = r"patient(?:in)?|customer|client|kunde|kundin|teilnehmer(?:in)?"
_PERSONAL = {
    "a name of a person": (
        r"name|(?:first|last|sur|family|given|full|user|maiden|vor|nach|familien|geburts|benutzer)_?name|nom|prenom|"
        r"nombre|apellidos?"
    ),
    "an address for mail": r"e_?mail|e_?mail_?address?e?|mail|correo",
    "a number of a telephone": (
        r"phone|telephone|telefon|tel|mobile?|mobil(?:nummer|telefon)?|handy(?:nummer)?|fax|cell_?phone|telefono|"
        r"(?:phone|telephone|telefon|mobile|fax)_?(?:number|nummer|nr|no)"
    ),
    "an address": (
        r"address|adresse|anschrift|street|strasse|haus_?(?:nummer|nr)|house_?(?:number|no)|direccion|"
        r"(?:home|postal|street)_?address|wohnort"
    ),
    "a postcode": r"post_?code|postal_?code|zip|zip_?code|plz|post_?leitzahl|codigo_postal|code_postal",
    "an account": r"iban|bic|swift|account_?(?:number|no)|konto_?(?:nummer|nr)|credit_?card|kreditkarte\w*",
    "an official number": (
        r"ssn|nin|social_?security\w*|passport\w*|reisepass\w*|(?:personal)?ausweis\w*|tax_?(?:id|number|no)|"
        r"steuer_?(?:id|nummer|nr)|sv_?nr|(?:sozial|renten|kranken)?_?versicherungs?_?(?:nummer|nr)|"
        r"licen[cs]e_?plate|kennzeichen|driver_?licen[cs]e"
    ),
    "a device or a place": (
        r"ip|ip_?address?e?|mac_?address?e?|imei|device_?id|lat|latitude|lon|lng|longitude|gps|geo_?(?:location|hash)|"
        r"koordinaten?|breitengrad|laengengrad|url|password|passwort"
    ),
    "free text": (
        r"comments?|remarks?|notes?|free_?text|open_?(?:text|answer|ended)|verbatim|kommentare?|bemerkung(?:en)?|"
        r"notiz(?:en)?|anmerkung(?:en)?|frei_?text|text|beschreibung|description"
    ),
}


@dataclass(frozen=True)
class RoleGuess:
    """Role of a column that its name suggests, and why.

    Attributes
    ----------
    role : {"id", "drop"}
        Role that keeps the column from being published.
    reason : str
        What the column seems to hold, for the draft.
    """

    role: Literal["id", "drop"]
    reason: str


@dataclass(frozen=True)
class RangeGuess:
    """Well-known range of a column that its name suggests.

    Attributes
    ----------
    lower, upper : int
        Smallest and largest value that is proposed.
    measure : str or None
        Unit of measurement; None for none.
    """

    lower: int
    upper: int
    measure: str | None = None


_NUMBER, _WHOLE = ("number", "integer"), ("integer",)
_HOURS = r"(?:.*_)?(?:hours|std|stunden)_?(?:per|pro|a|je)?_?"
_PRESSURE = r"(?:_?(?:bp|rr|blood_pressure))?"
_SYSTOLIC, _DIASTOLIC = r"sys(?:tolic|tolisch)?", r"dia(?:stolic|stolisch)?"
_COUNTED = r"(?:number_of_|n_|num_|anzahl_)"
_RANGES: tuple[tuple[str, tuple[str, ...], RangeGuess], ...] = (
    (r"age|age_(?:in_)?years?|(?:lebens)?alter|alter_(?:in_)?jahren?", _NUMBER, RangeGuess(0, 120, "years")),
    (r"(?:.*_)?(?:percent|percentage|pct|perc)(?:_.*)?|.*prozent", _NUMBER, RangeGuess(0, 100, "percent")),
    (r"(?:.*_)?(?:proportion|probability|anteil|wahrscheinlichkeit)", ("number",), RangeGuess(0, 1)),
    (r"(?:q|item|question|likert|frage)_?\d+(?:_?[a-z]|_\d+)?", _WHOLE, RangeGuess(1, 5)),
    (r"nps|net_promoter_score|(?:pain|schmerz)_?(?:nrs|scale|skala)", _WHOLE, RangeGuess(0, 10)),
    (
        rf"{_HOURS}(?:week|wk|woche)|wochen_?(?:arbeits)?stunden",
        _NUMBER,
        RangeGuess(0, 168, "hours per week"),
    ),
    (
        r"weekly_hours|hours_worked|working_hours|arbeits_?stunden",
        _NUMBER,
        RangeGuess(0, 168, "hours per week"),
    ),
    (
        rf"{_HOURS}(?:day|tag)|(?:sleep|schlaf)_?(?:hours|stunden)",
        _NUMBER,
        RangeGuess(0, 24, "hours per day"),
    ),
    (r"bmi|body_mass_index", _NUMBER, RangeGuess(10, 80, "kg/m2")),
    (rf"sbp|{_SYSTOLIC}{_PRESSURE}|(?:bp|rr)_?{_SYSTOLIC}", _NUMBER, RangeGuess(50, 300, "mmHg")),
    (rf"dbp|{_DIASTOLIC}{_PRESSURE}|(?:bp|rr)_?{_DIASTOLIC}", _NUMBER, RangeGuess(20, 200, "mmHg")),
    (r"heart_?rate|hr|pulse?|pulse?_?rate|herz_?frequenz", _NUMBER, RangeGuess(20, 250, "per minute")),
    (r"(?:body_?)?height(?:_?cm)?|(?:koerper_?)?groesse(?:_?cm)?", _NUMBER, RangeGuess(40, 250, "cm")),
    (r"(?:body_?)?weight(?:_?kg)?|(?:koerper_?)?gewicht(?:_?kg)?", _NUMBER, RangeGuess(1, 400, "kg")),
    (r"body_?temp(?:erature)?|koerper_?temp(?:eratur)?", _NUMBER, RangeGuess(30, 45, "degrees Celsius")),
    (r"(?:birth_?|.*_)?year(?:_of_birth)?|(?:geburts_?|.*_)?jahr|yob", _WHOLE, RangeGuess(1900, 2100)),
    (r"(?:birth_?|.*_)?month|(?:geburts_?|.*_)?monat", _WHOLE, RangeGuess(1, 12)),
    (r"hour|stunde|hour_of_day", _WHOLE, RangeGuess(0, 23)),
    (rf"{_COUNTED}?(?:children|kids|kinder)", _WHOLE, RangeGuess(0, 20)),
    (rf"household_?size|haushalts_?groesse|{_COUNTED}(?:persons|people|personen)", _WHOLE, RangeGuess(1, 20)),
)


def guess_role(name: str, type_: str) -> RoleGuess | None:
    """Return the role that keeps an identifier or free text from being published; None for other names.

    Parameters
    ----------
    name : str
        Name of the column in the table.
    type_ : str
        Type of the column; booleans such as ``has_phone`` are no identifiers, nor are dates.
    """
    if type_ not in ("string", "integer", "number"):
        return None
    plain = simplify_name(name)
    if re.fullmatch(rf"(?:.*_)?(?:{_IDENTIFIERS})|{_PEOPLE}", plain):
        return RoleGuess("id", "an identifier")
    for reason, pattern in _PERSONAL.items():
        if re.fullmatch(rf"(?:.*_)?(?:{pattern})(?:_?\d+|_(?:private?|home|work|other|sonstiges?))?", plain):
            return RoleGuess("drop", reason)
    return None


def guess_range(name: str, type_: str) -> RangeGuess | None:
    """Return the well-known range of a column of that name; None where the name suggests none."""
    plain = simplify_name(name)
    for pattern, types, guess in _RANGES:
        if type_ in types and re.fullmatch(pattern, plain):
            return guess
    return None


def simplify_name(name: str) -> str:
    """Return a name in lower case without accents and with underscores between words, as patient_id."""
    folded = unicodedata.normalize("NFKD", name.translate(_FOLDED)).encode("ascii", "ignore").decode()
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", folded).lower()
    return re.sub(r"[^a-z0-9]+", "_", words).strip("_")
