"""`explain_text` on tiny models: what it takes, what it refuses, and how a run goes on."""

from types import SimpleNamespace

import pytest
import torch

transformers = pytest.importorskip("transformers")

import greedypig as gp  # noqa: E402
from greedypig.results.text_notes import TextNotes  # noqa: E402
from greedypig.text.api import twins_of  # noqa: E402
from greedypig.text.gates import TextObjective  # noqa: E402

from .tiny import model, tokenizer  # noqa: E402

TEXT = "The cat sat on the mat . The dog ran under the red house . Maria was not in the film ."
pytestmark = pytest.mark.filterwarnings(
    "ignore:The (answer|output) hardly",
    "ignore:The model would not",
    "ignore:The text speaks",
    "ignore:With the rest",
)
ASKED = {"context": ["The cat sat .", "The dog ran .", "Maria was good ."], "question": "What ?"}


def explain(text=TEXT, *, kind="bert", chat=False, **more):
    own = tokenizer(classifier=kind == "bert", chat=chat)
    if kind != "bert":
        more.setdefault("answer", "a good dog")
    return gp.explain_text(model(kind), text, tokenizer=own, **more)


# What comes out.


def test_a_classifier_s_words_with_the_predicted_class():
    a = explain()
    net, own = model("bert"), tokenizer(classifier=True)
    with torch.no_grad():
        p = torch.softmax(net(**own(TEXT, return_tensors="pt")).logits[0], 0)
    assert a.about.label == net.config.id2label[int(p.argmax())]
    assert a.about.probability == pytest.approx(float(p.max()), abs=1e-5)
    assert a.full_value == pytest.approx(float(p.max()), abs=1e-5)
    assert sorted(a.order.tolist()) == list(range(len(TEXT.split())))
    assert a.top(1)[0] in TEXT.split()


def test_a_class_by_name_is_that_by_number():
    by_name, by_number = explain(target="food"), explain(target=2)
    assert by_name.order.tolist() == by_number.order.tolist()
    assert by_name.about.label == by_number.about.label == "food"


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_language_model_s_answer_is_generated_where_none_is_given(kind):
    a = explain(kind=kind, answer=None)
    assert a.about.generated
    again = explain(kind=kind, answer=a.about.answer_text)
    assert not again.about.generated
    assert again.full_value == pytest.approx(a.full_value, abs=1e-3)


def test_a_part_of_the_answer_may_be_explained():
    answer = "a good dog . The cat sat ."
    whole = explain(kind="llama", answer=answer)
    first, second = (explain(kind="llama", answer=answer, target=i) for i in (0, 1))
    assert whole.full_value == pytest.approx(first.full_value + second.full_value, abs=1e-3)
    part = explain(kind="llama", answer=answer, target="The cat sat .")
    assert part.about.answer_span == second.about.answer_span == (13, 26)
    assert part.full_value == pytest.approx(second.full_value, abs=1e-5)


def test_a_pipeline_a_folder_and_the_model_itself_are_the_same(tmp_path):
    net, own = model("bert"), tokenizer(classifier=True)
    expected = explain()
    pipe = transformers.TextClassificationPipeline(model=net, tokenizer=own)
    net.save_pretrained(tmp_path / "mine")
    own.save_pretrained(tmp_path / "mine")
    for given in (pipe, tmp_path / "mine", str(tmp_path / "mine")):
        a = gp.explain_text(given, TEXT)
        assert a.order.tolist() == expected.order.tolist()
        assert torch.allclose(a.scores, expected.scores, atol=1e-5)
    assert a.about.model == "mine"


def test_loading_a_folder_prints_nothing(tmp_path, capfd):
    model("llama").save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    capfd.readouterr()
    gp.explain_text(tmp_path, TEXT, answer="a good dog")
    assert capfd.readouterr() == ("", "")


def test_the_same_call_gives_the_same_bits():
    first, second = explain(kind="llama"), explain(kind="llama")
    assert torch.equal(first.scores, second.scores)
    assert torch.equal(first.values, second.values)
    assert first.about == second.about


