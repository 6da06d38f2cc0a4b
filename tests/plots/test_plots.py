"""Figures say what the result says: facts of axes and artists, not pixels."""

import io
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib", reason="needs the extra plots")
from matplotlib import colormaps
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

import greedypig as gp
from greedypig import plots
from greedypig.results.line_styles import KNOWN, looks
from greedypig.results.picture import Picture
from seen import ABOUT, COMPARISON, known_order, photo, pixels, ranked, unmeasured

viridis = colormaps["viridis"]


def texts(ax) -> str:
    legend = ax.get_legend()
    entries = [] if legend is None else [t.get_text() for t in legend.get_texts()]
    return " | ".join([ax.get_title(loc="left"), ax.get_xlabel(), ax.get_ylabel(), *entries])


def bar_of(ax):
    """The scale of a map's colours, which is drawn below it."""
    (bar,) = ax.child_axes
    return bar


def test_kept_draws_the_top_numbers_and_says_how_sure_the_model_is_with_them():
    a = photo()
    ax = plots.kept(a, 0.1)
    assert np.array_equal(ax.images[0].get_array(), Picture.of(a).kept(6))
    assert "top 10 % (6 features)" in texts(ax)
    assert "espresso 0.200 (all: 0.750)" in texts(ax)  # As measured.
    assert "espresso 0.250" in texts(plots.kept(a, 0.125))  # Read off the curve: 2 · 0.125.


def test_features_larger_than_a_number_are_told_as_measured_at_the_share_they_fit_into():
    line = {"softmax": {"fractions": [0, 0.3, 0.6, 1], "values": [0, 0.1, 0.4, 0.75]}}
    a = photo((3, 4, 4), features=gp.grid(2), about={"kept": {"0.4": 0.33}, "curves": line})
    assert "top 25 % (1 group)\nespresso 0.330 (all" in texts(plots.kept(a, 0.4))
    assert "espresso 0.330" in texts(plots.comparison({"mine": a}, share=0.4).axes[0])


def counterfactual(**about):
    """A result that asks what the answer would miss: 1 with nothing off, falling to 0.4."""
    picture = pixels(4, 5).permute(2, 0, 1) / 255
    a = gp.explain(
        lambda x: torch.stack([x.flatten(1).sum(1), x[:, 0, 0, 0]], 1), picture, target=0,
        objective="counterfactual", method=gp.GreedyPIG(rounds=3, steps=2),
    )  # fmt: skip
    line = {"fractions": [0, 0.1, 1], "values": [0.9, 0.5, 0.4]}
    facts = {"kind": "image", "class": "cup", "probability": 0.9, "removed": {"0.1": 0.5},
             "curves": {"deletion": line}}  # fmt: skip
    return replace(a, attachments={}).with_notes(facts | about, picture=pixels(4, 5))


def test_of_a_counterfactual_what_was_chosen_is_at_the_baseline():
    a = counterfactual()
    ax = plots.without(a, 0.1)
    assert "without the top 10 % (6 features)" in texts(ax)
    assert "cup 0.500 (all: 0.900)" in texts(ax)
    shown, chosen = ax.images[0].get_array(), a.mask(6).permute(1, 2, 0).numpy()
    assert (shown[chosen] == 127).all()
    assert np.array_equal(shown[~chosen], pixels(4, 5).numpy()[~chosen])
    panel = plots.panel(a)
    assert np.array_equal(panel.axes[1].images[0].get_array(), shown)
    compared = plots.comparison({"mine": a})
    assert np.array_equal(compared.axes[0].images[0].get_array(), shown)
    said = " ".join(texts(ax) for ax in (*panel.axes, *compared.axes))
    assert "only the best features" not in said
    assert "the best features switched off" in said


def test_curves_of_a_counterfactual_go_over_the_share_switched_off():
    ax = plots.curve(counterfactual())
    assert "share of the features switched off" in texts(ax)
    assert "everything: 0.900" in texts(ax)
    bare = counterfactual(curves={}, removed={})
    ax = plots.curve(bare)
    assert ax.get_ylabel() == "G(S)"
    assert "share of the features switched off" in texts(ax)
    assert "everything off:" in texts(ax)
    assert not [c for c in ax.collections if isinstance(c, PolyCollection)]  # No "excess".
    assert "without the top" in texts(plots.panel(bare).axes[1])
    # Measured alone, as a comparison of methods does, it is drawn alone.
    both = {"softmax": {"fractions": [0, 1], "values": [0.1, 0.9]}}
    assert texts(plots.panel(counterfactual(curves=both)).axes[1]).startswith("top 10 %")


