"""Figures of a result, drawn from the result alone: no model, no global state, no pyplot.

Every function takes an `Attribution` (or curves) and returns matplotlib Axes: its own, on a figure
of its own, or those given as `ax=`. `panel` and `comparison` return a whole Figure. Colours are
cividis and viridis, which rise evenly in lightness and read the same to the colour-blind; whatever
a figure leaves out or reads between measured points, it says.
"""

from __future__ import annotations

from .charts import bars, curve
from .columns import column_losses, column_path, selected_columns
from .figures import comparison, panel
from .graphs import Band, BandPanel, band_sheet, compression, node_panel, subgraph
from .pictures import heatmap, kept, order_map, overlay, without

__all__ = [
    "Band", "BandPanel", "band_sheet", "bars", "column_losses", "column_path", "comparison",
    "compression", "curve", "heatmap", "kept", "node_panel", "order_map", "overlay", "panel",
    "selected_columns", "subgraph", "without",
]  # fmt: skip
