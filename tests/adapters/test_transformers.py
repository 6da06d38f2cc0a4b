"""Pipelines of transformers, and Captum's classes on text models."""

import pytest
import torch

transformers = pytest.importorskip("transformers")

import greedypig as gp  # noqa: E402
from greedypig.adapters.transformers import TextExplainer  # noqa: E402
from text.tiny import model, tokenizer  # noqa: E402

TEXT = "The cat sat on the mat . The dog ran ."
pytestmark = pytest.mark.filterwarnings(
    "ignore:The (answer|output) hardly",
    "ignore:The model would not",
    "ignore:The text speaks",
    "ignore:With the rest",
)


def pipe(kind="bert"):
    own = tokenizer(classifier=kind == "bert")
    made = transformers.TextClassificationPipeline
    if kind != "bert":
        made = transformers.TextGenerationPipeline
    return made(model=model(kind), tokenizer=own)


def test_parts_are_dicts_with_places_in_the_text_in_order_of_selection():
    explainer = TextExplainer(pipe(), k=3, target="films")
    parts = explainer(TEXT)
    assert [part["rank"] for part in parts] == [1, 2, 3]
    assert all(TEXT[part["start"] : part["end"]] == part["text"] for part in parts)
    a = explainer.attribution
    assert [part["text"] for part in parts] == a.top(3)
    assert [part["score"] for part in parts] == a.feature_scores[a.order[:3]].tolist()


def test_it_is_explain_text_and_nothing_else():
    explainer = TextExplainer(pipe(), features="sentences")
    explainer(TEXT, k=1)
    own = tokenizer(classifier=True)
    a = gp.explain_text(model("bert"), TEXT, tokenizer=own, features="sentences", k=1)
    assert torch.equal(explainer.attribution.scores, a.scores)


def test_several_texts_give_several_lists():
    one, two = TextExplainer(pipe(), k=1)([TEXT, "The film was good ."])
    assert len(one) == len(two) == 1
    assert two[0]["text"] in ["The", "film", "was", "good", "."]


def test_a_generation_pipeline_with_a_context():
    explainer = TextExplainer(pipe("llama"), answer="a good dog", k=1)
    (part,) = explainer(context=["The cat sat .", "The dog ran ."], question="What ?")
    assert part["text"] in ("The cat sat .", "The dog ran .")
    whole = explainer.attribution.about.text
    assert whole[part["start"] : part["end"]] == part["text"]


# Captum on a text model.


@pytest.fixture
def embedded():
    """(forward, embeddings, their baseline, ids, ids of the baseline)"""
    net, own = model("bert"), tokenizer(classifier=True)
    ids = own(TEXT, return_tensors="pt")["input_ids"]
    absent = ids.clone()
    absent[:, 1:-1] = own.mask_token_id  # [CLS] and [SEP] stay.
    layer = net.get_input_embeddings()

    def forward(embeddings):
        return torch.softmax(net(inputs_embeds=embeddings).logits, 1)

    with torch.no_grad():
        return forward, layer(ids), layer(absent), ids, absent


def test_the_captum_class_on_embeddings_is_captum_s_layer_integrated_gradients(embedded):
    attr = pytest.importorskip("captum.attr")
    from greedypig.adapters.captum import GreedyPIG

    forward, x, baseline, ids, absent = embedded
    net = model("bert")
    layers = attr.LayerIntegratedGradients(
        lambda ids: torch.softmax(net(input_ids=ids).logits, 1), net.get_input_embeddings()
    )
    options = {"target": 1, "n_steps": 20, "method": "riemann_middle"}
    theirs = layers.attribute(ids, baselines=absent, **options)
    ours = GreedyPIG(forward).attribute(x, baselines=baseline, n_rounds=1, **options)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-4)
    rounds = GreedyPIG(forward).attribute(x, baselines=baseline, n_rounds=4, **options)
    with torch.no_grad():
        rise = float(forward(x)[0, 1] - forward(baseline)[0, 1])
    assert float(rounds.sum()) == pytest.approx(rise, abs=1e-4)


def test_captum_s_methods_explain_texts_and_become_adaptive(embedded):
    attr = pytest.importorskip("captum.attr")
    own = tokenizer(classifier=True)
    question = {"tokenizer": own, "features": "tokens", "target": 1, "absent": "mask-embedding"}
    method = gp.from_captum(attr.IntegratedGradients, n_steps=20, method="riemann_middle")
    a = gp.explain_text(model("bert"), TEXT, method=method, **question)
    forward, x, baseline, *_ = embedded
    scores = attr.IntegratedGradients(forward).attribute(
        x, baselines=baseline, target=1, n_steps=20, method="riemann_middle"
    )
    per_token = scores.sum(2)[0, 1:-1]
    torch.testing.assert_close(a.feature_scores, per_token, atol=1e-5, rtol=1e-3)
    rounds = gp.explain_text(
        model("bert"), TEXT, method=gp.Greedy(method, per_round=1), k=2, **question
    )
    assert rounds.selected == 2
    for one in (attr.FeatureAblation, attr.ShapleyValueSampling):
        a = gp.explain_text(model("bert"), TEXT, method=gp.from_captum(one), **question)
        assert sorted(a.order.tolist()) == list(range(11))
