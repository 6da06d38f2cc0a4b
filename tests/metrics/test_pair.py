"""PAIR's curves against the authors' own package, and where theirs can be fooled."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import greedypig as gp
from greedypig.metrics import pair
from nets import Calls

pytest.importorskip("PIL", reason="needs the extra images")
pytest.importorskip("scipy", reason="needs the extra images")
pic = pytest.importorskip("saliency.metrics.pic", reason="compares with the package saliency")
M = gp.metrics


@pytest.fixture(autouse=True)
def _old_numpy(monkeypatch):
    """The reference was written for numpy 1, which called the trapezoid rule trapz."""
    if not hasattr(np, "trapz"):
        monkeypatch.setattr(np, "trapz", np.trapezoid, raising=False)


class Contrast(nn.Module):
    """Class 1 is sure of pictures with detail: a logit that grows with their local contrast."""

    def __init__(self, scale: float = 30.0) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        rough = x.diff(dim=2).abs().mean((1, 2, 3)) + x.diff(dim=3).abs().mean((1, 2, 3))
        score = self.scale * (rough - 0.15)
        return torch.stack([-score, score], 1)


class Wavy(Contrast):
    """The same with ups and downs on the way."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 3 * torch.sin(5 * super().forward(x))


class Normalised(Contrast):
    """The same on inputs (pixels − 0.4) / 0.2."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.to_pixels(x))

    def to_pixels(self, x: Tensor) -> Tensor:
        return (x * 0.2 + 0.4).clamp(0, 1)

    def from_pixels(self, pixels: Tensor) -> Tensor:
        return (pixels - 0.4) / 0.2


def photo(size: int = 32) -> Tensor:
    """A picture with most detail in its middle, in whole levels of 255."""
    generator = torch.Generator().manual_seed(0)
    smooth = torch.linspace(0.2, 0.6, size).expand(3, size, size).clone()
    smooth += 0.15 * torch.rand(3, size, size, generator=generator)
    inner = slice(size // 4, 3 * size // 4)
    detail = torch.rand(3, size // 2, size // 2, generator=generator)
    smooth[:, inner, inner] = detail
    return (smooth * 255).round() / 255


def saliency_map(size: int = 32) -> Tensor:
    """No ties: the middle first, and noise."""
    generator = torch.Generator().manual_seed(1)
    noise = torch.rand(size, size, generator=generator, dtype=torch.float64)
    noise[size // 4 : 3 * size // 4, size // 4 : 3 * size // 4] += 0.5
    return noise


def reference(model, x, scores, *, monotone=True, accuracy=False, points=1000, **options):
    """The authors' curve, with the random pixels that ours starts from."""
    levels = (x * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    seeds = pair._random_pixels(*levels.shape[:2], 0.01, options.pop("seed", 0))

    def predict(images):
        rows = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
        sure = torch.softmax(model(rows).double(), 1)
        return (sure.argmax(1) == 1).double().tolist() if accuracy else sure[:, 1].tolist()

    return pic.compute_pic_metric(
        levels, scores.numpy(), seeds, predict, list(pair.THRESHOLDS),
        keep_monotonous=monotone, num_data_points=points, **options,
    )  # fmt: skip


@pytest.mark.parametrize("monotone", [True, False])
@pytest.mark.parametrize("accuracy", [True, False], ids=["aic", "sic"])
def test_curves_are_the_authors_own(monotone, accuracy):
    model, x, scores = Wavy(), photo(), saliency_map()
    ours = (M.pair_aic if accuracy else M.pair_sic)(
        model, x, scores.float(), target=1, monotone=monotone
    )
    theirs = reference(model, x, scores.float(), monotone=monotone, accuracy=accuracy)
    assert ours.fractions.tolist() == pytest.approx(list(theirs.curve_x))
    assert ours.values.tolist() == pytest.approx(list(theirs.curve_y), abs=1e-5)
    assert ours.auc == pytest.approx(float(theirs.auc), abs=1e-5)
    assert 0.1 < ours.auc < 1
    assert ours.name == ("pair-aic" if accuracy else "pair-sic")


def test_a_monotone_curve_never_falls():
    model, x, scores = Wavy(), photo(), saliency_map()
    rising, free = (M.pair_sic(model, x, scores, target=1, monotone=m) for m in (True, False))
    assert bool((free.values.diff() < -1e-3).any())
    assert rising.auc > free.auc + 0.01


def test_another_seed_shows_other_pixels_first():
    model, x, scores = Contrast(), photo(), saliency_map().float()
    first, other = (M.pair_sic(model, x, scores, target=1, seed=s) for s in (0, 7))
    assert other.auc == pytest.approx(float(reference(model, x, scores, seed=7).auc), abs=1e-5)
    assert first.auc != other.auc


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 1.0])
def test_blurring_is_the_authors_own(share, channels):
    from scipy import interpolate

    levels = (photo()[:channels] * 255).to(torch.uint8).permute(1, 2, 0).numpy()
    kept = pair._random_pixels(32, 32, share, 3)
    ours = pair.blurred(levels, kept, interpolate)
    theirs = pic.create_blurred_image(levels, kept)
    assert np.array_equal(ours, theirs)
    assert ours.dtype == np.uint8


