"""The sparse product is the dense one, whole or block by block, and Â is the formula's."""

import pytest
import torch

from greedypig.graphs import sparse
from greedypig.graphs.sparse import Adjacency, Matrix, Pattern


def entries(height, width, count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(height, (count,), generator=generator)
    columns = torch.randint(width, (count,), generator=generator)
    values = torch.randn(count, dtype=torch.float64, generator=generator)
    dense = torch.zeros(height, width, dtype=torch.float64)
    return rows, columns, values, dense.index_put_((rows, columns), values, accumulate=True)


@pytest.mark.parametrize("count", [0, 1, 60])  # Sixty in 9 × 7 places: some are met twice.
def test_the_product_is_the_dense_one(count):
    rows, columns, values, expected = entries(9, 7, count)
    z = torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    pattern = Pattern.of(rows, columns, 9)
    assert torch.allclose(Matrix(pattern, values[pattern.slots]).times(z), expected @ z)


@pytest.mark.parametrize("block", [1, 10, 17, 1000])
def test_blocks_make_up_the_product(monkeypatch, block):
    monkeypatch.setattr(sparse, "BLOCK", block)
    rows, columns, values, _ = entries(9, 7, 60)
    z = torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    pattern = Pattern.of(rows, columns, 9)
    values = values[pattern.slots]
    blocks = list(pattern.blocks(5))
    assert [b.rows.start for b in blocks] == sparse.block_cuts(5, 9)[:-1]
    found = torch.cat([b.times(z, values) for b in blocks])
    assert torch.equal(found, pattern.times(z, values))


def formula(edge_index, weight, nodes):
    """D^-½ (A + I) D^-½ in dense arrays, edges of a node to itself left out."""
    a = torch.eye(nodes, dtype=torch.float64)
    for (source, target), w in zip(edge_index.T.tolist(), weight.tolist(), strict=True):
        a[target, source] += w * (source != target)
    scale = a.sum(1).rsqrt()
    return scale[:, None] * a * scale


def test_the_normalised_matrix_is_the_formula_s():
    edges = torch.tensor([[0, 1, 2, 2, 0, 3], [1, 2, 0, 2, 1, 1]])  # A loop, and one edge twice.
    weight = torch.tensor([0.5, 2.0, 1.5, 9.0, 0.25, 1.0], dtype=torch.float64)
    there, back = Adjacency(edges, 5).normalised(weight)
    expected, eye = formula(edges, weight, 5), torch.eye(5, dtype=torch.float64)
    assert torch.allclose(there.times(eye), expected)
    assert torch.allclose(back.times(eye), expected.T)


def test_a_mirrored_graph_is_its_own_transpose():
    one = torch.tensor([[0, 1, 2], [1, 2, 3]])
    edges, weight = torch.cat([one, one.flip(0)], 1), torch.tensor([0.5, 2.0, 1.0]).double()
    weight = torch.cat([weight, weight])
    there, back = Adjacency(edges, 4, mirrored=True).normalised(weight)
    assert there is back
    assert torch.allclose(there.times(torch.eye(4).double()), formula(edges, weight, 4))
