"""What a feature is, and how scores, importance, masks and rankings fold back into the input."""

import pytest
import torch
from torch import nn

import greedypig as gp
from agreement import agree
from names import without_address
from nets import TwoInputs, close, cnn, linear, mlp, picture, row

flat_cnn = cnn()


def element_scores(x, **options):
    return gp.explain(flat_cnn, x, method=gp.IG(steps=4), **options).scores


def features_of(a):
    return a.features.count


@pytest.mark.parametrize(
    ("features", "count"),
    [
        ("elements", 90),
        ("pixels", 30),
        (gp.grid(2), 9),
        (gp.grid(4), 4),
        (gp.windows(3), 12),
        (gp.windows(3, stride=2), 3 * 2),
        (torch.arange(90).view(3, 6, 5) // 30, 3),
        (torch.arange(3).view(3, 1, 1), 3),
        (gp.Elements(90), 90),
        (gp.Groups(torch.arange(90) % 7), 7),
        (gp.Windows((3, 6, 5), 6, axes=[1]), 1),
    ],
    ids=without_address,
)
def test_results_have_the_input_s_shape_whatever_a_feature_is(features, count):
    x = picture()
    a = gp.explain(flat_cnn, x, features=features, method=gp.GreedyPIG(rounds=1, steps=2))
    assert features_of(a) == count
    assert sorted(a.order.tolist()) == list(range(count))
    assert a.scores.shape == a.importance.shape == a.mask(1).shape == x.shape
    assert sorted(a.ranking().tolist()) == list(range(90))
    assert a.mask(0).sum() == 0
    assert a.mask(count).all()


def test_a_pixel_is_all_channels_of_a_place():
    x = picture()
    a = gp.explain(flat_cnn, x, features="pixels", method=gp.IG(steps=4))
    expected = element_scores(x).sum(0, keepdim=True).expand_as(x)
    assert close(a.scores, expected, 1e-5)
    assert torch.equal(a.mask(7), a.mask(7)[:1].expand(3, 6, 5))
    assert a.mask(7)[0].sum() == 7


def test_a_grid_s_blocks_tile_the_picture():
    x = picture()
    a = gp.explain(flat_cnn, x, features=gp.grid(4), method=gp.IG(steps=4))
    whole = element_scores(x)
    for rows in (slice(0, 4), slice(4, 6)):
        for columns in (slice(0, 4), slice(4, 5)):
            block = whole[:, rows, columns].sum()
            assert torch.allclose(a.scores[:, rows, columns], block, atol=1e-5)


def test_a_token_is_a_row_of_the_sequence():
    x = row(0, 12).view(4, 3)
    model = nn.Sequential(nn.Flatten(), linear(12)).eval()
    a = gp.explain(model, x, features="tokens", target=0, objective="logit", method="ig")
    weight = model[1].weight[0].detach().view(4, 3)
    assert close(a.scores, (weight * x).sum(1, keepdim=True).expand(4, 3), 1e-5)
    assert a.order.tolist() == (weight * x).sum(1).argsort(descending=True).tolist()


def test_windows_take_the_brightest_box_and_count_it_once():
    """G = sum of the pixels: each window adds what earlier windows do not cover."""
    x = torch.tensor([[[1.0, 1, 0, 0], [1, 9, 8, 0], [0, 7, 6, 0], [0, 0, 0, 2]]])

    def model(batch):
        return batch.sum((1, 2, 3))

    a = gp.explain(
        model, x, features=gp.windows(2), objective="logit", method=gp.GreedyPIG(per_round=1)
    )
    first = torch.zeros(1, 4, 4, dtype=torch.bool)
    first[0, 1:3, 1:3] = True
    assert torch.equal(a.mask(1), first)
    assert a.feature_scores[a.order[0]] == pytest.approx(30, abs=1e-4)
    assert a.values[1] == pytest.approx(30, abs=1e-4)
    # Next best: {0,1}² adds 1+1+1 beyond the 9 that is taken; {2,3}² only 2 beyond the 6.
    assert a.feature_scores[a.order[1]] == pytest.approx(3, abs=1e-4)
    assert a.values[2] == pytest.approx(33, abs=1e-4)
    assert a.values[-1] == pytest.approx(35, abs=1e-4)
    assert a.stop is gp.StopReason.ALL


def test_windows_of_one_pixel_are_pixels():
    x = picture()
    windows = gp.explain(
        flat_cnn, x, features=gp.windows(1), method=gp.GreedyPIG(rounds=4, steps=3)
    )
    pixels = gp.explain(flat_cnn, x, features="pixels", method=gp.GreedyPIG(rounds=4, steps=3))
    agree(windows, pixels)


@pytest.mark.parametrize("container", ["tuple", "dict"])
def test_groups_may_cross_inputs(container):
    model, image, other = TwoInputs().eval(), picture(0, (3, 4)), row(1, 5)
    ids_image, ids_row = torch.arange(12).view(3, 4) // 6, torch.tensor([1, 1, 2, 2, 0])
    if container == "tuple":
        x, ids = (image, other), (ids_image, ids_row)
    else:
        x = {"image": image, "row": other}
        ids = {"row": ids_row, "image": ids_image}  # By name, not by position.
    groups = gp.explain(model, x, features=ids, method=gp.IG(steps=4))
    single = gp.explain(model, x, method=gp.IG(steps=4)).scores
    a, b = single if container == "tuple" else (single["image"], single["row"])
    every = torch.cat([a.flatten(), b])
    which = torch.cat([ids_image.flatten(), ids_row])
    expected = torch.stack([every[which == g].sum() for g in range(3)])
    assert close(groups.feature_scores, expected, 1e-5)


def test_names_go_with_their_features():
    names = ["age", "income", "height", "shoe", "hat", "glove"]
    model, x = linear(), torch.ones(6)
    a = gp.explain(model, x, names=names, target=0, objective="logit", method="ig")
    order = model.weight[0].argsort(descending=True).tolist()
    assert a.top(6) == [names[i] for i in order]
    assert a.top(2) == [names[i] for i in order[:2]]


def test_features_without_names_are_called_by_their_index():
    a = gp.explain(mlp(), row(), method=gp.GreedyPIG(rounds=1))
    assert a.top(3) == a.order[:3].tolist()


def elements_at(text, shape):
    """The values that a text such as "x[0, 2:4, :]" is the index of."""
    flags = torch.zeros(shape, dtype=torch.bool)
    exec(f"{text} = True", {"x": flags})
    return flags


@pytest.mark.parametrize(
    "features",
    [
        "elements",
        "pixels",
        gp.grid(4),
        gp.windows(3, stride=2),
        torch.arange(3).view(3, 1, 1),
        gp.Windows((3, 6, 5), 2, axes=[0]),
    ],
    ids=without_address,
)
def test_features_of_a_picture_are_told_by_their_place(features):
    a = gp.explain(flat_cnn, picture(), features=features, method=gp.GreedyPIG(rounds=1, steps=2))
    for feature, text in zip(a.order, a.top(features_of(a)), strict=True):
        taken = torch.arange(features_of(a)) == feature
        members = a.features.mask(taken[None]).view(3, 6, 5)
        assert torch.equal(elements_at(text, (3, 6, 5)), members), text


def test_places_read_as_indices():
    x = picture()
    first = int(gp.explain(flat_cnn, x, method=gp.GreedyPIG(rounds=1, steps=2)).order[0])
    place = tuple(int(i) for i in torch.unravel_index(torch.tensor(first), x.shape))
    assert gp.explain(flat_cnn, x, method=gp.GreedyPIG(rounds=1, steps=2)).top(1) == [
        f"x{list(place)}"
    ]
    reader = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    words = gp.explain(
        reader, torch.rand(4, 3), features="tokens", method=gp.GreedyPIG(rounds=1, steps=2)
    )
    assert words.top(4) == [f"x[{i}, :]" for i in words.order.tolist()]


def test_a_group_that_is_no_box_is_told_by_its_index_and_the_box_around_it():
    ids = torch.zeros(3, 6, 5, dtype=torch.long)
    ids[:, 1, 1] = ids[:, 2, 3] = 1
    a = gp.explain(flat_cnn, picture(), features=ids, method=gp.GreedyPIG(rounds=1, steps=2))
    assert sorted(a.top(2)) == ["0 in x[:, :, :]", "1 in x[:, 1:3, 1:4]"]


def test_values_of_several_inputs_are_told_by_input():
    class Towers(nn.Module):
        def forward(self, user, item):
            return torch.stack([user.sum(1), (user * item).sum(1)], 1)

    x = {"user": torch.tensor([1.0, 2.0]), "item": torch.tensor([5.0, 3.0])}
    a = gp.explain(Towers(), x, target=1, objective="logit", method="ig")
    assert set(a.top(4)) == {"user[0]", "user[1]", "item[0]", "item[1]"}
    both = gp.explain(Towers(), tuple(x.values()), target=1, objective="logit", method="ig")
    assert set(both.top(4)) == {"x0[0]", "x0[1]", "x1[0]", "x1[1]"}


@pytest.mark.parametrize("features", ["pixels", gp.grid(3), gp.windows(3)])
def test_groups_and_windows_may_have_names(features):
    x = picture()
    plain = gp.explain(flat_cnn, x, features=features, method=gp.GreedyPIG(rounds=1, steps=2))
    names = [f"feature {i}" for i in range(features_of(plain))]
    named = gp.explain(
        flat_cnn, x, features=features, names=names, method=gp.GreedyPIG(rounds=1, steps=2)
    )
    assert named.top(2) == [f"feature {i}" for i in plain.order[:2].tolist()]


def test_a_gray_picture_may_come_without_channels():
    x = picture(0, (6, 5))
    model = nn.Sequential(nn.Flatten(), mlp(30)).eval()
    for features, count in (("pixels", 30), (gp.grid(3), 4), (gp.windows(5), 2)):
        a = gp.explain(model, x, features=features, method=gp.GreedyPIG(rounds=1, steps=1))
        assert features_of(a) == count
        assert a.scores.shape == (6, 5)
