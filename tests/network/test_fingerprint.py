"""Callables are told apart by what they compute, and are the same when they are made again."""

from functools import partial

import numpy as np
import pytest
import torch

from greedypig.network.fingerprint import callables, identity

SCALE = 2.0


def closing(value):
    return lambda x: x * value


def with_default(value):
    def f(x, factor=value):
        return x * factor

    return f


def nested(value):
    return lambda x: [closing(value)(e) for e in x]


class Called:
    def __init__(self, value):
        self.value, self.itself = value, self

    def __call__(self, x):
        return x * self.value

    def method(self, x):
        return x + self.value


KINDS = {
    "closure": closing,
    "default": with_default,
    "nested": nested,
    "partial": lambda value: partial(torch.mul, other=value),
    "object": Called,
    "method": lambda value: Called(value).method,
    "tensor": lambda value: closing(torch.full((3,), value)),
    "array": lambda value: closing(np.full(3, value)),
    "list": lambda value: closing([1, {"a": value}]),
    "set": lambda value: closing({1, value}),
    "sparse": lambda value: closing(torch.ones(2, int(value)).to_sparse()),
    "module": lambda value: closing(torch.nn.Threshold(value, 0.0)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_values_that_a_callable_holds_are_part_of_it(kind):
    make = KINDS[kind]
    assert identity(make(2.0)) == identity(make(2.0))
    assert identity(make(2.0)) != identity(make(3.0))


def test_code_and_constants_are_part_of_it():
    several = [
        lambda x: x + 1,
        lambda x: x + 2,
        lambda x: x - 1,
        lambda x: x.sum(),
        lambda x: x.mean(),
        lambda x: [e + 1 for e in x],
        lambda x: [e + 2 for e in x],
        torch.sin,
        torch.cos,
    ]
    assert len({identity(f) for f in several}) == len(several)


def test_a_number_among_the_globals_is_part_of_it(monkeypatch):
    def f(x):
        return x * SCALE

    before = identity(f)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert identity(f) != before


def test_only_callables_have_an_identity():
    assert list(callables(objective="softmax", loss=torch.sin, other=None)) == ["loss"]
