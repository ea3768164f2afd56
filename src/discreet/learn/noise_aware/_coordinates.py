"""Published cells as raw entries, and the linear map that debiases them into coordinates of true rows.

A number is one coordinate, in widths of its range; a list has an indicator for each level.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.learn.noise_aware._blocks import Block, build_blocks, noise_covariances

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import AnyArray, Floats
    from discreet.noise_law import ColumnLaw, NoiseLaw


@dataclass(frozen=True)
class Coordinates:
    """All features of a noise law as coordinates, with the linear map that debiases published rows.

    Attributes
    ----------
    law : NoiseLaw
        Law of the published table.
    blocks : tuple of Block
        Coordinates by column or group, in the order of the law.

    Notes
    -----
    A row of raw entries is ``r = (1, blocks)``; ``debias @ r`` has the true coordinates as its mean, and
    ``shown @ r`` is 1 on average and 0 where a coordinate is not published.

    Reference
    ---------
    docs/explanation/theorems/noise-aware.md
    """

    law: NoiseLaw
    blocks: tuple[Block, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(build_blocks(self.law)))

    @cached_property
    def n_raw(self) -> int:
        """Number of raw entries of a row, the constant included."""
        return max((block.raw.stop for block in self.blocks), default=1)

    @cached_property
    def size(self) -> int:
        """Number of coordinates."""
        return max((block.place.stop for block in self.blocks), default=0)

    @cached_property
    def counts(self) -> bool:
        """Whether all raw entries are 0 or 1, so that single precision sums them exactly."""
        return all(block.is_list for block in self.blocks)

    @cached_property
    def debias(self) -> Floats:
        """Map from raw entries to debiased coordinates, of shape (size, n_raw)."""
        return self._maps[0]

    @cached_property
    def shown(self) -> Floats:
        """Map from raw entries to whether coordinates are published, of shape (size, n_raw)."""
        return self._maps[1]

    @cached_property
    def _maps(self) -> tuple[Floats, Floats]:
        debias, shown = np.zeros((self.size, self.n_raw)), np.zeros((self.size, self.n_raw))
        for block in self.blocks:
            block.fill_map(debias, shown)
        return debias, shown

    @cached_property
    def weight(self) -> Floats:
        """Contribution of one published row to a level, 1 over its share of rows; 0 for numbers."""
        weight = np.zeros(self.size)
        for block in self.blocks:
            weight[block.place] = block.is_list / block.share
        return weight

    @cached_property
    def pair_factor(self) -> Floats:
        """Factor for mean products of two coordinates, of shape (size, size); 0 where no row shows both.

        Notes
        -----
        ``m`` of ``d`` columns are shown in each row: two given ones with probability
        ``m (m - 1) / (d (d - 1))``, while debiasing divides by ``(m / d)^2``. The factor is the ratio.
        """
        factor = np.ones((self.size, self.size))
        if self.law.column_sample is None:
            return factor
        m, d = self.law.column_sample
        sampled = np.zeros(self.size, bool)
        for block in self.blocks:
            sampled[block.place] = block.is_sampled
        # With one column in a row, no row shows two.
        both = 0.0 if m == 1 else (m / d) ** 2 * d * (d - 1) / (m * (m - 1))
        factor[np.outer(sampled, sampled)] = both
        return factor

    @cached_property
    def correlations(self) -> tuple[tuple[int, int, int, int, float], ...]:
        """Pairs of numbers with correlated noise.

        Each is a tuple: both coordinates, their presence entries, and the covariance of their noise.
        """
        numbers = {b.columns[0].name: b for b in self.blocks if not b.is_list}
        pairs = []
        for name, block in numbers.items():
            for other, covariance in noise_covariances(block.columns[0]):
                # Each pair comes up in both orders, as covariances have two places in the matrix.
                if other != name and other in numbers:
                    partner = numbers[other]
                    scale = block.scale * partner.scale
                    pairs.append(
                        (
                            block.place.start,
                            partner.place.start,
                            block.presence_entry,
                            partner.presence_entry,
                            covariance * scale,
                        )
                    )
        return tuple(pairs)

    def label_noise_covariance(self, label: ColumnLaw) -> Floats:
        """Return the covariance of the noise on a numeric label with that on each coordinate.

        Returns
        -------
        array of shape (size, n_raw)
            Covariance in the column of the coordinate's presence entry, 0 elsewhere.
        """
        shared = np.zeros((self.size, self.n_raw))
        for block in self.blocks:
            covariances = dict(noise_covariances(block.columns[0]))
            if not block.is_list and label.name in covariances:
                noise = covariances[label.name] * block.scale / label.width
                shared[block.place.start, block.presence_entry] = noise
        return shared

    @property
    def joint_block(self) -> Block | None:
        """Block that was randomized together with the label; None if there is none."""
        return next((block for block in self.blocks if block.pair is not None), None)

    @property
    def has_products(self) -> bool:
        """Whether some published row shows two blocks at once."""
        return self.law.column_sample is None or self.law.column_sample[0] > 1

    def encode(self, batch: Mapping[str, AnyArray], n_rows: int, label_entries: int, dtype: Any) -> AnyArray:
        """Return the raw entries of published rows, with zeros for the label's entries at the end.

        Parameters
        ----------
        batch : mapping of str to array
            Published cells by column, categories as codes.
        n_rows : int
            Number of rows in the batch.
        label_entries : int
            Number of raw entries of the label.
        dtype : dtype
            Floating type of the result.
        """
        out = np.zeros((n_rows, self.n_raw + label_entries), dtype)
        out[:, 0] = 1
        for block in self.blocks:
            block.encode(batch, out)
        return out

    def clean(self, batch: Mapping[str, AnyArray], n_rows: int) -> Floats:
        """Return the coordinates of true rows, which have no noise to correct for."""
        out = np.zeros((n_rows, self.size))
        for block in self.blocks:
            block.clean(batch, out)
        return out
