"""Models of requests, and their parsing.

Unknown fields are refused by name, numbers must be finite, lists and texts have a maximum size. The meaning
of a request is decided by :class:`~discreet.server.dataset_service.DatasetService`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from discreet.privacy import ZCDP, ApproxDP, GaussianDP, PosteriorOdds, Promise, PureDP
from discreet.server.errors import InvalidRequest, UnreadableRequest

MOST_TEXT, MOST_LISTED, MOST_PLANNED = 8192, 1024, 256
_MOST_DEPTH = 16  # nesting of the values in an aggregate
_LARGEST = 2**63  # bound on whole numbers in an aggregate

Text = Annotated[str, StringConstraints(min_length=1, max_length=MOST_TEXT)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=256)]
ReceiptId = Annotated[str, StringConstraints(pattern=r"^[0-9a-z]{1,64}-[0-9a-f]{1,64}$")]
Positive = Annotated[float, Field(gt=0, le=1e300, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=1e-12, le=1e6, allow_inf_nan=False)]
"""Amount of privacy; beyond these bounds there is nothing but noise, or none."""
Finite = Annotated[float, Field(allow_inf_nan=False)]
IdempotencyKey = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,128}$")]


class StrictModel(BaseModel):
    """A value that says no to what it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class PureDPRequest(StrictModel):
    """Pure differential privacy: Laplace noise."""

    kind: Literal["pure-dp"]
    epsilon: Amount


class ApproxDPRequest(StrictModel):
    """Approximate differential privacy: Gaussian noise."""

    kind: Literal["approx-dp"]
    epsilon: Amount
    delta: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]


class ZCDPRequest(StrictModel):
    """Zero-concentrated differential privacy: Gaussian noise."""

    kind: Literal["zcdp"]
    rho: Amount


class GaussianDPRequest(StrictModel):
    """Gaussian differential privacy: Gaussian noise."""

    kind: Literal["gaussian-dp"]
    mu: Amount


class PosteriorOddsRequest(StrictModel):
    """A limit in posterior odds: queries raise log-odds by at most epsilon, but for a probability delta."""

    kind: Literal["posterior-odds"]
    epsilon: Amount
    delta: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
    queries: Annotated[int, Field(ge=1, le=10**9)]


PrivacyRequest: TypeAlias = Annotated[
    PureDPRequest | ApproxDPRequest | ZCDPRequest | GaussianDPRequest, Field(discriminator="kind")
]
LimitRequest: TypeAlias = Annotated[
    PureDPRequest | ApproxDPRequest | ZCDPRequest | GaussianDPRequest | PosteriorOddsRequest,
    Field(discriminator="kind"),
]
_PROMISES: dict[str, type[Promise]] = {
    "pure-dp": PureDP,
    "approx-dp": ApproxDP,
    "zcdp": ZCDP,
    "gaussian-dp": GaussianDP,
    "posterior-odds": PosteriorOdds,
}


def promise_from_request(body: LimitRequest | None, **context: Any) -> Promise | None:
    """Return the promise in a request's body, with unit and neighbors of the schema; None for None."""
    return None if body is None else _make_promise(body, **context)


@lru_cache(maxsize=512)
def _make_promise(body: LimitRequest, **context: Any) -> Promise:
    # Cached, because most questions to a service are asked under the same few promises.
    numbers = body.model_dump(exclude={"kind"})
    return _PROMISES[body.kind](**numbers, **context)


class NumericGroup(StrictModel):
    """A numeric column to group by, with the numbers at which its intervals begin."""

    column: Name
    edges: Annotated[list[Finite], Field(min_length=1, max_length=MOST_LISTED)]


GroupBy: TypeAlias = Annotated[list[Name | NumericGroup], Field(max_length=16)]


class _PricedRequest(StrictModel):
    """The fields about cost that all requests for an answer have."""

    privacy: PrivacyRequest | None = None
    refines: Annotated[list[ReceiptId], Field(max_length=8)] = []

    def requested_sd(self) -> float | None:
        """Return the standard deviation that was requested instead of a promise; None otherwise."""
        return None


