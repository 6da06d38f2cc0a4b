"""Does each private part of another package do what is relied on?"""

import threading
import tomllib
from pathlib import Path

import pytest
import torch
from torch import nn

import greedypig as gp
from greedypig import compat

PYPROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())


def test_the_versions_are_those_of_pyproject():
    project = PYPROJECT["project"]
    extras = [p for extra in project["optional-dependencies"].values() for p in extra]
    assert set(compat.NEEDS.values()) <= {*project["dependencies"], *extras}
    for package in ("captum", "torch_geometric", "transformers"):
        assert "<" in compat.NEEDS[package]


def test_an_absent_part_is_named_with_the_versions_that_have_it(monkeypatch):
    for part in ("torch._C:_no_such_function", "torch._no_such_module:_push"):
        monkeypatch.setitem(compat.PARTS, "torch", part)
        with pytest.raises(
            gp.MissingPackage, match=rf"torch>=2\.4.*{part}.*{torch.__version__[:4]}"
        ):
            compat.private("torch")
    pytest.importorskip("transformers")
    with (
        pytest.raises(gp.MissingPackage, match=r"transformers>=5,<6.*set_attn_implementation"),
        compat.eager_attention(nn.Linear(1, 1)),
    ):
        pass
    pytest.importorskip("torch_geometric")
    with pytest.raises(gp.MissingPackage, match=r"torch_geometric>=2\.5.*_loss_regression"):
        compat.explainer_loss(object(), "regression")


