"""Texts, chats and models out of the ordinary."""

import copy
from types import SimpleNamespace

import pytest
import torch

transformers = pytest.importorskip("transformers")

import greedypig as gp  # noqa: E402
from greedypig.text.gates import generated  # noqa: E402
from greedypig.text.models import load  # noqa: E402
from greedypig.text.prompt import make_prompt, paragraphs, sentences  # noqa: E402

from .tiny import model, tokenizer  # noqa: E402

TEXT = "The cat sat on the mat . The dog ran under the red house ."
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def explain(text=TEXT, *, kind="bert", chat=False, **more):
    own = tokenizer(classifier=kind == "bert", chat=chat)
    if kind != "bert":
        more.setdefault("answer", "a good dog")
    return gp.explain_text(model(kind), text, tokenizer=own, **more)


def one_label():
    """A classifier with one output, as reward models and cross-encoders have."""
    torch.manual_seed(1)
    config = copy.deepcopy(model("bert").config)
    config.num_labels, config.id2label = 1, {0: "good"}
    net = transformers.BertForSequenceClassification(config)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if parameter.dim() > 1 and "position" not in name:
                parameter.mul_(8)
    return net.eval()


# Sentences and paragraphs.


def test_lines_of_windows_end_paragraphs_and_sentences():
    text = "A b.\r\n\r\nC d.\r\nE"
    assert [text[a:b] for a, b in paragraphs(text)] == ["A b.", "C d.\r\nE"]
    assert [text[a:b] for a, b in sentences(text)] == ["A b.", "C d.", "E"]


def test_sentences_end_as_they_do_in_arabic_and_hindi():
    for text in ("हाँ। नहीं। शायद", "نعم؟ لا؟ ربما"):
        assert len(sentences(text)) == 3


def test_a_long_text_is_split_in_time_that_grows_with_its_length():
    looked = []

    class Text(str):
        def __getitem__(self, place):
            part = super().__getitem__(place)
            looked.append(len(part))
            return part

    text = Text("Mr. Fox ran far away. " * 300)
    assert len(sentences(text)) == 300
    assert sum(looked) < 20 * len(text)


# Features and input.


def test_a_feature_lies_inside_of_one_document_or_message():
    chat = [{"role": "user", "content": "The cat sat ."}, {"role": "user", "content": "in a house"}]
    with pytest.raises(gp.InvalidInput, match="one document or message"):
        explain(chat, kind="llama", chat=True, features=["cat", "<|user|>"])
    a = explain(chat, kind="llama", chat=True, features=["cat", "house"], method="leave-one-out")
    assert a.features.names == ("cat", "house")


@pytest.mark.parametrize("place", [(0.5, 3.9), (1,), 7, ("a", "b")])
def test_places_of_features_are_whole_numbers(place):
    with pytest.raises(gp.InvalidType, match="a text or"):
        explain(features=[place])


@pytest.mark.parametrize("context", [7, {"a": "The cat sat ."}, ["The cat .", None]])
def test_a_context_is_made_of_texts(context):
    with pytest.raises(gp.InvalidType, match="context as texts"):
        explain(None, kind="llama", context=context, question="What ?")


def test_a_text_beside_a_context_and_its_question_is_not_dropped():
    with pytest.raises(gp.InvalidInput, match="got both"):
        explain(kind="llama", context=["The cat sat ."], question="What ?")


@pytest.mark.parametrize("empty", [{"context": []}, {"context": ["", " "]}])
def test_an_empty_context_is_called_one(empty):
    with pytest.raises(gp.InvalidInput, match="context with text"):
        explain(None, kind="llama", question="What ?", **empty)


def test_half_a_character_is_refused():
    with pytest.raises(gp.InvalidInput, match="UTF-8"):
        explain("The cat \ud83d sat .")


def test_other_types_are_refused():
    with pytest.raises(gp.InvalidInput, match="absent"):
        explain(absent=3)
    with pytest.raises(gp.InvalidType, match="text"):
        gp.truncate_text(model("bert"), None, tokenizer=tokenizer(classifier=True))


def test_the_content_of_a_message_may_be_a_list_of_texts():
    listed = [{"role": "user", "content": [{"type": "text", "text": "The cat sat ."}]}]
    plain = [{"role": "user", "content": "The cat sat ."}]
    a, b = (explain(chat, kind="llama", chat=True, method="ig") for chat in (listed, plain))
    assert torch.equal(a.scores, b.scores)
    pictures = [{"role": "user", "content": [{"type": "image"}]}]
    with pytest.raises(gp.InvalidType, match="content: list"):
        explain(pictures, kind="llama", chat=True)


def test_what_a_template_refuses_is_said():
    own = tokenizer(chat=True)
    own.chat_template = "{{ raise_exception('No system role') }}"
    with pytest.raises(gp.InvalidInput, match="No system role"):
        gp.explain_text(
            model("llama"), [{"role": "system", "content": "The cat"}], tokenizer=own, answer="a"
        )


