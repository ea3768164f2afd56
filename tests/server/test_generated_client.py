"""A client generated from the OpenAPI document asks, pays once and reads errors."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.server.conftest import RunningService


@pytest.mark.slow
def test_a_client_generated_from_the_document_asks_and_reads(
    service: RunningService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec("openapi_python_client") is None:
        pytest.skip("openapi-python-client is not installed; `make test` installs it, the dev extra does not")
    (tmp_path / "openapi.json").write_text(httpx.get(f"{service.url}/openapi.json").text)
    done = subprocess.run(
        [sys.executable, "-m", "openapi_python_client", "generate", "--path", str(tmp_path / "openapi.json"),
         "--output-path", str(tmp_path / "generated_client"), "--meta", "none"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    # Nothing of the document was left out; only its formatter may be missing.
    assert "Unable to parse" not in done.stdout + done.stderr
    monkeypatch.syspath_prepend(str(tmp_path))

    def load(name: str) -> Any:
        return importlib.import_module(f"generated_client.{name}")

    analysts, models = "api.analysts", load("models")
    client = load("client").AuthenticatedClient(base_url=service.url, token=service.tokens["ana"])
    with client:
        (entry,) = load(f"{analysts}.get_v1_datasets").sync(client=client).datasets
        assert (entry.dataset, entry.role) == ("town", "analyst")
        ask = load(f"{analysts}.post_v1_datasets_query").sync
        privacy = models.ZCDPRequest.from_dict({"kind": "zcdp", "rho": 0.1})
        question = models.TextQueryRequest(kind="sentence", text="count by sex", privacy=privacy)
        answers = [ask("town", client=client, body=question, idempotency_key="k") for _ in "ab"]
        assert [len(answer.cells) for answer in answers] == [3, 3]
        assert answers[0].receipts == answers[1].receipts
        spent = load(f"{analysts}.get_v1_datasets_budget").sync("town", client=client).own.spent
        assert spent.additional_properties["rho"] == pytest.approx(0.1)
        (charge,) = load(f"{analysts}.get_v1_datasets_history").sync("town", client=client).entries
        assert [charge.receipt] == answers[0].receipts
        refused = ask(
            "town",
            client=client,
            body=models.TextQueryRequest(kind="sentence", text="count where x", privacy=privacy),
        )
        assert refused.error.code.value == "refused"
