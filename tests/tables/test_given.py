"""Batches and models as people have them: weights of rows, DataFrames, bags with offsets."""

import numpy as np
import pytest
import torch
from torch.nn import functional
from worlds import Plain, Stream, cut, deep, mixed, regression

import greedypig as gp
from agreement import agree


def weighted(seed=4):
    """Rows, labels and whole-number weights, some of them 0."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(120, 6, generator=generator, dtype=torch.float64)
    y = torch.randint(2, (120,), generator=generator)
    return x, y, torch.randint(4, (120,), generator=generator)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("method", [None, "ig", "permutation", "marginal-gains"])
def test_a_row_of_weight_three_counts_as_three_rows(fast, method):
    x, y, weights = weighted()
    model = deep(dtype=torch.float64)
    asked = model if fast else lambda rows: model(rows)
    whole = method == "permutation"  # Rows that are shuffled must be the same ones.
    if whole:
        weights = torch.full_like(weights, 3)
    given = [(x[i : i + 40], y[i : i + 40], weights[i : i + 40]) for i in range(0, 120, 40)]
    repeated = (
        cut(x, y, 40)
        if whole
        else cut(x.repeat_interleave(weights, 0), y.repeat_interleave(weights), 40)
    )
    a = gp.select_features(asked, given, method=method)
    b = gp.select_features(asked, repeated, method=method)
    agree(a, b)


def test_the_mean_that_stands_for_absence_is_one_by_weights():
    x, y, weights = weighted()
    model = deep(dtype=torch.float64)
    a = gp.select_features(model, [(x, y, weights)], baseline="mean")
    repeated = [(x.repeat_interleave(weights, 0), y.repeat_interleave(weights))]
    b = gp.select_features(model, repeated, baseline="mean")
    torch.testing.assert_close(a.values, b.values)


def test_other_weights_are_no_rows_to_go_on_with(tmp_path):
    x, y, weights = weighted()
    model = deep(dtype=torch.float64)
    ask = {"k": 2, "checkpoint": tmp_path / "run.gpig"}
    gp.select_features(model, [(x, y, weights)], **ask)
    with pytest.raises(gp.InvalidInput, match="input"):
        gp.select_features(model, [(x, y, weights + 1)], **ask)


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        (torch.full((120,), -1.0), "finite weights ≥ 0"),
        (torch.full((120,), float("nan")), "finite weights ≥ 0"),
        (torch.ones(119), "a weight for each of the 120 rows"),
        (torch.zeros(120), "at least one row that counts"),
    ],
)
def test_weights_that_cannot_be_are_named(weights, said):
    x, y, _ = weighted()
    with pytest.raises(gp.InvalidInput, match=said):
        gp.select_features(deep(dtype=torch.float64), [(x, y, weights)])


def test_a_loss_that_is_a_mean_cannot_be_weighted():
    x, y, weights = weighted()

    def mean(outputs, labels):
        return functional.mse_loss(outputs.squeeze(1), labels.to(outputs))

    with pytest.raises(gp.InvalidInput, match="a loss per row for rows with weights"):
        gp.select_features(deep(dtype=torch.float64), [(x, y, weights)], loss=mean)


def test_an_empty_first_batch_shows_nothing_and_the_next_one_does():
    numbers, ids, y = mixed()
    whole = cut((numbers, ids), y, 80)
    empty = ((numbers[:0], ids[:0]), y[:0])
    a = gp.select_features(Plain(), whole)
    b = gp.select_features(Plain(), [empty, *whole])
    c = gp.select_features(Plain(), Stream([empty, empty, *whole]))
    agree(a, b)
    agree(a, c)


def test_batches_that_know_their_columns_are_no_dataframe():
    class Known(Stream):
        columns = ("a", "b")

    x, y, _ = weighted()
    assert gp.select_features(deep(dtype=torch.float64), Known(cut(x, y, 40)), k=1).selected == 1


def test_a_data_set_of_single_rows_is_told_from_batches():
    x, y, _ = weighted()
    rows = torch.utils.data.TensorDataset(x, y)
    with pytest.raises(gp.InvalidInput, match=r"Try torch\.utils\.data\.DataLoader"):
        gp.select_features(deep(dtype=torch.float64), rows)
    loader = torch.utils.data.DataLoader(rows, batch_size=40)
    assert gp.select_features(deep(dtype=torch.float64), loader, k=1).selected == 1


@pytest.mark.parametrize("given", [7, (1,), (1, 2, 3, 4)])
def test_batches_that_are_none_are_named(given):
    with pytest.raises(gp.InvalidInput, match=r"batches of two, \(features, label\)"):
        gp.select_features(lambda x: x.sum(1), [given])


def test_a_dataframe_is_a_matrix_with_names():
    pandas = pytest.importorskip("pandas", reason="needs the extra sklearn")
    model, x, y = regression()
    names = ["age", "zip", "income", "debt", "day", "flag"]
    frame = pandas.DataFrame(x.numpy(), columns=names)
    batches = [(frame.iloc[i : i + 50], pandas.Series(y[i : i + 50])) for i in range(0, 400, 50)]
    a = gp.select_features(model, batches, loss="squared-error")
    b = gp.select_features(model, cut(x, y), loss="squared-error")
    assert a.top(6) == [names[i] for i in b.order.tolist()]
    agree(a, b)
    renamed = gp.select_features(model, batches, loss="squared-error", names=list("abcdef"), k=1)
    assert renamed.top(1) == ["a"]


def test_numbers_and_flags_of_a_dataframe_are_one_matrix_and_ids_another():
    pandas = pytest.importorskip("pandas", reason="needs the extra sklearn")
    numbers, ids, y = mixed(sizes=(5, 9), numeric=2)
    frame = pandas.DataFrame(
        {"amount": numbers[:, 0], "many": numbers[:, 1] > 0, "n": np.arange(240) % 7}
    )
    keys = pandas.DataFrame(ids.numpy(), columns=["shop", "city"])
    model = gp.models.TabularMLP(3, [5, 9], hidden=(8,))
    a = gp.select_features(model, [((frame, keys), y)])
    assert set(a.top(5)) == {"amount", "many", "n", "shop", "city"}
    flat = torch.stack([numbers[:, 0], (numbers[:, 1] > 0).float(), torch.arange(240) % 7], dim=1)
    b = gp.select_features(model, [((flat, ids), y)])
    torch.testing.assert_close(a.feature_scores, b.feature_scores, rtol=1e-4, atol=1e-6)


def test_a_dataframe_of_polars_is_a_matrix_with_names():
    polars = pytest.importorskip("polars", reason="needs polars")
    model, x, y = regression()
    frame = polars.DataFrame(x.numpy(), schema=list("uvwxyz"))
    a = gp.select_features(model, [(frame, polars.Series(y.numpy()))], loss="squared-error", k=2)
    assert a.top(2) == ["u", "w"]


def test_texts_in_a_dataframe_and_columns_in_another_order_are_named():
    pandas = pytest.importorskip("pandas", reason="needs the extra sklearn")
    model, x, y = regression()
    frame = pandas.DataFrame(x.numpy(), columns=list("abcdef"))
    with pytest.raises(TypeError, match=r"numbers \(got 'b' of"):
        gp.select_features(model, [(frame.assign(b="red"), y)], loss="squared-error")
    moved = frame[["b", "a", "c", "d", "e", "f"]]
    with pytest.raises(gp.InvalidInput, match=r"like the first.*got features.*b, a, c, d, e"):
        gp.select_features(model, [(frame, y), (moved, y)], loss="squared-error")
    with pytest.raises(TypeError, match=r"iterable of \(features, label\)"):
        gp.select_features(model, frame)


@pytest.mark.parametrize(
    "look_up",
    [
        lambda ids, w: functional.embedding(ids, w),
        lambda ids, w: w[ids],
        lambda ids, w: functional.one_hot(ids, 9).float() @ w,
    ],
    ids=["functional", "index", "one-hot"],
)
def test_ids_that_are_looked_up_by_no_module_are_named(look_up):
    numbers, ids, y = mixed()
    w = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))

    def model(numbers, ids):
        return numbers.sum(1) + look_up(ids, w).sum((1, 2))

    with pytest.raises(gp.InvalidInput, match=r"'4', '5', '6' as numbers or looks them up"):
        gp.select_features(model, [((numbers, ids), y)])


def test_whole_numbers_are_numbers_to_a_model_that_computes_with_them():
    numbers, ids, y = mixed()
    a = gp.select_features(lambda n, i: n.sum(1) + i.sum(1), [((numbers, ids), y)])
    b = gp.select_features(lambda n, i: n.sum(1) + i.sum(1), [((numbers, ids.float()), y)])
    torch.testing.assert_close(a.feature_scores, b.feature_scores)
