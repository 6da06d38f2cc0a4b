"""Inputs by name, models as other libraries make them, and outputs with further axes."""

from collections import OrderedDict

import pytest
import torch
from torch import Tensor, nn

import greedypig as gp
from agreement import agree
from nets import cnn, linear, mlp, picture, row


class ModelOutput(OrderedDict):
    """As Hugging Face's: a dict whose entries are attributes and, by number, items of a tuple."""

    def __getattr__(self, name: str) -> Tensor:
        return self[name]

    def __getitem__(self, key: str | int) -> Tensor:
        return list(self.values())[key] if isinstance(key, int) else super().__getitem__(key)


class Classifier(nn.Module):
    """Called by names, as the models of Hugging Face are."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mix, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
    ) -> ModelOutput:
        mask = torch.ones(inputs_embeds.shape[:2]) if attention_mask is None else attention_mask
        seen = torch.tanh(self.mix(inputs_embeds)) * mask.unsqueeze(2)
        hidden = seen.sum(1)
        return ModelOutput(loss=hidden.sum() * 0, logits=self.head(hidden))


TEXT = torch.rand(5, 4, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("mask", [None, torch.tensor([1.0, 1, 0, 1, 0])], ids=["all", "masked"])
def test_the_tokens_of_an_input_by_name_are_those_of_the_tensor(mask):
    model = Classifier()
    fixed = None if mask is None else {"attention_mask": mask}
    ask = {"features": "tokens", "target": 1, "method": gp.GreedyPIG(per_round=1, steps=4)}
    found = gp.explain(model, {"inputs_embeds": TEXT}, fixed=fixed, **ask)
    whole = torch.ones(5) if mask is None else mask
    expected = gp.explain(
        lambda x: model(inputs_embeds=x, attention_mask=whole.expand(len(x), -1)).logits,
        TEXT,
        **ask,
    )
    agree(found, expected)
    assert list(found.scores) == ["inputs_embeds"]
    assert found.scores["inputs_embeds"].shape == TEXT.shape
    assert found.mask(2)["inputs_embeds"].sum() == 2 * 4
    if mask is not None:
        assert found.feature_scores[2] == found.feature_scores[4] == 0


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = cnn()

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.net(pixel_values)


CONTAINERS = {
    "tuple": lambda x: (x,),
    "list": lambda x: [x],
    "dict": lambda x: {"pixel_values": x},
}
OF_PICTURES = {
    "pixels": {"features": "pixels"},
    "grid": {"features": gp.grid(2)},
    "windows": {"features": gp.windows(2)},
    "superpixels": {"features": gp.superpixels(5)},
    "blur": {"baseline": "blur"},
    "tensor": {"baseline": torch.full((3, 6, 5), 0.25)},
    "blur-ig": {"method": gp.BlurIG(4)},
    "steady-pig": {"method": gp.SteadyPIG(rounds=3)},
    "group ids": {"features": torch.arange(30).view(6, 5) // 3},
}


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
@pytest.mark.parametrize("name", OF_PICTURES)
def test_a_picture_in_a_container_of_one_is_a_picture(name, container):
    if name == "superpixels":
        pytest.importorskip("skimage", reason="needs the extra images")
    ask = OF_PICTURES[name] | {"target": 1}
    ask = {"method": gp.GreedyPIG(rounds=3)} | ask
    found = gp.explain(Named(), container(picture()), **ask)
    agree(found, gp.explain(Named(), picture(), **ask))
    (scores,) = found.layout.tensors(found.scores)
    assert scores.shape == (3, 6, 5)


def test_a_photo_by_name_is_explained_as_the_photo_is():
    photo = picture(0, (3, 128, 128))
    found, expected = (
        gp.explain(Named(), x, stop=gp.Stop(gradients=6)) for x in ({"pixel_values": photo}, photo)
    )
    assert found.method == expected.method == "steady-pig"
    agree(found, expected)


def test_two_pictures_are_still_no_picture():
    with pytest.raises(gp.InvalidInput, match="one picture"):
        gp.explain(lambda a, b: cnn()(a + b), (picture(), picture()), features="pixels")


@pytest.mark.parametrize("shape", [(1, 1), (1, 1, 1), (4, 1, 1), (4, 1, 1, 1)], ids=str)
def test_further_axes_of_one_in_the_output_mean_nothing(shape):
    net = linear(6, 1) if shape[0] == 1 else mlp()
    ask = {"objective": "logit", "method": gp.GreedyPIG(rounds=3, steps=3)}
    found = gp.explain(lambda x: net(x).view(len(x), *shape), row(), **ask)
    agree(found, gp.explain(lambda x: net(x), row(), **ask))


def test_an_objective_of_one_s_own_sees_the_output_as_it_is():
    net = mlp()
    found = gp.explain(
        lambda x: net(x).view(len(x), 4, 1, 1), row(), objective=lambda out: out[:, 2, 0, 0]
    )
    agree(found, gp.explain(net, row(), objective="logit", target=2))


def test_a_batch_of_rows_for_a_model_of_one_output_is_no_row_of_classes():
    net = linear(6, 1)
    with pytest.raises(gp.InvalidInput, match="one example without a batch axis"):
        gp.explain(lambda x: net(x), torch.stack([row(s) for s in range(5)]))


def test_a_map_of_outputs_is_refused_with_its_shape():
    with pytest.raises(gp.InvalidInput, match=r"got \(1, 2, 2\)"):
        gp.explain(lambda x: mlp()(x).view(len(x), 2, 2), row())


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("inside", ["itself", "a function", "a module"])
@pytest.mark.parametrize("how", ["freeze", "optimize_for_inference"])
def test_frozen_scripts_which_have_no_mode_are_explained(how, inside):
    net, frozen = mlp(), getattr(torch.jit, how)(torch.jit.script(mlp()))
    model = {
        "itself": lambda: frozen,
        "a function": lambda: lambda x: frozen(x),
        "a module": lambda: nn.Sequential(frozen, nn.Identity()),
    }[inside]()
    agree(
        gp.explain(model, row(), method=gp.GreedyPIG(rounds=3, steps=3)),
        gp.explain(net, row(), method=gp.GreedyPIG(rounds=3, steps=3)),
    )
    assert not hasattr(frozen, "training")
    (many,) = gp.explain_many(model, [row()], method=gp.GreedyPIG(rounds=3, steps=3))
    agree(many, gp.explain(net, row(), method=gp.GreedyPIG(rounds=3, steps=3)))
