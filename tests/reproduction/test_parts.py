"""The parts of a reproduction: settings, photos drawn, work shared, results kept."""

from dataclasses import replace
from pathlib import Path

import pytest

from greedypig.tables.distributed import ALONE, Group
from greedypig.tensors import methods
from reproduction import Request, Settings, cache, reproduction
from reproduction.curves import setting
from reproduction.figures import nearest
from reproduction.photos import Seen, drawn
from reproduction.pointing import most_confident
from reproduction.resumable import Batch, Task, carry_out, in_turn

PAPER = {
    "sic": {"ig": (0.2639, 2.0812), "smooth-ig": (0.4433, 1.1366), "blur-ig": (0.1903, 2.0812),
            "guided-ig": (0.2623, 2.0644), "paper": (0.8486, 0.6655)},
    "resnet": {"ig": (0.39443,), "paper": (0.9262,)},
    "pointing": {"ig": (0.66,), "paper": (0.83,)},
    "figures": {"ig": (3e-5,), "paper": (0.9973,)},
}  # fmt: skip


def seen(name, target=0, probability=0.5, label=None):
    return Seen(Path(f"{name}.jpg"), name, label, target, probability)


@pytest.mark.parametrize("name", PAPER)
def test_settings_hold_the_paper_s_numbers_and_methods_that_exist(name):
    settings = Settings.of(name)
    for contender in settings.contenders:
        assert tuple(contender.paper.values()) == PAPER[name].get(contender.name, ())
        scorer, greedy = methods.resolve(
            contender.search["method"], steps=contender.search.get("steps")
        )
        if contender.name == "paper":
            assert contender.search["rounds"] * scorer.cost() == 2000
            assert contender.search["schedule"] == "equal"
        if contender.name == "greedy-pig":
            assert contender.search == {
                "method": "greedy-pig"
            }  # No knobs: whatever the default is.
        assert (greedy is None) == ("greedy" not in contender.search["method"])
    assert reproduction(name).FILES[0] == f"{name}.md"


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"scorer": "steady-gradients", "steps": 5}, "20 rounds × 5 views, geometric"),
        ({"scorer": "steady-gradients", "steps": 1}, "20 rounds × 1 view, geometric"),
        ({"steps": 5, "rule": "midpoint"}, "20 rounds × 5 midpoints, geometric"),
        ({"steps": 1, "rule": "left"}, "20 rounds × 1, geometric"),
        ({}, "20 rounds, geometric"),
        ({"rounds": 1, "samples": 25, "inner_steps": 1}, "25 samples × 1 step"),
    ],
)
def test_views_and_midpoints_are_told_apart(made, words):
    assert setting({"rounds": 20, "schedule": "geometric"} | made) == words


@pytest.mark.parametrize("budget", [1, 7, 50, 300, 1999, 2000, 10_000])
def test_a_budget_is_kept_and_changes_nothing_it_has_room_for(budget):
    for contender in Settings.of("sic").contenders:
        cut = contender.within(budget)
        usual = {"random": 0, "greedy-pig": 100, "blur-ig": 100}.get(contender.name, 2000)
        asked = cut.asked()
        if asked == {"method": "greedy-pig"}:
            asked = {"method": "steady-pig"}  # As photos have it.
        scorer, greedy = methods.resolve(asked["method"], steps=asked.get("steps"))
        rounds = asked.get("rounds", methods.default_rounds(scorer)) if greedy else 1
        cost = rounds * scorer.cost()
        assert cost <= budget or usual == 0
        assert cost >= 0.6 * min(budget, usual)
        assert (cut is contender) == (budget >= usual)


def test_a_budget_cuts_what_each_objective_runs():
    (contender,) = [c for c in Settings.of("sic").contenders if c.name == "greedy-pig"]
    cut = contender.within(50)
    assert cut.asked("softmax") == {"method": "steady-pig", "rounds": 16}
    assert cut.asked("log-likelihood") == {"method": "greedy-pig", "rounds": 50}
    assert cut.meaning("softmax") != cut.meaning("log-likelihood")
    assert contender.within(100) is contender


