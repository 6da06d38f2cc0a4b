"""Waterfalls of one result and summaries of many: what is drawn, and that it can be read."""

import pickle

import pytest
import torch

import greedypig as gp
from greedypig import plots
from nets import cnn, mlp, picture, row
from seen import photo, ranked, unmeasured

pytest.importorskip("matplotlib")
ONE = gp.GreedyPIG(per_round=1, steps=2)
KINDS = ("waterfall", "bar", "curve", "panel")
OF_PICTURES = ("kept", "without", "heatmap", "overlay", "order")


def labels(ax):
    return [text.get_text() for text in ax.get_yticklabels()]


def bars(ax):
    return [(bar.get_x(), bar.get_width()) for bar in ax.patches]


def test_bars_of_features_lead_from_nothing_to_what_was_selected():
    a = gp.explain(mlp(), row(), method=ONE, names=["age", *"bcdef"])
    ax = a.plot("waterfall").axes[0]
    assert labels(ax) == [
        f"{a.features.names[i]} = {float(row()[i]):.4g}".replace("-", "−") for i in a.order.tolist()
    ]
    values = a.values.tolist()
    for (begin, width), value, gain in zip(bars(ax), values, a.values.diff(), strict=False):
        assert begin == pytest.approx(value)
        assert width == pytest.approx(float(gain))
    low, high = ax.get_xlim()
    assert low < min(values)
    assert high > max(values)


def test_rounds_of_several_features_have_a_bar_each():
    a = gp.explain(mlp(12), row(n=12), method=gp.GreedyPIG(rounds=3, steps=2, schedule="equal"))
    ax = plots.waterfall(a)
    assert len(bars(ax)) == 3
    first = int(a.order[0])
    value = f"{float(row(n=12)[first]):.4g}".replace("-", "−")
    assert labels(ax)[0] == f"round 1: x[{first}] = {value}, 3 more"
    assert [width for _, width in bars(ax)] == pytest.approx(a.values.diff().tolist())
    assert len(bars(plots.waterfall(a, by="feature"))) == 12


def test_the_last_bar_stands_for_all_that_are_left():
    a = ranked((30,), per_round=1, method="greedy-pig")
    ax = plots.waterfall(a, top=5)
    assert labels(ax)[-1] == "26 more features"
    assert bars(ax)[-1][1] == pytest.approx(float(a.values[-1] - a.values[4]))


def test_a_waterfall_needs_values_and_a_known_kind_of_bar():
    with pytest.raises(gp.InvalidInput, match="measured values"):
        plots.waterfall(unmeasured(ranked((6,))))
    with pytest.raises(gp.InvalidInput, match="'feature' or 'round'"):
        plots.waterfall(ranked((6,)), by="colour")


def overlapping(figure, texts):
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    return [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a.overlaps(b)]


@pytest.mark.parametrize("count", [1, 2, 12, 40])
def test_labels_of_waterfalls_and_summaries_do_not_overlap(count):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    names = [f"a long name of feature number {i} and more of it" for i in range(count)]
    model = torch.nn.Linear(count, 2)
    results = gp.explain_many(model, torch.randn(7, count), names=names, method=ONE)
    summary = gp.summary(results)
    for figure in (summary[0].plot("waterfall"), summary.plot(), summary.plot("bar", by="rank")):
        FigureCanvasAgg(figure)
        ax = figure.axes[0]
        assert not overlapping(figure, [*ax.get_yticklabels(), *ax.texts])
        width = figure.bbox.width
        for text in (*ax.get_yticklabels(), *ax.texts):
            box = text.get_window_extent()
            assert 0 <= box.x0 <= box.x1 <= width


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_a_figure_that_a_notebook_shows(kind):
    for a in (photo(), gp.explain(mlp(), row(), method=ONE), gp.explain(cnn(), picture(), k=3)):
        figure = a.plot(kind)
        for drawn in (figure, pickle.loads(pickle.dumps(figure))):
            assert drawn._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", OF_PICTURES)
def test_pictures_have_kinds_of_their_own(kind):
    assert photo().plot(kind).axes
    with pytest.raises(gp.InvalidInput, match="Expected the result of a picture"):
        ranked((6,)).plot(kind)


def test_an_unknown_kind_is_refused_with_the_near_one():
    with pytest.raises(gp.InvalidInput, match="Did you mean 'waterfall'"):
        ranked().plot("waterfal")
    with pytest.raises(gp.InvalidInput, match="'beeswarm' or 'bar'"):
        gp.summary([ranked((6,))]).plot("violin")


def many(**options):
    return gp.summary(gp.explain_many(mlp(), [row(s) for s in range(40)], method=ONE, **options))


@pytest.mark.parametrize("by", ["gain", "contribution", "rank"])
def test_a_swarm_has_a_dot_for_each_result_at_its_quantity_and_near_its_line(by):
    summary = many(names=list("abcdef"))
    ax = summary.plot(by=by, top=4).axes[0]
    best = summary.best(by)[:4]
    assert labels(ax) == ["abcdef"[i] for i in best]
    for line, dots in enumerate(ax.collections[:4]):
        places = torch.tensor(dots.get_offsets().tolist())
        assert places[:, 0] == pytest.approx(summary.table(by)[:, best[line]].float())
        assert float((places[:, 1] - line).abs().max()) <= 0.4
    low, high = ax.get_xlim()
    assert low < summary.table(by)[:, best].min()
    assert high > summary.table(by)[:, best].max()


def test_colours_tell_low_values_from_high_ones():
    summary = many()
    ax = summary.plot().axes[0]
    first = int(summary.best()[0])
    shades = torch.tensor(ax.collections[0].get_array().tolist())
    values = summary.values()[:, first]
    assert shades[values.argmin()] == 0
    assert shades[values.argmax()] == 1
    assert "value of the feature" in ax.figure.axes[1].get_ylabel()


def test_results_without_values_have_one_colour():
    objective = gp.objective(lambda masks: masks @ torch.tensor([3.0, 1.0, 2.0]), 3)
    figure = gp.summary([gp.maximize(objective, ONE)] * 3).plot()
    assert len(figure.axes) == 1
