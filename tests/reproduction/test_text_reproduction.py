"""Texts: contexts with known evidence, costs, curves; and the real model on one context."""

from math import log
from random import Random

import pytest
import torch

import greedypig as gp
from greedypig.core.errors import InvalidInput
from greedypig.network.assets_folder import WeightsNotFoundError
from greedypig.text import models
from greedypig.text.comparison_methods import ContextCite
from reproduction.__main__ import module_of
from reproduction.experiment import read_settings
from reproduction.text import faithfulness
from reproduction.text.contexts import (
    KINDS,
    LENGTHS,
    Context,
    make_context,
    plain,
    read_reviews,
    review_sentences,
)
from reproduction.text.evidence import found_by, table_row
from reproduction.text.problems import GRADIENT, Question, load
from reproduction.text.rivals import Shapley
from tests.text import tiny

DISTRACTORS = [f"Sentence {i} of a review says nothing of interest." for i in range(60)]
CONTEXT = Context(
    "one",
    ("The cat sat on the mat .", "The house of Maria is red .", "a dog ran .", "Peter was good ."),
    "What color is the house of Maria ?",
    ("red", "Maria"),
    (1,),
)


@pytest.fixture
def question():
    model = models.load(tiny.model("llama"), tiny.tokenizer(chat=True))
    asked = {"context": CONTEXT.sentences, "question": CONTEXT.question}
    return Question(model, "the house is red", "documents", **asked)


@pytest.mark.parametrize("kind", KINDS)
def test_evidence_stands_where_the_context_says(kind):
    for number in range(40):
        context = make_context(kind, 3, number, DISTRACTORS)
        assert context == make_context(kind, 3, number, DISTRACTORS)
        assert LENGTHS[0] <= len(context.sentences) <= LENGTHS[1]
        facts = [context.sentences[i] for i in context.evidence]
        assert len(facts) == (1 if kind == "one" else 2)
        assert not set(facts) & set(DISTRACTORS)
        assert set(context.sentences) - set(facts) <= set(DISTRACTORS)
        told = " ".join(facts)
        assert all(key in told for key in context.keys)


def test_both_halves_are_needed_and_either_twin_suffices():
    for number in range(40):
        twins = make_context("two", 0, number, DISTRACTORS)
        key = twins.keys[0]
        assert all(key in twins.sentences[i] for i in twins.evidence)
        halves = make_context("halves", 0, number, DISTRACTORS)
        first, second = (halves.sentences[i] for i in halves.evidence)
        one, other = halves.keys[:2]
        assert one in first
        assert other in second
        assert one not in second.rstrip(".").split()
        assert other not in first.rstrip(".").split()


def test_an_answer_is_right_with_its_words_and_its_subject():
    context = make_context("one", 0, 0, DISTRACTORS)
    assert context.is_right(" ".join(context.keys) + ".")
    assert not context.is_right(context.keys[0])
    assert not context.is_right(" ".join(context.keys) + " of the film.")
    said = " and ".join(context.keys) + ". And more."
    assert context.answer_in(said) == said.removesuffix(" And more.")
    with pytest.raises(InvalidInput, match="kind"):
        make_context("three", 0, 0, DISTRACTORS)


def test_sentences_of_reviews_are_short_plain_and_each_there_once():
    text = plain("It was a film about a very old house.<br /><br />No. &quot;Good&quot;   sets.")
    assert text == 'It was a film about a very old house. No. "Good" sets.'
    assert review_sentences([text, text]) == ["It was a film about a very old house."]


def test_a_gradient_counts_three_and_shared_points_are_counted_for_every_method(question):
    _, first, _ = question.run(gp.IG(4, "cubic"))
    _, again, _ = question.run(gp.GreedyPIG(per_round=1, steps=4, rule="cubic"), k=1)
    assert first == again == 4 * GRADIENT
    _, third, _ = question.run("leave-one-out")
    assert third == 1 + 4
    assert question.run(ContextCite(200))[1] == 2**4  # A method pays once for every set.
    budget = gp.Stop(gradients=4)  # Gradients that are known already count too.
    assert question.run(gp.GreedyPIG(per_round=1, steps=4, rule="cubic"), stop=budget)[1] == first
    assert question.run("attention")[1] == 1
    assert question.run("random")[1] == 0


def test_counted_objectives_give_the_plain_numbers(question):
    counted = question.problem().objective
    bare = super(type(counted), counted)
    masks = torch.rand(1, 3, counted.n, generator=torch.manual_seed(0))
    weights = torch.tensor([0.2, 0.3, 0.5])
    for _ in range(2):  # Once computed, once remembered.
        torch.testing.assert_close(counted.values(masks), bare.values(masks))
        torch.testing.assert_close(
            counted.gradient(masks, weights), bare.gradient(masks, weights), rtol=1e-3, atol=1e-5
        )


