"""`reproduce graph` on small graphs: means over seeds, kept and gone on with, as the tables say."""

import csv
from statistics import mean, stdev

import pytest

import greedypig as gp
from graph_seen import write_ogb
from greedypig.graphs import Recipe, generate, save_graph
from reproduction import experiment, graph

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(place, monkeypatch, request):
    """Small graphs under the names of the real ones, explained at two nodes each."""
    for i, name in enumerate(("cora", "pubmed")):
        made = generate(60, 160, 6, 3, signal=2.0, labels_per_class=6, seed=i)
        save_graph(made, place / f"{name}.npz")
    settings = experiment.read_settings("graph")
    for panel in settings["panels"]:
        panel["nodes"] = 2
    size = {"nodes": 80, "edges": 200, "features": 6, "classes": 3}
    settings["panels"][2]["generate"] |= size
    settings["node"] |= {"k": 3, "draws": 2}
    monkeypatch.setattr(experiment, "read_settings", lambda name: settings)
    quick = Recipe(hidden=8, epochs=12)
    monkeypatch.setattr(graph.Recipe, "of", staticmethod(lambda made: quick))
    if "tables" not in request.node.name:  # Drawing takes longer than all the rest.
        monkeypatch.setattr(experiment.Experiment, "figure", lambda self, name, draw: None)
    return place


def words(panels="cora", seeds=2, graphs=".", out="out"):
    return ("reproduce", "graph", "--graphs", graphs, "--seeds", seeds, "--budget", 6,
            "--panels", panels, "--out", out)  # fmt: skip


def test_tables_hold_means_and_errors_over_seeds(folder, answer):
    pytest.importorskip("matplotlib")
    record = answer(*words())
    rows = record["rows"]
    assert [r["method"] for r in rows] == ["greedy-pig", "ig", "degree", "random"]
    with (folder / "out/graph-seeds.csv").open() as file:
        each = [
            row
            for row in csv.DictReader(file)
            if row["method"] == "greedy-pig" and row["share"] == "0.3"
        ]
    values = [float(row["agreement"]) for row in each]
    assert len(values) == 2
    row = rows[0]
    assert row["agreement_30"] == pytest.approx(mean(values), abs=1e-5)
    assert row["agreement_30_error"] == pytest.approx(stdev(values) / 2**0.5, abs=1e-5)
    assert row["gradients"] == 6
    assert 0 <= row["same"] <= 1
    assert "same" not in rows[1]
    page = (folder / "out/graph.md").read_text()
    assert "negligible effect" in page
    assert "Made by `python -m reproduction graph --graphs DIR --panels cora --seeds 2" in page
    names = [file.split("/")[-1] for file in record["files"]]
    files = {"graph.md", "graph.png", "graph.csv", "graph-curves.csv", "graph-seeds.csv"}
    assert set(names) == files


def test_what_was_measured_is_not_measured_again(folder, answer, monkeypatch):
    first = answer(*words())
    monkeypatch.setattr(graph.Training, "step", None)
    monkeypatch.setattr(graph, "edge_order", None)
    assert answer(*words())["rows"] == first["rows"]


def test_a_stopped_run_keeps_its_network_and_goes_on(folder, answer, call, monkeypatch):
    whole = answer(*words(seeds=1))
    plain = graph.edge_order

    def stopped(method, *args, **more):
        if isinstance(method, gp.IG):
            raise KeyboardInterrupt
        return plain(method, *args, **more)

    other = words(seeds=1, out="other")
    with monkeypatch.context() as m:
        m.setattr(graph, "edge_order", stopped)
        code, _, err = call(*other)
        assert (code, "Stopped graph after 1 of 5" in err) == (1, True)
    assert len(list((folder / "other").rglob("network-0*.safetensors"))) == 1
    with monkeypatch.context() as m:
        m.setattr(graph.Training, "step", None)
        again = answer(*other)
    for a, b in zip(again["rows"], whole["rows"], strict=True):
        assert a | {"seconds": 0} == b | {"seconds": 0}


def test_the_third_panel_says_that_it_is_generated(folder, answer):
    record = answer(*words("arxiv", seeds=1))
    assert record["rows"][0]["graph"] == "generated, ogbn-arxiv's size"
    assert "generated, as the real graph is not in" in record["differs"][0]


def test_the_real_third_panel_is_taken_where_it_is(folder, answer):
    write_ogb(generate(80, 200, 6, 3, seed=9), folder / "ogbn_arxiv")
    record = answer(*words("arxiv", seeds=1))
    assert record["rows"][0]["graph"] == "ogbn-arxiv"
    assert "generated" not in record["differs"][0]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (words("citeseer"), "panels among cora"),
        ((*words(), "--methods", "magic"), "methods of graph"),
        ((*words(), "--methods", ","), "methods among"),
        (words(graphs="/nowhere"), "cora.npz in /nowhere"),
    ],
)
def test_wrong_requests_are_named(folder, call, wrong, said):
    code, _, err = call(*wrong)
    assert code == 2
    assert said in err
