"""`greedypig report`: the page from the file alone."""

import webbrowser

import pytest

from conftest import TINY


@pytest.fixture
def result(call, place):
    call("explain", "photo.png", *TINY)
    (place / "photo.png").unlink()
    return place / "photo.gpig"


def test_the_page_is_the_same_without_the_photo_and_the_model(call, place, result):
    page = (place / "photo.html").read_bytes()
    code, out, err = call("report", "photo.gpig", "--out", "again.html")
    assert (code, out, err) == (0, "wrote again.html\n", "")
    assert (place / "again.html").read_bytes() == page


def test_the_page_goes_beside_its_result(answer, place, result):
    (place / "deep").mkdir()
    result.rename(place / "deep" / "moved.gpig")
    assert answer("report", "deep/moved.gpig")["files"] == ["deep/moved.html"]
    assert answer("report", "deep", "--out", "pages")["files"] == ["pages/moved.html"]


def test_what_is_no_result_is_told_and_the_others_are_done(call, place, result):
    (place / "bad.gpig").write_text("hello")
    code, out, err = call("report", "bad.gpig", "photo.gpig")
    assert code == 1
    assert out == "wrote photo.html\n"
    assert err.startswith("error: ")
    assert "bad.gpig" in err


def test_json_of_several_results_is_an_object_for_each(answers, place, result):
    (place / "bad.gpig").write_text("hello")
    done, failed = answers("report", "photo.gpig", "bad.gpig", code=1)
    assert done == {"result": "photo.gpig", "files": ["photo.html"]}
    assert set(failed) == {"result", "error"}


def test_a_folder_gets_an_index_of_its_pages(call, place, result):
    (place / "deep").mkdir()
    (place / "deep" / "second.gpig").write_bytes(result.read_bytes())
    (place / "deep" / "bad.gpig").write_text("hello")
    code, out, _ = call("report", ".")
    assert code == 1
    assert out.splitlines()[-1] == "wrote index.html"
    index = (place / "index.html").read_text()
    assert 'href="./photo.html"' in index
    assert 'href="./deep/second.html"' in index
    assert "deep/bad.gpig" in index
    _, out, _ = call("report", ".", "--out", "pages")
    assert out.splitlines()[-1] == "wrote pages/index.html"
    assert 'href="./second.html"' in (place / "pages" / "index.html").read_text()


def test_a_foreign_page_is_left_alone(call, place, result):
    (place / "mine.html").write_text("<p>mine</p>")
    code, _, err = call("report", "photo.gpig", "--out", "mine.html")
    assert code == 2
    assert (place / "mine.html").read_text() == "<p>mine</p>"
    assert "mine.html" in err


def test_an_empty_folder_and_one_file_for_two_results(call, place, result):
    (place / "bare").mkdir()
    assert call("report", "bare")[0] == 2
    (place / "other.gpig").touch()
    assert call("report", "photo.gpig", "other.gpig", "--out", "one.html")[0] == 2


def test_open_shows_the_page(call, place, result, monkeypatch):
    shown = []
    monkeypatch.setattr(webbrowser, "open", shown.append)
    assert call("report", "photo.gpig", "--open")[0] == 0
    assert shown == [(place / "photo.html").resolve().as_uri()]
