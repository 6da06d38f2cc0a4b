"""What a result keeps of its example, so that it can be drawn without the model."""

import pytest
import torch

import greedypig as gp
from greedypig.results.input_notes import InputNotes
from greedypig.results.picture import Picture
from nets import cnn, mlp, picture, row

ONE = gp.GreedyPIG(rounds=2, steps=1)


def test_a_classifier_s_result_names_the_class_its_probability_and_the_others():
    model = mlp()
    model.classes = ["cat", "dog", "<b>", "hen"]
    notes = InputNotes.of(gp.explain(model, row(), target=2, method=ONE))
    probabilities = torch.softmax(model(row().unsqueeze(0))[0].double(), 0)
    assert notes.label == "<b>"
    assert notes.probability == pytest.approx(float(probabilities[2]))
    assert dict(notes.predictions) == pytest.approx(
        dict(zip(model.classes, probabilities.tolist(), strict=True))
    )
    assert notes.model == "Sequential"


@pytest.mark.parametrize("classes", [None, ["too", "few"], "four", 7], ids=str)
def test_classes_without_a_name_for_each_output_are_numbered(classes):
    model = mlp()
    model.classes = classes
    assert InputNotes.of(gp.explain(model, row(), target=3, method=ONE)).label == "output 3"


def test_a_value_has_no_class():
    a = gp.explain(torch.nn.Linear(6, 1), row(), outputs="values", method=ONE)
    assert InputNotes.of(a).label == ""
    assert InputNotes.of(a).probability is None
    assert torch.equal(a.attachments["x"], row())


def test_the_picture_is_what_to_pixels_says():
    model = cnn()
    model.to_pixels = lambda x: (x + 1) / 2
    a = gp.explain(model, picture() * 2 - 1, baseline=0.0, method=ONE)
    drawn = Picture.of(a)
    assert torch.equal(
        torch.from_numpy(drawn.pixels), (picture() * 255).round().byte().permute(1, 2, 0)
    )
    assert (drawn.baseline == 128).all()
    assert "x" not in a.attachments


@pytest.mark.parametrize(("scale", "shift"), [(1, 0), (4, -2)])
def test_a_picture_without_to_pixels_is_drawn_as_it_is_or_from_lowest_to_highest(scale, shift):
    x = picture()
    x[0, 0, 0], x[0, 0, 1] = 0, 1
    drawn = Picture.of(gp.explain(cnn(), x * scale + shift, method=ONE)).pixels
    expected = (x * 255).permute(1, 2, 0)
    assert torch.from_numpy(drawn).float() == pytest.approx(expected, abs=0.6)


@pytest.mark.parametrize(
    "to_pixels", [lambda x: 1 / 0, lambda x: x[0], lambda x: x.tolist()], ids=["error", "2", "list"]
)
def test_a_to_pixels_that_fails_warns_and_stops_nothing(to_pixels):
    model = cnn()
    model.to_pixels = to_pixels
    with pytest.warns(UserWarning, match="to_pixels failed"):
        a = gp.explain(model, picture(), method=ONE)
    assert Picture.of(a).pixels is not None


def test_edges_are_named_by_their_nodes():
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])

    def model(x, edge_index, edge_weight):
        return torch.zeros_like(x).index_add(
            0, edge_index[1], x[edge_index[0]] * edge_weight[:, None]
        )

    a = gp.explain_edges(model, torch.eye(3), edges, objective=lambda z: z.sum(), method="ig")
    assert sorted(a.to_frame()["name"]) == ["0 → 1", "1 → 2", "2 → 0"]
    both = torch.cat([edges, edges.flip(0)], 1)
    b = gp.explain_edges(model, torch.eye(3), both, objective=lambda z: z.sum(), method="ig")
    assert sorted(b.to_frame()["name"]) == ["0 – 1", "1 – 2", "2 – 0"]
    c = gp.explain_node(model, torch.eye(3), edges, 2, hops=1)
    assert c.to_frame()["name"].tolist() == ["1 → 2"]
