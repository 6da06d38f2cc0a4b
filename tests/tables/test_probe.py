"""Models are asked a few questions before the work: gates that gate, answers that are logits."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from worlds import cut, deep

import greedypig as gp

PROBABILITIES = "looks like probabilities but is read as logits"


def labelled(classes=2, rows=200):
    """A model, rows, and the labels that it predicts."""
    x = torch.randn(rows, 6, generator=torch.Generator().manual_seed(0))
    model = deep(outputs=1 if classes == 2 else classes)
    with torch.no_grad():
        model[-1].weight.mul_(5)
        model[-1].bias.sub_(model(x).median(0).values)  # Every class is there.
        out = model(x)
    return model, x, (out.squeeze(1) > 0).float() if classes == 2 else out.argmax(1)


@pytest.mark.parametrize(
    ("loss", "classes", "last"),
    [("binary-cross-entropy", 2, nn.Sigmoid()), ("cross-entropy", 3, nn.Softmax(1))],
)
def test_probabilities_are_told_and_can_be_asked_for(loss, classes, last, recwarn):
    model, x, y = labelled(classes)
    ends = nn.Sequential(*model, last)
    with pytest.warns(UserWarning, match=PROBABILITIES) as told:
        gp.select_features(ends, cut(x, y), loss=loss, k=1)
    assert [w.filename for w in told] == [__file__]
    recwarn.clear()
    a = gp.select_features(ends, cut(x, y), loss=loss, outputs="probabilities")
    b = gp.select_features(model, cut(x, y), loss=loss)
    assert not recwarn.list
    assert a.order.tolist() == b.order.tolist()
    torch.testing.assert_close(a.feature_scores, b.feature_scores, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(a.values, b.values, rtol=1e-4, atol=1e-5)


def test_logits_between_0_and_1_are_logits(recwarn):
    """Of a rare no: every logit is in (0, 1), and the labels fit them as such."""
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(4000, 2, generator=generator)
    model = nn.Linear(2, 1)
    model.weight.data[:] = torch.tensor([[0.3, 0.6]])
    model.bias.data.fill_(0.05)
    p = torch.sigmoid(model(x).detach().squeeze(1))
    y = (torch.rand(4000, generator=generator) < p).float()
    gp.select_features(model, cut(x, y, 1000), baseline="mean")
    assert not recwarn.list


def test_probabilities_of_0_and_1_cost_a_finite_loss():
    def certain(rows):
        return (rows[:, 0] > 0).float() + 0 * rows.sum(1)

    x = torch.tensor([[1.0, 0], [-1, 0], [2, 1]])
    a = gp.select_features(
        certain, [(x, torch.tensor([1.0, 0, 0]))], outputs="probabilities", method="marginal-gains"
    )
    assert torch.isfinite(a.values).all()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"outputs": "odds"}, "'logits' or 'probabilities'"),
        ({"outputs": "probabilities", "loss": "squared-error"}, "for outputs='probabilities'"),
        ({"outputs": "probabilities"}, "probabilities from 0 to 1"),
    ],
)
def test_outputs_that_cannot_be_are_named(more, said):
    model, x, y = labelled()
    with pytest.raises(gp.InvalidInput, match=said):
        gp.select_features(model, cut(x, y), **more)


def test_a_softmax_of_explain_is_told_in_the_same_words():
    x = torch.randn(4, generator=torch.Generator().manual_seed(0))
    with pytest.warns(UserWarning, match=PROBABILITIES):
        gp.explain(lambda rows: functional.softmax(rows, 1), x, method=gp.IG(2))
