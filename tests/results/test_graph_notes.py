"""Notes of graphs are read from the result alone, checked, and laid out without overlap."""

from dataclasses import replace

import numpy as np
import pytest

import greedypig as gp
from graph_seen import compressed, crowd, explained, plain_result
from greedypig.results.graph_layout import hops_from, radial_layout
from greedypig.results.graph_notes import CompressionNotes, NodeNotes
from greedypig.results.kinds import notes_of


def test_other_results_have_neither():
    for view in ("graph-compression", "graph-node", "selection", "text"):
        with pytest.raises(gp.InvalidInput, match="Expected another one"):
            notes_of(plain_result(), view, "another one")


def test_a_compression_is_read():
    found = CompressionNotes.of(compressed())
    assert (found.graph.nodes, found.graph.edges, found.kept_edges, found.keep) == (5, 6, 3, 0.5)
    assert [m.title for m in found.methods] == ["Greedy PIG", "random edges"]
    assert found.first.lines["agreement"].at(0.5) == 0.99
    assert found.share_for(found.first, 0.99) == 0.5
    assert found.share_for(found.methods[1], 0.95) == 1.0
    assert found.share_for(found.first, 1.1) is None
    assert list(CompressionNotes.of(compressed(accuracy=False)).first.lines) == ["agreement", "g"]


def test_a_node_is_read():
    found = NodeNotes.of(explained())
    assert [n.kind for n in found.nodes] == [1, 1, 0, None]
    assert found.edges[2] == (2, 3)
    assert found.random.same == 0.25


def test_a_part_that_outdoes_the_whole_is_named():
    found = CompressionNotes.of(compressed())
    assert found.excess()[:3] == ("50 % of the edges", -0.4, -0.5)  # G of all edges is −0.5.
    assert replace(found, keep=0.25).excess()[:2] == ("50 % of the edges", -0.4)
    assert replace(found, full={"g": -0.405}).excess() is None
    node = NodeNotes.of(explained())
    assert node.excess() is None
    assert replace(node, probability=0.45).excess()[:3] == ("The first 2 edges", 0.6, 0.45)
    node = replace(node, probability=0.55, alone=0.7)
    assert node.excess()[:2] == ("The node alone", 0.7)
    assert replace(node, kept_probabilities=()).excess() is None  # There is no edge.


def test_hops_are_breadth_first_and_strangers_lie_behind_all():
    assert hops_from(0, [(0, 1), (1, 2), (2, 0), (3, 2)], 6) == [0, 1, 1, 2, 3, 3]


def test_every_node_has_a_place_of_its_own_in_its_ring():
    found = NodeNotes.of(crowd())
    spots = np.array(radial_layout(found.edges, len(found.nodes)).spots)
    apart = np.linalg.norm(spots[:, None] - spots[None], axis=2) + 2 * np.eye(len(spots))
    assert len(spots) == 31
    assert apart.min() > 0.08
    radius = np.linalg.norm(spots, axis=1)
    assert radius.max() == pytest.approx(1)
    hops = np.array(hops_from(0, found.edges, len(spots)))
    for hop in range(4):
        ring = radius[hops == hop]
        assert np.ptp(ring) < 1e-12


@pytest.mark.parametrize(
    "wrong",
    [{"edges": [[0, 9]]}, {"edges": [[0]]}, {"edges": "no"}, {"nodes": []}, {"node": "a"},
     {"nodes": ["a"]}, {"probability": "high"}, {"kept_probabilities": [None]}, {"random": [1]}],
)  # fmt: skip
def test_a_stranger_s_node_is_refused(wrong):
    with pytest.raises(gp.InvalidInput, match="Expected"):
        NodeNotes.of(explained().with_notes(wrong))


@pytest.mark.parametrize(
    "wrong",
    [{"traces": {"a": 1}}, {"traces": {"a": {"fractions": [0, 1], "g": [1]}}},
     {"graph": {"nodes": "0"}}, {"keep": None}, {"kept_edges": 1.5}, {"full": {"g": "x"}}],
)  # fmt: skip
def test_a_stranger_s_compression_is_refused(wrong):
    with pytest.raises(gp.InvalidInput, match="Expected"):
        CompressionNotes.of(compressed().with_notes(wrong))
