"""Every figure of one result by the name of its kind, for `Attribution.plot`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.attribution import Attribution
from ..core.errors import InvalidInput, did_you_mean
from .canvas import check
from .charts import bars, curve
from .figures import panel
from .pictures import heatmap, kept, order_map, overlay, without
from .waterfall import waterfall

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS: dict[str, Any] = {
    "panel": panel,
    "waterfall": waterfall,
    "bar": bars,
    "curve": curve,
    "kept": kept,
    "without": without,
    "heatmap": heatmap,
    "overlay": overlay,
    "order": order_map,
}


def plot(a: Attribution, kind: str | None = None, **options: Any) -> Figure:
    """A figure of this kind, as `Attribution.plot` draws it; None takes the panel."""
    check(a)
    name = kind or "panel"
    if name not in KINDS:
        raise InvalidInput(
            f"Expected kind to be one of {', '.join(KINDS)} (got {kind!r})."
            f"{did_you_mean(str(kind), KINDS)}"
        )
    drawn = KINDS[name](a, **options)
    figure: Figure = drawn if name == "panel" else drawn.figure
    return figure
