"""Regions that follow the picture: whole, without gaps, repeatable, and true to its edges."""

import subprocess
import sys

import pytest
import torch

import greedypig as gp
from greedypig.core.layout import Layout
from nets import cnn, identical, picture

pytest.importorskip("skimage", reason="needs the extra images")


def ids_of(x, *args, **options):
    features = gp.superpixels(*args, **options)(Layout.of(x), x)
    assert isinstance(features, gp.Groups)
    return features.ids.view(x.shape)


def photo():
    from skimage import data

    return torch.from_numpy(data.coffee()).permute(2, 0, 1).float()[:, 100:228, 200:328] / 255


def halves(channels=3):
    """Black left of column 6, white from there on."""
    x = torch.zeros(channels, 16, 16)
    x[:, :, 6:] = 1
    return x


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_a_sharp_edge_is_never_crossed(channels):
    ids = ids_of(halves(channels), 4)
    assert not set(ids[0, :, :6].flatten().tolist()) & set(ids[0, :, 6:].flatten().tolist())


@pytest.mark.parametrize("segments", [1, 7, 40, 200])
def test_ids_have_no_gaps_and_bind_all_channels(segments):
    ids = ids_of(photo(), segments)
    assert ids.unique().tolist() == list(range(int(ids.max()) + 1))
    assert torch.equal(ids, ids[:1].expand_as(ids))
    assert segments / 3 <= int(ids.max()) + 1 <= 2 * segments


def test_regions_are_connected():
    from skimage.measure import label

    ids = ids_of(photo(), 40)[0]
    for feature in range(int(ids.max()) + 1):
        assert label((ids == feature).numpy(), connectivity=1).max() == 1


def test_a_plain_picture_is_cut_evenly():
    ids = ids_of(torch.full((3, 16, 16), 0.3), 16)
    sizes = torch.bincount(ids[0].flatten()).tolist()
    assert len(sizes) == 16
    assert max(sizes) <= 25  # 5 × 5 at a corner, where 4 × 4 is the mean
    assert min(sizes) >= 9


def test_regions_do_not_depend_on_the_scale_of_the_input():
    x = photo()
    assert torch.equal(ids_of(x, 50), ids_of((x - 0.45) / 0.225, 50))


def test_compactness_makes_regions_squarer():
    def border(compactness):
        ids = ids_of(photo(), 60, compactness=compactness)[0]
        return int((ids.diff(dim=0) != 0).sum() + (ids.diff(dim=1) != 0).sum())

    assert border(100.0) < border(1.0)


def test_explanations_by_superpixels_repeat_and_survive_saving(tmp_path):
    net, x = cnn(), photo()
    a, b = (
        gp.explain(net, x, features=gp.superpixels(30), method=gp.GreedyPIG(rounds=3))
        for _ in range(2)
    )
    assert identical(a, b)
    a.save(tmp_path / "a.gpig")
    assert identical(a, gp.load(tmp_path / "a.gpig"))
    assert torch.equal(a.mask(5), a.mask(5)[:1].expand_as(x))


def test_every_example_gets_its_own_regions():
    net = cnn()
    xs = [photo(), picture(shape=(3, 20, 24)), halves()]
    spec = gp.superpixels(12)
    for x, a in zip(
        xs, gp.explain_many(net, xs, features=spec, method=gp.GreedyPIG(rounds=1)), strict=True
    ):
        assert torch.equal(a.features.ids.view(x.shape), ids_of(x, 12))


@pytest.mark.parametrize(
    "options",
    [
        {"segments": 0},
        {"segments": 2.5},
        {"compactness": 0},
        {"compactness": float("nan")},
        {"sigma": -1},
        {"compactness": "low"},
    ],
    ids=str,
)
def test_wrong_knobs_are_refused(options):
    with pytest.raises(gp.InvalidInput, match=next(iter(options))):
        gp.superpixels(**options)


def test_what_is_no_picture_is_refused():
    with pytest.raises(gp.InvalidInput, match=r"picture .* for gp.superpixels"):
        gp.explain(torch.nn.Linear(4, 2), torch.ones(4), features=gp.superpixels(2))
    with pytest.raises(gp.InvalidInput, match="at most as many segments"):
        gp.explain(cnn(), picture(), features=gp.superpixels(31))


@pytest.mark.slow
def test_without_scikit_image_the_extra_is_named():
    code = (
        "import sys\n"
        "sys.modules['skimage'] = None\n"
        "import torch, greedypig as gp\n"
        "net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 2))\n"
        "try:\n"
        "    gp.explain(net, torch.rand(3, 4, 4), features=gp.superpixels(4))\n"
        "except gp.MissingPackage as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "scikit-image" in done.stdout
    assert "greedypig[images]" in done.stdout