def test_values_are_those_of_the_sets_and_checks_name_them():
    a = explain(kind="llama", k=3)
    assert a.about.counts[0] == 0
    assert a.about.counts[-1] == 3
    assert a.about.only[0] == pytest.approx(float(a.values[0]), abs=1e-4)
    assert a.about.only[-1] == pytest.approx(a.full_value, abs=1e-4)
    assert a.about.without[0] == pytest.approx(a.full_value, abs=1e-4)
    assert a.about.without[-1] == pytest.approx(float(a.values[0]), abs=1e-4)
    assert a.about.deleted[-1] == pytest.approx(a.full_value, abs=1e-4)


def test_two_sides_are_those_of_the_measured_sets():
    method = gp.GreedyPIG(per_round=1, steps=4)
    a = explain(kind="llama", objective=gp.two_sided(), method=method)
    only, without = dict(zip(a.about.counts, a.about.only, strict=True)), a.about.without
    for place, count in enumerate(a.about.counts):
        expected = only[count] + only[3] - without[place]
        assert float(a.values[count]) == pytest.approx(expected, abs=1e-3)
    assert a.settings["objective"] == "two-sided log-probability"
    assert a.gradients_used == 3 * 4 * 2
    assert explain(objective=gp.two_sided("logit")).settings["objective"] == "two-sided logit"


def test_two_sides_by_default_crowd_at_both_ends_and_stop_when_reached():
    a = explain(kind="llama", objective=gp.two_sided())
    assert a.settings["rule"] == "smoothstep"
    assert explain(kind="llama").settings["rule"] == "cubic"
    assert a.full_value == pytest.approx(2 * a.about.only[-1] - a.about.only[0], abs=1e-3)


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
@pytest.mark.parametrize("absent", ["masked", "embedding"])
@pytest.mark.parametrize("objective", [None, gp.two_sided()])
def test_scores_of_the_default_sum_to_the_rise_of_g(kind, absent, objective):
    a = explain(kind=kind, absent=absent, objective=objective)
    assert a.settings["complete"]
    assert a.totals[0] == pytest.approx(a.full_value - float(a.values[0]), rel=0.01, abs=1e-4)


def test_scores_of_a_counterfactual_add_up_too():
    a = explain(objective="counterfactual", features="sentences")
    assert a.settings["rule"] == "smoothstep"
    assert a.totals[0] == pytest.approx(a.full_value - float(a.values[0]), rel=0.01, abs=1e-4)


class Sets:
    """G of sets of features, as `twins_of` asks for it; each effect is that of its best feature."""

    answer = "yes"

    def __init__(self, *effects, answer="yes"):
        self.effects, self.answer = effects, answer
        self.n = 1 + max(max(effect) for effect in effects)
        self.rise = self.values([range(self.n)])[0]

    def values(self, sets):
        masks = torch.zeros(len(sets), self.n)
        for row, chosen in enumerate(sets):
            masks[row, list(chosen)] = 1
        return self.g(masks).tolist()

    def g(self, masks):
        """The multilinear extension: a feature counts as far as none before it is there."""
        total = torch.zeros(len(masks))
        for effect in self.effects:
            left = torch.ones(len(masks))
            for i, size in effect.items():  # The best first.
                total = total + left * masks[:, i] * size
                left = left * (1 - masks[:, i])
        return total

    def result(self, k=None):
        return gp.maximize(gp.objective(self.g, self.n), gp.GreedyPIG(per_round=1, steps=8), k=k)


@pytest.mark.parametrize(
    ("effects", "answer", "expected"),
    [
        (({0: 4.0, 1: 3.9}, {2: 1.0}), "yes", [(1, 0, 3.9 / 4)]),  # Feature 1 says the same as 0.
        (({0: 4.0, 1: 2.0}, {2: 1.0}), "yes", [(1, 0, 0.5)]),  # It repeats a part of it.
        (({0: 4.0, 1: 2.0}, {2: 1.0}), None, []),  # Of a class that is too little,
        (({0: 4.0, 1: 0.4}, {2: 1.0}), "yes", []),  # and this of an answer.
        (({0: 4.0}, {1: 3.0}, {2: 2.0}), "yes", []),  # Each adds something of its own.
    ],
)
def test_twins_have_much_of_the_effect_alone_and_little_beside(effects, answer, expected):
    problem = Sets(*effects, answer=answer)
    a = problem.result()
    assert a.order[0] == 0
    twins = [twin for twin in twins_of(a, problem, 1) if twin[1] == 0]
    assert [(j, i, pytest.approx(share)) for j, i, share in twins] == expected