class _NoisyRequest(_PricedRequest):
    """A request that may name its noise instead of a promise."""

    sd: Positive | None = None

    def requested_sd(self) -> float | None:
        """Return the standard deviation that was requested instead of a promise; None otherwise."""
        return self.sd

    @model_validator(mode="after")
    def _one(self) -> _NoisyRequest:
        _check_exactly_one("privacy", self.privacy, "sd", self.sd)
        return self


class CountRequest(_NoisyRequest):
    """The number of rows."""

    kind: Literal["count"]
    where: Text | None = None
    by: GroupBy = []


class SumRequest(_NoisyRequest):
    """The sum of an expression."""

    kind: Literal["sum"]
    expression: Text
    where: Text | None = None
    by: GroupBy = []


class MeanRequest(_PricedRequest):
    """The average of an expression."""

    kind: Literal["mean"]
    privacy: PrivacyRequest
    expression: Text
    where: Text | None = None
    by: GroupBy = []


class HistogramRequest(_NoisyRequest):
    """Counts, or sums of an expression, in every cell of some columns."""

    kind: Literal["histogram"]
    columns: Annotated[list[Name], Field(min_length=1, max_length=16)]
    edges: dict[Name, Annotated[list[Finite], Field(min_length=1, max_length=MOST_LISTED)]] = {}
    expression: Text | None = None
    where: Text | None = None


class TextQueryRequest(_NoisyRequest):
    """A question as a sentence or as a SELECT."""

    kind: Literal["sentence"]
    text: Text


class AggregateRequest(_PricedRequest):
    """Any aggregate of the library, as its to_dict() writes it."""

    kind: Literal["statistical"]
    question: dict[str, Any]
    variance: Positive | None = None
    plan: Annotated[list[PrivacyRequest], Field(max_length=MOST_PLANNED)] = []

    @model_validator(mode="after")
    def _plain(self) -> AggregateRequest:
        _check_exactly_one("privacy", self.privacy, "variance", self.variance)
        check_json_value(self.question)
        return self


_ParameterList: TypeAlias = Annotated[list[int | Finite | Name], Field(max_length=MOST_LISTED)]
Parameter: TypeAlias = (
    bool
    | int
    | Finite
    | Name
    | _ParameterList
    | Annotated[dict[Name, _ParameterList], Field(max_length=MOST_LISTED)]
    | None
)


class TrainRequest(StrictModel):
    """A model that the service trains on its table."""

    kind: Literal["classifier", "pca", "kmeans", "perceptron", "id3"]
    privacy: PrivacyRequest
    parameters: Annotated[dict[Name, Parameter], Field(max_length=32)] = {}
    target: Name | None = None


QueryRequest: TypeAlias = Annotated[
    CountRequest
    | SumRequest
    | MeanRequest
    | HistogramRequest
    | TextQueryRequest
    | AggregateRequest
    | TrainRequest,
    Field(discriminator="kind"),
]
"""What ``query`` and ``preview`` of a data set take."""

QUERY_REQUEST: TypeAdapter[Any] = TypeAdapter(QueryRequest)


class SaveRequest(StrictModel):
    """A question to save: its name, its text, and how exact its answer is."""

    title: Annotated[str, StringConstraints(min_length=1, max_length=80)]
    text: Text
    privacy: (
        Annotated[PureDPRequest | ZCDPRequest | GaussianDPRequest, Field(discriminator="kind")] | None
    ) = None
    sd: Positive | None = None

    @model_validator(mode="after")
    def _one(self) -> SaveRequest:
        _check_exactly_one("privacy", self.privacy, "sd", self.sd)
        return self


class TokenRequest(StrictModel):
    """A change of a token, or of the role that is granted to a name."""

    action: Literal["create", "rotate", "revoke", "grant", "withdraw"]
    name: Name
    role: Literal["analyst", "curator"] = "analyst"
    days: Annotated[int, Field(ge=1, le=3660)] = 90
    limit: LimitRequest | None = None


class TokensRequest(StrictModel):
    """Tokens for several names, with one role and one limit for each."""

    names: Annotated[list[Name], Field(min_length=1, max_length=1000)]
    role: Literal["analyst", "curator"] = "analyst"
    days: Annotated[int, Field(ge=1, le=3660)] = 90
    limit: LimitRequest | None = None


