"""`greedypig compress`: edges kept, judged, written, stopped and gone on with."""

import csv

import numpy as np
import pytest
import torch

import greedypig as gp
from greedypig.graphs import load_graph, load_model, make_graph, save_graph, training
from greedypig.graphs.compression import Judge

QUICK = ("--hidden", "8", "--epochs", "15", "--rounds", "3", "--steps", "2")
OWN = ("--model", "tiny_graph_models:build", "--rounds", "3", "--steps", "2")


pytestmark = pytest.mark.usefixtures("quick_figures")


def test_the_answer_is_one_object(answer, graph, place):
    record = answer("compress", "graph.npz", "--keep", "0.4", *QUICK)
    assert record["kept"] == 60
    assert sorted(record["order"]) == list(range(150))
    model = load_model(place / "graph-compressed/model.safetensors", graph)
    judge = Judge(model, graph)
    look = judge.look(torch.tensor(record["order"][:60]))
    assert record["accuracy"] == look.accuracy
    assert record["agreement"] == look.agreement
    assert record["g"] == pytest.approx(look.g)
    assert record["accuracy_full"] == judge.full.accuracy
    assert record["curve"]["fractions"] == [i / 20 for i in range(21)]
    assert record["curve"]["agreement"][-1] == 1
    assert list(record["methods"]) == ["greedy-pig", "ig", "degree", "random"]
    assert record["gradients"] == 6
    assert record["methods"]["ig"]["gradients"] == 6  # At equal cost.
    assert record["seconds"] > 0
    assert record["settings"]["training"]["epochs"] <= 15
    assert record["graph"]["edges"] == 150


def test_the_kept_edges_are_a_graph_again(answer, graph, place):
    record = answer("compress", "graph.npz", "--keep", "0.3", *QUICK)
    small = load_graph(place / "graph-compressed/kept.npz")
    assert small.m == record["kept"] == 45
    expected = graph.edges[:, sorted(record["order"][:45])]
    assert torch.equal(small.edges, expected)
    with np.load(place / "graph-compressed/kept.npz") as file:
        assert file["kept"].tolist() == sorted(record["order"][:45])
    assert torch.equal(small.train, graph.train)


