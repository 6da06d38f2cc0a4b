"""Photos from files: every kind that can be read is, every other gets one sentence."""

from __future__ import annotations

import os
import struct
import warnings
import zlib
from pathlib import Path

import pytest
import torch

import greedypig as gp
from greedypig import models
from greedypig.images import Photos, find_photos, open_photo

Image = pytest.importorskip("PIL.Image", reason="needs Pillow")


@pytest.fixture(scope="module")
def net() -> models.ImageModel:
    return models.load("efficientnet-lite0", weights="random")


def centre(net, image) -> list[int]:
    return [round(float(v)) for v in net.to_pixels(net.preprocess(image))[:, 112, 112] * 255]


def half(size=(64, 48)):
    """White above black."""
    image = Image.new("RGB", size, "black")
    image.paste("white", (0, 0, size[0], size[1] // 2))
    return image


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims its size and holds no pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


# Kinds that are read


@pytest.mark.parametrize(
    ("mode", "colour", "suffix", "expected"),
    [
        ("L", 90, ".jpg", [90, 90, 90]),
        ("L", 90, ".png", [90, 90, 90]),
        ("1", 1, ".png", [255, 255, 255]),
        ("RGB", (10, 200, 30), ".png", [10, 200, 30]),
        ("RGB", (10, 200, 30), ".bmp", [10, 200, 30]),
        ("RGB", (10, 200, 30), ".ppm", [10, 200, 30]),
        ("RGB", (10, 200, 30), ".gif", [10, 200, 30]),
        ("RGB", (10, 200, 30), ".tif", [10, 200, 30]),
        ("CMYK", (255, 0, 0, 0), ".jpg", [0, 255, 255]),
        ("CMYK", (255, 0, 0, 0), ".tif", [0, 255, 255]),
        ("RGBA", (10, 20, 30, 0), ".png", [255, 255, 255]),
        ("RGBA", (10, 20, 30, 255), ".webp", [10, 20, 30]),
        ("LA", (10, 0), ".png", [255, 255, 255]),
        ("I;16", 100 * 257, ".png", [100, 100, 100]),
        ("I;16", 100 * 257, ".tif", [100, 100, 100]),
        ("F", 0.5, ".tif", [128, 128, 128]),
    ],
)
def test_every_kind_of_photo_shows_its_colour(net, tmp_path, mode, colour, suffix, expected):
    path = tmp_path / f"photo{suffix}"
    options = {"lossless": True} if suffix == ".webp" else {}
    Image.new(mode, (40, 30), colour).save(path, **options)
    photos = centre(net, open_photo(path))
    assert photos == pytest.approx(expected, abs=2)


def test_palette_with_a_transparent_entry_shows_the_page(net, tmp_path):
    image = Image.new("P", (40, 40), 1)
    image.putpalette([0, 0, 0, 10, 200, 30])
    image.save(tmp_path / "opaque.png")
    image.save(tmp_path / "clear.png", transparency=1)
    assert centre(net, open_photo(tmp_path / "opaque.png")) == [10, 200, 30]
    assert centre(net, open_photo(tmp_path / "clear.png")) == [255, 255, 255]


@pytest.mark.parametrize("suffix", [".gif", ".png", ".webp"])
def test_of_an_animation_the_first_frame_is_read(net, tmp_path, suffix):
    path = tmp_path / f"moving{suffix}"
    frames = [Image.new("RGB", (40, 40), colour) for colour in ("red", "lime", "blue")]
    frames[0].save(path, save_all=True, append_images=frames[1:], lossless=True)
    with Image.open(path) as image:
        assert image.n_frames == 3
    assert centre(net, open_photo(path)) == [255, 0, 0]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".tif"])
def test_photos_stand_upright_once_and_only_once(net, tmp_path, suffix, orientation):
    path = tmp_path / f"turned{suffix}"
    upright = half()
    upright.paste("red", (0, 24, 32, 48))  # lower left: mirrors show too
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}.get(orientation)
    stored = upright if undo is None else upright.transpose(undo)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(path, exif=exif, quality=100)
    image = open_photo(path)
    assert image.size == upright.size
    x = net.to_pixels(net.preprocess(image))
    with Image.open(path) as raw:  # preprocess turns by itself what nobody has turned.
        assert torch.equal(net.preprocess(raw), net.preprocess(image))
    # Lossy formats smear the red over its edges; a wrong turn would change a quarter of it all.
    assert (x - net.to_pixels(net.preprocess(upright))).abs().mean() < 0.02
    assert x[:, 20, 112].min() > 0.9  # white above


