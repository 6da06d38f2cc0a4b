"""Where the features of a text lie: words, sentences, paragraphs, documents, messages, tokens."""

from itertools import pairwise

import pytest
import torch

pytest.importorskip("transformers")

import greedypig as gp
from greedypig.text import models
from greedypig.text.prompt import make_prompt, paragraphs, sentences, words

from .tiny import model, tokenizer


def loaded(kind="gpt2", **options):
    options.setdefault("classifier", kind == "bert")
    return models.load(model(kind), tokenizer(**options))


def prompt(text=None, *, kind="gpt2", features=None, context=None, question=None, **options):
    return make_prompt(loaded(kind, **options), text, context, question, features)


def parts(split, text):
    return [text[a:b] for a, b in split(text)]


SENTENCES = {
    "two": ("The cat sat. The dog ran.", ["The cat sat.", "The dog ran."]),
    "no final stop": ("The cat sat. The dog ran", ["The cat sat.", "The dog ran"]),
    "one": ("The cat sat", ["The cat sat"]),
    "signs": ("Why? Because! Well… Yes.", ["Why?", "Because!", "Well…", "Yes."]),
    "several signs": ("Really?! Yes... No.", ["Really?!", "Yes...", "No."]),
    "abbreviation": ("Dr. Berg met Mr. Lee. They spoke.", ["Dr. Berg met Mr. Lee.", "They spoke."]),
    "abbreviations inside": (
        "Use it, e.g. Monday, cf. Fig. 3. Done.",
        ["Use it, e.g. Monday, cf. Fig. 3.", "Done."],
    ),
    "initials": ("J. R. Tolkien wrote it. It sold.", ["J. R. Tolkien wrote it.", "It sold."]),
    "initial after a bracket": ("It (by A. Lee) sold. Yes.", ["It (by A. Lee) sold.", "Yes."]),
    "decimals": ("It cost 3.5 euros. Pay 2.0 now.", ["It cost 3.5 euros.", "Pay 2.0 now."]),
    "small letter": ("The file a.txt. was read. Fine.", ["The file a.txt. was read.", "Fine."]),
    "quotes": ('He said "Go." She went.', ['He said "Go."', "She went."]),
    "curly quotes": ("“Go.” She went.", ["“Go.”", "She went."]),
    "brackets": ("It ended (badly.) Then more.", ["It ended (badly.)", "Then more."]),
    "lines": ("A title\nThe cat sat.\n\nThe dog ran.", ["A title", "The cat sat.", "The dog ran."]),
    "Windows lines": ("A title\r\nThe cat sat.", ["A title", "The cat sat."]),
    "Chinese": ("猫坐着。狗跑了！真的吗？是", ["猫坐着。", "狗跑了！", "真的吗？", "是"]),
    "Chinese quotes": ("他说：“走。”她走了。", ["他说：“走。”", "她走了。"]),
    "spaces around": ("  The cat sat.   The dog ran.  ", ["The cat sat.", "The dog ran."]),
    "signs alone": ("...", ["..."]),
    "nothing": ("", []),
    "spaces": (" \n ", []),
}


@pytest.mark.parametrize(("text", "expected"), SENTENCES.values(), ids=SENTENCES)
def test_sentences(text, expected):
    assert parts(sentences, text) == expected


def test_words_stand_between_spaces():
    assert parts(words, " The  cat's hat,\nred. ") == ["The", "cat's", "hat,", "red."]
    assert words(" \n") == []


def test_paragraphs_stand_between_empty_lines():
    text = "First line.\nStill first.\n\nSecond.\n \t\n\nThird."
    assert parts(paragraphs, text) == ["First line.\nStill first.", "Second.", "Third."]


@pytest.mark.parametrize("split", [words, sentences, paragraphs])
def test_parts_are_in_order_and_do_not_overlap(split):
    text = "Dr. Lee sat. “Go!” he said.\n\nThe end… 3.5 %"
    spans = split(text)
    assert all(a < b <= c for (a, b), (c, _) in pairwise(spans))
    rest = [text[b:c] for (_, b), (c, _) in pairwise(spans)]
    assert all(not between.strip() for between in rest)


def test_what_a_feature_is_by_default():
    assert prompt("The cat sat .", kind="bert").features == "words"
    assert prompt("The cat sat . The dog ran .").features == "sentences"
    documents = ["The cat sat .", "The dog ran ."]
    assert prompt(context=documents, question="What ?").features == "documents"
    one = prompt(context="The cat sat . The dog ran .", question="What ?")
    assert one.features == "sentences"
    assert one.names == ["The cat sat .", "The dog ran ."]


def test_documents_are_the_context_and_the_question_is_always_present():
    p = prompt(context=[" The cat sat . ", "", "The dog ran ."], question=" What color ? ")
    assert p.names == ["The cat sat .", "The dog ran ."]
    assert p.text == "Context:\nThe cat sat .\nThe dog ran .\n\nQuestion: What color ?\nAnswer:"


