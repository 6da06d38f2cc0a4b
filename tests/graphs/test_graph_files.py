"""Graphs from files: every form gives the same graph, and nothing that could run code is loaded."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import greedypig as gp
from graph_seen import write_ogb
from greedypig.graphs import generate, load_graph, save_graph

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.fixture(scope="module")
def graph():
    return generate(40, 90, 5, 3, seed=1)


def same(found, graph, classes=None):
    for name in ("x", "edges", "y", "train", "val", "test"):
        assert torch.allclose(getattr(found, name), getattr(graph, name)), name
    assert found.classes == classes


def arrays(graph):
    return {k: getattr(graph, k).numpy() for k in ("x", "edges", "y", "train", "val", "test")}


def test_npz_dense_sparse_and_by_edge_index(graph, tmp_path):
    np.savez(tmp_path / "dense.npz", **arrays(graph))
    same(load_graph(tmp_path / "dense.npz"), graph)
    content = arrays(graph)
    x = content.pop("x")
    rows, cols = x.nonzero()
    sparse = {"x_row": rows, "x_col": cols, "x_val": x[rows, cols], "x_shape": x.shape}
    content["edge_index"] = graph.edge_index.numpy()
    del content["edges"]
    np.savez(tmp_path / "sparse.v2.npz", **content, **sparse)
    found = load_graph(tmp_path / "sparse.v2.npz")
    same(found, graph)
    assert found.name == "sparse.v2"


def test_what_is_saved_is_read_again(graph, tmp_path):
    save_graph(graph, tmp_path / "a.npz", kept=np.arange(3))
    same(load_graph(tmp_path / "a.npz"), graph)
    assert b"greedypig" in (tmp_path / "a.npz").read_bytes()[:100]
    words = load_graph(tmp_path / "a.npz", undirected=False)
    assert words.m == graph.m


@pytest.mark.parametrize("ending", ["pt", "safetensors"])
def test_tensors_as_pyg_has_them(graph, tmp_path, ending):
    masks = {}
    for part in ("train", "val", "test"):
        masks[f"{part}_mask"] = torch.zeros(graph.nodes, dtype=torch.bool)
        masks[f"{part}_mask"][getattr(graph, part)] = True
    data = {"x": graph.x, "edge_index": graph.edge_index.contiguous(), "y": graph.y, **masks}
    path = tmp_path / f"data.{ending}"
    if ending == "pt":
        torch.save(data, path)
    else:
        save_file(data, path)
    same(load_graph(path), graph)


def test_objects_are_refused_with_the_way_out(graph, tmp_path):
    class Data:
        pass

    globals()["Data"], Data.__qualname__ = Data, "Data"
    torch.save(Data(), tmp_path / "data.pt")
    with pytest.raises(gp.InvalidFile, match=r"data\.to_dict"):
        load_graph(tmp_path / "data.pt")
    np.savez(tmp_path / "objects.npz", **arrays(graph) | {"x": np.array([{}], dtype=object)})
    with pytest.raises(gp.InvalidFile, match=r"objects\.npz .*objects, which are not loaded"):
        load_graph(tmp_path / "objects.npz")


def test_an_edge_list_without_heads_and_ids_that_look_like_numbers(tmp_path):
    (tmp_path / "edges.csv").write_text("01,1\n1,7\n")
    (tmp_path / "nodes.csv").write_text(
        "id,f,label,split\n01,0,b,train\n1,1,a,val\nx,2,,\n7,3,b,test\n"
    )
    graph = load_graph(tmp_path)
    assert graph.names == ("01", "1", "x", "7")
    assert graph.edges.tolist() == [[0, 1], [1, 3]]
    assert graph.y.tolist() == [1, 0, -1, 1]


def write_tables(graph, folder, names=False):
    """edges.csv and nodes.csv; with names, ids and classes are words."""
    folder.mkdir(exist_ok=True)
    word = (lambda i: f"n{i:02d}") if names else str
    lines = ["source,target", *(f"{word(u)},{word(v)}" for u, v in graph.edges.T.tolist())]
    (folder / "edges.csv").write_text("\n".join(lines) + "\n")
    part = {i: p for p in ("train", "val", "test") for i in getattr(graph, p).tolist()}
    heads = [*(["id"] if names else []), *(f"f{j}" for j in range(5)), "topic", "split"]
    rows = [",".join(heads)]
    for i in range(graph.nodes):
        kind = int(graph.y[i])
        own = [
            *([word(i)] if names else []),
            *(repr(v) for v in graph.x[i].tolist()),
            f'"class, {kind}"' if names else str(kind),
            part[i],
        ]
        rows.append(",".join(own))
    (folder / "nodes.csv").write_text("\n".join(rows) + "\n")


@pytest.mark.parametrize("names", [False, True])
def test_csv_by_number_and_by_name(graph, tmp_path, names):
    write_tables(graph, tmp_path / "g", names)
    found = load_graph(tmp_path / "g/edges.csv", nodes=tmp_path / "g/nodes.csv", label="topic")
    same(found, graph, ("class, 0", "class, 1", "class, 2") if names else None)
    assert found.names == (tuple(f"n{i:02d}" for i in range(40)) if names else None)
    same(load_graph(tmp_path / "g", label="topic"), graph, found.classes)


def test_a_folder_of_parquet(graph, tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    u, v = graph.edges.tolist()
    parquet.write_table(pa.table({"u": u, "v": v}), tmp_path / "edges.parquet")
    columns = {f"f{j}": graph.x[:, j].tolist() for j in range(5)} | {"label": graph.y.tolist()}
    parquet.write_table(pa.table(columns), tmp_path / "nodes.parquet")
    found = load_graph(tmp_path)
    assert torch.equal(found.edges, graph.edges)
    assert torch.allclose(found.x, graph.x)
    assert torch.equal(found.y, graph.y)
    assert found.name == tmp_path.name


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_tables_without_pyarrow_name_the_extra(tmp_path, monkeypatch, ending):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    file = tmp_path / f"edges.{ending}"
    file.write_bytes(b"PAR1")
    with pytest.raises(gp.MissingPackage, match=r"greedypig\[tables\]"):
        load_graph(file, nodes=file)


def test_a_folder_as_ogb_ships_it(graph, tmp_path):
    write_ogb(graph, tmp_path / "ogbn_small")
    found = load_graph(tmp_path / "ogbn_small")
    same(found, graph)
    assert found.name == "ogbn_small"
    (tmp_path / "ogbn_small/raw/node-feat.csv.gz").unlink()
    with pytest.raises(gp.InvalidFile, match=r"node-feat\.csv\.gz"):
        load_graph(tmp_path / "ogbn_small")


def test_a_truncated_file_is_named(graph, tmp_path):
    save_graph(graph, tmp_path / "g.npz")
    whole = (tmp_path / "g.npz").read_bytes()
    for share in (0.1, 0.5, 0.95):
        (tmp_path / "cut.npz").write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(gp.InvalidFile, match=r"cut\.npz"):
            load_graph(tmp_path / "cut.npz")
    (tmp_path / "cut.pt").write_bytes(b"PK\x03\x04nothing")
    with pytest.raises(gp.InvalidFile, match=r"cut\.pt"):
        load_graph(tmp_path / "cut.pt")
    (tmp_path / "empty.npz").write_bytes(b"")
    with pytest.raises(gp.InvalidFile, match=r"empty\.npz"):
        load_graph(tmp_path / "empty.npz")


@pytest.mark.parametrize(
    ("edges", "nodes", "said"),
    [
        ("a,b\n0,9\n", "f,label\n1,0\n2,1\n", "node ids from 0 to 1"),
        ("a,b\n0,1\n", "f,label\n1,0\n,1\n", "column 'f' in nodes.csv"),
        ("a,b\n0,1\n", "f,label\n1,0\n2\n", "whole table in nodes.csv"),
        ("a,b\n0,1\n", "label\n0\n1\n", "columns of features"),
        ("a\n0\n", "f,label\n1,0\n2,1\n", "two columns"),
        ("a,b\nx,zz\n", "id,f,label\nx,1,0\ny,2,1\n", "'zz', which no node has"),
        ("a,b\nx,x\n", "id,f,label\nx,1,0\nx,2,1\n", "id once"),
        ("a,b\n0,1\n", "f,label,split\n1,0,train\n2,1,later\n", "'later'"),
        ("a,b\n0,1\n", "f,label,split\n1,0,1\n2,1,2\n", "'1'"),
        ("a,b\n0,1\n", "f,label\n2020-01-01,0\n2020-01-02,1\n", "column 'f'"),
        ("a,b\n0,1.5\n", "f,label\n1,0\n2,1\n", "column 'b' in edges.csv"),
        ("a,b\n0,1\n", "", "nodes.csv"),
        ("a,b\n0,1\n", "f,f\n1,1\n", "different names"),
    ],
)
def test_what_is_wrong_in_a_table_is_named(tmp_path, edges, nodes, said):
    (tmp_path / "edges.csv").write_text(edges)
    (tmp_path / "nodes.csv").write_text(nodes)
    with pytest.raises(gp.InvalidFile) as error:
        load_graph(tmp_path)
    assert said in str(error.value)


def test_other_things_are_no_graphs(graph, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is none"):
        load_graph(tmp_path / "nowhere.npz")
    (tmp_path / "photo.jpg").write_bytes(b"x")
    with pytest.raises(gp.InvalidFile, match="Expected a graph"):
        load_graph(tmp_path / "photo.jpg")
    with pytest.raises(gp.InvalidFile, match="Expected a graph"):
        load_graph(tmp_path)
    np.savez(tmp_path / "half.npz", x=graph.x.numpy())
    with pytest.raises(gp.InvalidFile, match="edges or edge_index in half"):
        load_graph(tmp_path / "half.npz")
    np.savez(tmp_path / "other.npz", edges=graph.edges.numpy())
    with pytest.raises(gp.InvalidFile, match="features x"):
        load_graph(tmp_path / "other.npz")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"x_shape": np.array([2**40, 2**40])}, "more than 2³¹ numbers"),
        ({"x_shape": np.array([40, 2**40])}, "more than 2³¹ numbers"),
        ({"x_shape": np.array([40])}, "x_row and x_col within x_shape"),
        ({"x_col": np.array([5])}, "x_row and x_col within x_shape"),
        ({"x_val": np.array(["1"])}, "x_val"),
    ],
)
def test_a_shape_of_sparse_features_that_cannot_be_is_refused_in_one_sentence(
    graph, tmp_path, change, said
):
    one = np.zeros(1, int)
    parts = {"x_row": one, "x_col": one, "x_val": np.ones(1), "x_shape": np.array([40, 5])}
    np.savez(tmp_path / "odd.npz", edges=graph.edges.numpy(), **parts | change)
    with pytest.raises(gp.InvalidFile, match=said):
        load_graph(tmp_path / "odd.npz")


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("cora", (2708, 5278, 1433, 7)), ("pubmed", (19717, 44324, 500, 3))],
)
def test_the_real_graphs(name, sizes):
    path = SHARED / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"needs {name}.npz")
    found = load_graph(path)
    assert (found.nodes, found.m, found.x.shape[1], found.class_count) == sizes
    assert (len(found.val), len(found.test)) == (500, 1000)
    assert found.notes == ()


def test_a_column_of_words_without_a_label_names_the_argument(tmp_path):
    (tmp_path / "edges.csv").write_text("a,b\n0,1\n")
    (tmp_path / "nodes.csv").write_text("id,size,topic\n0,1.5,art\n1,2.5,law\n")
    with pytest.raises(gp.InvalidFile, match="label="):
        load_graph(tmp_path / "edges.csv", nodes=tmp_path / "nodes.csv")


@pytest.mark.parametrize("words", ["classes", "names"])
def test_one_word_for_all_classes_or_nodes_is_one_sentence(graph, tmp_path, words):
    np.savez(tmp_path / "g.npz", **arrays(graph) | {words: np.array("abc")})
    with pytest.raises(gp.InvalidFile, match=r"^Expected .*names.* in g.* \(got 1\)"):
        load_graph(tmp_path / "g.npz")


def test_a_table_of_nodes_that_is_not_there_is_one_sentence(tmp_path):
    pytest.importorskip("pyarrow", reason="needs the extra tables")
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    for name, got in (("gone.csv", "nothing there"), (".", "a folder")):
        with pytest.raises(gp.InvalidFile, match=rf"^Expected a table at .* \(got {got}\)\. Try "):
            load_graph(tmp_path / "edges.csv", nodes=tmp_path / name)