def test_a_run_without_a_round_has_no_order_to_draw():
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(60, 2))
    picture = pixels(4, 5).permute(2, 0, 1) / 255
    a = gp.explain(model, picture, target=0, stop=gp.Stop(value=1e-6))
    a = a.with_notes(picture=pixels(4, 5))
    assert len(a.picks) == 0
    for draw in (plots.kept, plots.without, plots.heatmap, plots.overlay, plots.order_map,
                 plots.bars):  # fmt: skip
        with pytest.raises(gp.InvalidInput, match=r"an order for plots\.\w+ \(got"):
            draw(a)
    shown = [t.get_text() for ax in plots.panel(a).axes for t in ax.texts]
    assert any("no order" in text.replace("\n", " ") for text in shown)
    assert plots.comparison({"one": a, "two": photo()}).axes


def test_heatmaps_show_importance_on_a_scale_that_clips_nothing():
    a = photo()
    ax = plots.heatmap(a)
    image = ax.images[0]
    assert np.allclose(image.get_array(), Picture.of(a).importance)
    assert image.get_clim() == (0, 1)
    assert image.get_cmap().name == "cividis"
    assert "1 = first, 0 = nothing left" in bar_of(ax).get_xlabel()
    assert "espresso 0.750" in texts(ax)


def test_overlays_lie_on_the_picture_in_gray():
    a = photo()
    ax = plots.overlay(a, opacity=0.4)
    below, above = ax.images
    luma = pixels(4, 5).double() @ torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)
    assert np.allclose(below.get_array(), luma)
    assert above.get_alpha() == 0.4
    assert "40 % opaque" in bar_of(ax).get_xlabel()
    with pytest.raises(gp.InvalidInput, match="a picture to lay the map on"):
        plots.overlay(ranked())
    with pytest.raises(gp.InvalidInput, match="opacity from 0 to 1"):
        plots.overlay(a, opacity=2)


def test_order_maps_show_when_a_place_was_first_taken():
    ranks = torch.empty(60, dtype=torch.long)
    ranks[known_order(60)] = torch.arange(60)
    ax = plots.order_map(photo())
    expected = ranks.view(3, 4, 5).amin(0) + 1
    assert np.array_equal(ax.images[0].get_array(), expected.numpy())
    last = int(expected.max())
    levels = np.asarray(ax.images[0].norm(np.arange(1, last + 1)))
    assert levels == pytest.approx(np.sqrt(np.arange(last) / (last - 1)))
    assert bar_of(ax).get_xlabel() == "ranked as number … of 60\nsquare-root scale"


@pytest.mark.parametrize("side", [20, 64])
def test_an_order_within_the_first_round_has_colours_too(side):
    ax = plots.order_map(ranked((1, side, side), method="greedy-pig", per_round=side))
    levels = ax.images[0].norm(np.arange(1, side * side + 1))
    assert levels[0] == pytest.approx(0)
    assert levels[-1] == pytest.approx(1)
    assert (np.diff(levels) > 0).all()


@pytest.mark.parametrize("shape", [(1, 2, 2), (1, 4, 5), (1, 9, 9), (1, 12, 12), (1, 64, 64)])
def test_an_order_s_ticks_are_numbers_from_the_first_to_the_last(shape):
    bar = bar_of(plots.order_map(ranked(shape)))
    ticks = bar.get_xticks().tolist()
    assert ticks[0] == 1
    assert ticks[-1] == shape[1] * shape[2]
    assert 2 <= len(ticks) <= 4
    assert [label.get_text() for label in bar.get_xticklabels()] == [f"{t:,}" for t in ticks]