def test_broken_exif_does_not_spoil_the_photo(net, tmp_path):
    path = tmp_path / "photo.jpg"
    Image.new("RGB", (40, 40), "white").save(path, exif=b"Exif\x00\x00garbage")
    assert centre(net, open_photo(path)) == [255, 255, 255]
    with Image.open(path) as image:
        assert centre(net, image) == [255, 255, 255]


@pytest.mark.parametrize("size", [(1, 1), (1, 1000), (1000, 1)])
def test_tiny_photos_are_read(net, tmp_path, size):
    Image.new("RGB", size, (10, 20, 30)).save(tmp_path / "tiny.png")
    assert centre(net, open_photo(tmp_path / "tiny.png")) == [10, 20, 30]


def test_the_file_is_closed_and_may_vanish(net, tmp_path):
    path = tmp_path / "photo.gif"
    half().save(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        image = open_photo(path)
    path.unlink()
    assert net.preprocess(image).shape == (3, 224, 224)


# Large ones


@pytest.mark.slow
def test_a_jpeg_of_100_megapixels_is_read_small_and_without_a_warning(net, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    half((12_500, 8_000)).convert("L").save(tmp_path / "huge.jpg", exif=exif)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        image = open_photo(tmp_path / "huge.jpg")
    assert 768 <= min(image.size) <= 2000
    assert image.height > image.width  # turned
    x = net.to_pixels(net.preprocess(image))
    assert x[:, :, 130:].min() > 0.9  # what was above is on the right
    assert x[:, :, :90].max() < 0.1


def test_a_decompression_bomb_is_refused_before_it_is_decoded(tmp_path):
    path = tmp_path / "bomb.png"
    path.write_bytes(png_header(20_000, 20_000))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(gp.InvalidFile, match=r"bomb\.png .*400000000 pixels"):
            open_photo(path)


# Files that are none


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.jpg", b""),
        ("text.jpg", b"not a photo at all"),
        ("phone.heic", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"),
        ("page.eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"),
    ],
)
def test_what_is_no_photo_gets_one_sentence_that_names_it(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(
        gp.InvalidFile, match=rf"{name} \(got {len(content) or 'zero'} bytes .*Try a JPEG"
    ):
        open_photo(tmp_path / name)


def test_what_is_no_file_is_named(tmp_path):
    (tmp_path / "link.jpg").symlink_to(tmp_path / "gone.jpg")
    for path in (tmp_path / "none.jpg", tmp_path / "link.jpg"):
        with pytest.raises(gp.InvalidInput, match=rf"{path.name} \(got nothing there"):
            open_photo(path)
    with pytest.raises(gp.InvalidInput, match="got a folder"):
        open_photo(tmp_path)
    if hasattr(os, "mkfifo"):  # A pipe is not waited for.
        os.mkfifo(tmp_path / "pipe.jpg")
        with pytest.raises(gp.InvalidInput, match="got no file"):
            open_photo(tmp_path / "pipe.jpg")


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".gif", ".webp", ".tif", ".bmp", ".ppm"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.7])
def test_a_file_that_is_cut_off_is_refused_wherever_it_is_cut(tmp_path, suffix, share):
    path = tmp_path / f"cut{suffix}"
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 256, (80, 90, 3), generator=generator, dtype=torch.uint8)
    Image.fromarray(noise.numpy()).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: max(4, int(share * len(whole)))])
    with pytest.raises(gp.InvalidFile, match=rf"Expected a .*cut\{suffix} \(got "):
        open_photo(path)


