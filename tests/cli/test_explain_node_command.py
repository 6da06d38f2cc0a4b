"""`greedypig explain-node`: the edges behind one node, in order, against random growth."""

import math

import pytest
import torch

import greedypig as gp
from greedypig.graphs import load_model, make_graph, save_graph
from greedypig.results.graph_notes import NodeNotes

QUICK = ("--hidden", "8", "--epochs", "15", "--draws", "2", "--steps", "2")


pytestmark = pytest.mark.usefixtures("quick_figures")


def test_the_answer_is_one_object(answer, graph, place):
    record = answer("explain-node", "graph.npz", "--node", "4", "--k", "7", *QUICK)
    model = load_model(place / "graph-nodes/model.safetensors", graph)
    full = torch.softmax(model(graph.x, graph.edge_index)[4].double(), 0)
    assert record["node"] == 4
    assert record["target"] == int(full.argmax())
    assert record["probability"] == pytest.approx(float(full.max()), abs=1e-6)
    assert len(record["order"]) == 7
    own = {tuple(p) for p in graph.edges.T.tolist()}
    assert {tuple(sorted(p)) for p in record["order"]} <= own
    pairs = torch.tensor(record["order"]).T
    part = model(graph.x, torch.cat([pairs, pairs.flip(0)], 1))[4]
    kept = float(torch.softmax(part.double(), 0)[record["target"]])
    assert record["probabilities"][-1] == pytest.approx(kept, abs=1e-5)
    assert len(record["probabilities"]) == 8
    assert record["random"]["draws"] == 2
    assert 0 <= record["random"]["same"] <= 1
    assert record["settings"]["k"] == 7
    for file in record["files"]:
        assert (place / file).exists()


def test_files_are_the_result_the_page_and_the_drawing(answer, graph, place):
    pytest.importorskip("matplotlib")
    record = answer("explain-node", "graph.npz", "--node", "4", "--k", "3", *QUICK)
    names = ["node-4.gpig", "node-4.html", "node-4.png"]
    assert record["files"] == [f"graph-nodes/{name}" for name in names]
    assert (place / "graph-nodes/node-4.png").read_bytes()[1:4] == b"PNG"


def test_fewer_edges_than_asked_for_are_told(call, answer, graph, place):
    ask = ("explain-node", "graph.npz", "--node", "4", "--hops", "1", "--k", "99", *QUICK)
    record = answer(*ask)
    count = int((graph.edges == 4).sum())
    fewer = f"99 edges were asked for; only {count} are within 1 steps."
    assert record["note"].startswith(f"{fewer} The edges within reach alone give ")
    code, out, _ = call(*ask)
    assert code == 0
    assert record["note"] in " ".join(out.split())
    assert record["random"] == {"draws": 2}  # All edges are all edges, in any order.
    assert record["note"] in (place / "graph-nodes/node-4.html").read_text()


def test_people_read_the_edges_in_order(call, graph):
    code, out, err = call("explain-node", "graph.npz", "--node", "4", "--k", "3", *QUICK)
    assert code == 0
    assert err == ""
    lines = out.splitlines()
    assert lines[0].startswith("graph.npz, node 4: class ")
    at = next(i for i, line in enumerate(lines) if line.split()[0] == "edge")
    assert lines[at].split() == ["edge", "probability"]
    assert [line.split()[0] for line in lines[at + 1 : at + 5]] == ["0", "1", "2", "3"]
    assert "random subgraphs" in out
    assert "node-4.html" in out


def test_the_page_comes_from_the_result_alone(call, graph, place):
    assert call("explain-node", "graph.npz", "--node", "4", "--k", "3", *QUICK)[0] == 0
    page = place / "graph-nodes/node-4.html"
    before = page.read_text()
    assert "In order of selection" in before
    page.unlink()
    assert call("report", "graph-nodes/node-4.gpig")[0] == 0
    assert page.read_text() == before
    assert NodeNotes.of(gp.load(place / "graph-nodes/node-4.gpig")).node == 4


def test_nodes_and_classes_by_name(answer, call, graph, place):
    named = make_graph(
        graph.x,
        graph.edges,
        graph.y,
        train=graph.train,
        val=graph.val,
        test=graph.test,
        names=[f"paper-{i}" for i in range(60)],
        classes=["art", "biology", "chemistry"],
    )
    save_graph(named, place / "named.npz")
    record = answer("explain-node", "named.npz", "--node", "paper-4", "--k", "3", *QUICK)
    assert record["node"] == 4
    assert record["class"] in named.classes
    assert record["truth"] == named.classes[int(graph.y[4])]
    _, out, _ = call("explain-node", "named.npz", "--node", "4", "--k", "3", *QUICK)
    assert "paper-4" in out


