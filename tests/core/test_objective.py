"""Objectives of the user's own, what they may not do, and how much memory they are asked for."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

import greedypig as gp
from agreement import agree
from greedypig.core.objective import AUTO_ROWS, Objective
from greedypig.core.rounds import Round
from problems import floats, history, modular, net, random_coverage

# An objective that brings its own gradient.


class ByHand:
    """g(w) = Σ c_i·w_i with a gradient that no autograd would find: 10·c."""

    def __init__(self, c: list[float]) -> None:
        self.n, self.c = len(c), torch.tensor(c)
        self.seen: list[tuple[str, int]] = []

    def values(self, masks: Tensor) -> Tensor:
        self.seen.append(("values", len(masks)))
        return masks @ self.c

    def gradient(self, masks: Tensor, weights: Tensor) -> Tensor:
        self.seen.append(("gradients", len(masks)))
        return 10 * self.c * weights.sum()


def test_an_objective_of_one_s_own_is_used_with_its_own_gradient():
    mine = ByHand([1.0, 3.0, 2.0])
    assert isinstance(mine, gp.SetFunction)
    a = gp.maximize(mine, gp.GreedyPIG(per_round=1, steps=4))
    assert a.order.tolist() == [1, 2, 0]
    assert a.scores.tolist() == pytest.approx([10, 30, 20], abs=1e-5)
    assert a.values.tolist() == pytest.approx([0, 3, 5, 6], abs=1e-5)
    assert a.gradients_used == 12 == sum(m for kind, m in mine.seen if kind == "gradients")


def test_every_algorithm_takes_an_objective_of_one_s_own():
    for method in (
        "greedy-pig",
        "sequential-gradient",
        "ig",
        "marginal-gains",
        gp.GuidedIG(steps=3),
        gp.SmoothIG(gp.Gradient(), samples=2),
    ):
        assert gp.maximize(ByHand([1.0, 3.0, 2.0]), method).order.tolist() == [1, 2, 0]
    assert gp.best_subset(ByHand([1.0, 3.0, 2.0]), 2) == ((1, 2), 5.0)


def test_an_objective_of_one_s_own_chooses_dtype_and_batch_size():
    mine = ByHand([1.0, 3.0, 2.0])
    mine.c, mine.dtype, mine.batch_size = mine.c.double(), torch.float64, 3
    a = gp.maximize(mine, gp.GreedyPIG(per_round=1, steps=8))
    assert a.scores.dtype == torch.float64
    assert max(m for _, m in mine.seen) <= 3


def test_gradients_of_another_shape_are_refused():
    class Wrong(ByHand):
        def gradient(self, masks, weights):
            return super().gradient(masks, weights)[:2]

    with pytest.raises(gp.InvalidInput, match=r"\(3,\).*\(2,\)"):
        gp.maximize(Wrong([1.0, 2.0, 3.0]), gp.IG(steps=20))


@pytest.mark.parametrize("candidate", [3, "g", lambda w: w.sum(1), None])
def test_what_is_no_objective_is_refused(candidate):
    with pytest.raises(gp.InvalidType, match=r"gp\.objective"):
        gp.maximize(candidate, gp.GreedyPIG())


# Scorers of the user's own.


def test_a_plain_function_is_a_scorer_and_becomes_adaptive():
    # scores_i = ∂_i g at the far end of the path: for copies that is what a round must look at.
    g = net(6, 7)
    seen = []

    def at_the_end(objective: Objective, round: Round) -> Tensor:
        seen.append(round)
        assert objective.n == 7
        return objective.gradient(torch.ones_like(round.mask)[:, None], torch.ones(1))

    rounds = gp.rounds(g.objective(), gp.Greedy(at_the_end, per_round=2))
    list(rounds)
    a = rounds.results()[0]
    # The gradient at 1 is the same in every round, so the order is its order.
    expected = g.gradient(torch.ones(7).double())
    assert a.order.tolist() == torch.sort(expected, descending=True).indices.tolist()
    torch.testing.assert_close(a.scores, expected, rtol=0, atol=1e-12)
    assert a.gradients_used == 4
    assert [int(round.mask.sum()) for round in seen] == [0, 2, 4, 6]
    assert [int(round.rest.sum()) for round in seen] == [7, 5, 3, 1]
    assert [(round.number, round.picks) for round in seen] == [(0, 2), (1, 2), (2, 2), (3, 1)]
    assert a.settings["one_shot"]["method"] == "at_the_end"


def test_a_scorer_cannot_spoil_the_mask_and_selected_values_are_ignored():
    def vandal(objective: Objective, round: Round) -> Tensor:
        round.mask.fill_(1)
        return torch.arange(4.0)

    rounds = gp.rounds(modular([1, 2, 3, 4]).objective(), gp.Greedy(vandal, per_round=1))
    assert [r.chosen.item() for r in history(rounds)] == [3, 2, 1, 0]
    assert list(rounds.results()[0].totals) == [6, 3, 1, 0]


@pytest.mark.parametrize("scores", [torch.zeros(3), torch.zeros(2, 4), [1, 2, 3, 4], None])
def test_a_scorer_that_returns_something_else_is_refused(scores):
    with pytest.raises(gp.InvalidType, match=r"\(1, 4\)"):
        list(gp.rounds(modular([1, 2, 3, 4]).objective(), gp.Greedy(lambda *_: scores)))


def test_a_scorer_that_returns_nan_is_named():
    def scorer(objective, round):
        return torch.full((4,), torch.nan if round.mask.sum() == 2 else 1.0)

    with pytest.raises(gp.NonFinite, match=r"scorer\)\. This was in round 3\.") as caught:
        list(gp.rounds(modular([1, 2, 3, 4]).objective(), gp.Greedy(scorer, per_round=1)))
    assert caught.value.so_far[0].picks == (1, 1)


def test_what_is_no_method_is_refused():
    with pytest.raises(gp.InvalidInput, match=r"one of .*ig.*'igg'"):
        gp.rounds(modular([1, 2]).objective(), "igg")
    with pytest.raises(gp.InvalidType, match="int"):
        gp.rounds(modular([1, 2]).objective(), 3)
    with pytest.raises(gp.InvalidType, match=r"Try IG\(\)"):
        gp.rounds(modular([1, 2]).objective(), gp.IG)


# Non-finite numbers.


def test_a_non_finite_gradient_names_the_round_and_the_step():
    # √w has an infinite slope at 0, where the left rule's first step is.
    objective = gp.objective(lambda w: w.sqrt().sum(1), 3)
    with pytest.raises(gp.NonFinite, match=r"x\[0\] in step 1\)\. This was in round 1\.") as caught:
        gp.maximize(objective, gp.GreedyPIG(steps=4, rule="left"))
    (so_far,) = caught.value.so_far
    assert so_far.picks == ()
    assert isinstance(caught.value, ArithmeticError)
    assert gp.maximize(objective, gp.GreedyPIG(steps=4)).selected == 3  # Midpoints never come near.


@pytest.mark.parametrize("batch_size", [1, 3, 64])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_non_finite_value_names_the_step_and_keeps_the_rounds(bad, batch_size):
    # Bad only on the way from two selected features, from the third of five steps (t = ½) on.
    def g(w: Tensor) -> Tensor:
        inside = (w == 1).sum(1) == 2
        moving = w.amin(1)
        return torch.where(inside & (moving > 0.4), bad, w @ torch.tensor([4.0, 3, 2, 1]))

    objective = gp.objective(g, 4, batch_size=batch_size)
    with pytest.raises(gp.NonFinite, match=r"value in step 3\)\. This was in round 3\.") as caught:
        gp.maximize(objective, gp.GreedyPIG(per_round=1, steps=5))
    (so_far,) = caught.value.so_far
    assert so_far.order[: so_far.selected].tolist() == [0, 1]
    assert so_far.scores.tolist() == pytest.approx([4, 3, 0, 0], abs=1e-5)


def test_a_non_finite_value_of_a_selected_set_tells_how_many_are_in_it():
    def g(w: Tensor) -> Tensor:
        exactly_two = ((w == 0) | (w == 1)).all(1) & (w.sum(1) == 2)
        return torch.where(exactly_two, torch.nan, w @ torch.tensor([4.0, 3, 2, 1]))

    with pytest.raises(gp.NonFinite, match="2 of 4 values present") as caught:
        gp.maximize(gp.objective(g, 4), gp.GreedyPIG(per_round=1))
    assert caught.value.so_far[0].order.tolist() == [0, 1, 2, 3]
    with pytest.raises(gp.NonFinite, match="2 of 4"):
        gp.maximize(gp.objective(g, 4), gp.GreedyPIG(per_round=1), stop=gp.Stop(value=99))


def test_a_non_finite_value_of_nothing_or_everything_is_refused():
    empty = gp.objective(lambda w: torch.log(w.sum(1)), 3)
    with pytest.raises(gp.NonFinite, match="0 of 3"):
        gp.maximize(empty, gp.GreedyPIG())
    full = gp.objective(lambda w: torch.log(3 - w.sum(1)), 3)
    with pytest.raises(gp.NonFinite, match="3 of 3"):
        gp.maximize(full, gp.GreedyPIG(), k=2)
    with pytest.raises(gp.NonFinite, match="3 of 3"):
        gp.maximize(full, gp.GreedyPIG())


def test_large_finite_numbers_are_no_error():
    # Each row is finite in float32; their sum over rows is not.
    a = gp.maximize(
        gp.objective(lambda w: 3e38 * w[:, 0] + w[:, 1], 2), gp.GreedyPIG(rounds=1, steps=8)
    )
    assert a.order.tolist() == [0, 1]


def test_the_rounds_of_an_error_are_the_run_s_own():
    calls = [0]
    g = net(1, 5)

    def failing(w: Tensor) -> Tensor:
        calls[0] += torch.is_grad_enabled()
        return g.g(w) * (torch.nan if calls[0] > 2 else 1)

    rounds = gp.rounds(gp.objective(failing, 5, dtype=torch.float64), gp.GreedyPIG(per_round=1))
    with pytest.raises(gp.NonFinite) as caught:
        list(rounds)
    (so_far,) = caught.value.so_far
    assert so_far.picks == (1, 1)
    a = rounds.results(measure=False)[0]
    assert a.order.tolist() == so_far.order.tolist()
    assert sorted(a.order.tolist()) == list(range(5))


# No gradient to follow.


@pytest.mark.parametrize(
    "g",
    [
        lambda w: w.detach().sum(1),
        lambda w: (w > 0.5).float().sum(1),
        lambda w: w.argmax(1).float(),
        lambda w: torch.from_numpy(w.detach().numpy()).sum(1),
        lambda w: torch.ones(len(w)),
        lambda w: torch.ones(len(w), requires_grad=True) * 2,
    ],
    ids=["detach", "threshold", "argmax", "numpy", "constant", "other leaf"],
)
def test_an_output_without_a_path_to_the_features_is_refused(g):
    with pytest.raises(gp.NotDifferentiable, match="depends on the features"):
        gp.maximize(gp.objective(g, 3), gp.IG())


def test_values_alone_need_no_gradient():
    objective = gp.objective(lambda w: (w > 0.5).float() @ torch.tensor([1.0, 3, 2]), 3)
    assert gp.maximize(objective, gp.MarginalGains()).order.tolist() == [1, 2, 0]
    assert gp.best_subset(objective, 1) == ((1,), 3.0)


def test_a_gradient_of_0_is_a_gradient():
    # Differentiable, but flat: all scores 0, order by index.
    a = gp.maximize(gp.objective(lambda w: 0 * w.sum(1) + 1, 3), gp.IG())
    assert a.order.tolist() == [0, 1, 2]
    assert a.scores.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("g", "got"),
    [
        (lambda w: w, r"\(5, 3\)"),
        (lambda w: w.sum(), r"\(\)"),
        (lambda w: w.sum(1, keepdim=True), r"\(5, 1\)"),
        (lambda w: w.sum(1)[:1], r"\(1,\)"),
    ],
)
def test_values_of_another_shape_are_refused_with_both_shapes(g, got):
    with pytest.raises(gp.InvalidInput, match=rf"\(5,\).*{got}"):
        gp.maximize(gp.objective(g, 3), gp.GreedyPIG())


def test_values_that_are_no_tensor_are_refused():
    with pytest.raises(gp.InvalidType, match="list"):
        gp.maximize(gp.objective(lambda w: w.sum(1).tolist(), 3), gp.GreedyPIG())


@pytest.mark.parametrize("n", [0, -1, 2.0, "3", True])
def test_n_is_a_count(n):
    with pytest.raises(gp.InvalidInput, match="n"):
        gp.objective(lambda w: w.sum(1), n)


def test_g_must_be_callable_and_dtype_floating():
    with pytest.raises(gp.InvalidType, match="callable"):
        gp.objective(3, 3)
    with pytest.raises(gp.InvalidType, match="floating"):
        gp.objective(lambda w: w.sum(1), 3, dtype=torch.int64)


@pytest.mark.parametrize(
    "masks", [torch.zeros(3), torch.zeros(2, 3), torch.zeros(1, 2, 4), torch.zeros(2, 1, 3)]
)
def test_masks_have_problems_points_and_values(masks):
    with pytest.raises(gp.InvalidInput, match=r"\(1, s, 3\)"):
        modular([1, 2, 3]).objective().values(masks)


def test_an_error_inside_g_is_the_caller_s_own():
    def g(w: Tensor) -> Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        gp.objective(g, 3)
    with pytest.raises(KeyError, match="mine"):
        gp.maximize(gp.objective(g, 3, dtype=torch.float32), gp.GreedyPIG())


def test_g_with_float64_tensors_is_computed_in_float64():
    # A matrix product needs the dtype, a sum of products would quietly round the masks.
    c = floats([1, 1 / 3, 1e-9])
    for g in (lambda w: w @ c, lambda w: (w * c).sum(1)):
        a = gp.maximize(gp.objective(g, 3), gp.IG(steps=1))
        assert a.scores.dtype == torch.float64
        assert a.scores.tolist() == c.tolist()


def test_the_caller_s_gradient_mode_does_not_matter():
    g = net(2, 5)
    expected = gp.maximize(g.objective(), gp.GreedyPIG(rounds=2, steps=3))
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            found = gp.maximize(g.objective(), gp.GreedyPIG(rounds=2, steps=3))
        assert found.order.tolist() == expected.order.tolist()
        assert torch.equal(found.scores, expected.scores)


def test_nothing_is_left_on_the_masks_or_tensors_of_g():
    weight = torch.randn(4, generator=torch.Generator().manual_seed(1)).requires_grad_(True)
    masks = torch.ones(1, 2, 4, requires_grad=True)
    objective = gp.objective(lambda w: w @ weight, 4)
    values, gradients = objective.values_and_gradients(masks)
    gp.maximize(objective, gp.GreedyPIG())
    assert masks.grad is None
    assert weight.grad is None
    assert masks.requires_grad
    assert weight.requires_grad
    assert not values.requires_grad
    assert not gradients.requires_grad


# Memory.


OUT_OF_MEMORY = {
    "cuda": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "cpu": lambda: RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to …"),
    "windows": lambda: RuntimeError("DefaultCPUAllocator: not enough memory: you tried to …"),
    "python": lambda: MemoryError(),
}


class Small:
    """g that has room for `room` rows at a time and notes how many it was given."""

    def __init__(self, g, n: int, room: int, error=OUT_OF_MEMORY["cuda"]) -> None:
        self.g, self.n, self.room, self.error = g, n, room, error
        self.fitted: list[int] = []
        self.failed: list[int] = []

    def __call__(self, w: Tensor) -> Tensor:
        if len(w) > self.room:
            self.failed.append(len(w))
            raise self.error()
        self.fitted.append(len(w))
        return self.g(w)

    def objective(self, batch_size="auto") -> Objective:
        return gp.objective(self, self.n, dtype=torch.float64, batch_size=batch_size)


@pytest.mark.parametrize("kind", OUT_OF_MEMORY)
@pytest.mark.parametrize("room", [1, 2, 3, 7, 30, 100])
def test_auto_batches_halve_until_they_fit_and_the_answer_is_the_same(kind, room):
    g = net(4, 6)
    small = Small(g.g, 6, room, OUT_OF_MEMORY[kind])
    expected = gp.maximize(g.objective(), gp.GreedyPIG(rounds=3, steps=70))
    found = gp.maximize(small.objective(), gp.GreedyPIG(rounds=3, steps=70))
    agree(found, expected, 1e-10)
    assert found.gradients_used == 210
    # It halves, and then stays: no size is tried twice.
    assert small.failed == sorted(set(small.failed), reverse=True)
    assert all(b <= a // 2 for a, b in pairwise(small.failed))
    assert max(small.fitted) <= room


def test_an_explicit_batch_size_is_kept_and_the_error_goes_through():
    small = Small(net(4, 6).g, 6, room=4)
    with pytest.raises(torch.OutOfMemoryError):
        gp.maximize(small.objective(batch_size=8), gp.GreedyPIG(steps=20))
    assert small.failed == [8]
    gp.maximize(small.objective(batch_size=4), gp.GreedyPIG(steps=20))
    assert max(small.fitted) == 4


def test_a_single_row_that_does_not_fit_is_an_error():
    small = Small(net(4, 6).g, 6, room=0, error=OUT_OF_MEMORY["python"])
    with pytest.raises(MemoryError):
        gp.maximize(small.objective(), gp.GreedyPIG(steps=4))


def test_other_errors_are_not_taken_for_a_lack_of_memory():
    small = Small(net(4, 6).g, 6, room=1, error=lambda: RuntimeError("shape mismatch"))
    with pytest.raises(RuntimeError, match="shape mismatch"):
        gp.maximize(small.objective(), gp.GreedyPIG(steps=4))
    assert len(small.failed) == 1


@pytest.mark.parametrize("size", [0, -1, 2.5, "all", True, None])
def test_a_batch_size_is_auto_or_a_count(size):
    with pytest.raises(gp.InvalidInput, match="batch_size"):
        gp.objective(lambda w: w.sum(1), 3, batch_size=size)


@pytest.mark.parametrize("batch_size", [1, 5, 16])
@pytest.mark.parametrize(
    "scorer",
    [
        gp.IG(40),
        gp.IG(40, "trapezoid"),
        gp.SmoothIG(gp.IG(7), samples=9),
        gp.SmoothIG(gp.GuidedIG(steps=3), samples=20),
        gp.GuidedIG(steps=5),
        gp.MarginalGains(),
    ],
    ids=lambda s: f"{s.name}-{s.cost}",
)
def test_no_more_than_batch_size_rows_are_ever_seen(scorer, batch_size):
    g = random_coverage(2, 25, 30, 3)
    small = Small(g.g, 25, room=batch_size)
    rounds = gp.rounds(small.objective(batch_size), gp.Greedy(scorer, per_round=1), k=20)
    assert len(list(rounds)) == 20
    # A guided path has one point at a time; everything else fills its batches.
    most = {"guided-ig": 1, "smooth-ig": 7}.get(scorer.name, batch_size)
    assert max(small.fitted) <= batch_size
    assert max(small.fitted) == min(batch_size, most) or scorer.name == "smooth-ig"


def test_peak_memory_does_not_grow_with_steps_or_rounds():
    # The most floats alive at a time, by torch's own count of the tensors that reach autograd.
    def peak(steps: int, rounds: int) -> int:
        from torch.utils._python_dispatch import TorchDispatchMode

        class Largest(TorchDispatchMode):
            largest = 0

            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                out = func(*args, **(kwargs or {}))
                for made in out if isinstance(out, tuple | list) else (out,):
                    if isinstance(made, Tensor):
                        self.largest = max(self.largest, made.untyped_storage().nbytes())
                return out

        objective = net(4, 40).objective(batch_size=4)
        with Largest() as seen:
            gp.maximize(objective, gp.GreedyPIG(rounds=rounds, steps=steps))
        return seen.largest

    # Nodes and weights of a rule are one number per step: 8 bytes × 400.
    assert peak(400, 5) <= max(peak(8, 1), 400 * 8)


def test_auto_starts_with_few_rows_of_large_inputs():
    def rows(n: int) -> int:
        return gp.objective(lambda w: w.sum(1), n, dtype=torch.float32).rows

    assert rows(10) == AUTO_ROWS
    assert rows(3 * 224 * 224) < AUTO_ROWS
    assert rows(10**7) == 1


def test_a_scorer_of_masks_is_told_of_rounds():
    with pytest.raises(gp.InvalidType, match=r"round\.mask") as caught:
        gp.maximize(modular([1, 2]).objective(), lambda objective, mask: mask.unsqueeze(1))
    assert caught.value.argument == "method"
