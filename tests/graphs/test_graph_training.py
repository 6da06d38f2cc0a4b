"""Training: a seed is a network, and a stopped training goes on to the same one."""

import numpy as np
import pytest
import torch

import greedypig as gp
from greedypig.graphs import Recipe, Training, generate, load_model, make_graph, save_model, train
from greedypig.graphs.training import features_of, graph_matrix

QUICK = Recipe(hidden=8, epochs=25, patience=25, dropout=0.3)


@pytest.fixture(scope="module")
def graph():
    return generate(120, 400, 12, 3, signal=2.0, labels_per_class=10, seed=4)


def sparse(graph):
    """The same graph with features of which most are 0."""
    x = graph.x * (graph.x > 1.4)
    return make_graph(x, graph.edges, graph.y, train=graph.train, val=graph.val, test=graph.test)


def test_most_zeros_are_multiplied_as_a_sparse_matrix_with_the_same_logits(graph):
    few = sparse(graph)
    model = gp.models.GCN(12, 3, 6).eval()
    assert features_of(graph) is graph.x
    assert features_of(few).is_sparse
    logits = model.propagate(features_of(few), graph_matrix(few))
    assert torch.allclose(logits, model(few.x, few.edge_index), atol=1e-6)


def test_dropout_leaves_the_expectation(graph):
    model, matrix = gp.models.GCN(12, 3, 6, 1, dropout=0.5), graph_matrix(graph)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        plain = model.eval().propagate(graph.x, matrix)
        drawn = [model.train().propagate(graph.x, matrix) for _ in range(400)]
    mean = torch.stack(drawn).mean(0)
    assert not torch.allclose(drawn[0], plain, atol=1e-2)
    assert float((mean - plain).abs().mean()) < 0.1 * float(plain.std())


def test_it_learns_and_stops_early(graph):
    found = train(graph, Recipe(epochs=200, patience=20), seed=0)
    answers = found.model(graph.x, graph.edge_index).argmax(1)
    accuracy = float((answers == graph.y)[graph.test].double().mean())
    assert accuracy > 0.75  # By chance: a third.
    assert found.epoch < 200
    assert found.epoch - found.best_epoch == 20
    assert not found.model.training
    assert not any(p.requires_grad for p in found.model.parameters())
    right = float((answers == graph.y)[graph.val].double().mean())
    assert right == pytest.approx(found.val_accuracy)


def test_a_seed_is_a_network_and_global_state_is_left_alone(graph):
    torch.manual_seed(11)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    one, again, other = (train(graph, QUICK, seed=s).model for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]
    for a, b, c in zip(one.parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c) or a.dim() == 1


def test_a_stopped_training_goes_on_to_the_same_network(graph, tmp_path):
    whole = train(graph, QUICK, seed=3)
    first = Training(graph, QUICK, seed=3)
    for _ in range(9):
        first.step()
    first.save(tmp_path / "half.pt")
    second = Training(graph, QUICK, seed=3)
    assert second.take_up(tmp_path / "half.pt")
    assert second.epoch == 9
    while not second.finished:
        second.step()
    assert second.finish().best_epoch == whole.best_epoch
    for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_folder_keeps_the_network_and_a_stopped_training(graph, tmp_path, monkeypatch):
    whole, plain = train(graph, QUICK, seed=3), Training.step

    def step(self):
        plain(self)
        if self.epoch == 9:
            raise KeyboardInterrupt

    def trained():
        return train(graph, QUICK, seed=3, folder=tmp_path / "new" / "folder")

    with monkeypatch.context() as m:
        m.setattr(Training, "step", step)
        with pytest.raises(KeyboardInterrupt):
            trained()
    first = trained()
    assert first.facts() == whole.facts()
    monkeypatch.setattr(Training, "step", None)  # Not another epoch.
    for again in (first, trained()):
        assert again.facts() == whole.facts()
        for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True):
            assert torch.equal(a, b)
    assert [p.name for p in (tmp_path / "new" / "folder").iterdir()] == ["model.safetensors"]


def test_a_network_in_the_folder_that_is_not_ours_is_left_alone(graph, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"mine")
    with pytest.raises(gp.InvalidInput, match="which is left alone"):
        train(graph, QUICK, folder=tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == b"mine"


def test_another_run_s_file_is_not_taken_up(graph, tmp_path):
    Training(graph, QUICK, seed=3).save(tmp_path / "a.pt")
    assert not Training(graph, QUICK, seed=4).take_up(tmp_path / "a.pt")
    assert not Training(graph, Recipe(hidden=9), seed=3).take_up(tmp_path / "a.pt")
    assert not Training(sparse(graph), QUICK, seed=3).take_up(tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes(b"no")
    assert not Training(graph, QUICK, seed=3).take_up(tmp_path / "b.pt")


def test_weights_are_saved_and_loaded(graph, tmp_path):
    model = train(graph, QUICK).model
    save_model(model, tmp_path / "m.safetensors")
    torch.save(model.state_dict(), tmp_path / "m.pt")
    for file in ("m.safetensors", "m.pt"):
        again = load_model(tmp_path / file, graph)
        assert torch.equal(again(graph.x, graph.edge_index), model(graph.x, graph.edge_index))
    with pytest.raises(gp.InvalidInput, match="4 features"):
        load_model(tmp_path / "m.pt", generate(50, 90, 4, 3))
    torch.save({"x": torch.ones(1)}, tmp_path / "other.pt")
    with pytest.raises(gp.InvalidFile, match="weights of a GCN"):
        load_model(tmp_path / "other.pt", graph)


def test_without_labels_or_with_one_class_there_is_nothing_to_learn(graph):
    with pytest.raises(gp.InvalidInput, match="labels y"):
        train(make_graph(graph.x, graph.edges))
    with pytest.raises(gp.InvalidInput, match="two classes"):
        train(make_graph(graph.x, graph.edges, torch.zeros(graph.nodes)))


def test_large_graphs_get_a_wider_network():
    large = make_graph(np.ones((50_000, 1)), [[0], [1]])
    assert Recipe.of(large).hidden == 256
    assert Recipe.of(large, hidden=32, epochs=None).hidden == 32
    assert Recipe.of(generate(50, 90)).hidden == 64
