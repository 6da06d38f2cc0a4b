"""Fine-tuning with random column masks: a copy that answers for rows with columns missing."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional
from worlds import Plain, cut, mixed, regression

import greedypig as gp


def copies(rows=512):
    """y = x₀, and columns 0 and 1 are the same: a model may lean on either."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 3, generator=generator)
    x[:, 1] = x[:, 0]
    return x, x[:, 0].clone()


def leaning():
    """relu(z) − relu(−z) with z = (x₀ + x₁) / 2: half of the answer is gone with a column."""
    model = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 1))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        model[0].weight.copy_(torch.randn(16, 3, generator=generator) * 0.5)
        model[0].weight[:2] = torch.tensor([[0.5, 0.5, 0], [-0.5, -0.5, 0]])
        model[2].weight.zero_()
        model[2].weight[0, :2] = torch.tensor([1.0, -1])
        model[0].bias.zero_()
        model[2].bias.zero_()
    return model


def masked_loss(model, x, y):
    """Mean squared error with column 1, a copy, absent."""
    with torch.no_grad():
        hidden = x.clone()
        hidden[:, 1] = 0
        return float(functional.mse_loss(model(hidden).squeeze(1), y))


def test_the_copy_learns_to_do_without_a_column():
    x, y = copies()
    model = leaning()
    before = copy.deepcopy(model.state_dict())
    tuned = gp.mask_finetune(model, cut(x, y, 64), steps=150, lr=1e-2, loss="squared-error")
    assert masked_loss(tuned, x, y) < 0.5 * masked_loss(model, x, y)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    with pytest.warns(UserWarning, match="'0', '1' equal the label"):
        a = gp.select_features(tuned, cut(x, y), loss="squared-error", k=1)
    assert float(a.values[1]) > -0.3


@pytest.mark.parametrize("make", [Plain, lambda: gp.models.TabularMLP(4, [5, 9, 3], hidden=(8,))])
def test_a_seed_gives_one_copy_and_the_model_stays_as_it_was(make):
    numbers, ids, y = mixed()
    model = make().train()
    before = copy.deepcopy(model.state_dict())
    torch.manual_seed(0)
    state = torch.get_rng_state()
    batches = cut((numbers, ids), y, 40)
    one, two, other = (gp.mask_finetune(model, batches, steps=5, seed=s) for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert one.training
    assert all(p.requires_grad and p.grad is None for p in one.parameters())
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    pairs = list(zip(one.parameters(), two.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)
    changed = list(zip(one.parameters(), model.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in changed)
    assert not all(
        torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True)
    )
    assert not any(m._forward_hooks for m in one.modules())


def test_absent_columns_are_at_the_baseline_that_is_asked_for():
    numbers, ids, y = mixed()
    model = gp.models.TabularMLP(4, [5, 9, 3], hidden=(8,))
    batches = cut((numbers + 3, ids), y, 40)
    zero, mean = (gp.mask_finetune(model, batches, steps=3, baseline=b) for b in ("zero", "mean"))
    assert not torch.equal(zero.first.weight, mean.first.weight)


def test_what_cannot_be_trained_is_refused():
    model, x, y = regression()
    with pytest.raises(gp.InvalidType, match="module to train"):
        gp.mask_finetune(lambda rows: rows, cut(x, y))
    with pytest.raises(gp.InvalidInput, match="parameters to train"):
        gp.mask_finetune(nn.Flatten(), cut(x, y), loss="squared-error")
    with pytest.raises(gp.InvalidInput, match="whole_rows"):
        gp.mask_finetune(model, cut(x, y), whole_rows=2.0)
    with pytest.raises(gp.InvalidInput, match="steps"):
        gp.mask_finetune(model, cut(x, y), steps=0)
