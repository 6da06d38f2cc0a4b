"""A node's class that a motif makes is explained by the motif's edges (benchmarks/motifs.py)."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

pytest.importorskip("torch_geometric", reason="needs the extra pyg")

FILE = Path(__file__).parents[2] / "benchmarks" / "motifs.py"


@pytest.fixture(scope="module")
def motifs():
    spec = spec_from_file_location("motifs", FILE)
    module = sys.modules["motifs"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def graph(motifs):
    return motifs.made(0)


def test_both_readings_and_the_adapter_find_the_house_and_random_growth_does_not(motifs, graph):
    nodes = motifs.chosen(graph, 8, 0)
    assert graph.accuracy >= 0.95
    found = {name: motifs.precision(f, graph, nodes) for name, f in motifs.OURS.items()}
    random = motifs.precision(motifs.by_node(method="random"), graph, nodes)
    assert min(found.values()) >= 0.85, found
    assert min(found.values()) > random


def test_houses_cannot_be_found_by_the_position_of_their_edges(graph):
    places = graph.houses.nonzero().squeeze(1).float() / len(graph.houses)
    assert abs(places.mean() - 0.5) < 0.03
    assert abs(places.std() - 12**-0.5) < 0.03
