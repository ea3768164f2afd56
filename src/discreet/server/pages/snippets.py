"""Programs that ask a question again: a command line and Python."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_CLASSES = {"pure-dp": "PureDP", "approx-dp": "ApproxDP", "zcdp": "ZCDP", "gaussian-dp": "GaussianDP"}
_NUMBERS = ("epsilon", "delta", "rho", "mu")


def curl_command(request: Mapping[str, Any], address: str, dataset: str) -> str:
    """Return a command that sends a request to a service at an address, about a data set."""
    body = json.dumps(request, ensure_ascii=False)
    return (
        f"curl -sS {shlex.quote(f'{address}/v1/datasets/{dataset}/query')} \\\n"
        '  -H "Authorization: Bearer $DISCREET_TOKEN" \\\n'
        "  -H 'Content-Type: application/json' \\\n"
        f"  -d {shlex.quote(body)}"
    )


def notebook_cell(request: Mapping[str, Any], address: str, dataset: str) -> str:
    """Return Python code for a notebook, which asks with the client and shows the answer as a table."""
    privacy = request.get("privacy")
    if privacy is None:
        names, price = "connect", f"sd={request['sd']!r}"
    else:
        promise = _CLASSES[privacy["kind"]]
        numbers = ", ".join(f"{name}={value!r}" for name, value in privacy.items() if name in _NUMBERS)
        names, price = f"{promise}, connect", f"privacy={promise}({numbers})"
    if request.get("refines"):
        price += f", refines={list(request['refines'])!r}"
    return (
        f"from discreet import {names}\n\n"
        f"table = connect({address!r})[{dataset!r}]  # reads the token from DISCREET_TOKEN\n"
        f"answer = table.query({request['text']!r}, {price})\n"
        "answer  # answer.to_pandas() is a data frame, answer.plot() a chart"
    )
