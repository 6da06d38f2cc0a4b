"""The parts of a reproduction: settings, photos drawn, work shared, results kept."""

from dataclasses import replace
from pathlib import Path

import pytest

import greedypig as gp
from greedypig.core.methods import InRounds, cost_of, scorer_of
from greedypig.tables.distributed import ALONE, Group
from greedypig.tensors import methods
from reproduction import Request, Settings, cache, job_class
from reproduction.figures import nearest
from reproduction.job import TOGETHER, Batch, Job, Task, in_turn
from reproduction.photos import Photo, drawn
from reproduction.pointing import most_confident

PAPER = {
    "sic": {"ig": (0.2639, 2.0812), "smooth-ig": (0.4433, 1.1366), "blur-ig": (0.1903, 2.0812),
            "guided-ig": (0.2623, 2.0644), "paper": (0.8486, 0.6655)},
    "resnet": {"ig": (0.39443,), "paper": (0.9262,)},
    "pointing": {"ig": (0.66,), "paper": (0.83,)},
    "figures": {"ig": (3e-5,), "paper": (0.9973,)},
}  # fmt: skip


def photo(name, target=0, probability=0.5, label=None):
    return Photo(Path(f"{name}.jpg"), name, label, target, probability)


def gradients(method):
    """What a run of the method costs."""
    rounds = method.rounds if isinstance(method, InRounds) else 1
    return rounds * cost_of(scorer_of(method))


@pytest.mark.parametrize("name", PAPER)
def test_settings_hold_the_paper_s_numbers_and_methods_that_exist(name):
    for contender in Settings.of(name).contenders:
        assert tuple(contender.paper.values()) == PAPER[name].get(contender.name, ())
        method = contender.method()
        if contender.name == "paper":
            assert method == gp.GreedyPIG(rounds=100, steps=20, schedule="equal")
            assert gradients(method) == 2000
        if contender.name == "default":
            assert not contender.knobs  # Whatever gp.explain chooses for photos.
            assert method == gp.SteadyPIG()
    assert job_class(name).FILES[0].format(name) == f"{name}.md"


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
    assert cut.meaning("softmax") != cut.meaning("log-likelihood")
    assert contender.within(100) == contender


def test_the_meaning_changes_with_the_knobs_also_with_those_of_the_default(monkeypatch):
    contenders = {c.name: c for c in Settings.of("sic").contenders}
    before = {name: c.meaning() for name, c in contenders.items()}
    assert replace(contenders["ig"], knobs={"method": "ig", "steps": 9}).meaning() != before["ig"]
    monkeypatch.setattr("reproduction.settings.choose", lambda *_: methods.FOR_COLUMNS)
    changed = {name for name, c in contenders.items() if c.meaning() != before[name]}
    assert changed == {"default"}


def test_more_photos_only_add_to_fewer():
    paths = [Path(f"{i}.jpg") for i in range(50)]
    few, many = drawn(paths, 7, 3), drawn(paths, 20, 3)
    assert many[:7] == few
    assert len(set(drawn(paths, None, 3))) == 50
    assert drawn(paths, 7, 4) != few


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_shares_are_a_partition(size):
    items = list(range(11))
    shares = [Group(rank, size).share(items) for rank in range(size)]
    assert sorted(item for share in shares for item in share) == items
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_every_method_gets_every_photo_once_and_photos_come_in_blocks():
    contenders = Settings.of("sic").contenders
    photos = list(range(37))
    turns = list(in_turn(photos, contenders))
    for contender in contenders:
        assert [p for c, part in turns if c is contender for p in part] == photos
        assert all(len(part) <= TOGETHER for c, part in turns if c is contender)
    firsts = [part[0] // TOGETHER for _, part in turns]
    assert firsts == sorted(firsts)


class Small(Job):
    """A job without a table, for its work alone."""

    def __init__(self, request, batch):
        self.name, self.request, self.batch = "small", request, batch

    def batches(self):
        return [self.batch]

    prepare = table = remarks = write = None


def test_a_failure_is_kept_as_its_reason_and_tried_again(tmp_path):
    asked = []

    def run(items):
        for item in items:
            asked.append(item)
            if item == "bad" and asked.count("bad") < 3:
                raise ArithmeticError("not finite")
            yield {"item": item}

    tasks = tuple(Task(tmp_path / f"{item}.json", item, item) for item in ("a", "bad", "c"))
    job = Small(Request(tmp_path), Batch("", tasks, run))
    job.work(job.batches())
    assert job.failures() == [("bad", "ArithmeticError: not finite")]
    assert [cache.read(t.path) for t in tasks] == [
        {"item": "a"}, {"error": "ArithmeticError: not finite"}, {"item": "c"},
    ]  # fmt: skip
    asked.clear()
    asked += ["bad", "bad"]
    job.work(job.batches())
    assert asked == ["bad", "bad", "bad"]
    assert cache.read(tasks[1].path) == {"item": "bad"}
    assert job.failures() == []


def test_a_file_that_was_cut_off_counts_as_none(tmp_path):
    cache.write(tmp_path / "a" / "x.json", {"value": 0.5})
    assert cache.read(tmp_path / "a" / "x.json") == {"value": 0.5}
    (tmp_path / "a" / "x.json").write_text('{"value": 0.')
    assert cache.read(tmp_path / "a" / "x.json") is None
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["x.json"]


def test_the_surest_photo_of_the_wanted_class_is_shown_else_of_the_nearest():
    classes = ["tench", "goldfish", "tabby"]
    words = {"wanted": "tench", "nearest": ["goldfish"]}
    two = [photo("a", 1, 0.9), photo("b", 1, 0.95), photo("c", 2, 0.99)]
    found, how = nearest(two, classes, **words)
    assert (found.path.name, how) == ("b.jpg", "goldfish, the nearest class to tench")
    found, how = nearest([*two, photo("d", 0, 0.3)], classes, **words)
    assert (found.path.name, how) == ("d.jpg", "tench")
    # A photo that is labelled otherwise is none of that class.
    found, _ = nearest([*two, photo("d", 0, 0.3, label=2)], classes, **words)
    assert found.path.name == "b.jpg"
    found, how = nearest(two[2:], classes, **words)
    assert "none of tench" in how


def test_grids_take_the_most_confident_and_no_class_too_often():
    photos = [photo(f"a{i}", 0, 0.99 - i / 1000) for i in range(5)]
    photos += [photo(f"b{i}", 1 + i, 0.5 - i / 100) for i in range(5)]
    taken = most_confident(photos, 2, 4)
    assert [s.digest for s in taken] == ["a0", "a1", "b0", "b1", "b2", "b3", "b4"]


def test_one_process_is_the_first_and_waits_for_nobody():
    ALONE.barrier()
    assert ALONE.first
    assert not Group(1, 2).first
