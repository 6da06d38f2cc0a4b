"""What goes wrong with tables is named: the column, the batch, the argument."""

import numpy as np
import pytest
import torch
from torch import nn
from worlds import Stream, cut, mixed, regression

import greedypig as gp
from agreement import agree

NAMES = [*"abcdef"]


def select(x, y, model=None, **more):
    model = model or regression()[0]
    more.setdefault("loss", "squared-error")
    return gp.select_features(model, cut(x, y), **{"names": NAMES} | more)


def table():
    return regression()[1:]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_named_by_its_column(bad):
    x, y = table()
    x[333, 4] = bad
    with pytest.raises(gp.InvalidInput, match="infinity in 'e'"):
        select(x, y)


def test_a_label_that_is_missing_is_named():
    x, y = table()
    y[7] = float("nan")
    with pytest.raises(gp.InvalidInput, match="label column"):
        select(x, y)


def test_text_where_numbers_were_is_refused():
    text = np.array([["a", "b"]] * 4, dtype=object)
    with pytest.raises(gp.InvalidType, match="hold numbers"):
        gp.select_features(nn.Linear(2, 1), [(text, torch.zeros(4))])
    with pytest.raises(gp.InvalidType, match="column 'city'"):
        gp.select_features(nn.Linear(2, 1), [({"city": ["Rome"] * 4}, torch.zeros(4))])


def test_arrays_of_numpy_are_welcome():
    model, x, y = regression()
    a = gp.select_features(model, [(x.numpy(), y.numpy())], loss="squared-error")
    b = gp.select_features(model, [(x, y)], loss="squared-error")
    assert torch.equal(a.feature_scores, b.feature_scores)


def test_a_constant_column_is_warned_of():
    x, y = table()
    x[:, 1] = 3.0
    with pytest.warns(UserWarning, match="'b' are constant"):
        select(x, y)


def test_a_label_in_disguise_is_warned_of():
    x, y = table()
    x[:, 3] = 5 - 2 * y
    with pytest.warns(UserWarning, match="'d' equal the label"):
        select(x, y)


def test_a_sound_table_is_not_warned_of(recwarn):
    x, y = table()
    select(x, y + torch.randn(400, generator=torch.Generator().manual_seed(9)))
    numbers, ids, labels = mixed()
    model = gp.models.TabularMLP(4, [5, 9, 3], hidden=(8,))
    gp.select_features(model, cut((numbers, ids), labels), k=1)
    assert not recwarn.list


def test_more_columns_than_there_are_cannot_be_selected():
    x, y = table()
    with pytest.raises(gp.InvalidInput, match="k to be a whole number from 1 to 6"):
        select(x, y, k=7)


def test_a_loss_that_is_nan_at_the_empty_set_says_so():
    class Log(nn.Module):
        def forward(self, x):
            return x.abs().sum(1).log() * 0 + x[:, 0]

    x, y = table()
    with pytest.raises(gp.NonFinite, match="0 of 6"):
        select(x, y, Log())


def test_an_empty_batch_changes_nothing_and_no_rows_at_all_are_refused():
    model, x, y = regression()
    empty = (x[:0], y[:0])
    a = gp.select_features(model, [*cut(x, y), empty], loss="squared-error")
    b = gp.select_features(model, cut(x, y), loss="squared-error")
    assert torch.equal(a.feature_scores, b.feature_scores)
    with pytest.raises(gp.InvalidInput, match="at least one row"):
        gp.select_features(model, [empty, empty], loss="squared-error")
    for nothing in ([], Stream([])):
        with pytest.raises(gp.InvalidInput, match="at least one batch"):
            gp.select_features(model, nothing, loss="squared-error")


def test_batches_that_can_be_read_once_only_are_refused():
    model, x, y = regression()
    with pytest.raises(gp.InvalidInput, match="again and again"):
        gp.select_features(model, iter(cut(x, y)), loss="squared-error")
    with pytest.raises(gp.InvalidType, match=r"Try \[\(features, label\)\]"):
        gp.select_features(model, x, loss="squared-error")


def test_batches_of_another_shape_than_the_first_are_refused():
    model, x, y = regression()
    with pytest.raises(gp.InvalidInput, match=r"like the first.*\(rows, 6\).*\(rows, 4\)"):
        gp.select_features(model, [(x[:50], y[:50]), (x[:50, :4], y[:50])], loss="squared-error")
    with pytest.raises(gp.InvalidInput, match="a row per label"):
        gp.select_features(model, [(x[:50], y[:49])], loss="squared-error")
    with pytest.raises(gp.InvalidInput, match="like the first"):
        gp.select_features(model, [(x, y), ((x,), y)], loss="squared-error")


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"method": "greedy_pig"}, "Did you mean 'greedy-pig'"),
        ({"loss": "cross-entropi"}, "Did you mean 'cross-entropy'"),
        ({"budget": 20}, "at least 30 batches"),
        ({"budget": 20, "method": "ig"}, "at least 50 batches"),
        ({"budget": 3, "method": "permutation"}, "at least 7 batches"),
        ({"budget": 26, "method": "marginal-gains"}, "at least 27 batches"),
        ({"budget": 0}, "budget to be a whole number"),
        ({"names": list("abcdea")}, "'a' more than once"),
    ],
)
def test_an_argument_that_cannot_be_is_named(more, text):
    x, y = table()
    with pytest.raises(gp.InvalidInput, match=text):
        select(x, y, **more)


def test_a_model_for_other_columns_is_refused_before_the_work():
    numbers, ids, y = mixed()
    with pytest.raises(gp.InvalidInput, match="model's 6 columns"):
        gp.select_features(gp.models.TabularMLP(4, [5, 9]), cut((numbers, ids), y))
    with pytest.raises(gp.InvalidInput, match="model's 9 columns"):
        gp.select_features(nn.Linear(9, 1), cut(numbers, y))


def test_a_class_that_the_model_does_not_know_is_refused():
    numbers, ids, y = mixed(classes=4)
    model = gp.models.TabularMLP(4, [5, 9, 3], hidden=(8,), outputs=3)
    batches = cut((numbers, ids), y)
    with pytest.raises(gp.InvalidInput, match=r"classes 0 … 2"):
        gp.select_features(model, batches, loss="cross-entropy")
    with pytest.raises(gp.InvalidInput, match="classes 0, 1, 2"):
        gp.select_features(model, cut((numbers, ids), y - 1), loss="cross-entropy")


def test_classes_absent_from_a_batch_are_no_trouble():
    numbers, ids, y = mixed(classes=3)
    model = gp.models.TabularMLP(4, [5, 9, 3], hidden=(8,), outputs=3)
    order = torch.sort(y).indices
    a = gp.select_features(model, cut((numbers[order], ids[order]), y[order]), loss="cross-entropy")
    b = gp.select_features(model, cut((numbers, ids), y), loss="cross-entropy")
    agree(a, b)


def test_selection_can_end_when_nothing_helps_any_more():
    x, y = table()
    a = select(x, y, stop=gp.Stop(gain=True))
    assert a.stop is gp.StopReason.NO_GAIN
    assert sorted(a.order.tolist()[: a.selected]) == [0, 2, 3, 5]
