"""The pointing game: grids as dealt, hits as counted, and models whose right answer is known."""

import pytest
import torch
from torch import Tensor, nn

import greedypig as gp
from names import without_address
from nets import Calls, bits, cnn

M = gp.metrics


class Colours(nn.Module):
    """Class c is sure when channel c is bright anywhere: logit_c = 40 · mean of channel c."""

    def forward(self, x: Tensor) -> Tensor:
        return 40 * x.mean((2, 3))


class OneCorner(nn.Module):
    """Every class reads one quadrant only, whatever is asked: logit_c by a filter of its own."""

    def __init__(self, top: int, left: int) -> None:
        super().__init__()
        self.top, self.left = top, left
        self.filters = nn.Parameter(torch.rand(4, 4, 4, 4, generator=torch.manual_seed(0)))

    def forward(self, x: Tensor) -> Tensor:
        part = x[:, :, self.top : self.top + 4, self.left : self.left + 4]
        return torch.einsum("nchw,kchw->nk", part, self.filters)


def coloured(channel: int, brightness: float = 1.0, size: int = 8) -> Tensor:
    x = torch.zeros(4, size, size)
    x[channel] = brightness
    return x


SIXTEEN = [coloured(c, 0.5 + 0.1 * i) for i in range(4) for c in range(4)]


@pytest.mark.parametrize("method", ["greedy-pig", "ig"])
@pytest.mark.parametrize("features", ["elements", "pixels", gp.grid(2)], ids=without_address)
def test_a_model_that_sees_each_class_where_it_is_scores_one(method, features):
    k = 16 if features == "elements" else 48  # Of 16 bright elements in 16 pixels of 4 channels.
    game = M.pointing_game(Colours(), SIXTEEN, k=k, grids=4, method=method, features=features)
    assert game.score == 1
    assert game.standard_error == 0
    assert torch.equal(game.right, torch.ones(4, 4, dtype=torch.float64))


def test_a_model_that_reads_one_quadrant_only_points_there_and_nowhere_else():
    """Asked for any class it points at its own quadrant: right for one cell in four."""
    images = torch.rand(8, 4, 8, 8, generator=torch.Generator().manual_seed(1)) + 0.1
    for top, left, cell in ((0, 0, 0), (0, 4, 1), (4, 0, 2), (4, 4, 3)):
        model = OneCorner(top, left)
        game = M.pointing_game(
            model,
            images,
            list(range(4)) * 2,
            k=60,
            grids=2,
            method="ig",
            ranking="absolute",
            objective="logit",
        )
        assert torch.equal(game.shares[:, :, cell], torch.ones(2, 4, dtype=torch.float64))
        assert game.score == 0.25


def test_shares_count_the_top_values_of_every_cell():
    grids = M.make_grids(Colours(), SIXTEEN, grids=1)
    n = grids.pictures[0].numel()
    where = grids.cells.expand(4, -1, -1).reshape(-1)
    order = torch.cat([torch.nonzero(where == c).squeeze(1) for c in (2, 0, 1, 3)])
    game = M.pointing_score(grids, [order] * 4, k=80)
    assert torch.allclose(game.shares[0], torch.tensor([0.2, 0.0, 0.8, 0.0]).double().expand(4, 4))
    assert game.hits[0].tolist() == [False, False, True, False]
    assert game.score == game.majority == 0.25
    whole = M.pointing_score(grids, [order] * 4, k=n)
    assert whole.score == 0  # Every cell holds a quarter: a tie is no hit.


def test_the_largest_share_is_a_hit_and_more_than_half_a_majority():
    shares = torch.tensor([[[0.4, 0.3, 0.2, 0.1]] * 4, [[0.1, 0.6, 0.2, 0.1]] * 4]).double()
    game = M.PointingGame(shares, 10)
    assert game.hits.tolist() == [[True, False, False, False], [False, True, False, False]]
    assert game.score == 0.25
    assert game.majority == 0.125
    assert game.standard_error == 0


def test_the_standard_error_is_that_of_the_grids_means():
    shares = torch.zeros(3, 4, 4).double()
    shares[0] = torch.eye(4)  # all right
    shares[1:, :, 0] = 1  # one right of four, twice
    game = M.PointingGame(shares, 10)
    assert game.score == pytest.approx(0.5)
    means = torch.tensor([1.0, 0.25, 0.25]).double()
    assert game.standard_error == pytest.approx(float(means.std() / 3**0.5))


def test_signed_scores_point_at_evidence_for_a_class_not_against_it():
    """A rival's brightness lowers a class: as large, but negative."""
    game = M.pointing_game(Colours(), SIXTEEN, k=16, grids=2, method="ig")
    assert game.settings["ranking"] == "signed"
    assert game.score == 1
    greedy = M.pointing_game(Colours(), SIXTEEN, k=16, grids=2)
    assert greedy.settings["ranking"] == "order"


# Grids


def test_a_cell_shows_the_mean_of_what_it_covers():
    images = [torch.rand(4, 8, 8, generator=torch.Generator().manual_seed(s)) for s in range(4)]
    grids = M.make_grids(Colours(), images, [0, 1, 2, 3], grids=1)
    for cell, (r, c) in enumerate(((0, 0), (0, 4), (4, 0), (4, 4))):
        image = images[int(grids.sources[0, cell])]
        expected = image.unfold(1, 2, 2).unfold(2, 2, 2).mean((3, 4))
        assert torch.allclose(grids.pictures[0, :, r : r + 4, c : c + 4], expected)
        assert bool((grids.cells[r : r + 4, c : c + 4] == cell).all())