def test_places_that_no_round_selected_are_masked_and_counted():
    a = ranked((1, 4, 5), method="greedy-pig", k=5, per_round=1)
    ax = plots.order_map(a)
    shown = ax.images[0].get_array()
    assert int(shown.mask.sum()) == 15
    assert "75 % of the places, never selected" in bar_of(ax).get_xlabel()
    assert ax.images[0].get_clim() == (1, 5)  # Those selected have the colours to themselves.
    wide = plots.order_map(ranked((1, 64, 64), method="greedy-pig", k=2048, rounds=4))
    assert int(np.ma.getmaskarray(wide.images[0].norm(wide.images[0].get_array())).sum()) == 2048


def test_maps_are_of_pictures_only():
    for draw in (plots.kept, plots.heatmap, plots.order_map, plots.overlay):
        with pytest.raises(gp.InvalidInput, match=r"Try plots\.bars"):
            draw(ranked((6,)))
        with pytest.raises(gp.InvalidType, match="Expected an Attribution"):
            draw("photo.gpig")


def test_a_curve_is_drawn_with_the_whole_s_value_and_its_excess_shaded():
    ax = plots.curve(photo())
    line, second, full = ax.lines
    assert "second-opinion by" in second.get_label()
    assert list(line.get_xdata()) == [0, 0.01, 0.05, 0.1, 0.25, 0.5, 1]  # As measured, and kept.
    assert list(line.get_ydata()) == [0, 0.02, 0.1, 0.2, 0.5, 1.0, 0.75]
    assert list(full.get_ydata()) == [0.75, 0.75]
    (area,) = [c for c in ax.collections if isinstance(c, PolyCollection)]
    corners = area.get_paths()[0].vertices
    assert corners[:, 1].min() == pytest.approx(0.75)
    assert corners[:, 0].min() == pytest.approx(0.375)  # Where the line crosses 0.75.
    assert "AUC 0.688" in texts(ax)
    assert "everything: 0.750" in texts(ax)
    assert "share of the features kept" in texts(ax)
    assert ax.get_ylim()[1] >= 1


def test_a_judge_s_curve_is_not_held_against_the_explained_network_s_value():
    second = gp.metrics.Curve([0, 0.5, 1], [0.0, 0.9, 0.9], "second-opinion",
                              settings={"judge": "mobilenet-v2"})  # fmt: skip
    ax = plots.curve(second, full=0.5)
    assert not [c for c in ax.collections if isinstance(c, PolyCollection)]


def test_a_curve_below_the_whole_has_no_shade():
    ax = plots.curve(photo(about={"probability": 1.0}))
    assert not [c for c in ax.collections if isinstance(c, PolyCollection)]


def line(name, values):
    return gp.metrics.Curve([0, 0.5, 1], values, name)


def test_many_curves_have_their_names():
    ax = plots.curve(line("a", [0.0, 0.2, 1.0]), {"c": line("b", [0.0, 0.9, 1.0])})
    for name in ("a, AUC 0.350", "c, AUC 0.700"):
        assert name in texts(ax)


def test_measured_curves_bring_their_own_full_value_and_judge():
    net = torch.nn.Sequential(torch.nn.Linear(6, 3))
    x = torch.linspace(-1, 1, 6)
    a = gp.explain(net, x, method=gp.GreedyPIG(rounds=2))
    curve = gp.metrics.softmax_information_curve(net, x, a, points=5)
    ax = plots.curve(curve)
    assert list(ax.lines[0].get_ydata()) == curve.values.tolist()
    assert ax.lines[1].get_ydata()[0] == curve.full
    assert f"AUC {curve.auc:.3f}" in texts(ax)
    second = gp.metrics.softmax_information_curve(net, x, a, points=5, judge=torch.nn.Linear(6, 3))
    assert "by Linear" in texts(plots.curve(second))
    noted = a.with_notes({"curves": {"softmax": curve.to_dict()}, "probability": curve.full})
    assert list(plots.curve(noted).lines[0].get_ydata()) == curve.values.tolist()


def test_losses_are_in_nats_from_zero():
    ax = plots.curve(line("loss", [4.0, 1.0, 0.0]))
    assert "nats" in ax.get_ylabel()
    assert ax.get_ylim()[0] == 0


