"""`greedypig explain-text`: texts, chats and contexts, by small random models."""

import io
import json
import re
import sys

import pytest

pytest.importorskip("transformers")

import greedypig as gp
from conftest import DOCUMENTS, TEXT
from greedypig.cli import commands, explain_text
from greedypig.core.registry import METHODS, TEXTS, serving
from greedypig.results.text_notes import TextNotes

QUICK = ("--steps", "2", "--rounds", "3")


CLASSIFIER = ("--model", "classifier")
SPEAKER = ("--model", "speaker", "--answer", "a good dog .")
ASKED = ("--context", "docs", "--question", "What color is the dog ?")


def test_a_text_gives_its_class_and_the_words_in_order(answer, saved):
    record = answer("explain-text", "review.txt", *CLASSIFIER, *QUICK)
    assert record["text"] == "review.txt"
    assert record["class"] in ("sports", "films", "food")
    assert record["features"] == "words"
    assert record["count"] == 22
    assert sorted(record["order"]) == list(range(22))
    assert record["method"] == "greedy-pig"
    assert record["settings"]["steps"] == 2
    counts = record["curve"]["counts"]
    assert counts[0] == 0
    assert counts[-1] == 22
    for key in ("only", "deleted", "without"):
        assert len(record["curve"][key]) == len(counts)
    assert record["curve"]["only"][-1] == pytest.approx(record["probability"], abs=1e-5)
    assert record["files"] == ["review.gpig", "review.html"]
    a = gp.load(saved / "review.gpig")
    assert a.order.tolist() == record["order"]
    assert a.about.command.endswith("--json")


def test_a_context_names_its_documents(answer, call, saved):
    record = answer("explain-text", *ASKED, *SPEAKER)
    assert record["features"] == "documents"
    assert record["answer"] == "a good dog ."
    assert record["files"] == ["docs.gpig", "docs.html"]
    assert {each["document"] for each in record["selected"]} <= set(DOCUMENTS)
    for each in record["selected"]:
        assert each["text"] == DOCUMENTS[each["document"]]
    # Without --question the text is the question.
    same = answer("explain-text", ASKED[3], "--context", "docs", *SPEAKER)
    assert same["order"] == record["order"]


def test_people_read_the_text_with_its_parts_in_order(call, saved):
    code, out, err = call("explain-text", "review.txt", *CLASSIFIER, "--features", "sentences")
    assert (code, err) == (0, "")
    assert out.startswith("review.txt: ")
    a = gp.load(saved / "review.gpig")
    first = TextNotes.of(a).name(int(a.order[0]), 500)
    assert f"[1:{first}]" in " ".join(out.split())
    assert TextNotes.of(a).answer() in " ".join(out.split())
    assert "without these" in out
    assert "review.html" in out
    assert "\x1b" not in out