def test_the_text_may_be_the_question():
    same = prompt("What color ?", context="The cat sat .")
    assert same == prompt(context="The cat sat .", question="What color ?")


def test_sentences_of_documents_never_reach_over_their_ends():
    p = prompt(context=["The cat sat", "The dog ran . The mat"], question="?", features="sentences")
    assert p.names == ["The cat sat", "The dog ran .", "The mat"]


def test_a_chat_s_messages_and_its_template():
    chat = [
        {"role": "user", "content": "The cat sat ."},
        {"role": "assistant", "content": "What color ?"},
        {"role": "user", "content": " The dog ran . "},
    ]
    p = prompt(chat, chat=True, features="messages")
    assert p.names == ["The cat sat .", "What color ?", "The dog ran ."]
    assert p.text.startswith("<|user|>The cat sat .<|end|>")
    assert p.text.endswith("<|model|>")
    _, owners = p.tokens(loaded(chat=True))
    assert owners.tolist()[:2] == [-1, 0]
    assert owners[-1] == -1


def test_a_text_is_the_user_s_message_where_there_is_a_template():
    p = prompt("The cat sat .", chat=True)
    assert p.text == "<|user|>The cat sat .<|end|><|model|>"
    assert p.names == ["The cat sat ."]


def test_the_same_message_twice_has_two_places():
    chat = [{"role": "user", "content": "The cat"}, {"role": "user", "content": "The cat"}]
    first, second = prompt(chat, chat=True, features="messages").spans
    assert first[1] <= second[0]


def test_a_message_that_repeats_the_template_s_words_is_found_behind_them():
    """The template of this tokenizer writes <|user|> before every message."""
    p = prompt([{"role": "user", "content": "<|user|>"}], chat=True, features="messages")
    assert p.text == "<|user|><|user|><|end|><|model|>"
    assert p.spans == ((8, 16),)


def test_an_empty_message_is_no_feature():
    chat = [{"role": "system", "content": ""}, {"role": "user", "content": "The cat"}]
    assert prompt(chat, chat=True, features="messages").names == ["The cat"]


def test_spaces_that_a_template_keeps_or_cuts_off_do_not_matter():
    chat = [{"role": "user", "content": " The cat\n"}]
    own = tokenizer(chat=True)
    kept = make_prompt(models.load(model("gpt2"), own), chat, None, None, "messages")
    own.chat_template = own.chat_template.replace("m['content']", "m['content'] | trim")
    cut = make_prompt(models.load(model("gpt2"), own), chat, None, None, "messages")
    assert kept.names == cut.names == ["The cat"]
    assert kept.text != cut.text


@pytest.mark.parametrize(
    ("chat", "word"),
    [
        ([{"role": "user"}], "content"),
        ([{"content": "a"}], "role"),
        ([{"role": "user", "content": ["parts"]}], "texts as content"),
    ],
)
def test_messages_without_text_or_role_are_refused(chat, word):
    with pytest.raises(gp.InvalidType, match=word):
        prompt(chat, chat=True)


def test_a_chat_needs_a_template():
    with pytest.raises(gp.InvalidInput, match="chat template"):
        prompt([{"role": "user", "content": "The cat"}])
    with pytest.raises(gp.InvalidInput, match="chat template"):
        prompt([{"role": "user", "content": "The cat"}], kind="bert", chat=True)


def test_a_template_that_changes_messages_is_refused():
    own = tokenizer()
    own.chat_template = "{% for m in messages %}{{ m['content'] | upper }}{% endfor %}"
    with pytest.raises(gp.InvalidInput, match="as they are"):
        make_prompt(models.load(model("gpt2"), own), "The cat", None, None, None)


# Features of one's own.


def test_texts_and_places_may_be_given():
    p = prompt("The cat sat on the mat .", features=["cat", "the mat"])
    assert p.features == "spans"
    assert p.names == ["cat", "the mat"]
    assert prompt("The cat sat on the mat .", features=[(4, 7), (15, 22)]) == p


def test_a_text_that_stands_twice_is_found_behind_the_one_before():
    p = prompt("cat dog cat", features=["cat", "cat"])
    assert p.spans == ((0, 3), (8, 11))


def test_places_are_those_of_the_user_s_text_also_within_a_template():
    p = prompt("The cat sat .", chat=True, features=[(4, 7)])
    assert p.names == ["cat"]


