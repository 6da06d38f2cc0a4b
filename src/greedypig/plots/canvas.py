"""Where figures are drawn: axes without pyplot, and the few colours and texts they share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

from ..core.attribution import Attribution
from ..core.errors import InvalidInput, InvalidType, MissingPackage
from ..results.input_notes import InputNotes
from ..results.line_styles import looks
from ..results.picture import Picture, unranked
from ..results.wording import chance_cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, FAINT = "#1f2430", "#5b6270", "#d5d8de"
# Both in the order of `line_styles.Look`.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7F7F7F", "#000000")
"""Okabe and Ito's colours, which the colour-blind can distinguish; lines also differ in dashes."""
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)), (0, (3, 1.5)))
Style = dict[str, Any]
"""Keyword arguments of matplotlib."""
KEY: Style = {"fontsize": 8, "frameon": False}
"""How legends look."""
KEY_BELOW: Style = KEY | {"loc": "upper left", "bbox_to_anchor": (0, -0.16), "borderaxespad": 0}
"""Legends under their diagrams."""


def line_styles(names: Sequence[str]) -> list[dict[str, Any]]:
    """`color` and `linestyle` for lines of these names: a known method has its own."""
    return [
        {"color": COLOURS[look.colour], "linestyle": DASHES[look.dash]} for look in looks(names)
    ]


def new_figure(width: float, height: float) -> Figure:
    """A figure that no global list holds on to; `figure.savefig` picks its own backend."""
    figure = _figure_class()(figsize=(width, height), layout="constrained", facecolor="white")
    drawn: Figure = figure
    return drawn


@cache
def _figure_class() -> Any:
    """matplotlib's Figure, which a notebook shows as a picture also without pyplot."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackage(
            "Expected the package matplotlib for figures (it is not installed). "
            'Try pip install "greedypig[plots]".'
        ) from error

    class NotebookFigure(Figure):
        def _repr_png_(self) -> bytes:
            raw = BytesIO()
            self.savefig(raw, format="png", dpi=100)
            return raw.getvalue()

    NotebookFigure.__qualname__ = "NotebookFigure"  # Pickle finds it by `__getattr__` below.
    return NotebookFigure


def __getattr__(name: str) -> Any:
    if name == "NotebookFigure":
        return _figure_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def axes_or(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes given, else the only ones of a new figure."""
    return new_figure(width, height).add_subplot() if ax is None else ax


def check(a: Any, view: str = "") -> Attribution:
    """Refuse what is no result; for a view of the order also a run that ranked nothing."""
    if not isinstance(a, Attribution):
        raise InvalidType(
            f"Expected an Attribution (got {type(a).__name__}). Try gp.load(path) for a file."
        )
    if view and (reason := unranked(a)):
        raise InvalidInput(
            f"Expected a result with an order for plots.{view} (got: {reason}). Try plots.panel."
        )
    return a


def picture_of(a: Attribution, view: str) -> Picture:
    """The result over the places of a picture, else an error that names what can be drawn."""
    picture = Picture.of(check(a, view))
    if picture is None:
        shapes = ", ".join(str(tuple(shape)) for shape in a.layout.shapes)
        raise InvalidInput(
            f"Expected the result of a picture for plots.{view} (got inputs of shape {shapes}). "
            "Try plots.bars."
        )
    return picture


def shorten(text: str, length: int = 40) -> str:
    """Text that fits a title or label, cut in the middle, as names of a kind often differ in their
    ends; `$` is no mathematics here."""
    head = length // 2
    cut = text if len(text) <= length else f"{text[:head]}…{text[head + 1 - length :]}"
    return cut.replace("$", r"\$")


def headline(notes: InputNotes) -> str:
    """Class and probability of the whole input, as far as known."""
    parts = [shorten(notes.label)] if notes.label else []
    if notes.probability is not None:
        parts.append(chance_cell(notes.probability))
    return " ".join(parts)


def plain(ax: Axes) -> None:
    """A quiet frame: two spines, light grid below the data."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(SOFT)
    ax.tick_params(colors=SOFT, labelcolor=INK, labelsize=8.5)
    ax.grid(True, color=FAINT, linewidth=0.6, alpha=0.7)
    ax.set_axisbelow(True)


def percent_ticks(ax: Axes) -> None:
    """Shares along the x axis, in percent."""
    from matplotlib.ticker import PercentFormatter

    ax.xaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))


def untick(ax: Axes) -> None:
    """A picture has no scale along its sides."""
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_visible(False)


def level(ax: Axes, value: float, label: str, dash: tuple[float, ...] = (2, 2)) -> None:
    """A level line with the value of everything, or of nothing."""
    ax.axhline(value, color=SOFT, linewidth=1, linestyle=(0, dash), label=label)


def title(ax: Axes, text: str) -> None:
    """A left-aligned title in the figure's ink."""
    ax.set_title(text, loc="left", fontsize=9.5, color=INK)


def labels(ax: Axes, x: str = "", y: str = "") -> None:
    """What the two axes of a diagram measure."""
    ax.set_xlabel(x, fontsize=9, color=INK)
    ax.set_ylabel(y, fontsize=9, color=INK)


def heading(figure: Figure, text: str, size: float = 12) -> None:
    """A left-aligned title over a whole figure."""
    figure.suptitle(text, fontsize=size, color=INK, x=0.01, ha="left")


def note(ax: Axes, text: str, place: float = 0.5) -> None:
    """Words in the place of a diagram."""
    ax.set_axis_off()
    middle = "center" if place == 0.5 else "top"
    ax.text(0, place, text, color=INK, fontsize=9, va=middle, transform=ax.transAxes)