def test_a_lonely_node_has_an_empty_answer(answer, call, graph, place):
    x = torch.cat([graph.x, graph.x[:1]])
    y = torch.cat([graph.y, graph.y[:1]])
    save_graph(
        make_graph(x, graph.edges, y, train=graph.train, val=graph.val, test=graph.test),
        place / "lonely.npz",
    )
    record = answer("explain-node", "lonely.npz", "--node", "60", *QUICK)
    assert record["order"] == []
    assert record["probabilities"] == [pytest.approx(record["probability"])]
    _, out, _ = call("explain-node", "lonely.npz", "--node", "60", *QUICK)
    assert "no edge is within" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--node", "60"), "--node from 0 to 59"),
        (("--node", "-1"), "--node"),
        (("--node", "x"), "--node from 0 to 59"),
        ((), "--node"),
        (("--node", "1", "--k", "0"), "at least 1"),
        (("--node", "1", "--model", "tiny_graph_models:build"), "hops"),
    ],
)
def test_wrong_words_get_one_sentence(call, graph, words, said):
    code, out, err = call("explain-node", "graph.npz", *words)
    assert code == 2
    assert out == ""
    assert said in " ".join(err.split())


def test_a_model_of_one_s_own_tells_its_depth(answer, graph):
    record = answer(
        "explain-node",
        "graph.npz",
        "--node",
        "4",
        "--k",
        "3",
        "--hops",
        "1",
        "--model",
        "tiny_graph_models:build",
        "--draws",
        "2",
    )
    assert all(4 in pair for pair in record["order"])


@pytest.mark.filterwarnings("ignore:The model takes no edge_weight")
def test_a_model_without_edge_weight_has_its_messages_masked(answer, graph):
    pytest.importorskip("torch_geometric", reason="needs the extra pyg")
    own = ("--model", "tiny_graph_models:of_messages")
    record = answer("explain-node", "graph.npz", "--node", "4", "--k", "3", *own, "--draws", "2")
    assert record["settings"]["normalisation"] == "kept"
    assert len(record["probabilities"]) == len(record["order"]) + 1
    compressed = answer("compress", "graph.npz", "--keep", "0.5", "--rounds", "3", *own)
    assert compressed["settings"]["normalisation"] == "kept"


def test_all_edges_are_those_of_the_whole_graph(answer, graph):
    record = answer("explain-node", "graph.npz", "--node", "4", "--k", "3", *QUICK)
    assert record["objective"]["name"] == record["settings"]["objective"] == "log-probability"
    assert math.exp(record["objective"]["all"]) == pytest.approx(record["probability"], abs=1e-6)
    logs = [math.exp(value) for value in record["objective"]["values"]]
    assert logs == pytest.approx(record["probabilities"], abs=1e-6)


def test_the_answer_s_own_probabilities_are_explained(answer, graph):
    words = ("explain-node", "graph.npz", "--node", "4", "--k", "3", *QUICK)
    record = answer(*words, "--objective", "log-likelihood")
    objective = record["objective"]
    assert objective["name"] == record["settings"]["objective"] == "log-likelihood"
    assert len(objective["values"]) == len(record["order"]) + 1
    assert max(objective["values"]) <= objective["all"] + 1e-6  # It is highest for the same output.
    assert record["random"]["g"] <= objective["all"] + 1e-6


def test_the_objective_is_said_and_compared_with_random_subgraphs(call, graph, place):
    words = ("explain-node", "graph.npz", "--node", "4", "--k", "4", *QUICK)
    _, out, _ = call(*words, "--rounds", "2")
    assert "maximise the probability of class 2" in " ".join(out.split())
    assert "maximise the probability of class 2" in (place / "graph-nodes/node-4.html").read_text()
    _, out, _ = call(*words, "--objective", "log-likelihood", "--rounds", "2")
    assert "maximise the log-likelihood, which is highest where" in " ".join(out.split())
    (line,) = [line for line in out.splitlines() if line.startswith("log-likelihood (max")]
    assert len(line.split()[2:]) == 3  # These edges, random subgraphs, all edges.
    page = (place / "graph-nodes/node-4.html").read_text()
    assert "maximise the log-likelihood, which is highest where" in page
    assert "log-likelihood (maximised)" in page
