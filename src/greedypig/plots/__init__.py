"""Figures of a result, drawn from the result alone: no model, no global state, no pyplot.

The views of a result (`kept`, `heatmap`, `curve`, …) return matplotlib Axes: their own, on a figure
of their own, or those given as `ax=`. `panel` and the others return a whole Figure. Colours are
cividis and viridis, which rise evenly in lightness and read the same to the colour-blind.
"""

from __future__ import annotations

from .charts import bars, curve
from .columns import selected_columns
from .figures import comparison, panel
from .graphs import Band, BandPanel, band_sheet, compression, node_panel
from .kinds import plot
from .pictures import heatmap, kept, order_map, overlay, without
from .summary import summary
from .waterfall import waterfall

__all__ = [
    "Band",
    "BandPanel",
    "band_sheet",
    "bars",
    "comparison",
    "compression",
    "curve",
    "heatmap",
    "kept",
    "node_panel",
    "order_map",
    "overlay",
    "panel",
    "plot",
    "selected_columns",
    "summary",
    "waterfall",
    "without",
]
