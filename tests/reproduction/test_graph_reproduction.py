"""`reproduce graph` on small graphs: means over seeds, kept and gone on with, as the tables say."""

import csv
import json
from statistics import mean, stdev

import pytest

import greedypig as gp
from graph_seen import write_ogb
from greedypig.core.errors import InvalidInput
from greedypig.graphs import Recipe, generate, save_graph
from reproduction import Request, Settings, graph, run

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path, monkeypatch, request):
    """Small graphs under the names of the real ones, explained at two nodes each."""
    for i, name in enumerate(("cora", "pubmed")):
        made = generate(60, 160, 6, 3, signal=2.0, labels_per_class=6, seed=i)
        save_graph(made, tmp_path / f"{name}.npz")
    plain = Settings.of

    def small(name):
        found = plain(name)
        for panel in found.more["panels"]:
            panel["nodes"] = 2
        found.more["panels"][2]["generate"] |= {
            "nodes": 80,
            "edges": 200,
            "features": 6,
            "classes": 3,
        }
        found.more["node"] |= {"k": 3, "draws": 2}
        return found

    monkeypatch.setattr(Settings, "of", staticmethod(small))
    quick = Recipe(hidden=8, epochs=12)
    monkeypatch.setattr(graph.Recipe, "of", staticmethod(lambda made: quick))
    if "tables" not in request.node.name:  # Drawing takes longer than all the rest.
        monkeypatch.setattr(graph.Files, "figure", lambda self, name, draw: None)
    return tmp_path


def asked(folder, **more):
    given = {"graphs": str(folder), "seeds": 2, "budget": 6, "panels": ["cora"], **more}
    return Request(folder / "out", **given)


def test_tables_hold_means_and_errors_over_seeds(folder):
    pytest.importorskip("matplotlib")
    result = run("graph", asked(folder))
    assert [r["method"] for r in result.table.rows] == ["greedy-pig", "ig", "degree", "random"]
    with (folder / "out/graph-seeds.csv").open() as file:
        each = [
            row
            for row in csv.DictReader(file)
            if row["method"] == "greedy-pig" and row["share"] == "0.3"
        ]
    values = [float(row["agreement"]) for row in each]
    assert len(values) == 2
    row = result.table.rows[0]
    assert row["agreement_30"] == pytest.approx(mean(values), abs=1e-5)
    assert row["agreement_30_error"] == pytest.approx(stdev(values) / 2**0.5, abs=1e-5)
    assert row["gradients"] == 6
    assert 0 <= row["same"] <= 1
    assert "same" not in result.table.rows[1]
    page = (folder / "out/graph.md").read_text()
    assert "negligible effect" in page
    assert "Made by `python -m reproduction graph --graphs DIR --panels cora --seeds 2" in page
    assert next(f.name for f in result.files) == "graph.md"
    assert {f.name for f in result.files} == set(graph.Compression.FILES)


def test_what_was_measured_is_not_measured_again(folder, monkeypatch):
    first = run("graph", asked(folder))
    monkeypatch.setattr(graph.Training, "step", None)
    monkeypatch.setattr(graph, "edge_order", None)
    again = run("graph", asked(folder))
    assert json.dumps(again.table.rows) == json.dumps(first.table.rows)


def test_a_stopped_run_keeps_its_network_and_goes_on(folder, monkeypatch):
    whole = run("graph", asked(folder, seeds=1))
    plain = graph.edge_order

    def stopped(method, *args, **more):
        if isinstance(method, gp.IG):
            raise KeyboardInterrupt
        return plain(method, *args, **more)

    other = Request(folder / "other", graphs=str(folder), seeds=1, budget=6, panels=["cora"])
    with monkeypatch.context() as m:
        m.setattr(graph, "edge_order", stopped)
        with pytest.raises(KeyboardInterrupt):
            run("graph", other)
    assert len(list((folder / "other").rglob("network-0*.safetensors"))) == 1
    with monkeypatch.context() as m:
        m.setattr(graph.Training, "step", None)
        again = run("graph", other)
    drop = ("seconds",)
    for a, b in zip(again.table.rows, whole.table.rows, strict=True):
        assert {k: v for k, v in a.items() if k not in drop} == {
            k: v for k, v in b.items() if k not in drop
        }


def test_the_third_panel_says_that_it_is_generated(folder):
    result = run("graph", asked(folder, seeds=1, panels=["arxiv"]))
    assert result.table.rows[0]["graph"] == "generated, ogbn-arxiv's size"
    assert "generated, as the real graph is not in" in result.remarks[0]


def test_the_real_third_panel_is_taken_where_it_is(folder):
    write_ogb(generate(80, 200, 6, 3, seed=9), folder / "ogbn_arxiv")
    result = run("graph", asked(folder, seeds=1, panels=["arxiv"]))
    assert result.table.rows[0]["graph"] == "ogbn-arxiv"
    assert "generated" not in result.remarks[0]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"panels": ["citeseer"]}, "panels among cora"),
        ({"methods": ["magic"]}, "methods of graph"),
        ({"methods": []}, "methods among"),
        ({"objective": "softmax"}, "objective"),
        ({"graphs": "/nowhere"}, "cora.npz in /nowhere"),
    ],
)
def test_wrong_requests_are_named(folder, wrong, said):
    with pytest.raises(InvalidInput, match=said):
        run("graph", asked(folder, **wrong))
