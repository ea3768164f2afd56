"""Models of the response bodies, which the OpenAPI document shows; ``bodies`` builds the bodies."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, Field

from discreet.server.errors import STATUS

Amounts: TypeAlias = dict[str, float]
"""Amounts of privacy by currency."""


class ResponseModel(BaseModel):
    """A response body. Objects are open: a later version may send more fields."""


class PromiseResponse(ResponseModel):
    """What is promised to every person in the table, and charged."""

    kind: str
    unit: str
    neighbors: str


class ErrorDetail(ResponseModel):
    """What is wrong, in the same form for every refusal and failure."""

    code: Annotated[str, Field(json_schema_extra={"enum": sorted(STATUS)})]
    message: str
    hint: str
    details: dict[str, Any]
    request_id: str


class ErrorResponse(ResponseModel):
    """The error that is returned instead of an answer."""

    error: ErrorDetail


class UseResponse(ResponseModel):
    """Part of a budget: its share, and its epsilon at a delta, with the limit of that epsilon."""

    share: float
    epsilon: float | None
    limit: float | None
    delta: float | None


class RemainingResponse(ResponseModel):
    """What is left, by currency, and how many more questions like this one it pays for."""

    own: Amounts | None
    total: Amounts | None
    more: int | None
    nearer: Annotated[str | None, Field(json_schema_extra={"enum": ["own", "total", None]})]
    used: UseResponse | None
    takes: UseResponse | None


class CellResponse(ResponseModel):
    """One number, with the interval that holds the exact one 95 times in 100. The value is null over exactly
    no rows, the sd for a quotient of noisy sums, an end of the interval where it is infinite.
    """  # noqa: D205 - published as the description of the schema

    key: list[str]
    column: int
    value: float | None
    sd: float | None
    lower: float | None
    upper: float | None


class BoundsResponse(ResponseModel):
    """Least and largest number that the declared ranges allow; null where they allow any."""

    lower: float | None
    upper: float | None


class ColumnResponse(ResponseModel):
    """A statistic: the unit of its numbers and what they can be. In a price, their sd and half the width of
    their interval, null where they are not known in advance.
    """  # noqa: D205 - published as the description of the schema

    name: str
    measure: str | None
    bounds: BoundsResponse
    first_day: str | None
    sd: float | None
    margin: float | None
    rank_margin: float | None


class ExpectedMarginResponse(ResponseModel):
    """Half the width of the interval that the mean of a group would have, by an earlier count of its rows."""

    key: list[str]
    n_rows: float
    margin: float


class IntervalResponse(ResponseModel):
    """Confidence interval at level 0.95."""

    level: float
    lower: float | None
    upper: float | None


class _CostFields(ResponseModel):
    cost: list[PromiseResponse]
    cost_words: str
    remaining: RemainingResponse


class _PaidFields(_CostFields):
    cached: bool
    receipts: list[str]


class _NoisyFields(_PaidFields):
    law: Annotated[str | None, Field(json_schema_extra={"enum": ["gaussian", "laplace", None]})]
    parts: list[list[str]]


class QueryResponse(_NoisyFields):
    """The answer to a count, sum, mean, histogram or sentence."""

    kind: Literal["answer"]
    question: str
    columns: list[ColumnResponse]
    by: list[str]
    cells: list[CellResponse]
    value: float | None
    sd: float | None
    interval: IntervalResponse
    sums: int
    simultaneous: int
    unreadable_below: int | None


class AggregateResponse(_NoisyFields):
    """The answer to a statistical question, as Answer.to_dict() of the library writes it."""

    kind: Literal["answer"]
    question: dict[str, Any]
    answer: dict[str, Any]


class ModelResponse(_PaidFields):
    """A model that was trained on paid answers."""

    kind: Literal["model"]
    question: str
    learner: str
    parameters: dict[str, Any]
    fitted: dict[str, Any]


class LawResponse(ResponseModel):
    """What a query would cost by one law of noise, and the part of the whole budget that it takes."""

    law: Literal["gaussian", "laplace"]
    sd: float | None
    cost: list[PromiseResponse]
    share: float | None


class PreviewResponse(_CostFields):
    """Cost and noise of an answer. It is free if you have already paid for the same answer (not reported for
    models), or if it follows from public facts.
    """  # noqa: D205 - published as the description of the schema

    kind: Literal["price"]
    question: Any
    sql: str | None
    learner: str | None
    columns: list[ColumnResponse]
    by: list[str]
    sums: int
    simultaneous: int
    sd: Any
    margin: float | None
    n_rows: float | None
    expected: list[ExpectedMarginResponse]
    unreadable_below: int | None
    more: int | None
    free: bool
    laws: list[LawResponse]


class LimitsResponse(ResponseModel):
    """How large a request and an answer may be."""

    body_bytes: int
    cells: int


class SchemaResponse(ResponseModel):
    """What is public about the table."""

    dataset: str
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    n_rows: int | None
    neighbors: str
    unit: str
    digest: str
    collusion: str
    composition: str
    seeded: bool
    limits: LimitsResponse


class AccountResponse(ResponseModel):
    """One budget."""

    limit: PromiseResponse | None
    spent: Amounts | None
    left: Amounts | None
    used: UseResponse | None


class PeopleAccountResponse(AccountResponse):
    """The budget that all data sets about the same people share."""

    name: str


class GroupAccountResponse(AccountResponse):
    """The budget that the members of a group share."""

    name: str


class AvailableResponse(AccountResponse):
    """The budget of which the caller can still spend the least: own, of the group, or the total."""

    whose: Literal["own", "group", "total"]


class BudgetResponse(ResponseModel):
    """Budgets. The total is that of the data set, or of all about the same people if that is nearer to its
    limit; people is null for a data set that shares its limit with no other.
    """  # noqa: D205 - published as the description of the schema

    own: AccountResponse
    group: GroupAccountResponse | None
    total: AccountResponse
    people: PeopleAccountResponse | None
    available: AvailableResponse
    collusion: str
    composition: str


class CatalogueEntry(BudgetResponse):
    """A data set that is granted to the caller: what is public about it, the caller's role, and budgets.

    While ready is false, its ledger or its table does not answer; if it is the ledger, no amount is known.
    """

    dataset: str
    title: str | None
    description: str | None
    n_rows: int | None
    columns: int
    unit: str
    role: str
    ready: bool


class CatalogueResponse(ResponseModel):
    """All data sets that are granted to the caller."""

    datasets: list[CatalogueEntry]


class HistoryEntry(ResponseModel):
    """One charge, with what was asked and answered; value and sd are null for very large answers.

    The numbers of a text query are listed with group, interval and statistic, at the last of its charges;
    they are null for other charges.
    """

    receipt: str
    row: int
    when: str
    who: str | None
    what: str
    asked: dict[str, Any]
    cost: list[PromiseResponse]
    value: Any
    sd: Any
    law: str | None
    numbers: list[dict[str, Any]] | None


class HistoryResponse(ResponseModel):
    """What was paid for, oldest first. If more is true, ask again with after set to the last row."""

    kind: Literal["history"]
    entries: list[HistoryEntry]
    more: bool


class DummyResponse(ResponseModel):
    """Dummy rows by column; the column _dummy marks them."""

    kind: Literal["dummy"]
    n: int
    seed: int
    rows: dict[str, Any]


class StatusResponse(ResponseModel):
    """Whether the process lives, or is ready."""

    status: str


class StopState(ResponseModel):
    """Who stopped the data set, and when, in seconds since 1970."""

    who: str
    since: float


class StopResponse(ResponseModel):
    """Who stopped the data set; null while its questions are answered."""

    stopped: StopState | None


class TokenEntry(ResponseModel):
    """What is stored of one token, with the data set at which it is valid, or * for all that is granted to
    its bearer, and the bearer's role; times are seconds since 1970.
    """  # noqa: D205 - published as the description of the schema

    id: int
    name: str
    at: str
    role: str | None
    created: float
    expires: float
    state: str


class TokensResponse(ResponseModel):
    """All tokens of a data set; the secrets themselves are not stored."""

    tokens: list[TokenEntry]


class TokenResponse(ResponseModel):
    """Result of a change: a new token, which is shown once, or how many tokens were revoked."""

    name: str
    token: str | None = None
    revoked: int | None = None


class ReloadResponse(ResponseModel):
    """Names of the data sets that are added and retired.

    With several processes, done is false: each process is then replaced in turn, and the log of the service
    says if one could not be.
    """

    added: list[str]
    retired: list[str]
    done: bool


class TokenListResponse(ResponseModel):
    """New tokens by name; they are shown once."""

    tokens: dict[str, str]


class AnalystAllocation(AccountResponse):
    """Limit and spending of an analyst, and the group that the analyst is in."""

    name: str
    group: str | None


class GroupAllocation(AccountResponse):
    """Limit and spending of a group, and its members."""

    name: str
    members: list[str]


class AllocationsResponse(ResponseModel):
    """Limits inside that of the data set."""

    analysts: list[AnalystAllocation]
    groups: list[GroupAllocation]


class LedgerState(ResponseModel):
    """Identity of the ledger, its number of rows and the hash of the last one."""

    identity: str
    rows: int
    head: str


class OverviewResponse(SchemaResponse):
    """The data set, as a curator sees it."""

    stopped: StopState | None
    slots: Any
    workers: int
    ledger: LedgerState
    total: AccountResponse
    analysts: dict[str, AccountResponse]
    tokens: list[TokenEntry]


class SpendingStep(ResponseModel):
    """What had been spent in all after one charge."""

    row: int
    when: str
    who: str | None
    spent: Amounts


class SpendingResponse(ResponseModel):
    """Spending over time."""

    steps: list[SpendingStep]
    total: AccountResponse


class RefusalEntry(ResponseModel):
    """One refused request."""

    when: str
    who: str | None
    code: str
    asked: str


class RefusalsResponse(ResponseModel):
    """The latest refused requests, newest first."""

    refusals: list[RefusalEntry]


class CheckResponse(ResponseModel):
    """Result of checking every row of the ledger and every line of the audit log."""

    intact: bool
    rows: int
    head: str
    trail_lines: int


class AttackResponse(ResponseModel):
    """Result of the reconstruction attack on all answers so far."""
