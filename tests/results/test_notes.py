"""Notes are checked before anybody draws them; ranks become places as the order says."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import greedypig as gp
from greedypig.results.input_notes import InputNotes, TensorFacts
from greedypig.results.labels import feature_labels, feature_word
from greedypig.results.picture import (
    SHARES,
    Picture,
    compared_pictures,
    features_within,
    order_last,
    order_ticks,
    rise_left,
    strengths,
)
from greedypig.results.wording import chance, chance_cell, percent, short_percent
from seen import COMPARISON, known_order, photo, pixels, ranked


def test_notes_are_read_as_they_were_written():
    notes = InputNotes.of(photo(about={"comparison": COMPARISON}))
    assert (notes.label, notes.probability, notes.source) == ("espresso", 0.75, "photo.jpg")
    assert notes.predictions[1] == ("cup", 0.125)
    assert notes.kept == {0.01: 0.02, 0.05: 0.1, 0.1: 0.2}
    assert notes.curve.auc == pytest.approx(0.6875)
    assert notes.curves["second-opinion"].judge == "mobilenet-v2"
    assert [m.name for m in notes.methods] == ["greedy-pig", "ig"]
    assert notes.methods[0].curve.values.tolist() == [0.1, 0.7]
    assert notes.methods[1].curve is None
    assert notes.methods[1].numbers == {
        "sic_auc": 0.2,
        "lic_auc": 3.0,
        "gradients": 50,
        "seconds": 8,
    }


def test_a_result_without_notes_has_none_and_takes_its_class_from_the_settings():
    a = gp.explain(torch.nn.Linear(3, 2), torch.ones(3), target=1, method=gp.IG(1))
    notes = InputNotes.of(replace(a, about=TensorFacts(), attachments={}))
    assert notes.label == "output 1"
    assert notes.objective == "softmax"
    assert (notes.probability, notes.curve, notes.methods) == (None, None, ())


def test_probabilities_are_measured_ones_first_else_on_the_line_between_points():
    notes = InputNotes.of(photo())
    assert notes.probability_at(0.05) == 0.1
    assert notes.probability_at(0.25) == 0.5  # A point of the curve itself.
    assert notes.probability_at(0.125) == pytest.approx(0.25)
    assert InputNotes.of(ranked()).probability_at(0.1) is None
    measured = InputNotes.of(photo(about={"kept": {"0.4": 0.33}, "curves": {}}))
    assert measured.probability_at(0.4) == 0.33


def test_the_curve_runs_through_what_was_measured_besides_and_keeps_its_area():
    kept = {"0.1": 0.4, "0.5": 0.3}  # 0.5 is on the curve already, and stays.
    line = InputNotes.of(photo(about={"kept": kept})).curve
    assert line.fractions.tolist() == [0, 0.1, 0.25, 0.5, 1]
    assert line.values.tolist() == [0, 0.4, 0.5, 1.0, 0.75]
    assert line.auc == pytest.approx(0.6875)


def test_excess_is_the_smallest_part_that_outdoes_the_whole():
    assert InputNotes.of(photo()).excess() == (0.5, 1.0)
    assert InputNotes.of(photo(about={"probability": 0.995})).excess() is None
    flat = {"softmax": {"fractions": [0, 0.1, 0.2, 1], "values": [0, 0.997, 1.0, 0.75]}}
    assert InputNotes.of(photo(about={"curves": flat})).excess() == (0.1, 0.997)


def curve_from(bare: float, part: float) -> dict[str, object]:
    line = {"fractions": [0, 0.1, 0.2, 1], "values": [bare, part, part, 0.139]}
    return {"curves": {"softmax": line}, "kept": {}, "probability": 0.139}


def test_what_the_bare_baseline_gives_already_is_no_part_s_doing():
    unlikely = InputNotes.of(photo(about=curve_from(bare=0.178, part=0.18)))
    assert unlikely.excess() is None
    assert InputNotes.of(photo(about=curve_from(bare=0.178, part=0.5))).excess() == (0.1, 0.5)


ODD = {
    "kind": 3, "class": [["a"]], "source": {}, "probability": ["x", True],
    "predictions": ["espresso", [["cup"]], [[1, 0.5]], {"cup": 1}],
    "kept": [[0.1], {"x": 1}, {"0.1": "x"}, {"": 1}],
    "curves": [[1], {"softmax": 3}, {"softmax": {}},
               {"softmax": {"fractions": [0, 1], "values": [1]}},
               {"softmax": {"fractions": [0], "values": [1]}},
               {"softmax": {"fractions": [1, 0], "values": [1, 1]}},
               {"softmax": {"fractions": [0, 2], "values": [1, 1]}},
               {"softmax": {"fractions": "01", "values": [1, 1]}},
               {"softmax": {"fractions": [0, 1], "values": ["a", "b"]}},
               {"softmax": {"fractions": [0, 1], "values": [None, 1]}},
               {"softmax": {"fractions": [0, 1], "values": [0, 1], "judge": 3}}],
    "comparison": [[1], {"ig": 3}, {"ig": {"seconds": "x"}}, {"ig": {"curve": 3}}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [(k, v) for k, vs in ODD.items() for v in (vs if isinstance(vs, list) else [vs])],
    ids=str,
)
def test_odd_notes_are_refused_in_one_sentence(name, value):
    with pytest.raises(gp.InvalidInput, match=r"^Expected .*\(got"):
        InputNotes.of(photo(about={name: value}))


def test_a_method_s_curve_runs_through_what_was_measured_of_it():
    line = {"fractions": [0, 1], "values": [0.1, 0.7]}
    row = {"curve": line, "kept": {"0.1": 0.6, "0.05": 0.2},
           "second_opinion_curve": {**line, "judge": "mobilenet-v2"}}  # fmt: skip
    with_kept, without = InputNotes.of(
        photo(about={"comparison": {"a": row, "b": {"curve": line}}})
    ).methods
    assert with_kept.curve.values.tolist() == [0.1, 0.2, 0.6, 0.7]
    assert with_kept.curve.auc == without.curve.auc == pytest.approx(0.4)
    assert with_kept.second.judge == "mobilenet-v2"
    assert without.second is None


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.1, "10 %"), (0.005, "0.5 %"), (1, "100 %"), (0, "0 %"), (1 / 3, "33.3 %")],
)
def test_percentages_are_short(share, text):
    assert percent(share) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.1, "10 %"), (0.0404, "4 %"), (0.232, "23 %"), (0.00526, "0.53 %"), (0.997, "99.7 %"),
     (1, "100 %")],
)  # fmt: skip
def test_percentages_in_sentences_are_shorter_and_never_say_all_of_less(share, text):
    assert short_percent(share) == text


# Places.


def test_kept_numbers_show_the_picture_and_all_others_the_baseline():
    a, k = photo(), 13
    found = Picture.of(a).kept(k)
    expected = torch.full((4, 5, 3), 100, dtype=torch.uint8)
    for feature in known_order(60)[:k].tolist():
        channel, rest = divmod(feature, 20)
        expected[rest // 5, rest % 5, channel] = pixels(4, 5)[rest // 5, rest % 5, channel]
    assert np.array_equal(found, expected.numpy())


@pytest.mark.parametrize("shape", [(1, 4, 5), (4, 5), (4, 5, 3)])
def test_pictures_of_other_shapes_are_laid_out_too(shape):
    a = ranked(shape).with_notes({"kind": "image"}, picture=pixels(4, 5))
    found = Picture.of(a)
    assert found.ranks.shape == ((3 if shape[-1] == 3 else 1), 4, 5)
    assert np.array_equal(found.kept(a.features.count), pixels(4, 5).numpy())
    assert (found.kept(0) == 127).all()
    flat = np.moveaxis(found.ranks, 0, -1) if shape[-1] == 3 else found.ranks
    assert flat.reshape(-1)[known_order(a.features.n)].tolist() == list(range(a.features.n))


def test_many_channels_are_mixed_by_the_share_kept():
    a = ranked((4, 1, 1)).with_notes(picture=torch.full((1, 1, 3), 200, dtype=torch.uint8))
    assert Picture.of(a).kept(1).reshape(-1).tolist() == [round(0.25 * 200 + 0.75 * 127)] * 3


def test_importance_is_the_share_of_the_rise_in_g_that_was_left():
    x = torch.ones(1, 1, 4)
    weights = torch.tensor([1.0, 4.0, 3.0, 2.0])
    a = gp.explain(
        lambda rows: (rows.flatten(1) * weights).sum(1),
        x,
        outputs="values",
        method=gp.GreedyPIG(per_round=2),
    )
    picture = Picture.of(a.with_notes({"kind": "image"}))
    # The rounds take 4 and 3, then 2 and 1; each gain is shared by score.
    assert picture.importance == pytest.approx(np.array([[0.1, 1.0, 0.6, 0.3]]))
    later = replace(a, values=torch.tensor([0.0, 8.0, 6.0]))  # What falls adds nothing.
    assert rise_left(later) == pytest.approx(np.array([1, 3 / 7, 0, 0]))
    unknown = replace(a, values=torch.full((3,), float("nan")))
    assert rise_left(unknown) == pytest.approx(np.array([1, 0.6, 0.3, 0.1]))


@pytest.mark.parametrize("method", ["ig", "greedy-pig"])
def test_importance_falls_with_the_order(method):
    a = ranked((3, 8, 8), method=method)
    left = rise_left(a)
    assert left[0] == pytest.approx(1)
    assert (np.diff(left) <= 1e-12).all()
    assert left.min() >= 0


def test_negative_scores_that_are_ranked_last_leave_nothing():
    weights = torch.tensor([3.0, -2.0, 1.0, -1.0])
    a = gp.explain(
        lambda rows: (rows * weights).sum(1), torch.ones(4), outputs="values", method="ig"
    )
    assert a.order.tolist() == [0, 2, 3, 1]
    assert rise_left(a) == pytest.approx(np.array([1, 1 / 4, 0, 0]))


@pytest.mark.parametrize("k", [None, 5])
def test_maps_show_nothing_where_the_input_is_the_baseline_or_was_not_selected(k):
    x = torch.rand(3, 4, 5) + 0.1
    x[:, :, 2:] = 0
    a = gp.explain(lambda rows: rows.flatten(1).square().sum(1), x, outputs="values", k=k)
    assert (Picture.of(a).importance[:, 2:] == 0).all()
    assert int((rise_left(a) > 0).sum()) == (24 if k is None else 5)


def test_pictures_of_methods_say_from_which_share_on_a_value_is_kept():
    one, other = ranked((3, 10, 10)), ranked((3, 10, 10), seed=1, features=gp.grid(5))
    stops = compared_pictures([one, other])["methods"].numpy()
    assert stops.shape == (2, 3, 10, 10)
    for a, levels in zip((one, other), stops, strict=True):
        for index, share in enumerate(SHARES):
            kept = a.mask(features_within(a, share)).numpy()
            assert np.array_equal(levels <= index, kept), share
    assert compared_pictures([one, ranked((3, 4, 5))]) == {}
    assert compared_pictures([ranked((6,))]) == {}


def test_rows_and_sequences_are_no_pictures():
    for shape in ((6,), (4, 5), (7, 4, 5)):
        assert Picture.of(ranked(shape)) is None
    assert Picture.of(ranked((3, 4, 5)).with_notes({"kind": "table"})) is None
    assert Picture.of(ranked((3, 4, 5))).pixels is None


@pytest.mark.parametrize(
    "tensors",
    [
        {"picture": torch.zeros(4, 5, 3)}, {"picture": torch.zeros(4, 5, dtype=torch.uint8)},
        {"picture": torch.zeros(5, 5, 3, dtype=torch.uint8)},
        {"baseline": torch.zeros(5, 5, 3, dtype=torch.uint8)},
        {"baseline": torch.zeros(4, 5, 4, dtype=torch.uint8)},
    ],
    ids=str,
)  # fmt: skip
def test_pictures_that_do_not_fit_are_refused(tensors):
    with pytest.raises(gp.InvalidInput, match=r"^Expected .*\(got"):
        Picture.of(ranked((3, 4, 5)).with_notes(**tensors))


def test_shares_never_take_more_than_they_say():
    a = ranked((3, 4, 4), features=gp.grid(2))  # 4 features of 12 values.
    assert [features_within(a, s) for s in (0, 0.24, 0.25, 0.26, 0.99, 1)] == [0, 0, 1, 1, 3, 4]
    with pytest.raises(gp.InvalidInput, match="share from 0 to 1"):
        features_within(a, 1.5)


def test_unmeasured_values_leave_a_gap_in_a_line():
    line = {"fractions": [0, 0.5, 1], "values": [0, None, 1]}
    assert InputNotes.of(photo(about={"curves": {"loss": line}})).curves["loss"].points == [
        (0, 0),
        (1, 1),
    ]


@pytest.mark.parametrize("selected", [4096, 50, 1, 0])
def test_an_order_s_scale_ends_with_what_was_selected_and_marks_round_numbers(selected):
    last = order_last(
        replace(ranked((1, 64, 64)), selected=selected), np.arange(4096).reshape(64, 64)
    )
    assert last == max(selected, 2)
    ticks = order_ticks(last)
    assert (ticks[0], ticks[-1]) == (1, last)
    places = np.sqrt((np.array(ticks) - 1) / (last - 1))
    assert len(ticks) <= 5
    assert len(ticks) == 2 or np.diff(places).min() > 0.1


def test_features_are_called_by_name_else_by_place():
    assert feature_labels(ranked((2,), names=["age", "bmi"]), [1]) == ["bmi"]
    assert feature_labels(ranked((2, 3, 4)), [23]) == ["x[1, 2, 3]"]
    assert feature_labels(ranked((3, 4, 4), features=gp.grid(2)), [3]) == ["group x[:, 2:4, 2:4]"]
    corners = torch.ones(3, 4, 4, dtype=torch.long)  # Elsewhere, and four places that are no box.
    corners[:, ::3, ::3] = 0
    assert feature_labels(ranked((3, 4, 4), features=corners), [0]) == ["group 0"]
    assert feature_labels(ranked((3, 4, 4), features=gp.windows(2)), [4]) == ["window at (1, 1)"]
    assert feature_word(photo()) == "features"
    assert feature_word(ranked((2,)), 1) == "feature"


def test_the_line_of_rounds_runs_over_the_share_selected():
    g = gp.objective(lambda m: m @ torch.tensor([1.0, 4.0, 2.0]), 3)
    line = InputNotes.of(gp.maximize(g, gp.GreedyPIG(per_round=1, rounds=2))).rounds
    assert line.fractions.tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert line.values.tolist() == pytest.approx([0, 4, 6, 7])


def test_bars_are_gains_where_each_round_took_one_else_scores_of_their_round():
    g = gp.objective(lambda m: m @ torch.tensor([1.0, 4.0, 2.0]), 3)
    lengths, rounds, meaning = strengths(gp.maximize(g, gp.GreedyPIG(per_round=1)), 3)
    assert lengths == pytest.approx([4, 2, 1])
    assert rounds == [1, 2, 3]
    assert "gain" in meaning
    lengths, rounds, meaning = strengths(gp.maximize(g, "ig"), 3)
    assert lengths == pytest.approx([4, 2, 1])
    assert (rounds, meaning) == ([1, 1, 1], "score")
    lengths, rounds, meaning = strengths(gp.maximize(g, gp.GreedyPIG(rounds=1, per_round=2)), 3)
    assert rounds == [1, 1, 0]  # The third was never selected.
    assert "round" in meaning


@pytest.mark.parametrize(
    ("p", "sentence", "cell"),
    [
        (0.0, "0.000", "0.000"),
        (0.0004, "less than 0.001", "<0.001"),
        (0.0006, "0.001", "0.001"),
        (0.98765, "0.988", "0.988"),
        (0.99951, "more than 0.999", ">0.999"),
        (1.0, "1.000", "1.000"),
    ],
)
def test_probabilities_are_never_rounded_to_certainty(p, sentence, cell):
    assert (chance(p), chance_cell(p)) == (sentence, cell)