def test_the_meaning_changes_with_the_defaults_only_where_they_are_used(monkeypatch):
    found = {c.name: c for c in Settings.of("sic").contenders}
    before = {name: c.meaning() for name, c in found.items()}
    monkeypatch.setattr(methods, "SCHEDULE", "equal")
    changed = {name for name, c in found.items() if c.meaning() != before[name]}
    assert changed == {"greedy-pig"}
    other = replace(found["ig"], search={"method": "ig", "steps": 1999})
    assert other.meaning() != before["ig"]


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
        assert all(len(part) <= contender.together for c, part in turns if c is contender)
    block = max(c.together for c in contenders)
    firsts = [part[0] // block for _, part in turns]
    assert firsts == sorted(firsts)


def test_methods_that_fill_a_batch_run_alone_and_cheap_ones_together():
    together = {c.name: c.together for c in Settings.of("sic").contenders}
    assert together["ig"] == together["paper"] == 1
    assert together["guided-ig"] > 1  # Its steps follow one another: one gradient at a time.
    assert together["random"] > 1


def test_a_failure_is_kept_as_its_reason_and_tried_again(tmp_path):
    asked = []

    def run(items):
        for item in items:
            asked.append(item)
            if item == "bad" and asked.count("bad") < 3:
                raise ArithmeticError("not finite")
            yield {"item": item}

    tasks = tuple(Task(tmp_path / f"{item}.json", item) for item in ("a", "bad", "c"))
    request = Request(tmp_path)
    carry_out([Batch("", tasks, run)], request)
    assert [cache.read(t.place) for t in tasks] == [
        {"item": "a"}, {"error": "ArithmeticError: not finite"}, {"item": "c"},
    ]  # fmt: skip
    asked.clear()
    asked += ["bad", "bad"]
    carry_out([Batch("", tasks, run)], request)
    assert asked == ["bad", "bad", "bad"]
    assert cache.read(tasks[1].place) == {"item": "bad"}


def test_a_file_that_was_cut_off_counts_as_none(tmp_path):
    cache.write(tmp_path / "a" / "x.json", {"value": 0.5})
    assert cache.read(tmp_path / "a" / "x.json") == {"value": 0.5}
    (tmp_path / "a" / "x.json").write_text('{"value": 0.')
    assert cache.read(tmp_path / "a" / "x.json") is None
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["x.json"]


def test_the_surest_photo_of_the_wanted_class_is_shown_else_of_the_nearest():
    classes = ["tench", "goldfish", "tabby"]
    words = {"wanted": "tench", "nearest": ["goldfish"]}
    two = [seen("a", 1, 0.9), seen("b", 1, 0.95), seen("c", 2, 0.99)]
    found, how = nearest(two, classes, **words)
    assert (found.path.name, how) == ("b.jpg", "goldfish, the nearest there is to tench")
    found, how = nearest([*two, seen("d", 0, 0.3)], classes, **words)
    assert (found.path.name, how) == ("d.jpg", "tench")
    # A photo that is labelled otherwise is none of that class.
    found, _ = nearest([*two, seen("d", 0, 0.3, label=2)], classes, **words)
    assert found.path.name == "b.jpg"
    found, how = nearest(two[2:], classes, **words)
    assert "none of tench" in how


def test_grids_take_the_most_confident_and_no_class_too_often():
    photos = [seen(f"a{i}", 0, 0.99 - i / 1000) for i in range(5)]
    photos += [seen(f"b{i}", 1 + i, 0.5 - i / 100) for i in range(5)]
    taken = most_confident(photos, 2, 4)
    assert [s.digest for s in taken] == ["a0", "a1", "b0", "b1", "b2", "b3", "b4"]


def test_one_process_is_the_first_and_waits_for_nobody():
    ALONE.barrier()
    assert ALONE.first
    assert not Group(1, 2).first
