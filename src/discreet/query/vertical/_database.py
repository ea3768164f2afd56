"""Columns of the same people in several databases, each with its own curator, ledger and noise.

No row leaves a database, and no database sees another. Sums over columns of one database are asked there;
products of columns of two are estimated from sign sketches, in which a person has the same public sign in
every database.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import ParameterError, PromiseError
from discreet.noise import samplers
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, Promise, Receipt
from discreet.privacy.rounding import check_neighbors, exact, float_up, root_down, sqrt_up
from discreet.query.aggregates._moments import Moments
from discreet.query.aggregates._sketches import check_key, check_sketches
from discreet.query.aggregates._vectors import Gram
from discreet.query.aggregates.base import MOST_CELLS
from discreet.query.answers import Answer
from discreet.query.calibration import mu_of
from discreet.query.curation import Curation
from discreet.query.vertical._columns import Owners, join_schemas
from discreet.query.vertical._gram import ACROSS, OWN, GramAcross, Part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import Floats
    from discreet.query.aggregates.base import Aggregate
    from discreet.query.answers import NoisySums
    from discreet.query.vertical._gram import Asker
    from discreet.schema import Schema
    from discreet.schema.schema import Neighbors


_LEAST = 3.0  # standard deviations above 0 that a variance must have for a correlation


@dataclass(frozen=True, kw_only=True, eq=False)
class VerticalAnswer(Answer):
    """Answer of several databases together.

    Attributes
    ----------
    answers : tuple of Answer
        Answers of the databases, with the receipts of their ledgers. The receipt of the whole is in no
        ledger.
    sketches : int or None
        Number of sign sketches of each database; None where none were needed.
    statement : str
        What was shared, whom the promise trusts with what, and what it is about.

    Privacy
    -------
    ``cost`` is for a person who is in all databases: charges of different ledgers add up.

    Reference
    ---------
    docs/explanation/theorems/sulq-vertical.md, composition.md.
    """

    answers: tuple[Answer, ...]
    sketches: int | None = None
    statement: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            **super().to_dict(),
            "answers": [answer.to_dict() for answer in self.answers],
            "sketches": self.sketches,
            "statement": self.statement,
        }


class VerticalDatabases:
    """Databases that hold different columns of the same people, queried as if they were one.

    It answers :class:`~discreet.query.aggregates.Gram` aggregates over any columns, sums of expressions that
    stay inside one database, and moments: what :class:`~discreet.learn.PrivatePCA` and
    :class:`~discreet.learn.PrivateRidge` need for ``fit_database``.

    Parameters
    ----------
    databases : sequence of Database or other NoisySums
        At least two databases without a column name in common, each registered with ``keep_ids=True``.
    key : str
        Public text that fixes the signs of all people, the same in every database. Choose it without looking
        at ids.
    sketches : int, optional
        Number of sign sketches of each database; if left out, chosen from public values: the promise, the
        number of rows, the declared ranges, and the noisy squares of columns that were asked for before.
    shares : sequence of float, optional
        Weight of each database in a promise; by default the number of its coordinates in the aggregate.

    Attributes
    ----------
    schema : Schema
        Schema of the columns of all databases, one after the other.
    n_rows, neighbors
        Public facts that all databases have in common.
    promises : tuple of Promise
        Promise to a person who is in all databases, for all that was asked through this object.

    Notes
    -----
    *What must be shared*: the ids of people, spelled alike in every database (or the same keyed hash of
    them instead), the key and the number of sketches. Databases send nothing to each other, and nothing but
    noisy sums to the caller.

    *Who trusts whom*: each curator holds her own columns in the clear and is trusted with them and with their
    noise. No curator has to trust another, and none learns more than what is published.

    *What cannot be seen*: whether the ids are those of the same people. A person whom a database does not
    have counts as 0 in products with its columns. With ids that do not match at all, products across
    databases are 0 within their standard deviation, and nothing shows why.

    If a database refuses, what others have answered is paid for; asking the same again is free there.

    Privacy
    -------
    ``privacy`` of an aggregate is the total, for a person who is in all databases: their charges add up,
    ``mu**2 = mu_1**2 + mu_2**2 + ...``. A neighbor has one person replaced in every database at once, id and
    all, or one person added or removed everywhere. Under replace-one the number of rows is public.

    Reference
    ---------
    Blum, Dwork, McSherry and Nissim (2005), section 4: docs/explanation/theorems/sulq-vertical.md.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> def registered(name, cells, seed):
    ...     columns = [Column("id", role="id"), Column(name, lower=0, upper=1)]
    ...     schema = Schema(columns=columns, id_column="id", max_rows_per_unit=1)
    ...     rows = {"id": np.arange(20000), name: cells}
    ...     return Database(rows, schema=schema, keep_ids=True, random_state=seed)
    >>> dose = np.linspace(0, 1, 20000)
    >>> clinic, insurer = registered("dose", dose, 1), registered("cost", dose**2, 2)
    >>> both = VerticalDatabases([clinic, insurer], key="study 7")
    >>> answer = both.correlation(privacy=GaussianDP(mu=1))
    >>> bool(abs(answer.value[0, 1] - 0.968) < 4 * answer.sd[0, 1]), bool(answer.sd[0, 1] < 0.1)
    (True, True)
    >>> bool(both.promises[0].mu <= 1)
    True
    """

    def __init__(
        self,
        databases: Sequence[NoisySums],
        *,
        key: str,
        sketches: int | None = None,
        shares: Sequence[float] | None = None,
    ) -> None:
        """Check key, sketches and shares, and join the schemas."""
        self.databases = tuple(databases)
        check_key(key, "VerticalDatabases")
        if sketches is not None:
            check_sketches(sketches, "VerticalDatabases")
        self.key = key
        self.sketches = sketches
        self.schema: Schema = join_schemas(self.databases)
        schemas = [database.schema for database in self.databases]
        self._owners = Owners(Curation.from_schema(self.schema), schemas, shares)
        self._paid: dict[tuple[int, str], tuple[Promise, ...]] = {}
        self._count: float | None = self.n_rows  # or, once it was asked for, a noisy one

    @property
    def neighbors(self) -> Neighbors:
        """Which pairs of tables the promises make hard to tell apart."""
        return self.schema.neighbors

    @property
    def n_rows(self) -> int | None:
        """Number of rows where it is public; None where it is not."""
        return self.databases[0].n_rows

    @property
    def promises(self) -> tuple[Promise, ...]:
        """Promise to a person who is in all databases, for all that was asked so far."""
        return self._total([promise for cost in self._paid.values() for promise in cost])

    def cost(
        self, question: Aggregate, *, privacy: Promise | None = None, variance: float | None = None
    ) -> tuple[Promise, ...]:
        """Return what an aggregate is charged at most, in all databases together. Free."""
        return self._total([self._promise(self._budget(privacy, variance))])

    def expected_sd(
        self, question: Aggregate, *, privacy: Promise | None = None, variance: float | None = None
    ) -> float | Floats:
        """Return the standard deviations that the answer may have. Free.

        For products across databases they depend on the columns, which are taken to be spread evenly over
        their ranges and uncorrelated.
        """
        budget = self._budget(privacy, variance)
        parts = self._owners.parts(question) if isinstance(question, Gram) else []
        if len(parts) < 2:
            return self._owners.inside(question, self._preview_asker(budget))[1]
        assert isinstance(question, Gram)
        if self._count is None:
            raise ParameterError(
                "question of VerticalDatabases.expected_sd must not be a Gram while the number of rows is "
                "unknown, and is: how noisy its answer is depends on that number. Ask for Moments first."
            )
        return self._across(parts, budget).expected_sd(with_sums=question.with_sums, n_rows=self._count)

    def ask(
        self,
        question: Aggregate,
        *,
        privacy: Promise | None = None,
        variance: float | None = None,
        owner: str | None = None,
        plan: Sequence[Promise] = (),
    ) -> VerticalAnswer:
        """Ask all databases that have a column of the aggregate, each for its part of the promise.

        Parameters
        ----------
        question : Gram, Sums or Moments
            Gram matrix over any columns; sums of expressions each of which stays inside one database; or
            moments of any columns. A radius is split over databases, so that no row is longer than it.
        privacy : ApproxDP, ZCDP or GaussianDP
            Promise that all answers together keep to a person who is in all databases.
        variance : None
            Refused: the noise of several databases has no single variance.
        owner : str, optional
            Name that is charged beside the total, in each ledger; None charges the totals alone.
        plan : sequence of Promise
            Promises that will be asked for next. Each database refuses unless its part of all of them fits
            what its ledger has left.
        """
        budget = self._budget(privacy, variance)
        planned = [self._budget(promise, None) for promise in plan]
        answers: list[Answer] = []

        def ask_part(
            database: int, question: Aggregate, share: Fraction, portion: Fraction
        ) -> tuple[Floats, Floats]:
            # Sketches are still to come after a database's own products.
            later = [budget * ACROSS] * (portion == OWN) + planned
            answer = self.databases[database].ask(
                question,
                privacy=self._promise(budget * share * portion),
                owner=owner,
                plan=[self._promise(squared * share) for squared in later],
            )
            self._paid[database, answer.receipt.id] = answer.cost
            answers.append(answer)
            return np.asarray(answer.value, np.float64), np.asarray(answer.sd, np.float64)

        m = None
        parts = self._owners.parts(question) if isinstance(question, Gram) else []
        if len(parts) > 1:
            assert isinstance(question, Gram)
            across = self._across(parts, budget)
            value, sd, m, self._count = across.ask(ask_part, with_sums=question.with_sums, n_rows=self.n_rows)
        else:
            value, sd = self._owners.inside(question, ask_part)
            if isinstance(question, Moments) and self.n_rows is None:
                self._count = max(float(value[0]), 1.0)
        cost = self._total([promise for answer in answers for promise in answer.cost])
        receipt = Receipt.from_promises(
            cost,
            what=f"{question.kind} over {len(self.databases)} databases",
            schema=self.schema.digest,
            seeded=any(answer.receipt.seeded for answer in answers),
        )
        return VerticalAnswer(
            value=value,
            sd=sd,
            law="gaussian",
            cost=cost,
            cached=all(answer.cached for answer in answers),
            receipt=receipt,
            answers=tuple(answers),
            sketches=m,
            statement=_statement(len(self.databases), self.schema.unit, self.key, m),
        )

    def correlation(
        self, columns: Sequence[str] | None = None, *, privacy: Promise, owner: str | None = None
    ) -> VerticalAnswer:
        """Return estimated correlations of coordinates, inside databases and across them.

        Parameters
        ----------
        columns : sequence of str, optional
            Declared columns of any of the databases; all numbers if left out.
        privacy, owner
            As for :meth:`ask`.

        Returns
        -------
        VerticalAnswer
            Matrix clipped to [-1, 1], with first-order standard deviations before clipping, which brings an
            estimate nearer to every true value. Entries are NaN where a variance is not three standard
            deviations above 0.

        Privacy
        -------
        That of one Gram matrix with sums.

        Reference
        ---------
        docs/explanation/theorems/sulq-vertical.md.
        """
        named = [column.name for column in self.schema.released if column.is_number]
        question = Gram(named if columns is None else columns)
        answer = self.ask(question, privacy=privacy, owner=owner)
        value, sd = np.asarray(answer.value), np.asarray(answer.sd)
        count, sums = max(float(value[0, 0]), 1.0), value[0, 1:]
        covariance = value[1:, 1:] - np.outer(sums, sums) / count
        # The square of a noisy sum is part of a variance.
        variances, noise = np.diag(covariance), np.hypot(np.diag(sd)[1:], 2 * sums / count * sd[0, 1:])
        known = variances > _LEAST * noise
        scale = np.sqrt(np.where(known, variances, np.nan))
        ratio = covariance / np.outer(scale, scale)
        relative = (noise / scale**2) ** 2
        spread = (sd[1:, 1:] / np.outer(scale, scale)) ** 2 + ratio**2 / 4 * np.add.outer(relative, relative)
        np.fill_diagonal(ratio, np.where(known, 1.0, np.nan))
        np.fill_diagonal(spread, np.where(known, 0.0, np.nan))
        return dataclasses.replace(answer, value=np.clip(ratio, -1.0, 1.0), sd=np.sqrt(spread))

    # How a promise is divided.

    def _budget(self, privacy: Promise | None, variance: float | None) -> Fraction:
        """Return the square of the mu that all databases together may spend."""
        if variance is not None or not isinstance(privacy, ApproxDP | ZCDP | GaussianDP):
            raise PromiseError(
                "privacy of VerticalDatabases must be ApproxDP, ZCDP or GaussianDP, was "
                f"{'a variance' if variance is not None else type(privacy).__name__}. Sketches are many sums "
                "at once: noise for a pure promise would drown them."
            )
        if privacy.covers is not None:
            raise PromiseError(
                f"privacy of VerticalDatabases must be about whole rows, and covers "
                f"{', '.join(privacy.covers)} alone. Leave covers out."
            )
        check_neighbors(privacy, self.neighbors, "VerticalDatabases")
        draws = 2 * MOST_CELLS * len(self.databases)
        return exact(mu_of(privacy, draws * samplers.GAUSSIAN_TOTAL_VARIATION)) ** 2

    def _promise(self, squared: Fraction) -> GaussianDP:
        return GaussianDP(mu=root_down(squared), unit=self.schema.unit, neighbors=self.neighbors)

    def _preview_asker(self, budget: Fraction) -> Asker:
        """Return an asker that returns zeros and the standard deviations of the noise. Free."""

        def sd_of(
            database: int, question: Aggregate, share: Fraction, portion: Fraction
        ) -> tuple[Floats, Floats]:
            promise = self._promise(budget * share * portion)
            sd = np.asarray(self.databases[database].expected_sd(question, privacy=promise), np.float64)
            return np.zeros(sd.shape), sd

        return sd_of

    def _total(self, promises: Sequence[Promise]) -> tuple[Promise, ...]:
        """Return the sum of what databases charge, for a person who is in all of them."""
        gaussians = [promise for promise in promises if isinstance(promise, GaussianDP)]
        if not gaussians:
            return ()
        return (
            GaussianDP(
                mu=sqrt_up(sum((exact(p.mu) ** 2 for p in gaussians), Fraction(0))),
                total_variation=float_up(sum((exact(p.total_variation) for p in gaussians), Fraction(0))),
                unit=self.schema.unit,
                neighbors=self.neighbors,
            ),
        )

    def _across(self, parts: Sequence[Part], budget: Fraction) -> GramAcross:
        return GramAcross(
            self._owners.with_shares(parts), self.key, self.sketches, self._preview_asker(budget)
        )


def _statement(size: int, unit: str, key: str, m: int | None) -> str:
    """Return the text of :attr:`VerticalAnswer.statement`."""
    sketches = (
        f"Products across databases are estimated from {m} sign sketches of each, under the public key "
        f"{key!r}; ids that differ between databases count as different people, which nothing shows. "
        if m is not None
        else ""
    )
    return (
        f"{size} databases share ids, a key and the number of sketches, and no rows. {sketches}Each curator "
        "is trusted with her own columns and their noise, and with nothing else. The cost is for a "
        f"{unit} who is in all databases: it is the sum of what they charged, not what one of them did."
    )