# Answers.


def test_a_sign_of_several_tokens_belongs_to_all_of_them(monkeypatch):
    """The tokens of “a 🎉 b”, decoded as byte-level tokenizers do: � until a sign is whole."""
    text_model = load(model("llama"), tokenizer())
    prompt = make_prompt(text_model, TEXT, None, None, "sentences")
    written = ["", "a", "a \ufffd", "a \ufffd", "a 🎉", "a 🎉 b"]
    shown = SimpleNamespace(
        decode=lambda ids: written[len(ids)],
        all_special_ids=[0],
        eos_token_id=0,
        pad_token_id=0,
        __call__=None,
    )
    said = torch.arange(10, 15).unsqueeze(0)
    ids = prompt.ids(text_model)
    monkeypatch.setattr(
        text_model.module, "generate", lambda ids, **_: torch.cat([ids, said], 1), raising=False
    )
    monkeypatch.setattr(type(prompt), "ids", lambda *_: ids)
    object.__setattr__(text_model, "tokenizer", shown)
    _, spans, text = generated(text_model, prompt, 5)
    assert text == "a 🎉 b"
    assert spans == [(0, 1), (1, 3), (1, 3), (1, 3), (3, 5)]


def test_an_objective_of_one_s_own_reads_the_explained_tokens():
    answer = "a good dog . The cat sat ."
    own = explain(
        kind="llama", answer=answer, target=1, objective=lambda logs: logs.sum(1), method="ig"
    )
    named = explain(kind="llama", answer=answer, target=1, method="ig")
    assert own.full_value == pytest.approx(named.full_value, abs=1e-5)


# Models with one output.


def test_a_value_is_explained_in_the_direction_in_which_the_text_moves_it():
    net, words = one_label(), tokenizer(classifier=True)
    seen = set()
    for text in ("The cat sat .", "The film was very good !", "red house under Maria"):
        a = gp.explain_text(net, text, tokenizer=words, method="ig")
        assert a.full_value >= float(a.values[0])
        assert a.about.probability is None
        with torch.no_grad():
            output = float(net(**words(text, return_tensors="pt")).logits[0, 0])
        sign = -1 if a.settings["objective"] == "decrease" else 1
        assert a.full_value == pytest.approx(sign * output, abs=1e-4)
        seen.add(sign)
    assert seen == {-1, 1}


def test_the_label_of_one_output_is_class_1():
    net, words = one_label(), tokenizer(classifier=True)
    with torch.no_grad():
        output = net(**words(TEXT, return_tensors="pt")).logits[0, 0]
    for target in ("good", 1):
        a = gp.explain_text(net, TEXT, tokenizer=words, target=target, method="ig")
        assert a.full_value == pytest.approx(float(torch.sigmoid(output)), abs=1e-5)
        assert a.about.label == "good"
    other = gp.explain_text(net, TEXT, tokenizer=words, target="not good", method="ig")
    assert other.full_value == pytest.approx(1 - a.full_value, abs=1e-5)


def test_several_labels_with_an_objective_of_one_s_own():
    net = copy.deepcopy(model("bert"))
    net.config.problem_type = "multi_label_classification"
    words = tokenizer(classifier=True)
    a = gp.explain_text(net, TEXT, tokenizer=words, objective=lambda z: z[:, 2], method="ig")
    with torch.no_grad():
        logits = net(**words(TEXT, return_tensors="pt")).logits
    assert a.full_value == pytest.approx(float(logits[0, 2]), abs=1e-4)


# Methods.


def test_forward_passes_are_counted():
    def forwards(method):
        return explain(kind="llama", features="sentences", method=method).about.forwards

    ends = 2  # Nothing and everything, which every run measures first.
    assert forwards("leave-one-out") == ends + 2
    assert forwards("attention") == ends + 1
    assert forwards(gp.ContextCite(200)) == 2**2  # No set is measured twice.
    assert forwards("random") == ends


def test_attention_is_for_texts():
    with pytest.raises(gp.InvalidType, match="Expected a text for method"):
        gp.maximize(gp.objective(lambda m: m.sum(1), 3), "attention")


def test_a_limit_leaves_the_default_s_own_reason_to_stop():
    free = explain(kind="llama")
    limited = explain(kind="llama", stop=gp.Stop(seconds=1000, gradients=1000))
    assert limited.picks == free.picks
    assert limited.gradients_used == free.gradients_used


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
def test_the_default_s_scores_are_near_those_of_many_nodes(kind):
    few = explain(kind=kind, features="words", method=gp.IG(4, "cubic", complete=True))
    many = explain(kind=kind, features="words", method=gp.IG(128, "cubic"))
    away = (few.feature_scores - many.feature_scores).abs().sum()
    assert float(away / many.feature_scores.abs().sum()) < 0.15