class LimitAllocationRequest(StrictModel):
    """A new limit of an analyst or a group; null if only that of the data set is to count."""

    action: Literal["limit"]
    kind: Literal["analyst", "group"]
    name: Name
    limit: LimitRequest | None


class GroupAllocationRequest(StrictModel):
    """The group that an analyst is put into; null takes the analyst out."""

    action: Literal["group"]
    name: Name
    group: Name | None


AllocationRequest = Annotated[LimitAllocationRequest | GroupAllocationRequest, Field(discriminator="action")]
"""What a curator does to allocations."""


class StopRequest(StrictModel):
    """Whether the data set is to be stopped."""

    stopped: bool


def parse_request(adapter: TypeAdapter[Any], body: bytes) -> Any:
    """Return the request in a body.

    Raises
    ------
    UnreadableRequest
        The body is not JSON.
    InvalidRequest
        The body is JSON with wrong fields; up to 32 of them are named.
    """
    try:
        return adapter.validate_json(body)
    except ValidationError as problem:
        errors = problem.errors(include_url=False, include_input=False)
        if any(error["type"] in ("json_invalid", "recursion_loop") for error in errors):
            raise UnreadableRequest("The body of the request is not valid JSON.") from None
        problems = tuple((_field_path(error), _error_text(error)) for error in errors[:32])
        raise InvalidRequest(problems) from None


def check_json_value(value: Any) -> None:
    """Refuse numbers that are not finite, whole ones beyond 64 bits, long texts and deep nesting."""
    level = [value]
    for _ in range(_MOST_DEPTH):
        deeper: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                deeper.extend(item.values())
            elif isinstance(item, list):
                deeper.extend(item)
            elif isinstance(item, float):
                if item - item != 0:
                    raise ValueError("numbers must be finite")
            elif isinstance(item, int):
                if not -_LARGEST <= item < _LARGEST:
                    raise ValueError("whole numbers must fit 64 bits")
            elif isinstance(item, str) and len(item) > MOST_TEXT:
                raise ValueError(f"texts must have at most {MOST_TEXT} characters")
        if not deeper:
            return
        level = deeper
    raise ValueError(f"values must be nested at most {_MOST_DEPTH} deep")


def _check_exactly_one(one: str, value: Any, other: str, instead: Any) -> None:
    if (value is None) == (instead is None):
        state = "neither was" if value is None else "both were"
        raise ValueError(f"exactly one of {one} and {other} must be given, and {state}")


def _field_path(error: Any) -> str:
    """Return the path of a wrong field, without the tags of unions, which are no fields of the request."""
    parts = [str(part) for part in error["loc"]]
    names = [
        part
        for before, part in zip(["", *parts], parts, strict=False)
        if not (part in _KINDS and not before) and not (part in _PROMISES and before in _UNIONS)
    ]
    return ".".join(names) or {"value_error": "privacy", "dict_type": "body"}.get(error["type"], "kind")


_KINDS = (
    "count",
    "sum",
    "mean",
    "histogram",
    "sentence",
    "statistical",
    "classifier",
    "pca",
    "kmeans",
    "perceptron",
    "id3",
)
_UNIONS = ("privacy", "limit", "plan")
_WORDS = {
    "extra_forbidden": "there is no such field",
    "missing": "it is required",
}


def _error_text(error: Any) -> str:
    """Return what is wrong with a field, from an error of pydantic."""
    kind = "its kind" if error["loc"] else "it"
    if error["type"] == "union_tag_not_found":
        return f"{kind} is required"
    if error["type"] == "union_tag_invalid":
        kinds = error["ctx"]["expected_tags"].replace("'", "")
        return f"{kind} must be one of {kinds}, was {str(error['ctx']['tag'])[:40]!r}"
    if error["type"] == "string_pattern_mismatch":  # receipts are all that has a pattern
        return "it must be the id of a receipt, such as 0a1b2c3d4e5f-7"
    if error["type"] == "string_too_long":
        return f"it must have at most {error['ctx']['max_length']:,} characters"
    text = _WORDS.get(error["type"]) or str(error["msg"]).removeprefix("Value error, ")
    text = text.replace(" after validation", "").replace("Input should", "it must")
    text = text.replace("greater than or equal to", "at least").replace("less than or equal to", "at most")
    return text[:1].lower() + text[1:]
