"""What questions cost, and how noisy their answers are, from the schema alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.query.curation import Curation
from discreet.query.noising import Noise
from discreet.query.sums import shaped

if TYPE_CHECKING:
    from discreet._typing import Floats
    from discreet.privacy import Promise
    from discreet.query.noising import Asked
    from discreet.query.questions import Bound, Question
    from discreet.schema import Schema
    from discreet.schema.table import Neighbors


class Pricing:
    """Says what questions would cost; whoever answers them says the same.

    Parameters
    ----------
    schema : Schema
        What is public about a table.
    n_rows : int, optional
        The number of rows where it is public.
    curation : Curation, optional
        The layout, where a table has one already.

    Privacy
    -------
    No row is read: everything follows from the question and the schema.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet import Column, GaussianDP, Schema
    >>> from discreet.query import Sums
    >>> pricing = Pricing(Schema(columns=[Column("age", type="integer", lower=0, upper=120)]))
    >>> pricing.expected_sd(Sums("age > 65"), privacy=GaussianDP(mu=0.5))
    array([2.])
    """

    def __init__(
        self, schema: Schema, n_rows: int | None = None, *, curation: Curation | None = None
    ) -> None:
        self._curation = Curation.of(schema) if curation is None else curation
        self._n_rows = n_rows

    @property
    def schema(self) -> Schema:
        """What is public about the table."""
        return self._curation.schema

    @property
    def curation(self) -> Curation:
        """How its columns are laid out. Public."""
        return self._curation

    @property
    def neighbors(self) -> Neighbors:
        """Which tables are hard to tell apart."""
        return self.schema.neighbors

    @property
    def n_rows(self) -> int | None:
        """The number of rows where it is public, else None."""
        return self._n_rows

    def fit(
        self, question: Question, *, privacy: Asked | None = None, variance: float | None = None
    ) -> tuple[Bound, Noise]:
        """Lay a question out, and find its noise.

        Parameters
        ----------
        question : Question
            What to sum.
        privacy : PureDP, ApproxDP, ZCDP, GaussianDP or PosteriorOdds
            What the answer shall promise.
        variance : float
            Instead of a promise: of the noise, in the answer's unit squared.
        """
        bound = question.bind(self._curation, self.neighbors)
        return bound, Noise.fit(bound, self.schema, privacy=privacy, variance=variance)

    def cost(
        self, question: Question, *, privacy: Asked | None = None, variance: float | None = None
    ) -> tuple[Promise, ...]:
        """Say what a question would be charged. Free, and the same for every table."""
        _, noise = self.fit(question, privacy=privacy, variance=variance)
        return () if noise.promise is None else (noise.promise,)

    def expected_sd(
        self, question: Question, *, privacy: Asked | None = None, variance: float | None = None
    ) -> float | Floats:
        """Say how noisy the answer would be, in its own unit. Free, and the same for every table."""
        bound, noise = self.fit(question, privacy=privacy, variance=variance)
        return shaped(bound.arrange(noise.sd(bound), 0.0))
