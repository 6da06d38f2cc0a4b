"""Gates on the features of a text: exact at 0 and 1, and integrals that add up between."""

from functools import cache

import pytest
import torch

pytest.importorskip("transformers")

from transformers import (
    BertForSequenceClassification,
    BloomConfig,
    BloomForCausalLM,
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2ForSequenceClassification,
    Lfm2Config,
    Lfm2ForCausalLM,
    LlamaConfig,
    LlamaForSequenceClassification,
    MistralConfig,
    MistralForCausalLM,
    ModernBertConfig,
    ModernBertForSequenceClassification,
)

import greedypig as gp
from greedypig.text import models
from greedypig.text.api import TextProblem
from greedypig.text.gates import generated, present
from greedypig.text.prompt import make_prompt

from .tiny import MODELS, SIZES, model, tokenizer

TEXT = "The cat sat on the mat . The dog ran under the red house . Maria was not in the film ."
LAYERS = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 48,
    "max_position_embeddings": 96,
    "bos_token_id": 6,
    "eos_token_id": 6,
}
WINDOWED = ("mistral", "gemma3", "modernbert")
BOTH = {"layer_types": ["sliding_attention", "full_attention"]}


@cache
def windowed(kind, window=8):
    """A random model whose layers, or some of them, see a window that the text is longer than."""
    torch.manual_seed(0)
    if kind == "mistral":
        net = MistralForCausalLM(MistralConfig(**LAYERS, **SIZES, sliding_window=window))
    elif kind == "gemma3":
        config = Gemma3TextConfig(**LAYERS, **SIZES, **BOTH, head_dim=16, sliding_window=window)
        net = Gemma3ForCausalLM(config)
    else:  # Its window has two sides.
        config = ModernBertConfig(**LAYERS, **SIZES, **BOTH, num_labels=3, local_attention=window)
        net = ModernBertForSequenceClassification(config)
    return enlarged(net)


