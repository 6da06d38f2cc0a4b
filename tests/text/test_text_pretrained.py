"""The folders of our text models; with real weights where `make assets` brought them."""

from __future__ import annotations

import json

import pytest
import torch

import greedypig as gp
from greedypig.network.assets_folder import assets_folder
from greedypig.text.pretrained import NAMES, folder_of


def needs(name: str):
    there = (assets_folder() / name / "config.json").is_file()
    return pytest.mark.skipif(not there, reason=f"needs make assets ONLY={name}")


def test_the_folder_lies_in_the_assets(tmp_path, monkeypatch):
    monkeypatch.setenv("GREEDYPIG_ASSETS", str(tmp_path))
    for name in NAMES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        assert folder_of(name) == tmp_path / name


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_is_not_there_names_the_command(tmp_path, monkeypatch, name):
    monkeypatch.setenv("GREEDYPIG_ASSETS", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=rf"Try make assets ONLY={name} in a clone"):
        folder_of(name)


def test_an_unknown_name_lists_ours_and_suggests_the_nearest():
    with pytest.raises(gp.InvalidInput, match=r"Expected one of .*\(got 'minilm'\)") as caught:
        folder_of("minilm")
    assert "Did you mean 'minilm-imdb'?" in str(caught.value)


@pytest.mark.slow
@needs("smollm2-135m-instruct")
def test_smollm2_names_the_capital_of_france():
    transformers = pytest.importorskip("transformers")
    folder = folder_of("smollm2-135m-instruct")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    assert model.dtype == torch.float32
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    ids = model.generate(**prompt, do_sample=False, max_new_tokens=12)
    answer = tokenizer.decode(ids[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
    assert answer == "The capital of France is Paris."


@pytest.mark.slow
@needs("minilm-imdb")
def test_minilm_tells_a_good_review_from_a_bad_one():
    transformers = pytest.importorskip("transformers")
    folder = folder_of("minilm-imdb")
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["held_out_reviews"] >= 2_000
    assert metrics["accuracy"] >= 0.85
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, local_files_only=True
    ).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    reviews = ["A wonderful film, I loved every minute.", "Dull, badly acted and far too long."]
    with torch.no_grad():
        logits = model(**tokenizer(reviews, padding=True, return_tensors="pt")).logits
    labels = [model.config.id2label[index] for index in logits.argmax(1).tolist()]
    assert labels == ["positive", "negative"]


SOURCES = [
    "The house by the lake has three rooms.",
    "Maria keeps her keys in the blue drawer.",
    "Her car is parked behind the old mill.",
]
REVIEW = "A slow start, and the music is loud. But Anna Berg is wonderful. One of the best films!"
REAL = {
    "smollm2-135m-instruct": {"context": SOURCES, "question": "Where does Maria keep her keys?"},
    "minilm-imdb": {"text": REVIEW},
}
EACH_MODEL = [pytest.param(name, marks=needs(name)) for name in REAL]


@pytest.mark.slow
@needs("smollm2-135m-instruct")
@pytest.mark.filterwarnings("ignore:With the rest")
def test_a_bare_word_is_improbable_and_a_known_sentence_is_known():
    pytest.importorskip("transformers")
    learned = [*SOURCES[:2], "Anna learned to play the violin at school.", SOURCES[2]]
    asked = {"context": learned, "question": "Which instrument did Anna learn to play?"}
    with pytest.warns(UserWarning, match="would not give this answer in these words") as caught:
        a = gp.explain_text("smollm2-135m-instruct", **asked, answer="violin")
    assert not any("knew it" in str(warning.message) for warning in caught)
    assert (len(a.picks), a.gradients_used) == (1, 4)
    asked |= {"question": "What is the capital of France?"}
    asked |= {"answer": "The capital of France is Paris."}
    with pytest.warns(UserWarning, match="the model knew it") as caught:
        a = gp.explain_text("smollm2-135m-instruct", **asked)
    assert not any("would not" in str(warning.message) for warning in caught)
    assert (len(a.picks), a.gradients_used) == (1, 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", EACH_MODEL)
def test_scores_of_the_default_sum_to_the_rise_within_5_percent(name):
    pytest.importorskip("transformers")
    a = gp.explain_text(name, **REAL[name])
    rise = a.about.only[-1] - a.about.only[0]
    assert a.totals[0] == pytest.approx(rise, rel=0.05)
    assert a.about.enough is not None
    if a.about.answer_text:
        assert a.top(1) == SOURCES[1:2]


@pytest.mark.slow
@pytest.mark.parametrize("name", EACH_MODEL)
def test_gates_of_0_and_1_are_the_really_masked_model(name):
    pytest.importorskip("transformers")
    from greedypig.text import models
    from greedypig.text.api import TextProblem
    from greedypig.text.gates import present
    from greedypig.text.prompt import make_prompt

    from .test_gates import plain_outputs

    loaded, asked = models.load(name), REAL[name]
    parts = (asked.get(key) for key in ("text", "context", "question"))
    prompt = make_prompt(loaded, *parts, None)
    said = "In the blue drawer." if "context" in asked else None
    p = TextProblem(loaded, prompt, said, None, None, "masked")
    n = p.objective.n
    for chosen in ((), (1,), range(n)):
        with torch.no_grad():
            got = p.objective.outputs(present([chosen], n)[0])[0]
        expected = plain_outputs(p, [i in chosen for i in range(n)])
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
