"""Draw the picture that is shown where the site is linked: ``python docs/draw_social.py``."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt

from discreet.noise import BoundedDensity, Stream, standard_normal

OUT = Path(__file__).parent / "_static" / "social.png"


def draw() -> None:
    """Draw the name over a cloud of rows that dissolves into noise."""
    fig = plt.figure(figsize=(12, 6.3), dpi=100, facecolor="#0f172a")
    ax = fig.add_axes((0, 0, 1, 1))
    along = np.linspace(0, 1, 900)
    noise = standard_normal((900, 2), Stream.from_seed(4)) * along[:, None] ** 2
    wave = BoundedDensity(lower=-1, upper=1).pdf(2 * along - 1)
    ax.scatter(along + 0.03 * noise[:, 0], wave + 0.5 * noise[:, 1], s=14, c=along, cmap="cool", alpha=0.7)
    ax.set(xlim=(-0.05, 1.05), ylim=(-1.2, 2.9))
    ax.axis("off")
    ax.text(0.02, 2.3, "discreet", color="white", fontsize=64, weight="bold")
    ax.text(0.02, 1.9, "Let others learn from a table", color="#cbd5e1", fontsize=26)
    ax.text(0.02, 1.6, "without giving its people away", color="#cbd5e1", fontsize=26)
    fig.savefig(OUT)


if __name__ == "__main__":
    draw()