def test_odd_sizes_tile_without_a_gap():
    grids = M.make_grids(Colours(), [coloured(c % 4, 0.5, size=7) for c in range(8)], grids=2)
    assert grids.pictures.shape == (2, 4, 7, 7)
    assert torch.bincount(grids.cells.flatten()).tolist() == [9, 12, 12, 16]


def test_the_most_confident_images_are_taken_each_once():
    grids = M.make_grids(Colours(), SIXTEEN, grids=2)
    # Brightness rises with i, and so does certainty: the last eight images.
    assert sorted(grids.sources.flatten().tolist()) == list(range(8, 16))
    assert grids.reused == 0
    alone = torch.softmax(Colours()(torch.stack(SIXTEEN)).double(), 1)
    for source, known, sure in zip(
        grids.sources.flatten(), grids.classes.flatten(), grids.confidences.flatten(), strict=True
    ):
        assert sure == pytest.approx(float(alone[source, known]))


def test_no_class_comes_twice_in_a_grid_and_crowded_classes_are_spread():
    """Four images of two classes, two of four others: every grid must hold both crowded ones."""
    classes = [0] * 4 + [1] * 4 + [2, 3, 4, 5] * 2
    images = [coloured(c % 4, 0.5) for c in classes]
    six = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 6))
    for seed in range(5):
        grids = M.make_grids(six, images, classes, grids=4, seed=seed)
        assert all(len(set(row)) == 4 and {0, 1} <= set(row) for row in grids.classes.tolist())
        assert grids.reused == 0


def test_a_crowd_of_sure_images_of_one_class_leaves_room_for_others():
    images = [coloured(0, 1 - 0.01 * i) for i in range(9)] + [coloured(c, 0.2) for c in (1, 2, 3)]
    grids = M.make_grids(Colours(), images, grids=1)
    assert sorted(grids.sources[0].tolist()) == [0, 9, 10, 11]


def test_too_few_images_are_dealt_again_and_counted():
    grids = M.make_grids(Colours(), SIXTEEN[:5], grids=3)
    assert all(sorted(row) == [0, 1, 2, 3] for row in grids.classes.tolist())
    assert grids.reused == 12 - 5


def test_grids_follow_the_seed():
    a, b, c = (M.make_grids(Colours(), SIXTEEN, grids=4, seed=s) for s in (0, 0, 1))
    assert bits(a.pictures) == bits(b.pictures)
    assert a.sources.tolist() != c.sources.tolist()


def test_confidence_is_that_of_the_given_class():
    images = [*SIXTEEN[:4], coloured(0, 1.0)]
    grids = M.make_grids(Colours(), images, [0, 1, 2, 3, 2], grids=1)
    assert 4 not in grids.sources  # A red picture said to be blue: the model is sure it is not.


# What it asks, and what is refused


def test_every_pair_is_explained_in_shared_batches():
    calls = Calls(Colours())
    M.pointing_game(calls, SIXTEEN, k=16, grids=3, method=gp.IG(4), batch_size=16)
    assert sum(calls.gradient_rows) == 3 * 4 * 4
    assert max(calls.gradient_rows) <= 16
    assert len(calls.gradient_rows) <= 4


def test_the_model_is_untouched():
    net = cnn(channels=4).train()
    before = {k: bits(v) for k, v in net.state_dict().items()}
    state = torch.get_rng_state()
    M.pointing_game(net, SIXTEEN, [0, 1, 2, 3] * 4, k=16, grids=1, method=gp.GreedyPIG(rounds=2))
    assert {k: bits(v) for k, v in net.state_dict().items()} == before
    assert all(m.training for m in net.modules())
    assert torch.equal(torch.get_rng_state(), state)


def test_the_result_says_what_was_done():
    game = M.pointing_game(Colours(), SIXTEEN, k=16, grids=1, method="ig")
    assert game.settings["method"] == "ig"
    assert game.standard_error != game.standard_error  # Unknown from one grid.
    assert "1.000" in repr(game)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"k": 257}, "k to be a whole number from 1 to 256"),
        ({"grids": 0}, "grids"),
        ({"targets": [0, 1]}, "one target per image"),
        ({"targets": [9] * 16}, "classes from 0 to 3"),
        ({"targets": [1] * 16}, "at least 4 classes"),
        ({"images": torch.ones(3, 8, 8)}, "count, channels, height, width"),
        ({"images": [torch.ones(4, 8, 8), torch.ones(4, 8, 9)]}, "one shape"),
        ({"k": 2, "features": gp.grid(4)}, "room for at least one feature"),
    ],
    ids=without_address,
)
def test_wrong_input_is_refused(change, says):
    given = {"images": SIXTEEN, "targets": None, "k": 16, "grids": 1} | change
    with pytest.raises(gp.InvalidInput, match=says):
        M.pointing_game(Colours(), **given)


def test_the_number_of_attributions_must_fit():
    grids = M.make_grids(Colours(), SIXTEEN, grids=2)
    with pytest.raises(gp.InvalidInput, match="8 in all"):
        M.pointing_score(grids, [torch.arange(256)] * 7, k=16)
