"""The parts of a reproduction: settings, photos drawn, work shared, results kept."""

from pathlib import Path

import pytest

import greedypig as gp
from greedypig.core.methods import InRounds, cost_of, scorer_of
from greedypig.tables.distributed import ALONE, Group
from reproduction import Request, Settings, job_class
from reproduction.figures import nearest
from reproduction.job import Batch, Job, Task, read_record, write_record
from reproduction.photos import Photo, drawn

PAPER = {
    "sic": {
        "ig": (0.2639, 2.0812),
        "smooth-ig": (0.4433, 1.1366),
        "blur-ig": (0.1903, 2.0812),
        "guided-ig": (0.2623, 2.0644),
        "paper": (0.8486, 0.6655),
    },
    "resnet": {"ig": (0.39443,), "paper": (0.9262,)},
    "pointing": {"ig": (0.66,), "paper": (0.83,)},
    "figures": {"ig": (3e-5,), "paper": (0.9973,)},
    "criteo": {
        "ig": (0.4827, 0.4641, 0.4605, 0.4533),
        "greedy-1": (0.4728, 0.4629, 0.4551, 0.4508),
        "greedy-5": (0.4723, 0.4627, 0.4531, 0.4509),
    },
}


def photo(name, target=0, probability=0.5, label=None):
    return Photo(Path(f"{name}.jpg"), name, label, target, probability)


def gradients(method):
    """What a run of the method costs."""
    rounds = method.rounds if isinstance(method, InRounds) else 1
    return rounds * cost_of(scorer_of(method))


@pytest.mark.parametrize("name", PAPER)
def test_settings_hold_the_paper_s_numbers_and_methods_that_exist(name):
    assert job_class(name).FILES[0].format(name) == f"{name}.md"
    for contender in Settings.of(name).contenders:
        assert tuple(contender.paper.values()) == PAPER[name].get(contender.name, ())
        if contender.name == "permutation":  # Known to tables alone.
            continue
        method = contender.method()
        if contender.name == "paper":
            assert method == gp.GreedyPIG(rounds=100, steps=20, schedule="equal")
            assert gradients(method) == 2000
        if contender.name == "default":
            assert not contender.knobs  # Whatever gp.explain chooses for photos.
            assert method == gp.SteadyPIG()
        if contender.name == "greedy-5":
            assert method == gp.GreedyPIG(per_round=1, steps=5, schedule="equal")


@pytest.mark.parametrize("budget", [1, 7, 50, 300, 1999, 2000, 10_000])
def test_a_budget_is_kept_and_changes_nothing_it_has_room_for(budget):
    for contender in Settings.of("sic").contenders:
        cut = contender.within(budget)
        usual = {"random": 0, "default": 100, "blur-ig": 100}.get(contender.name, 2000)
        cost = gradients(cut.method())
        assert cost <= budget or usual == 0
        assert cost >= 0.6 * min(budget, usual)
        assert (cut.budget is None) == (budget >= usual)
        assert (cut.title == contender.title) == (budget >= usual)


def test_a_budget_cuts_what_each_objective_runs():
    (contender,) = [c for c in Settings.of("sic").contenders if c.name == "default"]
    cut = contender.within(50)
    assert cut.method("softmax") == gp.SteadyPIG(rounds=16)
    assert cut.method("log-likelihood") == gp.SequentialGradient(rounds=50)
    assert contender.within(100) == contender


def test_the_command_of_a_page_names_what_was_asked_for_without_folders():
    request = Request(Path("out"), photos=["a/b"], methods=["ig", "paper"], limit=3, k=[5, 10])
    assert request.command("sic") == "sic --photos DIR --limit 3 --methods ig,paper --k 5,10"
    request = Request(Path("out"), tables=["x/own.csv", "kdd"], mask_finetune=True, start="rate")
    expected = "criteo --tables own.csv kdd --mask-finetune --start rate"
    assert request.command("criteo") == expected


def test_more_photos_only_add_to_fewer():
    paths = [Path(f"{i}.jpg") for i in range(50)]
    few, many = drawn(paths, 7, 3), drawn(paths, 20, 3)
    assert many[:7] == few
    assert len(set(drawn(paths, None, 3))) == 50
    assert drawn(paths, 7, 4) != few


class Small(Job):
    """A job without a table, for its work alone."""

    def __init__(self, request):
        self.name, self.request = "small", request
        self.outcomes, self.failed = {}, {}

    prepare = table = remarks = write = None


def test_a_failure_is_kept_as_its_reason_and_tried_again(tmp_path):
    items = []

    def run(some):
        for item in some:
            items.append(item)
            if item == "bad" and items.count("bad") < 3:
                raise ArithmeticError("not finite")
            yield {"item": item}

    tasks = tuple(Task(tmp_path / f"{item}.json", item, item) for item in ("a", "bad", "c"))
    batch = Batch("", tasks, run)
    job = Small(Request(tmp_path))
    job.work([batch])
    assert job.failed == {"bad": "ArithmeticError: not finite"}
    assert job.outcomes == {"a": {"item": "a"}, "c": {"item": "c"}}
    items[:] = ["bad", "bad"]
    job = Small(Request(tmp_path))
    job.work([batch])
    assert items == ["bad", "bad", "bad"]
    assert set(job.outcomes) == {"a", "bad", "c"}
    assert job.failed == {}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_processes_share_the_work(tmp_path, size):
    batches = [
        Batch.of_one(tmp_path / f"{i}.json", i, str(i), lambda item: {"item": item})
        for i in range(5)
    ]

    class Apart(Group):
        """Ranks one after the other: what a barrier is for is done by the order."""

        def barrier(self):
            pass

    for rank in range(size):
        before = len(list(tmp_path.iterdir()))
        job = Small(Request(tmp_path, group=Apart(rank, size)))
        job.work(batches)
        assert len(list(tmp_path.iterdir())) - before in (5 // size, -(-5 // size))
    assert job.outcomes == {i: {"item": i} for i in range(5)}
    assert ALONE.first
    assert not Group(1, 2).first


def test_a_file_that_was_cut_off_counts_as_none(tmp_path):
    path = tmp_path / "a" / "x.json"
    write_record(path, {"value": 0.5})
    assert read_record(path) == {"value": 0.5}
    path.write_text('{"value": 0.')
    assert "error" in read_record(path)
    assert [p.name for p in path.parent.iterdir()] == ["x.json"]


def test_the_surest_photo_of_the_wanted_class_is_shown_else_of_the_nearest():
    classes = ["tench", "goldfish", "tabby"]
    words = {"wanted": "tench", "nearest": ["goldfish"]}
    two = [photo("a", 1, 0.9), photo("b", 1, 0.95), photo("c", 2, 0.99)]
    best, how = nearest(two, classes, **words)
    assert (best.path.name, how) == ("b.jpg", "goldfish, the nearest class to tench")
    best, how = nearest([*two, photo("d", 0, 0.3)], classes, **words)
    assert (best.path.name, how) == ("d.jpg", "tench")
    # A photo that is labelled otherwise is none of that class.
    best, _ = nearest([*two, photo("d", 0, 0.3, label=2)], classes, **words)
    assert best.path.name == "b.jpg"
    best, how = nearest(two[2:], classes, **words)
    assert "none of tench" in how
