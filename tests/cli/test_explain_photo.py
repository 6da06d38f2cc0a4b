"""`gp.explain_photo` gives what `greedypig explain` writes."""

import subprocess
import sys
from dataclasses import replace

import torch

import greedypig as gp
from conftest import TINY
from greedypig import metrics, report
from greedypig.images import model_from, open_photo
from small_photos import environment


def test_the_result_is_that_of_the_command(answer, place):
    record = answer("explain", "photo.png", *TINY, "--judge", "tiny_models:other", "--no-html")
    written = gp.load("photo.gpig")
    a = gp.explain_photo("photo.png", TINY[1], judge="tiny_models:other")
    assert torch.equal(a.order, written.order)
    assert replace(written.about, command="").record() == a.about.record()
    for name, picture in written.attachments.items():
        assert torch.equal(a.attachments[name], picture)
    assert a.about.record()["curves"] == record["curves"]
    assert record["class"] in report.html(a)


def test_images_networks_and_names_are_taken_as_they_are(place):
    network = model_from(TINY[1])
    by_file = gp.explain_photo("photo.png", network, target="blue", method="ig")
    by_image = gp.explain_photo(open_photo("photo.png"), network, target=3, method="ig")
    assert torch.equal(by_file.order, by_image.order)
    assert by_file.about.label == by_image.about.label == "blue"
    assert by_file.about.source == "photo.png"
    assert by_file.about.model == TINY[1]


def test_progress_is_the_rounds_done_and_a_finished_result_is_found_again(place, monkeypatch):
    method, rounds = gp.GreedyPIG(rounds=3, steps=2), []

    def progress(done, total):
        rounds.append((done, total))

    ask = {"method": method, "checkpoint": "photo.gpig"}
    a = gp.explain_photo("photo.png", TINY[1], **ask, progress=progress)
    assert rounds == [(0, 3), (1, 3), (2, 3), (3, 3)]
    monkeypatch.setattr(metrics, "information_curves", None)  # Nothing is measured anew.
    again = gp.explain_photo("photo.png", TINY[1], **ask)
    assert again.about.record() == a.about.record()
    assert torch.equal(again.order, a.order)


def test_the_other_class_of_a_margin_may_be_named(place):
    a = gp.explain_photo("photo.png", TINY[1], objective="margin:blue", method="ig")
    assert a.settings["rival"] == 3
    assert a.about.objective == "margin:blue"


OBJECTIVE_OF_ITS_OWN = """
import sys
from dataclasses import replace

import torch

import greedypig as gp

a = gp.explain_photo(
    "photo.png",
    "tiny_models:build",
    objective=lambda logits: logits[:, 1] - logits[:, 3],
    baseline=[torch.zeros(3, 8, 8), "gray"],
    method=gp.GreedyPIG(rounds=2, steps=2),
)
replace(a, seconds=0.0).save(sys.argv[1])
"""


def test_two_processes_write_the_same_file(place):
    for name in ("one.gpig", "two.gpig"):
        command = [sys.executable, "-c", OBJECTIVE_OF_ITS_OWN, name]
        subprocess.run(command, check=True, env=environment(), timeout=120, cwd=place)
    assert (place / "one.gpig").read_bytes() == (place / "two.gpig").read_bytes()
    about = gp.load("one.gpig").about
    assert (about.objective, about.baseline) == ("callable", "tensor,gray")
