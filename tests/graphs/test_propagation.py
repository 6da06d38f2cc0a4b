"""Graph convolutions are the dense formula's, whole or block by block, with all their gradients."""

import pytest
import torch

from greedypig.graphs import propagation
from greedypig.graphs.propagation import Adjacency, Layer, Pattern


def entries(height, width, count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(height, (count,), generator=generator)
    columns = torch.randint(width, (count,), generator=generator)
    values = torch.randn(count, dtype=torch.float64, generator=generator)
    dense = torch.zeros(height, width, dtype=torch.float64)
    return rows, columns, values, dense.index_put_((rows, columns), values, accumulate=True)


def product(pattern, values, dense):
    return torch.cat([rows for _, rows in pattern.times(dense, values[pattern.slots])])


@pytest.mark.parametrize("count", [0, 1, 60])  # Sixty in 9 × 7 places: some are met twice.
def test_the_product_is_the_dense_one(count):
    rows, columns, values, expected = entries(9, 7, count)
    z = torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(product(Pattern.of(rows, columns, 9), values, z), expected @ z)


@pytest.mark.parametrize("block", [1, 10, 17, 1000])
def test_blocks_make_up_the_product(monkeypatch, block):
    rows, columns, values, _ = entries(9, 7, 60)
    z = torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    pattern = Pattern.of(rows, columns, 9)
    whole = product(pattern, values, z)
    monkeypatch.setattr(propagation, "BLOCK", block)
    assert torch.equal(product(pattern, values, z), whole)


def test_sampled_products_are_those_of_the_rows():
    rows, columns, _, _ = entries(9, 7, 60)
    generator = torch.Generator().manual_seed(1)
    left, right = (torch.randn(n, 5, dtype=torch.float64, generator=generator) for n in (9, 7))
    pattern = Pattern.of(rows, columns, 9)
    expected = (left[rows] * right[columns]).sum(1)[pattern.slots]
    assert torch.allclose(pattern.sampled(left, right), expected)


def formula(edge_index, weight, nodes, loops=1.0):
    """D^-½ (A + I) D^-½ in dense arrays, edges of a node to itself left out."""
    a = loops * torch.eye(nodes, dtype=torch.float64)
    between = edge_index[0] != edge_index[1]
    source, target = edge_index[:, between]
    a = a.index_put((target, source), weight[between], accumulate=True)
    scale = a.sum(1).rsqrt()
    return scale[:, None] * a * scale


EDGES = torch.tensor([[0, 1, 2, 2, 0, 3], [1, 2, 0, 2, 1, 1]])  # A loop, and one edge twice.
WEIGHT = torch.tensor([0.5, 2.0, 1.5, 9.0, 0.25, 1.0], dtype=torch.float64)


@pytest.mark.parametrize("loops", [1.0, 2.0])
def test_the_normalised_matrix_is_the_formula_s(loops):
    matrix = Adjacency(EDGES, 5, loops).normalised(WEIGHT)
    eye = torch.eye(5, dtype=torch.float64)
    expected = formula(EDGES, WEIGHT, 5, loops)
    assert torch.allclose(matrix.convolve(eye, Layer(None, None, False)), expected)


def test_masked_messages_leave_the_degrees():
    mask = torch.tensor([1.0, 0.5, 0.0, 1.0, 1.0, 0.25], dtype=torch.float64)
    matrix = Adjacency(EDGES, 5).normalised(WEIGHT, mask)
    eye = torch.eye(5, dtype=torch.float64)
    found = matrix.convolve(eye, Layer(None, None, False))
    full = formula(EDGES, WEIGHT, 5)
    share = torch.ones(5, 5, dtype=torch.float64)
    share[2, 1], share[0, 2], share[1, 3] = 0.5, 0.0, 0.25
    assert torch.allclose(found, full * share)


@pytest.mark.parametrize(("into", "out"), [(3, 7), (7, 3), (4, 4)])  # It widens, or narrows.
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("block", [8, 1 << 18])
def test_every_gradient_is_that_of_the_dense_formula(monkeypatch, into, out, relu, block):
    monkeypatch.setattr(propagation, "BLOCK", block)
    generator = torch.Generator().manual_seed(0)
    hidden, weight, bias, slope = (
        torch.randn(*shape, dtype=torch.float64, generator=generator)
        for shape in ((5, into), (into, out), (out,), (5, out))
    )
    leaves = [t.clone().requires_grad_() for t in (WEIGHT, hidden, weight, bias)]

    def dense(edges, hidden, weight, bias):
        result = formula(EDGES, edges, 5) @ hidden @ weight + bias
        return result.relu() if relu else result

    def ours(edges, hidden, weight, bias):
        matrix = Adjacency(EDGES, 5).normalised(edges)
        return matrix.convolve(hidden, Layer(weight, bias, relu))

    expected, found = dense(*leaves), ours(*leaves)
    assert torch.allclose(found, expected)
    one = torch.autograd.grad((expected * slope).sum(), leaves)
    other = torch.autograd.grad((found * slope).sum(), leaves)
    for a, b in zip(one, other, strict=True):
        assert torch.allclose(a, b)
