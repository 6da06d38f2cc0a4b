"""A graph from arrays: what is set right is told, what is wrong is named in one sentence."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import greedypig as gp
from greedypig.graphs import make_graph

X = np.eye(4, dtype=np.float32)
EDGES = np.array([[0, 1, 2], [1, 2, 3]])
Y = np.array([0, 1, 0, 1])
SPLIT = {"train": [0, 1], "val": [2], "test": [3]}


def test_arrays_become_a_graph_as_they_are():
    graph = make_graph(X, EDGES, Y, **SPLIT, name="tiny")
    assert (graph.nodes, graph.m, graph.class_count) == (4, 3, 2)
    assert graph.edges.tolist() == EDGES.tolist()
    assert graph.edge_index.tolist() == [[0, 1, 2, 1, 2, 3], [1, 2, 3, 0, 1, 2]]
    assert graph.train.tolist() == [0, 1]
    assert graph.degrees.tolist() == [1, 2, 2, 1]
    assert graph.notes == ()


def test_both_directions_count_once_and_need_no_note():
    both = np.concatenate([EDGES, EDGES[::-1]], 1)
    graph = make_graph(X, both, Y, **SPLIT)
    assert graph.edges.tolist() == EDGES.tolist()
    assert graph.notes == ()


def test_loops_and_duplicates_are_left_out_and_told():
    edges = np.array([[0, 1, 1, 2, 2], [1, 0, 1, 3, 3]])
    graph = make_graph(X, edges, Y, **SPLIT)
    assert graph.edges.tolist() == [[0, 2], [1, 3]]
    assert graph.notes == (
        "Edges from a node to itself were left out: 1.",
        "1 edges that were there twice count once.",
    )


def test_directed_edges_keep_their_direction():
    graph = make_graph(X, [[1, 0, 1], [0, 1, 0]], Y, **SPLIT, undirected=False)
    assert graph.edges.tolist() == [[0, 1], [1, 0]]
    assert graph.edge_index.tolist() == graph.edges.tolist()
    assert "twice" in graph.notes[0]


def test_weights_go_with_their_edges():
    graph = make_graph(X, EDGES[:, ::-1], Y, **SPLIT, weight=[3.0, 2.0, 1.0])
    assert graph.weight.tolist() == [1, 2, 3]
    assert graph.part(torch.tensor([2, 0]))[1].tolist() == [3, 1, 3, 1]
    with pytest.raises(gp.InvalidInput, match="both directions"):
        make_graph(X, [[0, 1], [1, 0]], Y, **SPLIT, weight=[1.0, 2.0])


def test_a_missing_split_is_drawn_by_the_seed():
    y = np.arange(300) % 3
    x = np.ones((300, 1))
    graph = make_graph(x, np.array([[0], [1]]), y, seed=3)
    assert torch.bincount(graph.y[graph.train]).tolist() == [20, 20, 20]
    parts = torch.cat([graph.train, graph.val, graph.test])
    assert len(parts.unique()) == len(parts)
    assert "drawn by seed 3" in graph.notes[0]
    same, other = (make_graph(x, [[0], [1]], y, seed=s) for s in (3, 4))
    assert torch.equal(same.train, graph.train)
    assert not torch.equal(other.train, graph.train)


def test_masks_are_indices_and_nan_is_no_label():
    y = np.array([0.0, 1.0, np.nan, 1.0])
    train = np.array([True, False, False, False])
    graph = make_graph(X, EDGES, y, train=train, val=[3])
    assert graph.train.tolist() == [0]
    assert graph.test.tolist() == [1]
    assert graph.y.tolist() == [0, 1, -1, 1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"y": [0, 1, 0, 1e300]}, "(got 1e+300)"),
        ({"y": [0, 1, 0, 10**9]}, "(got 1e+09)"),
        ({"edges": [[0, 4], [1, 2]]}, "node ids from 0 to 3 in the edges of tiny (got 4)"),
        ({"edges": [[0, -1], [1, 2]]}, "(got -1)"),
        ({"edges": np.zeros((3, 2), int)}, "its transpose"),
        ({"edges": [[0.5], [1.0]]}, "whole numbers as node ids"),
        ({"x": np.ones(4)}, "shape (nodes, features)"),
        ({"x": np.array([[1.0], [np.nan], [1], [1]])}, "first node 1"),
        ({"x": np.array([["a"]] * 4)}, "numbers as features"),
        ({"y": [0, 1]}, "4 whole numbers as labels y in tiny"),
        ({"y": [0.5, 1, 0, 1]}, "(got 0.5)"),
        ({"y": [-2, 1, 0, 1]}, "(got -2)"),
        ({"y": [-1] * 4, "train": None, "val": None, "test": None}, "none that is not missing"),
        ({"y": None}, "labels y beside the split"),
        ({"train": [0, 9]}, "in train of tiny (got 9)"),
        ({"train": [0, 3]}, "in test of tiny"),
        ({"y": [0, -1, 0, 1]}, "labelled nodes in train"),
        ({"weight": [1.0]}, "3 finite edge weights"),
        ({"weight": [1.0, np.inf, 1]}, "finite edge weights"),
        ({"weight": ["a", "b", "c"]}, "3 finite edge weights"),
        ({"names": ["a"]}, "4 names in tiny"),
        ({"classes": ["a"]}, "each of the 2 classes"),
    ],
)
def test_what_is_wrong_is_named(change, said):
    given_ = {"x": X, "edges": EDGES, "y": Y, **SPLIT, "name": "tiny", **change}
    x, edges, y = (given_.pop(k) for k in ("x", "edges", "y"))
    with pytest.raises(gp.InvalidInput) as error:
        make_graph(x, edges, y, **given_)
    assert said in str(error.value)
    assert str(error.value).startswith("Expected ")


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=40))
def test_edges_are_the_set_of_pairs(pairs):
    graph = make_graph(np.ones((7, 1)), np.array(pairs).T)
    expected = sorted({(min(p), max(p)) for p in pairs if p[0] != p[1]})
    assert [tuple(p) for p in graph.edges.T.tolist()] == expected
    back = {tuple(p) for p in graph.edge_index.T.tolist()}
    assert back == {q for p in expected for q in (p, p[::-1])}
