"""A result as a DataFrame, and the values that its features have in the input."""

import sys

import pytest
import torch

import greedypig as gp
from greedypig.results.frame import feature_values, valued_labels
from nets import cnn, mlp, picture

ONE = gp.GreedyPIG(per_round=1, steps=2)
AGES = torch.tensor([52.0, 0.25, -3.0])
WEIGHTS = torch.tensor([[0.1, 4.0, 1.0], [0.0, 0.0, 0.0]])


def people(**options):
    """Gains of a linear value: weight · x, best first: 5.2, 1, −3."""
    model = torch.nn.Linear(3, 1, bias=False)
    model.weight.data = WEIGHTS[:1]
    options = {"names": ["age", "rate", "<b>debt"], "method": ONE} | options
    return gp.explain(model, AGES, outputs="values", objective="increase", **options)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_every_feature_is_a_row_with_its_value_rank_round_score_gain_and_contribution(library):
    pytest.importorskip(library)
    table = people().to_frame(library)
    rows = table.to_dict("list") if library == "pandas" else table.to_dict(as_series=False)
    assert " ".join(rows) == "feature name value rank round score gain contribution"
    assert list(rows["feature"]) == [0, 1, 2]
    assert list(rows["name"]) == ["age", "rate", "<b>debt"]
    assert list(rows["value"]) == pytest.approx([52, 0.25, -3])
    assert list(rows["rank"]) == list(rows["round"]) == [1, 2, 3]
    for column in ("score", "gain", "contribution"):
        assert list(rows[column]) == pytest.approx([5.2, 1.0, -3.0])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_features_that_were_not_selected_have_no_round(library):
    pytest.importorskip(library)
    table = people(k=1).to_frame(library)
    missing = table["round"].isna() if library == "pandas" else table["round"].is_null()
    assert missing.to_list() == [False, True, True]
    assert "int" in str(table["round"].dtype).lower()
    assert table["gain"].to_list() == pytest.approx([5.2, 0, 0])


def test_gains_of_a_round_are_divided_among_its_picks():
    a = gp.explain(mlp(), torch.randn(6), method=gp.GreedyPIG(rounds=2, steps=4))
    gains = a.feature_gains()
    assert a.feature_rounds()[a.order].tolist() == [1] * a.picks[0] + [2] * a.picks[1]
    for number, gain in enumerate(a.values.diff().tolist(), 1):
        assert float(gains[a.feature_rounds() == number].sum()) == pytest.approx(gain)


def test_labels_say_the_value_of_the_feature():
    assert valued_labels(people(), [0, 1, 2]) == ["age = 52", "rate = 0.25", "<b>debt = −3"]


def test_groups_of_several_values_have_no_value_of_their_own():
    groups = people(features=torch.tensor([0, 1, 1]), names=["age", "money"])
    assert valued_labels(groups, [0, 1]) == ["age = 52", "money"]
    assert feature_values(people(features=torch.zeros(3).long(), names=["all"])) is None
    assert feature_values(gp.explain(cnn(), picture(), method=ONE)) is None  # It has a picture.


def test_results_without_an_input_have_no_values():
    a = gp.maximize(gp.objective(lambda masks: masks.sum(1), 3), ONE)
    assert feature_values(a) is None
    assert "value" not in a.to_frame().columns


def test_pixels_of_a_photo_are_named_in_one_go():
    a = gp.explain(cnn(), picture(shape=(3, 60, 60)), features="pixels", method=gp.IG(1))
    names = a.to_frame()["name"]
    assert len(set(names)) == 3600
    assert names[0] == f"group {a.top(1)[0]}"


def test_an_unknown_library_is_refused_and_a_missing_one_named(monkeypatch):
    with pytest.raises(gp.InvalidInput, match=r"'polars' \(got 'polar'\). Did you mean 'polars'"):
        people().to_frame("polar")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(gp.MissingPackage, match="pip install pandas"):
        people().to_frame()
