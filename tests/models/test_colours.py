"""The inputs of colours, found from a preprocessing: x = matrix · rgb + black."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("PIL", reason="needs Pillow")
from greedypig.images.networks.colours import Colours, NoColours

MIX = torch.tensor([[0.5, -1.0, 0.25], [2.0, 0.5, 0.0], [0.0, 1.0, -3.0]])


def pixels_of(image, side=8):
    small = image.resize((side, side))
    levels = torch.frombuffer(bytearray(small.tobytes()), dtype=torch.uint8)
    return levels.view(side, side, len(image.getbands())).permute(2, 0, 1).float() / 255


def picture(channels=3, seed=0):
    return torch.rand(2, channels, 5, 4, generator=torch.Generator().manual_seed(seed))


WAYS = {
    "as they are": (lambda image: pixels_of(image), lambda p: p),
    "levels": (lambda image: 255 * pixels_of(image), lambda p: 255 * p),
    "turned over": (lambda image: 1 - pixels_of(image), lambda p: 1 - p),
    "normalised by channel": (
        lambda image: (pixels_of(image) - 0.4) / torch.tensor([0.2, 0.3, 0.5]).view(3, 1, 1),
        lambda p: (p - 0.4) / torch.tensor([0.2, 0.3, 0.5]).view(3, 1, 1),
    ),
    "blue first": (lambda image: pixels_of(image).flip(0) - 0.5, lambda p: p.flip(-3) - 0.5),
    "mixed": (
        lambda image: torch.einsum("ck,khw->chw", MIX, pixels_of(image)) + 1,
        lambda p: torch.einsum("ck,...khw->...chw", MIX, p) + 1,
    ),
    "a fourth channel": (
        lambda image: torch.cat([pixels_of(image), torch.ones(1, 8, 8)]),
        lambda p: torch.cat([p, torch.ones_like(p[..., :1, :, :])], -3),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_pixels_become_inputs_as_by_the_preprocessing_and_come_back(way):
    preprocess, by_hand = WAYS[way]
    found, pixels = Colours.of(preprocess), picture()
    scale = float(by_hand(pixels).abs().max())
    assert not found.crooked
    assert torch.allclose(found.from_pixels(pixels), by_hand(pixels), atol=1e-6 * scale)
    assert torch.allclose(found.to_pixels(by_hand(pixels)), pixels, atol=1e-5)
    assert torch.allclose(found.from_pixels(pixels[0]), by_hand(pixels[0]), atol=1e-6 * scale)


@pytest.mark.parametrize("channels", [1, 3])
def test_gray_tells_grays_alone(channels):
    found = Colours.of(lambda image: pixels_of(image.convert("L")).expand(channels, -1, -1))
    assert found.rank == 1
    grays = picture(1)
    made = found.from_pixels(grays)
    assert torch.allclose(made, grays.expand(-1, channels, -1, -1), atol=1e-6)
    assert torch.allclose(found.to_pixels(made), made, atol=1e-6)
    # Rec. 601, which PIL rounds to whole levels.
    luma = (picture() * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(1, keepdim=True)
    assert torch.allclose(found.from_pixels(picture()), luma.expand_as(made), atol=2 / 255)


@pytest.mark.parametrize(
    ("preprocess", "why"),
    [
        (lambda image: pixels_of(image) ** 2.2, "weighted sums"),
        (lambda image: pixels_of(image).clamp(0.2, 0.8), "weighted sums"),
        (lambda image: pixels_of(image)[:2], "different colours alike"),
    ],
)
def test_what_cannot_be_turned_back_is_shown_roughly_and_never_made_up(preprocess, why):
    found = Colours.of(preprocess)
    assert why in found.crooked
    black, white = found.to_pixels(found.black), found.to_pixels(found.white)
    assert black.max() == 0
    assert white.min() == 1
    with pytest.raises(NoColours, match=why):
        found.from_pixels(picture())


@pytest.mark.parametrize(
    ("preprocess", "why"),
    [
        (lambda image: pixels_of(image) + torch.linspace(0, 1, 8), "not stay plain"),
        (lambda image: pixels_of(image) * 0, "black and white alike"),
        (lambda image: pixels_of(image.convert("HSV")), "black and white alike"),
    ],
)
def test_no_colours_are_found_where_there_are_none(preprocess, why):
    with pytest.raises(NoColours, match=why):
        Colours.of(preprocess)


def test_half_precision_keeps_a_picture_s_levels():
    found = Colours.of(lambda image: pixels_of(image).half())
    levels = (torch.arange(256).view(1, 16, 16) / 255).expand(3, -1, -1)
    back = found.to_pixels(found.from_pixels(levels).half())
    assert torch.equal((back * 255).round(), (levels * 255).round())
