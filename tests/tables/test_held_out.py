"""Rows that were held out tell after which column nothing is gained."""

import html

import pytest
import torch

import greedypig as gp


def rows(n=400, columns=6, noise=0.1, seed=0):
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(n, columns, generator=random, dtype=torch.float64)
    return x, noise * torch.randn(n, generator=random, dtype=torch.float64)


def linear(*weights):
    model = torch.nn.Linear(len(weights), 1, bias=False, dtype=torch.float64)
    model.weight.data = torch.tensor([weights], dtype=torch.float64)
    return model


def batches(x, y, size=100):
    return [(x[i : i + size], y[i : i + size]) for i in range(0, len(x), size)]


def judged(model, train, valid, **more):
    a = gp.select_features(model, train, valid=valid, loss="squared-error", **more)
    return a, a.about.held_out


def test_values_are_those_of_the_first_columns_on_the_held_out_rows():
    model = linear(3, 2, 1, 0, 0, 0)
    (x, e), (v, f) = rows(), rows(90, seed=1)
    truth = torch.tensor([3.0, 2, 1, 0, 0, 0], dtype=torch.float64)
    target = v @ truth + f
    a, seen = judged(model, batches(x, x @ truth + e), batches(v, target, 40), k=4)
    expected = [
        -float((v @ (truth * a.mask(k).double()) - target).square().mean()) for k in range(5)
    ]
    expected.append(-float(f.square().mean()))
    assert seen.values == pytest.approx(expected)
    assert seen.rows == 90
    assert seen.columns == 3


def test_columns_that_the_model_has_only_learned_by_heart_are_no_gain():
    # What the model thinks of the last three columns is not so: on other rows they do harm.
    model = linear(3, 2, 1, 0.5, 0.5, 0.5)
    (x, e), (v, f) = rows(), rows(300, seed=1)
    as_learned = torch.tensor([3.0, 2, 1, 0.5, 0.5, 0.5], dtype=torch.float64)
    truth = torch.tensor([3.0, 2, 1, 0, 0, 0], dtype=torch.float64)
    a, seen = judged(model, batches(x, x @ as_learned + e), batches(v, v @ truth + f))
    assert a.top(3) == [0, 1, 2]
    assert seen.columns == 3
    assert float(a.values[-1]) > float(a.values[3])  # On its own rows it gains by all.


def test_columns_that_are_of_use_together_alone_are_a_gain():
    def model(x):
        return x[:, :1] * x[:, 1:2] + 0 * x[:, 2:3]

    (x, e), (v, f) = rows(), rows(300, seed=1)
    _, seen = judged(model, batches(x, x[:, 0] * x[:, 1] + e), batches(v, v[:, 0] * v[:, 1] + f))
    assert seen.columns == 2


def test_nothing_is_said_where_columns_that_were_not_selected_are_a_gain():
    model = linear(3, 2, 1, 0, 0, 0)
    x, e = rows()
    data = batches(x, x @ model.weight.data[0] + e)
    assert judged(model, data, data, k=1)[1].columns is None
    assert judged(model, data, data, k=5)[1].columns == 3


def test_noise_alone_is_no_gain_at_all_and_weights_count():
    model = linear(1, 1)
    (x, e), (v, f) = rows(columns=2), rows(300, columns=2, seed=1)
    valid = [(v[:150], f[:150], torch.ones(150)), (v[150:], v[150:].sum(1), torch.zeros(150))]
    _, seen = judged(model, batches(x, x.sum(1) + e), valid)
    assert seen.columns == 0


def test_results_carry_what_was_warned_of(tmp_path):
    model = linear(1, 1, 0)
    x, _ = rows(columns=3)
    x[:, 2] = 5
    with pytest.warns(UserWarning, match="constant|equal the label") as warned:
        a = gp.select_features(model, batches(x, x[:, 0]), loss="squared-error")
    said = [str(w.message) for w in warned]
    assert list(a.about.warnings) == said
    assert any("equal the label" in words for words in said)
    a.save(tmp_path / "a.gpig")
    assert list(gp.load(tmp_path / "a.gpig").about.warnings) == said
    page = html.unescape(gp.report.html(a))
    assert all(words in page for words in said)
