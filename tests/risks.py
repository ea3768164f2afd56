"""Measured risks, remembered: a job and the check of its folder measure the same one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from discreet.audit import measure_risk, risk

if TYPE_CHECKING:
    from discreet.audit import Risk
    from discreet.release import ReleaseMethod, ReleasePlan

_PEOPLE = 50


class _Risks:
    """Stands in for `measure_risk` in tests of other things, with few people."""

    def __init__(self) -> None:
        self._known: dict[str, Risk] = {}

    def __call__(
        self, method: ReleaseMethod, plan: ReleasePlan, n_rows: int | None, *, people: int = _PEOPLE,
        prior: Any = None, progress: Any = None,
    ) -> Risk:  # fmt: skip
        assert method.schema is not None
        key = repr((
            method.schema.digest, type(method), json.dumps(method.parameters(), sort_keys=True), plan.columns,
            plan.promises, n_rows, people, None if prior is None else prior.to_dict(), risk.LIMITS,
        ))  # fmt: skip
        if key not in self._known:
            self._known[key] = measure_risk(method, plan, n_rows, people=people, prior=prior)
        return self._known[key]

    def forget(self) -> None:
        """Measure each risk anew when it is asked for again."""
        self._known.clear()


RISKS = _Risks()
