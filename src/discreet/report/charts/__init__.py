"""Charts as inline SVG: shapes carry classes, and the style sheet of the page colors them.

So one file is right on light and dark screens and on paper. Every chart has a title and a description for
people who do not see it, and its numbers stand beside it as text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.lazy_names import load_on_use

if TYPE_CHECKING:
    from discreet.report.charts._curves import (
        calibration_curve,
        error_curve,
        learning_curve,
        slider_ticks,
        what_if_curve,
    )
    from discreet.report.charts._dependence import (
        ERROR_STEPS,
        MOST_PAIRED,
        dependence_tree,
        error_bars,
        pair_heat,
    )
    from discreet.report.charts._distributions import MOST_COLUMNS, correlation_heat, histogram
    from discreet.report.charts._effects import (
        MOST_CLASSES,
        ColumnEffect,
        EffectCell,
        draw_effect,
        effect_axis,
    )
    from discreet.report.charts._svg import ChartAxis
    from discreet.report.charts.bars import Mark, score_bars, three_marks, timeline

__all__ = [
    "ERROR_STEPS",
    "MOST_CLASSES",
    "MOST_COLUMNS",
    "MOST_PAIRED",
    "ChartAxis",
    "ColumnEffect",
    "EffectCell",
    "Mark",
    "calibration_curve",
    "correlation_heat",
    "dependence_tree",
    "draw_effect",
    "effect_axis",
    "error_bars",
    "error_curve",
    "histogram",
    "learning_curve",
    "pair_heat",
    "score_bars",
    "slider_ticks",
    "three_marks",
    "timeline",
    "what_if_curve",
]

__getattr__ = load_on_use(
    __name__,
    {
        "_curves": ["calibration_curve", "error_curve", "learning_curve", "slider_ticks", "what_if_curve"],
        "_dependence": ["ERROR_STEPS", "MOST_PAIRED", "dependence_tree", "error_bars", "pair_heat"],
        "_distributions": ["MOST_COLUMNS", "correlation_heat", "histogram"],
        "_effects": ["MOST_CLASSES", "ColumnEffect", "EffectCell", "draw_effect", "effect_axis"],
        "_svg": ["ChartAxis"],
        "bars": ["Mark", "score_bars", "three_marks", "timeline"],
    },
)
