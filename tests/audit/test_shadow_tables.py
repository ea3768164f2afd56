"""Tables made anew for attacks on members: what nearest rows are where columns have a single cell."""

from __future__ import annotations

import numpy as np

from discreet.audit._shadow_tables import _find_nearest


def test_rows_without_cells_are_all_alike() -> None:
    # At a small epsilon noise may leave one cell to every column, so that no column tells rows apart.
    distance, right = _find_nearest(np.empty((3, 0), np.int16), np.empty((2, 0), np.int16), np.arange(3))
    assert distance.tolist() == [0, 0, 0]
    assert right.tolist() == [0, 0, 0]