def test_a_pushed_mode_sees_the_operations_of_its_thread_until_it_is_popped():
    push, pop = compat.private("torch")
    seen = []

    class Mode(compat.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    mode = Mode()
    push(mode)
    try:
        torch.zeros(2)
        other = threading.Thread(target=torch.ones, args=(2,))
        other.start()
        other.join()
    finally:
        assert pop(None) is mode
    torch.ones(2)
    assert seen == ["zeros"]


def test_operations_tell_their_arguments():
    assert compat.argument_names(torch.ops.aten.bernoulli.default) == {"self", "generator"}


def test_captum_reads_arguments_and_selects_targets():
    pytest.importorskip("captum")
    extra, shaped_as, run_forward, with_baselines, log_usage = compat.private("captum")
    x = torch.arange(6.0).view(2, 3)
    (inputs,), (baseline,) = with_baselines(x, None)
    assert inputs is x
    assert baseline == 0
    assert extra(None) is None
    assert extra(5) == (5,)
    assert shaped_as(False, (x,)) is x
    assert shaped_as(True, (x,)) == (x,)
    outputs = run_forward(lambda x, scale: x * scale, (x,), [2, 0], (10,))
    assert outputs.tolist() == [20, 30]
    assert log_usage()(test_operations_tell_their_arguments).__wrapped__


def test_scikit_learn_checks_weights():
    pytest.importorskip("sklearn")
    [checked] = compat.private("scikit-learn")
    assert checked(None, [[1.0], [2.0]]).tolist() == [1, 1]
    with pytest.raises(ValueError, match="egative"):
        checked([1.0, -1.0], [[1.0], [2.0]], ensure_non_negative=True)


@pytest.fixture
def llama():
    """A language model of transformers with 2 layers and random weights."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "vocab_size": 12}
    config = transformers.LlamaConfig(**sizes, num_hidden_layers=2, num_attention_heads=2)
    return transformers.LlamaForCausalLM(config).eval()


def test_attention_is_returned_in_the_block_and_as_before_after_it(llama):
    ids = torch.arange(5).unsqueeze(0)
    before = compat.attention_of(llama.config)
    assert before == "sdpa"
    with compat.eager_attention(llama), torch.no_grad():
        assert compat.attention_of(llama.config) == "eager"
        layers = llama(input_ids=ids, output_attentions=True).attentions
    assert len(layers) == 2
    assert torch.allclose(layers[0].sum(-1), torch.ones(1, 2, 5))
    with pytest.raises(KeyboardInterrupt), compat.eager_attention(llama):
        raise KeyboardInterrupt
    assert compat.attention_of(llama.config) == before


def test_a_mask_for_every_pair_of_tokens_is_added_to_the_scores(llama):
    """What text/gates.py passes as attention_mask."""
    ids = torch.arange(5).unsqueeze(0)
    pairs = torch.full((5, 5), -torch.inf).triu(1)
    pairs[2:, 1] = -torch.inf
    with torch.no_grad():
        plain = llama(input_ids=ids).logits
        masked = llama(input_ids=ids, attention_mask=pairs[None, None]).logits
        without = llama(input_ids=ids, attention_mask=torch.tensor([[1, 0, 1, 1, 1]])).logits
    assert torch.allclose(masked[:, 2:], without[:, 2:], atol=1e-6)
    assert not torch.allclose(masked[:, 2:], plain[:, 2:], atol=1e-3)


def test_messages_are_masked_in_the_block_and_as_before_after_it():
    geometric = pytest.importorskip("torch_geometric.nn")
    layer = geometric.SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False)
    nn.init.ones_(layer.lin_l.weight)
    assert compat.takes_mask(layer)
    assert not compat.takes_mask(nn.Linear(1, 1))
    x, edges = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([[0, 1, 2], [2, 2, 0]])
    mask = torch.tensor([0.5, 0.0, 0.25], requires_grad=True)
    before = [getattr(layer, name) for name in compat.MASK]
    with compat.masked_messages([layer], mask, edges[0] == edges[1]):
        output = layer(x, edges)
    assert output.flatten().tolist() == [1, 0, 0.5]
    assert torch.autograd.grad(output.sum(), mask)[0].tolist() == [1, 2, 4]
    assert [getattr(layer, name) for name in compat.MASK] == before
    assert layer(x, edges).flatten().tolist() == [4, 0, 3]


def test_loops_that_a_layer_adds_are_not_masked():
    geometric = pytest.importorskip("torch_geometric.nn")
    layer = geometric.GCNConv(1, 1, bias=False)
    x, edges = torch.tensor([[1.0], [2.0]]), torch.tensor([[0, 1], [1, 1]])
    with compat.masked_messages([layer], torch.zeros(2), edges[0] == edges[1]):
        output = layer(x, edges)
    # The first node has a loop alone; the second has the degree 2.
    assert torch.allclose(output, layer.lin(x) * torch.tensor([[1.0], [0.5]]))


def test_cached_degrees_are_forgotten():
    geometric = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    layer, x = geometric.GCNConv(1, 1, cached=True), torch.rand(3, 1)
    some, others = torch.tensor([[0, 1], [1, 2]]), torch.tensor([[2, 0], [1, 2]])
    before = layer(x, some)
    assert torch.equal(layer(x, others), before)
    compat.forget_degrees(layer)
    assert not torch.equal(layer(x, others), before)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("regression", nn.functional.mse_loss),
        ("multiclass_classification", nn.functional.cross_entropy),
        ("binary_classification", nn.functional.binary_cross_entropy_with_logits),
    ],
)
def test_explainers_have_a_loss_for_every_mode(mode, expected):
    explain = pytest.importorskip("torch_geometric.explain")
    config = {"mode": mode, "task_level": "node", "return_type": "raw"}
    algorithm = explain.DummyExplainer()
    algorithm.connect(
        explain.ExplainerConfig("phenomenon", edge_mask_type="object"),
        explain.ModelConfig(**config),
    )
    output, target = torch.tensor([0.5, -2.0, 1.0]), torch.tensor([1.0, 0.0, 0.0])
    if mode.startswith("multi"):
        output, target = output.unsqueeze(0), torch.tensor([2])
    ours = compat.explainer_loss(algorithm, mode)(output, target)
    assert torch.isclose(ours, expected(output, target))