def test_sizes_are_the_authors_own():
    from PIL import Image

    levels = (photo() * 255).to(torch.uint8).permute(1, 2, 0).numpy()
    assert pair.compressed_size(levels, Image) == pic.estimate_image_entropy(levels)


@pytest.mark.parametrize("n", [7, 10, 100])
@pytest.mark.parametrize("share", [0.005, 0.1, 0.25, 0.5, 0.75, 0.99])
def test_as_many_pixels_are_shown_as_reach_the_quantile(n, share):
    scores = torch.randperm(n * n, generator=torch.Generator().manual_seed(n)).double().view(n, n)
    expected = scores.numpy() >= np.quantile(scores.numpy(), 1 - share)
    assert np.array_equal(pair.top_pixels(scores, share), expected)


def test_a_map_of_ties_does_not_show_everything():
    """The authors' rule, score ≥ quantile, shows a constant map whole."""
    model, x = Contrast(), photo()
    flat = torch.zeros(32, 32)
    fooled = reference(model, x, flat.double())
    ours = M.pair_sic(model, x, flat, target=1)
    assert fooled.predictions[1] == pytest.approx(fooled.predictions[-1])
    assert float(fooled.auc) == pytest.approx(0.5)  # Its points all lie at the end: a diagonal.
    assert int(pair.top_pixels(flat.double(), 0.1).sum()) == 103
    assert ours.auc != pytest.approx(0.5, abs=1e-3)


def test_a_model_with_its_own_normalisation_is_shown_the_same_pictures():
    x, scores = photo(), saliency_map().float()
    plain = M.pair_sic(Contrast(), x, scores, target=1)
    model = Normalised()
    found = M.pair_sic(model, model.from_pixels(x), scores, target=1)
    assert found.values.tolist() == pytest.approx(plain.values.tolist(), abs=1e-4)


def test_a_pixel_s_score_is_the_sum_over_its_channels():
    x = photo(8)
    scores = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(0))
    found, rule = pair.pixel_scores(scores, x)
    assert rule == "absolute"
    assert torch.allclose(found, scores.double().abs().sum(0))
    assert torch.allclose(pair.pixel_scores(scores, x, "signed")[0], scores.double().sum(0))
    order = torch.randperm(192, generator=torch.Generator().manual_seed(1))
    by_order, rule = pair.pixel_scores(order, x)
    assert rule == "order"
    ranks = torch.empty(192).double()
    ranks[order] = torch.arange(1.0, 193).double()
    assert torch.equal(by_order, -ranks.view(3, 8, 8).sum(0))


def test_attributions_are_ranked_like_everywhere_else():
    model, x = Contrast(), photo(16)
    ig = gp.explain(model, x, method="ig", steps=4, target=1, baseline=0.5)
    found, rule = pair.pixel_scores(ig, x)
    assert rule == "absolute"
    assert torch.allclose(found, ig.scores.double().abs().sum(0), atol=1e-6)
    greedy = gp.explain(model, x, features="pixels", rounds=4, target=1, baseline=0.5)
    found, rule = pair.pixel_scores(greedy, x)
    assert rule == "order"
    assert found.reshape(-1).sort(descending=True).indices.tolist() == greedy.order.tolist()
    curve = M.pair_sic(model, x, greedy, least=0.0)
    assert curve.settings["target"] == 1


def test_all_pictures_are_asked_at_once():
    calls = Calls(Contrast())
    M.pair_sic(calls, photo(), saliency_map(), target=1)
    # The full picture for the reference, then all fifteen; nothing with gradients.
    assert calls.value_rows == [1, 15]
    assert not calls.gradient_rows


def test_pictures_without_a_curve_are_left_out():
    model, x, scores = Contrast(), photo(), saliency_map()
    with pytest.raises(M.LeftOut, match=r"at least 0\.8"):
        M.pair_sic(model, x, scores, target=0)
    with pytest.raises(M.LeftOut, match="less certain"):
        M.pair_sic(model, x, scores, target=0, least=0.0)
    with pytest.raises(M.LeftOut, match="smaller"):
        M.pair_sic(Contrast(-1.0), torch.full((3, 16, 16), 0.2), torch.rand(16, 16), least=0.0)
    assert issubclass(M.LeftOut, gp.InvalidInput)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"thresholds": [0.5, 0.1]}, "rising"),
        ({"thresholds": [0.0, 0.1]}, "between 0 and 1"),
        ({"thresholds": []}, "thresholds"),
        ({"random_share": 1.0}, "random_share"),
        ({"points": 0}, "points"),
        ({"x": torch.rand(8)}, "picture"),
        ({"x": torch.rand(2, 32, 32)}, "picture"),
        ({"x": 3 * photo() - 1}, r"pixels in \[0, 1\]"),
        ({"ranking": "order"}, "ranking"),
    ],
    ids=str,
)
def test_wrong_input_is_refused(change, says):
    given = {"x": photo(), "target": 1} | change
    with pytest.raises(gp.InvalidInput, match=says):
        M.pair_sic(Contrast(), given.pop("x"), saliency_map(), **given)