@pytest.mark.parametrize(
    ("features", "error", "word"),
    [
        (["dog"], gp.InvalidInput, "not found"),
        (["cat", "The"], gp.InvalidInput, "in this order"),
        ([""], gp.InvalidInput, "not found"),
        ([(4, 4)], gp.InvalidInput, "inside of the text"),
        ([(4, 99)], gp.InvalidInput, "inside of the text"),
        ([(-1, 3)], gp.InvalidInput, "inside of the text"),
        ([(0, 5), (4, 7)], gp.InvalidInput, "without overlap"),
        ([(1, 2, 3)], gp.InvalidType, r"\(start, end\)"),
        ([("a", "b")], gp.InvalidType, r"\(start, end\)"),
        ([7], gp.InvalidType, r"\(start, end\)"),
        ([], gp.InvalidType, "a name, or a list"),
        (7, gp.InvalidType, "a name, or a list"),
        ("sentence", gp.InvalidInput, "sentences"),
        ("documents", gp.InvalidInput, "context"),
        ("messages", gp.InvalidInput, "chat"),
    ],
)
def test_features_that_do_not_fit_are_refused(features, error, word):
    with pytest.raises(error, match=word):
        prompt("The cat sat .", features=features)


# Tokens.


def test_tokens_belong_to_the_feature_they_begin_in():
    _, owners = prompt("The cat sat . The dog", kind="gpt2").tokens(loaded())
    assert owners.tolist() == [0, 0, 0, 0, 1, 1]


def test_special_tokens_belong_to_no_feature():
    ids, owners = prompt("The cat sat", kind="bert").tokens(loaded("bert"))
    assert owners.tolist() == [-1, 0, 1, 2, -1]
    assert ids[0] == 2


def test_tokens_as_features_are_one_each():
    p = prompt("The cat, sat.", kind="bert", features="tokens")
    assert p.names == ["The", "cat", ",", "sat", "."]
    assert p.tokens(loaded("bert"))[1].tolist() == [-1, 0, 1, 2, 3, 4, -1]


def test_tokens_between_given_spans_are_always_present():
    p = prompt("The cat sat on the mat", features=["cat", "mat"])
    assert p.tokens(loaded())[1].tolist() == [-1, 0, -1, -1, -1, 1]


def test_a_token_with_its_space_before_belongs_to_the_word_behind_it():
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers import models as parts_of
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<unk>": 0, "The": 1, "Ġcat": 2, "Ġsat": 3}
    own = Tokenizer(parts_of.WordLevel(vocabulary, unk_token="<unk>"))
    own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False)
    text_model = models.load(
        model("gpt2"), PreTrainedTokenizerFast(tokenizer_object=own, unk_token="<unk>")
    )
    p = make_prompt(text_model, "The cat sat", None, None, "words")
    ids, owners = p.tokens(text_model)
    assert ids.tolist() == [1, 2, 3]
    assert owners.tolist() == [0, 1, 2]


# Deletion.


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        ((1, 1, 1), "The cat sat. The dog ran.  The end."),
        ((0, 1, 1), "The dog ran.  The end."),
        ((1, 0, 1), "The cat sat. The end."),
        ((1, 1, 0), "The cat sat. The dog ran."),
        ((0, 0, 0), ""),
    ],
)
def test_absent_features_are_cut_out_with_the_spaces_behind_them(present, expected):
    p = prompt("The cat sat. The dog ran.  The end.", features="sentences")
    assert p.without_absent(present) == expected


def test_deleting_documents_keeps_the_template_and_the_question():
    p = prompt(context=["The cat sat .", "The dog ran ."], question="What ?")
    assert p.without_absent((0, 1)) == "Context:\nThe dog ran .\n\nQuestion: What ?\nAnswer:"


def test_places_count_the_spaces_that_a_text_begins_with():
    p = prompt("   The cat sat", features=[(3, 6), (7, 10)])
    assert p.names == ["The", "cat"]


# What is no text.


@pytest.mark.parametrize("text", ["", "  \n "])
@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_an_empty_text_is_refused(text, kind):
    with pytest.raises(gp.InvalidInput, match="empty"):
        prompt(text, kind=kind)


@pytest.mark.parametrize("text", [None, 7, b"bytes", [], ["a"], {"role": "user"}])
def test_what_is_no_text_is_refused(text):
    with pytest.raises(gp.InvalidType, match="Expected a text"):
        prompt(text)


def test_context_and_question_belong_together_and_to_language_models():
    with pytest.raises(gp.InvalidInput, match="question beside the context"):
        prompt(context=["The cat sat ."])
    with pytest.raises(gp.InvalidInput, match="context= beside question="):
        prompt("The cat sat .", question="What ?")
    with pytest.raises(gp.InvalidInput, match="for a classifier"):
        prompt(context=["The cat sat ."], question="What ?", kind="bert")
    with pytest.raises(gp.InvalidType, match="context as texts"):
        prompt(context=["The cat sat .", 7], question="What ?")
    with pytest.raises(gp.InvalidInput, match="empty"):
        prompt(context=["", " "], question="What ?")


def test_owners_are_on_the_model_s_device_and_whole_numbers():
    ids, owners = prompt("The cat sat .").tokens(loaded())
    assert ids.dtype == owners.dtype == torch.long