def test_a_text_as_it_is_and_standard_input(answer, saved, monkeypatch):
    given = answer("explain-text", TEXT, *CLASSIFIER, *QUICK)
    assert given["files"] == ["text.gpig", "text.html"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert answer("explain-text", "-", *CLASSIFIER, *QUICK)["order"] == given["order"]


def test_several_texts_give_an_object_each(answers, saved):
    (saved / "second.txt").write_text("A good film . Maria is in it .")
    records = answers("explain-text", "review.txt", "second.txt", *CLASSIFIER, *QUICK)
    assert [record["text"] for record in records] == ["review.txt", "second.txt"]
    assert (saved / "second.html").exists()
    index = (saved / "index.html").read_text()
    assert all(f'href="./{name}.html"' in index for name in ("review", "second"))


def test_a_text_that_fails_does_not_end_the_others(answers, saved):
    (saved / "long.txt").write_text(" ".join(["The cat sat ."] * 40))
    ask = ("explain-text", "long.txt", "review.txt", *CLASSIFIER, *QUICK)
    first, second = answers(*ask, code=1)
    assert "Expected at most 64 tokens" in first["error"]
    assert second["text"] == "review.txt"


def test_a_chat_is_a_json_file_of_messages(answer, saved):
    chat = [
        {"role": "user", "content": "The cat is red ."},
        {"role": "assistant", "content": "good ."},
        {"role": "user", "content": "What color is the cat ?"},
    ]
    (saved / "chat.json").write_text(json.dumps({"messages": chat}))
    record = answer("explain-text", "chat.json", *SPEAKER, "--features", "messages")
    assert record["count"] == 3
    (saved / "plain.json").write_text(json.dumps(chat))
    again = answer("explain-text", "plain.json", *SPEAKER, "--features", "messages")
    assert again["order"] == record["order"]


def test_sentences_of_the_answer_are_explained_one_by_one(answers, answer, saved):
    said = ("--answer", "The dog is blue . The cat is red .")
    ask = ("explain-text", *ASKED, "--model", "speaker", *said)
    records = answers(*ask, "--per-sentence")
    assert [record["part"] for record in records] == ["The dog is blue .", "The cat is red ."]
    assert [record["files"][1] for record in records] == ["docs-1.html", "docs-2.html"]
    second = answer(*ask, "--part", "2", "--out", "part")
    assert second["order"] == records[1]["order"]
    by_text = answer(*ask, "--part", "The cat is red .", "--out", "text")
    assert by_text["curve"] == second["curve"]


def test_an_answer_that_the_model_would_not_give_is_doubted_everywhere(answer, call, saved):
    ask = ("explain-text", *ASKED, "--model", "speaker", "--answer", "the house")
    record = answer(*ask)
    (caution,) = [line for line in record["cautions"] if "would not give" in line]
    assert "leave out --answer to explain" in caution
    out = " ".join(call(*ask)[1].split())
    assert f"▲ {caution}" in out
    assert "“the house” is improbable" in out
    page = (saved / "docs.html").read_text()
    assert "leave out answer= to explain" in page
    table = call(*ask, "--compare", "--methods", "random,attention")[1]
    assert f"▲ {caution}" in " ".join(table.split())


def test_the_model_s_own_answer_is_told_apart(answers, answer, saved):
    ask = ("explain-text", *ASKED, "--model", "speaker")
    whole = answer(*ask)
    assert whole["generated"]
    parts = answers(*ask, "--per-sentence")
    assert all(each["generated"] and each["answer"] == whole["answer"] for each in parts)
    assert not answer("explain-text", *ASKED, *SPEAKER)["generated"]


def test_methods_are_compared_on_the_same_text(answer, call, saved):
    names = "greedy-pig,leave-one-out,attention,sequential-gradient,random"
    ask = ("explain-text", "review.txt", *CLASSIFIER, "--features", "sentences", "--compare")
    record = answer(*ask, "--methods", names)
    assert list(record["methods"]) == names.split(",")
    assert record["methods"]["leave-one-out"]["forwards"] == 2 + 3
    assert record["methods"]["sequential-gradient"]["gradients"] == 3
    for row in record["methods"].values():
        assert row["enough"] is None or 1 <= row["enough"] <= 3
    assert all(sorted(order) == [0, 1, 2] for order in record["orders"].values())
    folder = saved / "review-comparison"
    assert {f"{name}.gpig" for name in names.split(",")} <= {p.name for p in folder.iterdir()}
    assert (folder / "comparison.csv").read_text().startswith("method,only_area,")
    out = call(*ask, "--methods", names)[1]
    assert "enough" in out
    page = (folder / "comparison.html").read_text()
    assert all(f"<figcaption>{name}</figcaption>" in page for name in names.split(","))


def test_the_usual_methods_are_compared_and_without_gradients_those_that_need_none(answer, saved):
    pytest.importorskip("sklearn")
    record = answer("explain-text", *ASKED, *SPEAKER, "--compare")
    usual = serving(METHODS, TEXTS, compared=True)
    assert tuple(record["methods"]) == usual
    ask = ("explain-text", *ASKED, *SPEAKER, "--compare", "--absent", "deleted")
    methods = answer(*ask, "--out", "deleted")["methods"]
    assert {name: row["gradients"] for name, row in methods.items()} == {
        name: 0 for name in usual if record["methods"][name]["gradients"] == 0
    }


def test_the_page_comes_from_the_result_alone(call, saved):
    assert call("explain-text", *ASKED, *SPEAKER)[0] == 0
    before = (saved / "docs.html").read_text()
    (saved / "docs.html").unlink()
    assert call("report", "docs.gpig")[0] == 0
    assert (saved / "docs.html").read_text() == before


def test_a_long_text_is_refused_or_truncated(call, answer, saved):
    (saved / "long.txt").write_text(" ".join(["The cat sat ."] * 40))
    code, out, err = call("explain-text", "long.txt", *CLASSIFIER)
    assert (code, out) == (2, "")
    assert "Expected at most 64 tokens" in err
    assert "Try --truncate." in " ".join(err.split())
    record = answer("explain-text", "long.txt", *CLASSIFIER, "--truncate", *QUICK)
    assert record["count"] <= 62


def test_documents_that_do_not_fit_are_left_out_from_the_end(call, saved):
    for i in range(9):
        (saved / "docs" / f"more-{i}.txt").write_text("The dog ran under the red house . " * 2)
    code, _, err = call(
        "explain-text", *ASKED, "--model", "speaker", "--answer", "red", "--truncate"
    )
    assert code == 0
    assert "of 12 did not fit the model and are left out" in " ".join(err.split())


def test_of_one_long_document_the_first_sentences_are_kept(call, saved):
    (saved / "one.txt").write_text(" ".join(["The cat sat ."] * 40))
    asked = ("--context", "one.txt", "--question", "What ?", "--features", "sentences")
    code, _, err = call("explain-text", *asked, *SPEAKER, "--truncate", *QUICK)
    assert code == 0
    assert re.search(r"only the first \d+ of 559 characters fit", " ".join(err.split()))


def test_files_of_windows_and_chats_of_text_parts(answer, call, saved):
    (saved / "dos.txt").write_bytes(b"The cat sat .\r\nThe dog ran .\r\n")
    _, out, _ = call("explain-text", "dos.txt", *CLASSIFIER, *QUICK)
    assert "x0d" not in out
    parts = [{"type": "text", "text": "The cat sat ."}]
    (saved / "parts.json").write_text(json.dumps([{"role": "user", "content": parts}]))
    asked = answer("explain-text", "parts.json", *SPEAKER, "--features", "words")
    assert asked["count"] == 4


def test_as_many_words_as_were_asked_for_are_marked(call, saved):
    _, out, _ = call("explain-text", "review.txt", *CLASSIFIER, "--k", "3")
    assert all(f"[{place}:" in out for place in (1, 2, 3))


def test_a_part_counts_from_1(call, saved):
    code, _, err = call("explain-text", *ASKED, *SPEAKER, "--part", "0")
    assert code == 2
    assert "from 1 to 1 (got 0)" in " ".join(err.split())


def test_a_budget_leaves_the_output_as_the_reason_to_stop(answer, saved):
    free = answer("explain-text", *ASKED, *SPEAKER)
    limited = answer("explain-text", *ASKED, *SPEAKER, "--budget", "1000", "--out", "limited")
    assert limited["gradients"] == free["gradients"]


def test_two_sided_objectives(answer, saved):
    ask = ("explain-text", "review.txt", *CLASSIFIER, "--features", "sentences", "--objective")
    assert answer(*ask, "two-sided")["settings"]["objective"] == "two-sided softmax"
    assert answer(*ask, "two-sided:logit")["settings"]["objective"] == "two-sided logit"


WRONG = {
    "nothing": ((), "Expected a text, a file, or --context"),
    "no file": (("gone.txt",), "Expected a file at gone.txt"),
    "no folder of texts": (("gone/",), "Expected a file at gone/"),
    "blank": ((" ",), "Expected a text to explain"),
    "nothing in it": (("",), "Expected a text to explain"),
    "no context": (("a cat", "--question", "Who ?"), "Expected --context beside --question"),
    "no question": (("--context", "docs"), "Expected a question beside --context"),
    "no folder": (
        ("--context", "gone", "--question", "Who ?"),
        "Expected a file or folder at gone",
    ),
    "hidden": (("--context", "hidden", "--question", "Who ?"), "Expected text files"),
    "no texts": (("--context", "empty", "--question", "Who ?"), "Expected text files"),
    "latin1": (("latin1.txt",), "Expected text in UTF-8 in latin1.txt"),
    "no chat": (("wrong.json",), "Expected a chat in wrong.json"),
    "no json": (("broken.json",), "Expected JSON in broken.json"),
    "nested": (("nested.json",), "Expected JSON in nested.json"),
    "roles": (("roles.json",), "Expected a chat in roles.json"),
    "both": (("a cat", "--part", "1", "--per-sentence"), "Expected --part or --per-sentence"),
    "class": (("a cat", "--class", "film", *CLASSIFIER), "Expected --class to be one of"),
    "class of an answer": (
        ("a cat", *SPEAKER, "--class", "1"),
        "Expected a classifier for --class",
    ),
    "objective": (("a cat", *CLASSIFIER, "--objective", "best"), "Expected --objective to be one"),
    "k": (("a cat", *CLASSIFIER, "--k", "9"), "Expected --k to be a whole number from 1 to 2"),
    "part of a class": (("a cat", *CLASSIFIER, "--part", "1"), "Expected a language model"),
    "part": (("a cat", *SPEAKER, "--part", "9"), "Expected --part to be a part of the answer, or"),
    "its number": (("a cat", *SPEAKER, "--part", "9"), "from 1 to 1 (got 9)"),
    "part compared": (("a cat", *SPEAKER, "--part", "9", "--compare"), "from 1 to 1 (got 9)"),
    "no part": (
        ("a cat", *SPEAKER, "--answer", "red", "--part", "blue"),
        "Expected --part to stand in the answer 'red' (got 'blue').",
    ),
    "features": (
        ("a cat", *CLASSIFIER, "--features", "documents"),
        "for --features documents (got text). Try --features sentences.",
    ),
    "budget": (
        ("a cat", *CLASSIFIER, "--budget", "1", "--steps", "3"),
        "Expected --budget to be at least 3",
    ),
    "methods": (("a cat", "--methods", "ig"), "Expected --compare beside --methods"),
    "answer": (
        ("a cat", *CLASSIFIER, "--answer", "red"),
        "Expected a language model for an answer",
    ),
    "model": (("a cat", "--model", "gone"), "Expected a folder of transformers"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_command_is_one_sentence(call, saved, name):
    (saved / "empty").mkdir()
    (saved / "hidden").mkdir()
    (saved / "hidden" / ".notes.txt").write_text("The cat sat .")
    (saved / "latin1.txt").write_bytes("caf\xe9".encode("latin1"))
    (saved / "wrong.json").write_text('{"messages": [{"role": "user"}]}')
    (saved / "broken.json").write_text("{")
    (saved / "nested.json").write_text("[" * 5000)
    (saved / "roles.json").write_text('[{"role": ["user"], "content": "Who ?"}]')
    words, expected = WRONG[name]
    code, out, err = call("explain-text", *words)
    assert (code, out) == (2, "")
    assert err.startswith("error: Expected")
    assert expected in " ".join(err.split())


@pytest.mark.parametrize(
    ("words", "name"), [(("a cat",), "minilm-imdb"), (ASKED, "smollm2-135m-instruct")]
)
def test_a_default_model_that_is_not_there_names_the_command(call, saved, monkeypatch, words, name):
    monkeypatch.setenv("GREEDYPIG_ASSETS", str(saved / "assets"))
    code, _, err = call("explain-text", *words)
    assert code == 2
    assert f"Try make assets ONLY={name}" in " ".join(err.split())


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("a cat", "--part", "1"), "--part"),
        (("a cat", "--answer", "red", "--part", "1"), "--answer"),
        (("a cat",), None),
        (ASKED, None),
    ],
)
def test_an_option_that_chooses_the_language_model_is_named(
    call, saved, monkeypatch, words, option
):
    load = explain_text._load
    folders = {commands.LANGUAGE: "speaker", commands.CLASSIFIER: "classifier"}
    monkeypatch.setattr(explain_text, "_load", lambda name, device: load(folders[name], device))
    code, _, err = call("explain-text", *words)
    assert code == 0
    note = f"{option} is about an answer, so the language model {commands.LANGUAGE} is used."
    assert " ".join(err.split()) == (note if option else "")


def test_signs_that_would_write_on_the_terminal_are_shown(call, saved):
    nasty = "The cat \x1b[31m sat on \u202e the mat . The dog <|end|> ran ."
    code, out, _ = call("explain-text", nasty, *CLASSIFIER, *QUICK)
    assert code == 0
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "\\x1b[31m" in re.sub(r"\[\d+:", "", out)
