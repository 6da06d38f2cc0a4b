"""Figures of the reproductions: sheets of curves, scores and pictures."""

import numpy as np
import pytest

import greedypig as gp
from greedypig.metrics import Curve

pytest.importorskip("matplotlib")
from reproduction.sheets import Cell, Panel, Score, curve_sheet, gallery, score_sheet


def test_long_names_leave_the_diagrams_their_room():
    line = Curve([0.0, 0.5, 1.0], [0.0, 0.25, 1.0], "softmax", 1.0)
    names = [f"a method with a long name and a long, long setting, number {i}" for i in range(8)]
    figure = curve_sheet([Panel(t, "p", dict.fromkeys(names, line)) for t in "abc"])
    figure.draw_without_rendering()
    for ax in figure.axes:
        box = ax.get_position()
        assert box.width > 0.22
        assert box.height > 0.4


def test_a_sheet_draws_every_curve_in_every_panel():
    low = Curve([0.0, 0.5, 1.0], [0.0, 0.25, 1.0], "softmax", 1.0)
    high = Curve([0.0, 0.5, 1.0], [0.0, 1.0, 1.0], "softmax", 1.0)
    panels = [Panel("SIC", "probability", {"a": low, "b": high}),
              Panel("LIC", "nats", {"a": high, "b": low})]  # fmt: skip
    figure = curve_sheet(panels, title="two")
    for ax, panel in zip(figure.axes, panels, strict=True):
        assert ax.get_ylabel() == panel.quantity
        drawn = [line.get_ydata().tolist() for line in ax.get_lines()]
        assert drawn == [c.values.tolist() for c in panel.curves.values()]
    with pytest.raises(gp.InvalidInput, match="at least one panel"):
        curve_sheet([])


def test_scores_stand_beside_the_published_ones():
    scores = {"ig": Score(0.6, 0.05, 0.66), "random": Score(0.25)}
    (ax,) = score_sheet(scores, quantity="pointing", chance=0.25).axes
    assert [bar.get_width() for bar in ax.patches] == [0.6, 0.25]
    published = [c for c in ax.collections if c.get_label() == "paper"]
    assert published[0].get_offsets().tolist() == [[0.66, 0.0]]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["ig", "random"]


def test_a_gallery_shows_pictures_as_they_are_and_importance_on_one_scale():
    picture = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    figure = gallery([[Cell("photo", picture), Cell("map", np.full((4, 4), 0.3))],
                      [None, Cell("alone", picture)]])  # fmt: skip
    images = [ax.images[0] for ax in figure.axes if ax.images]
    assert np.array_equal(images[0].get_array(), picture)
    assert images[1].get_clim() == (0, 1)
    assert len(images) == 3