def test_where_one_feature_was_asked_for_its_twin_is_named_too():
    problem = Sets({0: 4.0, 1: 3.9}, {2: 1.0})
    assert [twin[:2] for twin in twins_of(problem.result(k=1), problem, 1)] == [(1, 0)]


@pytest.mark.parametrize("method", ["leave-one-out", "attention", "ig", "random", "gradient"])
@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_rivals_rank_every_feature(kind, method):
    a = explain(kind=kind, method=method, features="sentences")
    assert sorted(a.order.tolist()) == [0, 1, 2]
    assert a.method == method


def test_context_cite_ranks_every_feature():
    pytest.importorskip("sklearn")
    a = explain(kind="llama", method=gp.ContextCite(16))
    assert sorted(a.order.tolist()) == [0, 1, 2]
    assert a.gradients_used == 0


def test_leave_one_out_is_the_fall_of_the_log_probability():
    a = explain(kind="llama", method="leave-one-out")
    every = gp.explain_text(model("llama"), TEXT, tokenizer=tokenizer(), answer="a good dog")
    alone = a.order[:1].tolist()
    fall = a.full_value - dict(zip(a.about.counts, a.about.without, strict=True))[1]
    assert float(a.feature_scores[alone]) == pytest.approx(fall, abs=1e-4)
    assert every.full_value == pytest.approx(a.full_value, abs=1e-5)


def test_markup_is_text_like_any_other(tmp_path):
    text = "<script>alert(1)</script> The cat sat on the mat . {{ 7 * 7 }} [link](x) & é\u202e ."
    a = explain(text, features="sentences")
    assert a.about.text == text
    assert "<script>" in "".join(a.top(2))
    a.to_html(tmp_path / "page.html")
    assert "<script>alert" not in (tmp_path / "page.html").read_text()


def test_a_class_that_the_text_speaks_against_is_warned_of():
    """Of three classes the whole text makes one less likely than nothing does."""
    results = [explain(target=i, features="sentences") for i in range(3)]
    against = [a for a in results if a.full_value < 0.9 * float(a.values[0])]
    assert against
    target = against[0].about.label
    with pytest.warns(UserWarning, match=f"speaks against “{target}”"):
        explain(target=target, features="sentences")


@pytest.mark.parametrize(
    "asked",
    [
        {"kind": "llama", "answer": "good bad very"},
        {"kind": "llama", "answer": "good bad very", "objective": gp.two_sided()},
        {"kind": "gpt2", "answer": ","},
        {"kind": "llama", "answer": "good bad very", "absent": "deleted"},
    ],
)
def test_where_the_text_changes_no_answer_one_round_gives_the_order(asked):
    a = explain(**asked, features="sentences")
    assert TextNotes.of(a).needs_nothing
    assert sorted(a.order.tolist()) == [0, 1, 2]
    one = explain(**asked, features="sentences", k=1)
    assert a.gradients_used == one.gradients_used
    assert a.top(1) == one.top(1)
    with_value = explain(**asked, features="sentences", stop=gp.Stop(value=1e9))
    assert len(with_value.picks) > 1  # A goal of the caller's own is pursued.


def test_words_that_the_model_would_not_say_are_told_from_what_it_knows():
    with pytest.warns(
        UserWarning, match="would not give this answer in these words, with the sent"
    ):
        explain(kind="llama", answer="the cat sat", features="sentences")
    with pytest.warns(UserWarning, match="the model knew it, or made it up"):
        explain(kind="gpt2", answer=",", features="sentences")


# A run that stops and goes on.


