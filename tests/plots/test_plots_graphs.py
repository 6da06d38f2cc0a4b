"""Figures of graphs: every method a line, every edge with its number, every class a mark."""

import pytest

import greedypig as gp
from graph_seen import compressed, crowd, explained, plain_result

pytest.importorskip("matplotlib")
from greedypig import plots
from greedypig.plots import Band, BandPanel
from greedypig.plots.graphs import class_style


def texts(ax):
    return [t.get_text() for t in ax.texts]


def test_compression_draws_every_method_in_every_panel(tmp_path):
    figure = plots.compression(compressed())
    assert len(figure.axes) == 3
    for ax in figure.axes:
        lines = {line.get_label(): line for line in ax.lines}
        assert {"Greedy PIG", "random edges", "all edges"} <= set(lines)
        assert lines["Greedy PIG"].get_linestyle() != lines["random edges"].get_linestyle()
        assert lines["Greedy PIG"].get_marker() != lines["random edges"].get_marker()
    assert figure.axes[1].lines[0].get_ydata().tolist() == [0.5, 0.9, 0.99, 1.0]
    assert "generated" in figure.get_suptitle()
    assert len(plots.panel(compressed(accuracy=False)).axes) == 2
    figure.savefig(tmp_path / "a.png")


def test_a_subgraph_shows_numbers_names_and_classes():
    ax = plots.node_panel(explained()).axes[0]
    shown = texts(ax)
    assert shown[:4] == ["1", "2", "3", "4"]
    assert set(shown[4:]) == {f"paper <{i}>" for i in range(4)}
    legend = [t.get_text() for t in ax.get_legend().get_texts()]
    assert sorted(legend) == ["art & craft", "biology", "class not known"]
    widths = [line.get_linewidth() for line in ax.lines]
    assert widths == sorted(widths, reverse=True)


def test_thirty_nodes_do_not_write_over_each_other():
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = plots.node_panel(crowd())
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # Places are known once it is drawn.
    renderer = canvas.get_renderer()
    ax = figure.axes[0]
    names = [t for t in ax.texts if len(t.get_text()) == 4]
    boxes = [t.get_window_extent(renderer) for t in names]
    assert len(boxes) == 31
    hits = sum(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert hits == 0


def test_edges_are_counted_in_whole_numbers():
    ax = plots.node_panel(explained()).axes[1]
    assert all(tick == round(tick) for tick in ax.get_xticks())


def test_compression_begins_with_no_edge_and_marks_what_was_kept():
    for ax in plots.compression(compressed()).axes:
        assert ax.get_xlim()[0] == 0
        assert ax.get_ylim()[0] < min(min(line.get_ydata()) for line in ax.lines[:2])
        assert ax.lines[-1].get_label() == "kept: 50 %"


def test_classes_differ_in_colour_and_mark():
    styles = [class_style(i) for i in range(40)]
    assert len(set(styles)) == 40
    assert len({mark for _, mark in styles[:8]}) == 8
    assert class_style(None)[1] == "o"


def test_a_lonely_node_can_be_drawn():
    figure = plots.node_panel(explained(edges=()))
    assert texts(figure.axes[0]) == ["paper <0>"]


def test_curves_of_edges_are_over_the_share_of_the_edges():
    a = plain_result(kind="graph")
    for figure in (plots.panel(a), plots.comparison({"mine": a, "theirs": a})):
        (ax,) = (ax for ax in figure.axes if "share" in ax.get_xlabel())
        assert ax.get_xlabel() == "share of the edges kept, best first"
        assert ax.get_title(loc="left") == "G(S) after each round"


def test_error_bands_are_drawn():
    band = Band([0, 0.5, 1], [0.1, 0.5, 0.9], [0.1, 0.2, 0.0])
    figure = plots.band_sheet([[BandPanel("Cora", "accuracy", {"Greedy PIG": band}, 0.9)]])
    (area,) = figure.axes[0].collections
    assert area.get_paths()[0].get_extents().y1 == pytest.approx(0.9)
    assert figure.axes[0].get_title(loc="left") == "Cora"


@pytest.mark.parametrize("draw", [plots.compression, plots.node_panel])
def test_other_results_are_refused(draw):
    with pytest.raises(gp.InvalidInput, match="Expected the result of"):
        draw(plain_result())
