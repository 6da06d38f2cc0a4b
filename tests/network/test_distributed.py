"""Several processes give the answer of one: real ones, on gloo."""

import multiprocessing
import os
import pickle
import socket
import sys

import pytest
import torch

import greedypig as gp
from agreement import agree
from greedypig.core.errors import InvalidInput
from greedypig.network.distributed import ALONE, Group, joined, own_device
from greedypig.tables.stream import feed
from tables.worlds import Counting, cut, mixed

ASKED = (
    {"budget": 7 * 5 * 3},
    {"baseline": "mean"},
    {"method": "permutation", "k": 2},
    {"baseline": "conditional", "budget": 7 * 5 * 3},
)


def job(group):
    """The same runs on each process: the result, and how many batches were read."""
    numbers, ids, y = mixed(rows=230)
    model = gp.models.TabularMLP(4, [5, 9, 3], hidden=(16, 8))
    found = []
    for asked in ASKED:
        source = Counting(cut((numbers, ids), y, 10))
        a = gp.select_features(model, source, group=group, seed=3, **asked)
        found.append((a, len(source.read)))
    return found


def child(rank, size, port, answers):
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    with joined() as group:
        assert (group.rank, group.size) == (rank, size)
        with joined() as again:  # A program that has joined already stays as it is.
            assert again == group
        answers.put((rank, pickle.dumps(job(group))))  # Not by torch's shared memory.


@pytest.fixture(scope="module")
def pair():
    """What each of two processes found."""
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("needs fork, to be quick")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    forking = multiprocessing.get_context("fork")
    answers = forking.Queue()
    running = [forking.Process(target=child, args=(r, 2, port, answers)) for r in range(2)]
    for process in running:
        process.start()
    found = dict(answers.get(timeout=120) for _ in running)
    found = {rank: pickle.loads(runs) for rank, runs in found.items()}
    for process in running:
        process.join(60)
    assert [process.exitcode for process in running] == [0, 0]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "run", range(len(ASKED)), ids=["budget", "all", "permutation", "conditional"]
)
def test_two_processes_select_what_one_does(pair, run):
    alone, read_alone = job(ALONE)[run]
    for rank in range(2):
        each = pair[rank][run][0]
        agree(each, alone, 1e-9)
        assert each.about.gradient_batches == alone.about.gradient_batches
    # Both read the same sum, or they would not go on with the same columns.
    assert torch.equal(pair[0][run][0].feature_scores, pair[1][run][0].feature_scores)
    # They share the reading, but for the first batch, which each looks at to see what comes.
    read = [pair[rank][run][1] for rank in range(2)]
    assert sum(read) <= read_alone + 4
    assert max(read) < 0.7 * read_alone


def test_a_process_alone_sums_nothing():
    numbers = torch.arange(3.0)
    assert ALONE.sum(numbers) is numbers


def test_a_share_without_rows_adds_nothing():
    """More processes than batches in a round: some have none, and say zero."""
    batches = [(torch.zeros(1, 1), torch.zeros(1))] * 3
    shares = [list(feed(batches, 0, Group(rank, 5)).take(0, 3)) for rank in range(5)]
    assert sorted(map(len, shares)) == [0, 0, 1, 1, 1]
    assert sum(len(list(feed(batches, 0, Group(r, 2)).all())) for r in range(2)) == 3


def test_every_position_belongs_to_one_process():
    batches = [(torch.full((1, 1), float(i)), torch.zeros(1)) for i in range(11)]

    class Stream:
        def __iter__(self):
            return iter(batches)

    for source in (batches, Stream()):
        alone = [float(x) for x, *_ in feed(source, 4, Group()).take(5, 9)]
        parts = [feed(source, 4, Group(rank, 3)) for rank in range(3)]
        found = [float(x) for part in parts for x, *_ in part.take(5, 9)]
        assert sorted(found) == sorted(alone)
        sampled = [float(x) for part in parts for x, *_ in part.sample(4)]
        assert sorted(sampled) == sorted(float(x) for x, *_ in feed(source, 4, Group()).sample(4))


@pytest.fixture
def two_gpus(monkeypatch):
    """A machine with two GPUs and NCCL, as the second of two processes is told; what it asks."""
    asked = {}
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)

    class Store:
        def set_timeout(self, patience):
            asked["patience"] = patience

    def start(backend, **more):
        asked["backend"] = backend

    dist = torch.distributed
    # torch.distributed hides the module behind its function of the same name.
    meeting = sys.modules["torch.distributed.rendezvous"]
    monkeypatch.setattr(meeting, "rendezvous", lambda *_, **__: iter([(Store(), 1, 2)]))
    monkeypatch.setattr(dist.distributed_c10d, "PrefixStore", lambda prefix, store: store)
    monkeypatch.setattr(dist, "init_process_group", start)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: None)
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "get_backend", lambda: asked["backend"])
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda d: asked.update(device=d))
    return asked


@pytest.mark.parametrize(
    ("device", "backend", "own"),
    [("cuda", "nccl", "cuda:1"), ("cpu", "gloo", "cpu"), ("cuda:0", "gloo", "cuda:0")],
)
def test_a_gpu_for_each_process_goes_by_nccl(two_gpus, device, backend, own):
    """One GPU for all of them does not: NCCL wants a GPU for each."""
    with joined(device) as group:
        assert (group.rank, group.size) == (1, 2)
    assert two_gpus["backend"] == backend
    assert two_gpus.get("device") == (own if backend == "nccl" else None)
    assert own_device(device) == own


def test_without_nccl_gpus_exchange_by_gloo(two_gpus, monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    with joined("cuda"):
        assert two_gpus["backend"] == "gloo"
    assert own_device("cuda") == "cuda:1"


def test_more_processes_than_gpus_is_said(two_gpus, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(InvalidInput, match="nproc-per-node 2"), joined("cuda"):
        pass


def test_nccl_adds_in_float64_on_the_gpu(two_gpus, monkeypatch):
    exchanged = []
    monkeypatch.setattr(torch.Tensor, "cuda", lambda t: exchanged.append("to the GPU") or t.clone())
    monkeypatch.setattr(
        torch.distributed, "all_reduce", lambda t: exchanged.append(t.dtype) or t.mul_(2)
    )
    with joined("cuda") as group:
        mine = torch.full((3,), 0.1, dtype=torch.float64)
        assert group.sum(mine).tolist() == [0.2] * 3
    assert exchanged == ["to the GPU", torch.float64]
    assert mine.tolist() == [0.1] * 3


def test_one_process_has_the_device_that_is_asked_for(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert own_device("cuda") == "cuda"