@pytest.fixture
def passes(monkeypatch):
    """Counts forward passes; Ctrl-C in the one whose number is in `stop`."""
    counted, plain = SimpleNamespace(done=0, stop=0), TextObjective.read

    def read(self, inputs):
        counted.done += 1
        if counted.done == counted.stop:
            raise KeyboardInterrupt
        return plain(self, inputs)

    monkeypatch.setattr(TextObjective, "read", read)
    return counted


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "llama"},
        {"kind": "bert", "method": gp.GreedyPIG(rounds=6, schedule="measured", complete=True)},
        {"kind": "bert", "objective": gp.two_sided()},
        {
            "kind": "llama",
            "method": gp.GreedyPIG(per_round=1, steps=4),
            "stop": gp.Stop(value=9.0),
        },
        {"kind": "bert", "method": gp.Greedy("leave-one-out", per_round=2), "absent": "deleted"},
    ],
)
def test_a_run_stopped_anywhere_goes_on_as_if_it_had_never_stopped(tmp_path, passes, options):
    expected, rounds = explain(**options), []
    count = passes.done
    for stop in range(1, count + 1, 1 + 2 * (count // 24)):  # Odd: gradients and values.
        passes.done, passes.stop, file = 0, stop, tmp_path / f"{stop}.gpig"
        with pytest.raises(KeyboardInterrupt):
            explain(**options, checkpoint=file)
        rounds.append(len(gp.load(file).picks) if file.exists() else 0)
        a = explain(**options, checkpoint=file)
        assert a.about == expected.about
        assert (a.gradients_used, a.forwards_used) == (
            expected.gradients_used,
            expected.forwards_used,
        )
        for name in ("order", "feature_scores", "values", "last_scores"):
            assert torch.equal(getattr(a, name), getattr(expected, name))
        assert not a.attachments
    assert {0, len(expected.picks)} <= set(rounds)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"text": TEXT.replace("cat", "dog")}, "input"),
        ({"answer": "a bad dog"}, "input"),
        ({"kind": "gpt2"}, "model"),
        ({"absent": "embedding"}, "absent"),
    ],
)
def test_a_checkpoint_of_another_question_is_refused(tmp_path, change, word):
    options = {"kind": "llama", "method": gp.GreedyPIG(per_round=1, steps=2)}
    file = tmp_path / "text.gpig"
    explain(**options, checkpoint=file)
    with pytest.raises(gp.InvalidInput, match=word):
        explain(**options | change, checkpoint=file)


def test_a_checkpoint_in_a_folder_that_is_not_there_is_refused_at_once(tmp_path):
    with pytest.raises(gp.InvalidInput, match="folder that exists"):
        explain(checkpoint=tmp_path / "no" / "text.gpig")


# What is refused.


@pytest.mark.parametrize("kind", ["bert", "llama"])
@pytest.mark.parametrize("text", ["", " \n\t "])
def test_an_empty_text(kind, text):
    with pytest.raises(gp.InvalidInput, match="empty"):
        explain(text, kind=kind)


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_a_text_longer_than_the_model_says_how_much_fits(kind):
    text = "The cat sat . " * 40
    with pytest.raises(gp.InvalidInput, match=r"at most \d+ tokens.*got 1\d\d") as error:
        explain(text, kind=kind, features="sentences")
    fits = int(str(error.value).split("The first ")[1].split()[0])
    assert "of 40 sentences fit. Try text=gp.truncate_text(model, text)" in str(error.value)
    most = " ".join(["The cat sat ."] * fits)
    assert explain(most, kind=kind, features="sentences").features.count == fits
    with pytest.raises(gp.InvalidInput, match="at most"):
        explain(f"{most} The cat sat .", kind=kind, features="sentences")


def test_truncation_keeps_whole_sentences_that_fit():
    own, text = tokenizer(classifier=True), "The cat sat . " * 40
    short = gp.truncate_text(model("bert"), text, tokenizer=own)
    assert short.endswith("sat .")
    assert text.startswith(short)
    assert explain(short, features="sentences").features.count == 15  # 2 + 15 · 4 ≤ 64 tokens.
    assert gp.truncate_text(model("bert"), TEXT, tokenizer=own) == TEXT


