"""The parts of a reproduction: settings, photos drawn, work shared, results kept."""

from argparse import Namespace
from pathlib import Path

import pytest

import greedypig as gp
from greedypig.core.methods import InRounds
from greedypig.network.distributed import ALONE, Group
from reproduction import REPRODUCTIONS
from reproduction.__main__ import command, module_of, parser
from reproduction.experiment import Experiment, Task, read_record, read_settings, write_record
from reproduction.figures import nearest
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
    return rounds * method.round_scorer.cost


@pytest.mark.parametrize("name", PAPER)
def test_settings_hold_the_paper_s_numbers_and_methods_that_exist(name):
    assert callable(module_of(name).reproduce)
    assert name in REPRODUCTIONS
    for known in read_settings(name)["methods"]:
        assert tuple(known.paper.values()) == PAPER[name].get(known.name, ())
        if known.name == "permutation":  # Known to tables alone.
            continue
        method = known.run()
        if known.name == "paper":
            assert method == gp.GreedyPIG(rounds=100, steps=20, schedule="equal")
            assert gradients(method) == 2000
        if known.name == "default":
            assert not known.knobs  # Whatever gp.explain chooses for photos.
            assert method == gp.SteadyPIG()
        if known.name == "greedy-5":
            assert method == gp.GreedyPIG(per_round=1, steps=5, schedule="equal")


@pytest.mark.parametrize("budget", [1, 7, 50, 300, 1999, 2000, 10_000])
def test_a_budget_is_kept_and_changes_nothing_it_has_room_for(budget):
    for known in read_settings("sic")["methods"]:
        cut = known.within(budget)
        usual = {"random": 0, "default": 100, "blur-ig": 100}.get(known.name, 2000)
        cost = gradients(cut.run())
        assert cost <= budget or usual == 0
        assert cost >= 0.6 * min(budget, usual)
        assert (cut.budget is None) == (budget >= usual)
        assert (cut.title == known.title) == (budget >= usual)


def test_a_budget_cuts_what_each_objective_runs():
    (known,) = [c for c in read_settings("sic")["methods"] if c.name == "default"]
    cut = known.within(50)
    assert cut.run("softmax") == gp.SteadyPIG(rounds=16)
    assert cut.run("log-likelihood") == gp.SequentialGradient(rounds=50)
    assert known.within(100) == known


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (
            "sic --methods ig,paper --photos a/b --limit 3 --out x --no-resume",
            "sic --photos DIR --limit 3 --methods ig,paper",
        ),
        (
            "--seed 2 criteo --tables x/own.csv kdd --mask-finetune --start rate --k 10,5",
            "criteo --tables own.csv kdd --k 5,10 --mask-finetune --start rate --seed 2",
        ),
    ],
)
def test_the_command_of_a_page_names_what_was_asked_for_without_folders(words, shown):
    args = parser(words.split()).parse_args(words.split())
    assert command(args.what, args) == shown


def test_more_photos_only_add_to_fewer():
    paths = [Path(f"{i}.jpg") for i in range(50)]
    few, many = drawn(paths, 7, 3), drawn(paths, 20, 3)
    assert many[:7] == few
    assert len(set(drawn(paths, None, 3))) == 50
    assert drawn(paths, 7, 4) != few


def small(folder, **more):
    """An experiment for its work alone."""
    return Experiment("lemmas", Namespace(out=folder, seed=0, resume=True), **more)


def test_a_failure_is_kept_as_its_reason_and_tried_again(tmp_path):
    items = []

    def run(item):
        items.append(item)
        if item == "bad" and items.count("bad") < 2:
            raise ArithmeticError("not finite")
        return {"item": item}

    tasks = [Task(item, tmp_path / f"{item}.json", item, run) for item in ("a", "bad", "c")]
    experiment = small(tmp_path)
    assert experiment.measure(tasks) == {"a": {"item": "a"}, "c": {"item": "c"}}
    assert experiment.failed == {"bad": "ArithmeticError: not finite"}
    experiment = small(tmp_path)
    assert set(experiment.measure(tasks)) == {"a", "bad", "c"}
    assert items == ["a", "bad", "c", "bad"]
    assert experiment.failed == {}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_processes_share_the_work(tmp_path, size):
    tasks = [Task(i, tmp_path / f"{i}.json", str(i), lambda item: {"item": item}) for i in range(5)]

    class Apart(Group):
        """Ranks one after the other: what a barrier is for is done by the order."""

        def barrier(self):
            pass

    for rank in range(size):
        before = len(list(tmp_path.iterdir()))
        records = small(tmp_path, group=Apart(rank, size)).measure(tasks)
        assert len(list(tmp_path.iterdir())) - before in (5 // size, -(-5 // size))
    assert records == {i: {"item": i} for i in range(5)}
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