def test_files_hold_the_curves(answer, graph, place):
    pytest.importorskip("matplotlib")
    record = answer("compress", "graph.npz", "--methods", "ig,random", *QUICK, "--out", "o")
    names = sorted(p.name for p in (place / "o").iterdir())
    assert names == [
        "compression.csv",
        "compression.gpig",
        "compression.html",
        "compression.png",
        "kept.npz",
        "methods",
        "model.safetensors",
    ]
    assert sorted(record["files"]) == [f"o/{n}" for n in names if n != "methods"]
    with (place / "o/compression.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 42
    found = [float(row["agreement"]) for row in rows if row["method"] == "random"]
    assert found == pytest.approx(record["methods"]["random"]["agreement"], abs=1e-5)
    assert gp.load(place / "o/compression.gpig").order.tolist() == record["order"]


@pytest.mark.slow
def test_people_read_a_table(call, graph, monkeypatch):
    code, out, err = call("compress", "graph.npz", *QUICK)
    assert code == 0
    assert err == ""
    lines = out.splitlines()
    assert lines[0].startswith("graph: 60 nodes, 150 edges, 3 classes, GCN 6-8-8-3")
    at = lines.index("with 50 % of the edges (75):")
    assert [line.split()[0] for line in lines[at + 1 : at + 4]] == ["accuracy", "Greedy", "PIG"]
    assert "to agree on 99 % of the nodes" in out
    monkeypatch.setenv("COLUMNS", "60")
    _, out, _ = call("compress", "graph.npz", *QUICK)
    assert max(map(len, out.splitlines())) <= 60


def test_the_page_comes_from_the_result_alone(call, graph, place):
    assert call("compress", "graph.npz", *QUICK)[0] == 0
    page = place / "graph-compressed/compression.html"
    before = page.read_text()
    page.unlink()
    assert call("report", "graph-compressed/compression.gpig")[0] == 0
    assert page.read_text() == before


def test_a_model_of_one_s_own_and_its_weights(answer, call, graph, place):
    import tiny_graph_models

    record = answer("compress", "graph.npz", *OWN)
    assert record["settings"]["model"] == "tiny_graph_models:build"
    assert not (place / "graph-compressed/model.safetensors").exists()
    state = {k: -v for k, v in tiny_graph_models.build().state_dict().items()}
    torch.save(state, "w.pt")
    other = answer("compress", "graph.npz", *OWN, "--weights", "w.pt", "--out", "o")
    assert other["accuracy_full"] != record["accuracy_full"]
    torch.save({"x": torch.ones(1)}, "wrong.pt")
    code, _, err = call("compress", "graph.npz", *OWN, "--weights", "wrong.pt")
    assert code == 2
    assert "weights of tiny_graph_models:build" in err


def test_weights_alone_are_a_trained_gcn(answer, graph, place):
    first = answer("compress", "graph.npz", *QUICK, "--out", "a")
    again = answer(
        "compress",
        "graph.npz",
        "--weights",
        "a/model.safetensors",
        "--rounds",
        "3",
        "--steps",
        "2",
        "--out",
        "b",
    )
    assert again["order"] == first["order"]
    assert again["settings"]["training"] == {}


def test_a_graph_without_labels_needs_a_model(answer, call, graph, place):
    save_graph(make_graph(graph.x, graph.edges), place / "bare.npz")
    code, _, err = call("compress", "bare.npz")
    assert code == 2
    assert "labels y in bare" in err
    record = answer("compress", "bare.npz", *OWN)
    assert record["accuracy"] is None
    assert record["accuracy_full"] is None
    assert 0 < record["agreement"] <= 1


def test_edge_lists_are_read(answer, graph, place):
    lines = "\n".join(f"{u},{v}" for u, v in graph.edges.T.tolist())
    (place / "edges.csv").write_text(f"from,to\n{lines}\n")
    rows = [
        ",".join([*map(repr, row), f"topic-{y}"])
        for row, y in zip(graph.x.tolist(), graph.y.tolist(), strict=True)
    ]
    (place / "nodes.csv").write_text("a,b,c,d,e,f,topic\n" + "\n".join(rows) + "\n")
    record = answer("compress", "edges.csv", "--nodes", "nodes.csv", "--label", "topic", *QUICK)
    assert record["graph"]["classes"] == 3
    assert any("drawn by seed 0" in note for note in record["graph"]["notes"])


def test_a_stopped_training_goes_on(call, answer, graph, place, monkeypatch):
    whole = answer("compress", "graph.npz", *QUICK, "--out", "whole")
    plain = training.Training.step

    def step(self):
        plain(self)
        if self.epoch == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(training.Training, "step", step)
        code, _, err = call("compress", "graph.npz", *QUICK)
    assert code == 1
    assert "after 5 epochs" in err
    assert (place / "graph-compressed/model.partial.pt").exists()
    record = answer("compress", "--resume", "graph.npz", *QUICK)
    assert record["order"] == whole["order"]
    assert not (place / "graph-compressed/model.partial.pt").exists()


def test_foreign_files_are_left_alone(call, graph, place):
    (place / "graph-compressed").mkdir()
    (place / "graph-compressed/kept.npz").write_bytes(b"mine")
    code, _, err = call("compress", "graph.npz", *QUICK)
    assert code == 2
    assert "left alone" in err
    assert (place / "graph-compressed/kept.npz").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere.npz",), "there is none"),
        (("graph.npz", "--keep", "0"), "Expected --keep as a share above 0 and up to 1"),
        (("graph.npz", "--keep", "0.0001"), "keep an edge of 150"),
        (("graph.npz", "--methods", "magic"), "among greedy-pig"),
        (("graph.npz", "--methods", ","), "names with commas"),
        (("graph.npz", "--device", "abacus"), "device"),
        (("graph.npz", "--out", "x.gpig"), "folder as --out"),
        (("graph.npz", "--model", "tiny_graph_models:narrow"), "3 classes"),
        (("graph.npz", "--model", "tiny_graph_models:nothing"), "nothing"),
        (("graph.npz", "--model", "tiny_graph_models:of_nodes"), "to take (x, edge_index,"),
        (("graph.npz", "--weights", "gone.pt"), "Expected a file at gone.pt"),
        (("graph.npz", *OWN, "--hidden", "3"), "--hidden only"),
        (("graph.npz", "--nodes", "graph.npz"), "beside an edge list"),
        (("photo.png",), "Expected a graph"),
    ],
)
def test_wrong_words_get_one_sentence(call, graph, words, said):
    code, out, err = call("compress", *words)
    assert code == 2
    assert out == ""
    assert said in " ".join(err.split())