def test_a_context_longer_than_the_model():
    with pytest.raises(gp.InvalidInput, match="documents fit"):
        explain(None, kind="gpt2", context=["The cat sat ."] * 40, question="What ?")


def test_a_tokenizer_that_does_not_know_where_its_tokens_lie():
    slow = SimpleNamespace(is_fast=False)
    slow_one = type("SlowTokenizer", (), {"is_fast": False, "__call__": lambda self, text: None})()
    with pytest.raises(gp.InvalidType, match="use_fast=True"):
        gp.explain_text(model("bert"), TEXT, tokenizer=slow_one)
    with pytest.raises(gp.InvalidType, match="tokenizer= beside a loaded model"):
        gp.explain_text(model("bert"), TEXT, tokenizer=slow)
    with pytest.raises(gp.InvalidType, match="tokenizer= beside a loaded model"):
        gp.explain_text(model("bert"), TEXT)


def test_a_quantised_model_says_which_dtype_to_load():
    class Quantised(type(model("bert"))):
        is_quantized = True

    net = model("bert")
    net.__class__, before = type("BertForSequenceClassification", (Quantised,), {}), type(net)
    try:
        with pytest.raises(gp.InvalidType, match=r"quantised.*dtype=torch.float32"):
            explain()
    finally:
        net.__class__ = before


@pytest.mark.parametrize("answer", ["", "  "])
def test_an_answer_without_tokens(answer):
    with pytest.raises(gp.InvalidInput, match="at least one token"):
        explain(kind="llama", answer=answer)


@pytest.mark.parametrize("target", ["a cat", "", 1, -1, 0.5, True])
def test_a_target_that_is_not_in_the_answer(target):
    with pytest.raises(gp.InvalidInput, match="answer"):
        explain(kind="llama", target=target)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"absent": "mask"}, "Did you mean 'masked'"),
        ({"features": "word"}, "Did you mean 'words'"),
        ({"objective": "softmx"}, "Did you mean 'softmax'"),
        ({"method": "leave-one"}, "Did you mean 'leave-one-out'"),
        ({"target": "sport"}, "Did you mean 'sports'"),
        ({"target": 3}, "from 0 to 2"),
        ({"answer": "good"}, "language models only"),
        ({"k": 0}, "k"),
        ({"k": 99}, "k"),
    ],
)
def test_wrong_names_and_numbers_of_a_classifier(options, word):
    with pytest.raises(gp.InvalidInput, match=word):
        explain(**options)


def test_wrong_names_of_a_language_model():
    with pytest.raises(gp.InvalidInput, match="'log-probability' or a callable"):
        explain(kind="llama", objective="softmax")
    with pytest.raises(gp.InvalidInput, match="mask token"):
        explain(kind="llama", absent="mask-embedding")


def test_a_context_for_a_classifier():
    with pytest.raises(gp.InvalidInput, match="for a classifier"):
        explain(None, **ASKED)


@pytest.mark.parametrize("given", [7, "no-such-model", torch.nn.Linear(2, 2), None, "tiny.py"])
def test_what_is_no_text_model(given):
    with pytest.raises((gp.InvalidInput, gp.InvalidType), match="Expected"):
        gp.explain_text(given, TEXT, tokenizer=tokenizer())


def test_a_folder_of_another_kind_of_model(tmp_path):
    transformers.BertModel(model("bert").config).save_pretrained(tmp_path)
    with pytest.raises(gp.InvalidInput, match="BertModel"):
        gp.explain_text(tmp_path, TEXT)


def test_deletion_has_no_gradients():
    with pytest.raises(gp.NotDifferentiable, match="leave-one-out"):
        explain(absent="deleted", method="ig")
    assert explain(absent="deleted").method == "marginal-gains"
    a = explain(absent="deleted", method="leave-one-out", features="sentences")
    assert a.about.deleted == pytest.approx(a.about.only, abs=1e-6)
    assert explain(absent="deleted", method="marginal-gains", features="sentences").selected == 3