def test_noise_after_a_photo_s_first_bytes_never_escapes_as_another_error(tmp_path):
    generator, refused = torch.Generator().manual_seed(1), 0
    for suffix in (".jpg", ".png", ".gif", ".webp", ".tif", ".bmp"):
        path = tmp_path / f"damaged{suffix}"
        half((90, 80)).save(path)
        whole = bytearray(path.read_bytes())
        for _ in range(30):
            damaged = bytearray(whole)
            for place in torch.randint(2, len(whole), (8,), generator=generator).tolist():
                damaged[place] ^= 0x5A
            path.write_bytes(damaged)
            try:
                open_photo(path)
            except gp.InvalidFile:
                refused += 1
    assert refused > 0


def test_missing_pillow_names_the_extra(tmp_path, monkeypatch):
    half().save(tmp_path / "photo.png")
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(gp.MissingPackage, match=r'pip install "greedypig\[images\]"'):
        list(Photos(tmp_path))


# Many


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


def test_folders_are_gone_through_with_numbers_by_size(tmp_path):
    names = ["10.jpg", "2.JPG", "a/1.png", "a/b/12.webp", "a/b/3.webp", "1.jpeg"]
    touch(*(tmp_path / name for name in names))
    touch(tmp_path / ".hidden.jpg", tmp_path / "notes.txt", tmp_path / ".git/9.jpg")
    photos = [path.relative_to(tmp_path).as_posix() for path in find_photos(tmp_path)]
    assert photos == ["1.jpeg", "2.JPG", "10.jpg", "a/1.png", "a/b/3.webp", "a/b/12.webp"]


def test_paths_keep_their_order_and_come_once(tmp_path):
    touch(*(tmp_path / name for name in ["z.jpg", "a/1.jpg", "a/2.jpg", "odd"]))
    paths = [tmp_path / "z.jpg", str(tmp_path / "a"), tmp_path / "a/1.jpg", tmp_path / "odd"]
    assert [path.name for path in find_photos(paths)] == ["z.jpg", "1.jpg", "2.jpg", "odd"]


def test_patterns_are_expanded_and_leave_other_files_out(tmp_path):
    touch(*(tmp_path / name for name in ["p10.jpg", "p9.jpg", "p.txt", "sub/p1.png", "[1].jpg"]))
    assert [p.name for p in find_photos(str(tmp_path / "p*"))] == ["p9.jpg", "p10.jpg"]
    assert [p.name for p in find_photos(str(tmp_path / "**/*.png"))] == ["p1.png"]
    assert [p.name for p in find_photos(str(tmp_path / "s*"))] == ["p1.png"]
    # A file that is there is itself, whatever its name would mean as a pattern.
    assert find_photos(tmp_path / "[1].jpg") == [tmp_path / "[1].jpg"]


def test_links_that_go_round_end(tmp_path):
    touch(tmp_path / "a/1.jpg")
    (tmp_path / "a/up").symlink_to(tmp_path)
    assert [p.name for p in find_photos(tmp_path)] == ["1.jpg"]


def test_nothing_to_read_is_an_error(tmp_path):
    touch(tmp_path / "only/notes.txt")
    for paths, pattern in [
        (tmp_path / "only", r"photos at .*only, .*\(got none\)"),
        (str(tmp_path / "*.jpg"), r"photos at .*\*\.jpg, .*\(got none\)"),
        (tmp_path / "gone.jpg", "got nothing there"),
        ([], "at least one photo"),
    ]:
        with pytest.raises(gp.InvalidInput, match=pattern):
            find_photos(paths)


def test_broken_files_are_collected_and_the_others_read(tmp_path):
    for name in ("1.png", "3.png", "n01440764/5.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        half().save(tmp_path / name)
    (tmp_path / "2.png").write_bytes(b"")
    (tmp_path / "4.jpg").write_bytes(b"nonsense")
    photos = Photos(tmp_path)
    assert len(photos) == 5
    for _ in range(2):  # It can be gone through again, and does not count twice.
        good = list(photos)
        assert [photo.path.name for photo in good] == ["1.png", "3.png", "5.png"]
        assert [photo.label for photo in good] == [None, None, 0]
        assert [path.name for path in photos.broken] == ["2.png", "4.jpg"]
        assert "2.png" in photos.broken[tmp_path / "2.png"]