def test_results_without_a_curve_show_their_rounds():
    g = gp.objective(lambda m: m @ torch.tensor([1.0, 4.0, 2.0]), 3)
    ax = plots.curve(gp.maximize(g, gp.GreedyPIG(per_round=1)))
    assert list(ax.lines[0].get_ydata()) == pytest.approx([0, 4, 6, 7])
    with pytest.raises(gp.InvalidInput, match="at least one curve"):
        plots.curve()
    with pytest.raises(gp.InvalidType, match="curves or results"):
        plots.curve(3)


def test_bars_are_the_first_features_from_top_to_bottom():
    names = ["age", "a $cost$ in $", "bmi"]
    model, x = torch.nn.Linear(3, 1), torch.tensor([1.0, 4.0, -2.0])
    torch.nn.init.ones_(model.weight)
    a = gp.explain(model, x, names=names, method=gp.GreedyPIG(per_round=1))
    ax = plots.bars(a, top=2)
    assert [p.get_width() for p in ax.patches] == pytest.approx([4, 1])
    labels = [t.get_text() for t in ax.get_yticklabels()]
    assert labels == [r"a \$cost\$ in \$ = 4", "age = 1"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # The first is at the top.
    assert "first 2 of 3 features (1 more not shown)" in texts(ax)
    assert "gain" in texts(ax)
    ax.figure.savefig(io.BytesIO())  # No mathematics in names.
    with pytest.raises(gp.InvalidInput, match="whole number"):
        plots.bars(a, top=0)


def test_given_axes_are_used_and_returned():
    figure = Figure()
    for draw in (
        plots.kept,
        plots.heatmap,
        plots.overlay,
        plots.order_map,
        plots.curve,
        plots.bars,
    ):
        ax = figure.add_subplot()
        assert draw(photo(), ax=ax) is ax


def test_the_panel_of_a_picture_holds_all_its_views():
    figure = plots.panel(photo(method="greedy-pig"))
    titles = " | ".join(ax.get_title(loc="left") for ax in figure.axes)
    for part in (
        "as the network sees it",
        "top 10 %",
        "importance",
        "first selected",
        "probability with",
    ):
        assert part in titles
    assert "photo.jpg: espresso 0.750" in figure.get_suptitle()
    assert "50 % of the features give a higher probability (1.000)" in figure.get_supxlabel()
    figure.savefig(io.BytesIO(), dpi=50)


def test_the_panel_s_pictures_are_of_one_size_with_even_gaps():
    figure = plots.panel(photo((3, 8, 8)))
    figure.savefig(io.BytesIO(), dpi=50)
    boxes = [ax.get_window_extent() for ax in figure.axes if ax.images][:4]
    assert [box.width for box in boxes] == pytest.approx([boxes[0].width] * 4)
    gaps = [right.x0 - left.x1 for left, right in pairwise(boxes)]
    assert gaps == pytest.approx([gaps[0]] * 3)
    assert all(box.y0 == pytest.approx(boxes[0].y0) for box in boxes)


def test_the_panel_of_anything_else_holds_bars_and_a_curve():
    g = gp.objective(lambda m: m @ torch.tensor([1.0, 4.0, 2.0]), 3)
    figure = plots.panel(gp.maximize(g, gp.GreedyPIG(per_round=1)))
    assert len(figure.axes) == 2
    assert len(figure.axes[0].patches) == 3
    figure.savefig(io.BytesIO(), dpi=50)
    blind = unmeasured(ranked((6,), method="greedy-pig", rounds=2))
    plots.panel(blind).savefig(io.BytesIO(), dpi=50)


def test_figures_are_the_same_from_the_saved_file(tmp_path):
    photo().save(tmp_path / "a.gpig")
    for draw in (plots.kept, plots.heatmap, plots.overlay, plots.order_map, plots.curve):
        ax, again = draw(photo()), draw(gp.load(tmp_path / "a.gpig"))
        assert texts(ax) == texts(again)
        for one, other in zip(ax.images, again.images, strict=True):
            assert np.array_equal(one.get_array(), other.get_array())
        for one, other in zip(ax.lines, again.lines, strict=True):
            assert np.array_equal(one.get_xydata(), other.get_xydata())


def cells(figure) -> dict[tuple[int, int], str]:
    table = next(t for ax in figure.axes for t in ax.tables)
    return {place: cell.get_text().get_text() for place, cell in table.get_celld().items()}


def test_the_paper_s_titles_look_as_the_methods_do():
    titles = ["Integrated Gradients (cut)", "Smooth IG", "Greedy PIG, our default", "random order"]
    assert looks(titles) == [KNOWN[n] for n in ("ig", "smooth-ig", "greedy-pig", "random")]


def test_a_method_looks_the_same_whoever_it_is_compared_with():
    def drawn(*names):
        ax = plots.curve({name: line("", [0.0, 0.5, 1.0]) for name in names})
        return {
            name: (artist.get_color(), artist.get_linestyle(), artist._dash_pattern)
            for name, artist in zip(names, ax.lines, strict=True)
        }

    every = drawn(*KNOWN, "mine")
    assert len({colour + str(dash) for colour, _, dash in every.values()}) == len(KNOWN) + 1
    usual = [n for n in KNOWN if n not in ("gradient", "greedy-pig (paper)")]
    usual = [n for n in usual if n not in ("steady-pig", "rolling-pig")]
    assert len({every[n][0] for n in usual}) == len(usual)  # What `compare` shows: all colours.
    for names in (("ig", "greedy-pig"), ("mine", "ig"), ("random", "mine", "theirs", "ig")):
        found = drawn(*names)
        assert {n: found[n] for n in names if n in KNOWN} == {
            n: every[n] for n in names if n in KNOWN
        }
        assert len({colour for colour, *_ in found.values()}) == len(names)


def test_comparisons_show_pictures_curves_and_numbers():
    results = {"greedy-pig": photo(), "random $": photo(seed=3, about={"kept": {}})}
    figure = plots.comparison(results)
    assert sum(bool(ax.images) for ax in figure.axes) == 2
    found = cells(figure)
    assert found[0, 0] == "SIC AUC ↑"
    assert found[1, -1] == "greedy-pig"
    assert found[1, 0] == "0.688"
    assert found[1, 3] == "0.250"  # The curve's 1 above the whole's 0.75.
    curves = next(ax for ax in figure.axes if len(ax.lines) >= 2)
    assert "greedy-pig, AUC 0.688" in texts(curves)
    figure.savefig(io.BytesIO(), dpi=50)


@pytest.mark.slow
def test_a_comparison_is_headed_by_its_photo_or_by_how_many_there_were():
    one = plots.comparison({"greedy-pig": photo()})
    assert one.get_suptitle() == "photo.jpg: espresso 0.750 · efficientnet-lite0"
    many = plots.comparison(photo(about={"comparison": COMPARISON, "source": "12 photos"}))
    assert many.get_suptitle() == (
        "12 photos: AUC of median curves, the rest medians · efficientnet-lite0"
    )
    bare = plots.comparison({"ig": gp.maximize(gp.objective(lambda m: m.sum(1), 3), "ig")})
    assert bare.get_suptitle() == ""


def test_names_of_curves_keep_the_words_they_differ_in():
    same = "Greedy PIG, the paper's setting (cut to a budget of gradients), by "
    ends = ("absolute score", "order of selection")
    ax = plots.curve({same + end: line("", [0.0, 0.5, 1.0]) for end in ends})
    for end in ends:
        assert f"{end}, AUC" in texts(ax)


def test_comparisons_in_the_notes_are_drawn_without_the_others_pictures():
    figure = plots.comparison(photo(about={"comparison": COMPARISON}))
    found = cells(figure)
    assert [found[i, -1] for i in (1, 2)] == ["greedy-pig", "ig"]
    assert found[2, 3] == "50"
    assert found[1, 2] == "0.250"
    assert not any(ax.images for ax in figure.axes)
    for bad in ({}, photo()):
        with pytest.raises(gp.InvalidInput):
            plots.comparison(bad)
    with pytest.raises(gp.InvalidType):
        plots.comparison([photo()])


@pytest.mark.slow
def test_a_comparison_has_curves_of_the_loss_and_headings_that_do_not_overlap():
    figure = plots.comparison({"greedy-pig (regions)": photo(), "ig": photo(seed=3)})
    figure.savefig(io.BytesIO(), dpi=50)
    assert any("LIC" in ax.get_title(loc="left") for ax in figure.axes)
    table = next(ax.tables[0] for ax in figure.axes if ax.tables)
    row = sorted((c, cell) for (r, c), cell in table.get_celld().items() if r == 0)
    boxes = [cell.get_text().get_window_extent() for _, cell in row]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


@pytest.mark.slow
def test_a_comparison_has_curves_of_the_judge():
    names = ("greedy-pig", "greedy-pig (regions)", "ig", "random", "guided-ig")
    figure = plots.comparison({name: photo() for name in names})
    *_, judged, table = figure.axes
    assert judged.get_title(loc="left") == "second opinion by mobilenet-v2 ↑"
    assert "greedy-pig (regions), AUC 0.250" in texts(judged)
    assert list(judged.lines[0].get_ydata()) == [0, 0.25, 0.5]
    figure.savefig(io.BytesIO(), dpi=50)
    curves = [ax for ax in figure.axes if ax.lines]
    assert len(curves) == 3
    for left, right in pairwise(curves):  # Neither legends nor headings run into each other.
        ends = [left.get_legend().get_window_extent().x1, left.get_tightbbox().x1]
        assert max(ends) <= right.get_tightbbox().x0
    assert all(ax.get_tightbbox().y0 >= table.get_window_extent().y1 - 1 for ax in curves)
    unjudged = {k: v for k, v in ABOUT["curves"].items() if k != "second-opinion"}
    two = plots.comparison({name: photo(about={"curves": unjudged}) for name in names})
    assert sum(bool(ax.lines) for ax in two.axes) == 2
    noted = {**COMPARISON["ig"], "second_opinion_curve": ABOUT["curves"]["second-opinion"]}
    alone = plots.comparison(photo(about={"comparison": {"ig": noted}}))
    assert "second opinion by mobilenet-v2 ↑" in [ax.get_title(loc="left") for ax in alone.axes]


@pytest.mark.slow
def test_tiny_results_can_be_drawn():
    one = ranked((1, 1, 1)).with_notes(ABOUT, picture=pixels(1, 1))
    for result in (one, ranked((1,))):
        file = io.BytesIO()
        plots.panel(result).savefig(file, dpi=50)
        assert file.getvalue().startswith(b"\x89PNG")


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_no_pyplot_no_global_figure_no_changed_settings():
    out = python(
        "import sys, io, matplotlib, torch, greedypig as gp\n"
        "before = repr(matplotlib.rcParams.copy())\n"
        "g = gp.objective(lambda m: m @ torch.tensor([1.0, 4.0, 2.0]), 3)\n"
        "gp.plots.panel(gp.maximize(g, gp.GreedyPIG(per_round=1))).savefig(io.BytesIO())\n"
        "print('matplotlib.pyplot' in sys.modules, repr(matplotlib.rcParams.copy()) == before)\n"
    )
    assert out == "False True"


@pytest.mark.slow
def test_a_missing_matplotlib_names_the_extra():
    out = python(
        "import sys; sys.modules['matplotlib'] = None\n"
        "import torch, greedypig as gp\n"
        "a = gp.maximize(gp.objective(lambda m: m.sum(1), 3), 'ig')\n"
        "try: gp.plots.bars(a)\n"
        "except gp.MissingPackage as error: print(error)\n"
    )
    assert out.startswith("Expected the package matplotlib")
    assert "greedypig[plots]" in out


def test_long_names_stay_apart():
    names = [f"purchases_of_the_last_year_in_shop_{i}" for i in range(6)]
    a = gp.explain(torch.nn.Linear(6, 2), torch.ones(6), names=names)
    labels = [label.get_text() for label in plots.bars(a).get_yticklabels()]
    shown = [label.partition(" = ")[0] for label in labels]
    assert [name[-1] for name in shown] == [name[-1] for name in a.top(6)]
    assert all(len(name) == 32 and "…" in name for name in shown)


def test_a_result_without_values_has_no_curve():
    with pytest.raises(gp.InvalidInput, match="measured values"):
        plots.curve(unmeasured(gp.explain(torch.nn.Linear(6, 2), torch.ones(6))))