def enlarged(net):
    """The network with large weights, so that outputs differ."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(4 if parameter.dim() > 1 else 1)
    return net.eval()


def problem(kind, absent="masked", features="sentences", **more):
    classifier = kind in ("bert", "modernbert")
    net = windowed(kind) if kind in WINDOWED else model(kind)
    loaded = models.load(net, tokenizer(classifier=classifier))
    prompt = make_prompt(loaded, TEXT, None, None, features)
    said = None if classifier else "a good dog"
    return TextProblem(loaded, prompt, said, more.get("target"), more.get("objective"), absent)


def plain_outputs(p, present):
    """What the model itself gives when tokens are masked by an ordinary attention mask."""
    g = p.objective
    seen = torch.tensor([owner < 0 or present[owner] for owner in g.owners.tolist()])
    inputs = {"input_ids": g.ids[None], "attention_mask": seen.long()[None]}
    inputs["position_ids"] = torch.arange(len(g.ids))[None]
    with torch.no_grad():
        logits = p.model.module(**inputs).logits[0]
    if p.answer is None:
        return logits
    said = p.answer.ids
    rows = torch.log_softmax(logits[-len(said) - 1 : -1], 1)
    return rows.gather(1, said[:, None])[:, 0]


@pytest.mark.parametrize("kind", [*MODELS, *WINDOWED])
@pytest.mark.parametrize("chosen", [(), (0,), (1, 2), (0, 1, 2)])
def test_gates_of_0_and_1_are_the_masked_model(kind, chosen):
    p = problem(kind)
    gates = present([chosen], 3)[0]
    got = p.objective.outputs(gates)[0]
    expected = plain_outputs(p, [i in chosen for i in range(3)])
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("absent", ["masked", "embedding"])
def test_scores_of_one_round_sum_to_the_rise_of_the_value(kind, absent):
    p = problem(kind, absent)
    run = gp.rounds(p.objective, gp.IG(64, "cubic"))
    next(iter(run))
    assert run.state.totals[0][0] == pytest.approx(p.rise, rel=0.03, abs=0.02)


def test_no_set_is_measured_twice_and_other_ends_are_other_sets():
    g = problem("llama").objective
    used, masks = g.forwards_used, present([(0,), (1, 2), (0,)], 3)
    first = g.values(masks)
    assert g.forwards_used == used + 2
    assert torch.equal(g.values(masks), first)
    assert g.forwards_used == used + 2
    half = g.toward(g.end / 2).values(masks)
    assert g.forwards_used == used + 4
    assert not torch.allclose(half, first)


@pytest.mark.parametrize("kind", WINDOWED)
def test_the_text_is_longer_than_the_window(kind):
    """Otherwise the tests above would say nothing about windows."""
    ids = problem(kind).objective.ids[None]
    with torch.no_grad():
        narrow, wide = (windowed(kind, window)(ids).logits for window in (8, 96))
    assert float((narrow - wide).abs().max()) > 0.05


@pytest.mark.parametrize("kind", [*MODELS, *WINDOWED])
def test_gradients_are_those_of_finite_differences(kind):
    g = problem(kind).objective
    at = torch.tensor([[[0.2, 0.7, 0.4]]])
    slope = g.gradient(at, torch.ones(1))[0]
    for i in range(3):
        step = torch.zeros_like(at)
        step[0, 0, i] = 1e-2
        rise = (g.values(at + step) - g.values(at - step)) / 2e-2
        assert float(slope[i]) == pytest.approx(float(rise), rel=0.02, abs=5e-3)


@pytest.mark.parametrize("kind", MODELS)
def test_the_gradient_at_a_closed_gate_is_finite_and_one_sided(kind):
    g = problem(kind).objective
    at = torch.zeros(1, 1, 3)
    slope = g.gradient(at, torch.ones(1))[0]
    for i in range(3):
        step = torch.zeros_like(at)
        step[0, 0, i] = 2e-4
        rise = (g.values(at + step) - g.values(at)) / 2e-4
        assert float(slope[i]) == pytest.approx(float(rise), rel=0.05, abs=2e-2)


@pytest.mark.parametrize("kind", MODELS)
def test_deleting_is_the_model_on_the_shorter_text(kind):
    p = problem(kind)
    got = p.objective.rebuilt(absent="deleted").outputs(present([(0, 2)], 3)[0])[0]
    shorter = "The cat sat on the mat . Maria was not in the film ."
    loaded = p.model
    whole = TextProblem(
        loaded,
        make_prompt(loaded, shorter, None, None, "sentences"),
        None if kind == "bert" else "a good dog",
        None,
        None,
        "masked",
    )
    torch.testing.assert_close(got, whole.objective.outputs(torch.ones(1, 2))[0])


def test_nothing_of_the_model_is_changed():
    net = model("llama")
    net.train()
    flags = [p.requires_grad for p in net.parameters()]
    gp.explain_text(net, TEXT, answer="a good dog", tokenizer=tokenizer())
    assert net.training
    assert flags == [p.requires_grad for p in net.parameters()]
    assert all(p.grad is None for p in net.parameters())
    net.eval()


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_classifiers_on_decoders_see_only_what_came_before(kind):
    torch.manual_seed(0)
    if kind == "llama":
        net = LlamaForSequenceClassification(LlamaConfig(**LAYERS, **SIZES, num_labels=3))
    else:  # Without a padding token, which such classifiers need for several rows at once.
        sizes = {"vocab_size": SIZES["vocab_size"], "num_labels": 3}
        net = GPT2ForSequenceClassification(GPT2Config(n_embd=32, n_layer=2, n_head=2, **sizes))
    words = tokenizer()
    with torch.no_grad():
        inputs = torch.tensor([words(TEXT)["input_ids"]])
        expected = torch.softmax(net.eval()(inputs).logits[0], 0).max()
    said = {"tokenizer": words, "features": "sentences"}
    for absent in ("masked", "embedding"):
        a = gp.explain_text(net, TEXT, absent=absent, method="ig", **said)
        assert a.full_value == pytest.approx(float(expected), abs=1e-5)
    # Attention is that of the last token: the first one sees itself alone.
    assert (gp.explain_text(net, TEXT, method="attention", **said).scores > 0).all()


@pytest.mark.parametrize("kind", ["bloom", "deberta", "lfm2"])
def test_a_model_that_takes_no_such_mask_is_refused(kind):
    torch.manual_seed(0)
    said = {"answer": "a good dog", "tokenizer": tokenizer()}
    if kind == "bloom":
        net = BloomForCausalLM(BloomConfig(hidden_size=32, n_layer=2, n_head=2, **SIZES))
    elif kind == "deberta":
        net = DebertaV2ForSequenceClassification(DebertaV2Config(**LAYERS, **SIZES, num_labels=3))
        said = {"tokenizer": tokenizer(classifier=True)}
    else:  # Takes the mask, but its convolution sees past it.
        kinds = ["conv", "full_attention"]
        net = Lfm2ForCausalLM(Lfm2Config(**LAYERS, **SIZES, layer_types=kinds))
    said["features"] = "sentences"
    with pytest.raises(gp.InvalidInput, match="absent='embedding'"):
        gp.explain_text(enlarged(net), TEXT, **said)
    assert gp.explain_text(net, TEXT, absent="embedding", method="ig", **said).selected == 3


def test_of_several_labels_each_is_a_question_of_its_own():
    config = model("bert").config.__class__.from_dict(model("bert").config.to_dict())
    config.problem_type = "multi_label_classification"
    net = BertForSequenceClassification(config).eval()
    net.load_state_dict(model("bert").state_dict())
    words = tokenizer(classifier=True)
    with torch.no_grad():
        logits = net(torch.tensor([words(TEXT)["input_ids"]])).logits[0]
    a = gp.explain_text(net, TEXT, tokenizer=words, target="food", method="ig")
    assert a.full_value == pytest.approx(float(torch.sigmoid(logits[2])), abs=1e-5)
    assert a.about.label == "food"


def test_a_generated_answer_keeps_its_tokens():
    loaded = models.load(model("llama"), tokenizer(chat=True))
    prompt = make_prompt(loaded, TEXT, None, None, "sentences")
    ids, offsets, text = generated(loaded, prompt, 12)
    assert loaded.tokenizer.decode(ids).strip() == text
    assert len(ids) == len(offsets)
    assert all(a <= b for a, b in offsets)
    assert offsets[-1][1] >= len(text)