def test_shapley_values_sum_to_the_rise(question):
    a, cost, _ = question.run(Shapley(forwards=30))
    problem = question.problem()
    assert float(a.feature_scores.sum()) == pytest.approx(problem.rise, abs=1e-4)
    assert cost <= 30


@pytest.mark.parametrize("name", ["text-evidence", "text-faithfulness"])
def test_settings_name_methods_that_exist(name):
    assert callable(module_of(name).reproduce)
    settings = read_settings(name)
    names = [method.name for method in settings["methods"]]
    for method in settings["methods"]:
        method.run()
    assert set(settings["run"]) <= set(names)
    assert {name for ours in settings.get("ours", {}).values() for name in ours} <= set(names)


@pytest.mark.parametrize("method", read_settings("text-evidence")["methods"], ids=lambda m: m.name)
def test_every_method_says_whether_it_found_the_evidence(question, method):
    options = read_settings("text-evidence")["run"].get(method.name, {})
    row = found_by(question, method, options, CONTEXT, seed=0)
    assert row["found"] == float(int(row["first"].split()[0]) == 1)
    line = table_row(method, [{"kind": "one", **row}])
    assert line["one"] == row["found"]
    assert line["cost"] == row["cost"]


def test_an_area_is_the_mean_height_of_the_curve():
    assert faithfulness.area([0, 1, 2], [1.0, 2.0, 3.0]) == pytest.approx(0.5)
    assert faithfulness.area([0, 1, 4], [0.0, 1.0, 1.0]) == pytest.approx(7 / 8)
    removed = faithfulness.area([0, 1, 2], [3.0, 2.0, 1.0], 1.0, 3.0)
    assert removed == pytest.approx(0.5)


@pytest.mark.parametrize("n", [4, 40, 41, 117])
def test_counts_hold_the_ends_a_tenth_and_a_fifth(n):
    counts = faithfulness.counts_of(n)
    assert counts == sorted(set(counts))
    assert {0, 1, n, max(1, round(0.1 * n)), max(1, round(0.2 * n))} <= set(counts)


def test_measures_are_those_of_the_model_on_the_order_s_sets():
    model = models.load(tiny.model("bert"), tiny.tokenizer(classifier=True))
    text = "the film was very good and the cat was not bad"
    problem = Question(model, None, "words", text=text).problem()
    order = list(range(11))
    Random(0).shuffle(order)
    row = faithfulness.measures(problem, order)
    kept = problem.values([order[:k] for k in range(12)])
    assert row["parts"] == 11
    assert row["sufficiency"] == pytest.approx(faithfulness.area(range(12), kept))
    bar = problem.bar(0.95)
    reaching = [k for k in range(12) if kept[k] >= bar]
    assert row["smallest"] == reaching[0]
    (without,) = problem.values([order[1:]])
    assert row["drop10"] == pytest.approx(log(problem.full) - log(without), abs=1e-5)


def test_leads_are_paired_by_text_and_positive_where_we_are_better():
    base = dict.fromkeys(faithfulness.MEASURES, 1.0)
    rows = [
        {"method": method, "text": text, **base, "sufficiency": high + text, "deletion": -high}
        for method, high in (("greedy-pig-24x2", 3.0), ("ig", 1.0), ("random", 0.0))
        for text in range(3)
    ]
    leads = {
        lead["measure"]: lead for lead in faithfulness.paired("words", "greedy-pig-24x2", rows)
    }
    for measure in ("sufficiency", "deletion"):
        assert leads[measure]["rival"] == "ig"
        assert leads[measure]["gain"] == pytest.approx(2.0)
        assert leads[measure]["error"] == pytest.approx(0.0)


def test_reviews_are_cut_at_sentences():
    text = "One two three. Four five. Six seven eight nine."
    assert faithfulness.cut(text, 5) == "One two three. Four five."
    assert faithfulness.cut(text, 2) == ""


@pytest.mark.slow
def test_the_real_model_s_evidence_is_found_first():
    try:
        model = load("smollm2-135m-instruct")
        texts = review_sentences([text for text, _ in read_reviews(200)])
    except (WeightsNotFoundError, InvalidInput):
        pytest.skip("The assets are not here: make assets.")
    fact = "Maria lives in Lisbon."
    context = [*texts[:4], fact, *texts[4:9]]
    asked = {"context": context, "question": "In which city does Maria live?"}
    question = Question(model, "Maria lives in Lisbon.", "documents", **asked)
    a, cost, _ = question.run(gp.GreedyPIG(rounds=1, steps=4, rule="cubic"))
    assert a.top(1) == [fact]
    assert cost == 4 * GRADIENT
