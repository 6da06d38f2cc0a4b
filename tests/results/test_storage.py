"""One file per result: it comes back as it was, is refused if it is anything else, and runs
nothing."""

import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from dataclasses import replace
from importlib import import_module

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import greedypig as gp
from greedypig.core.facts import Facts
from greedypig.network.fingerprint import digest
from greedypig.results.input_notes import ImageFacts, TensorFacts
from greedypig.results.kinds import FACTS as KINDS
from greedypig.results.table_notes import TableFacts
from names import without_address
from nets import TwoInputs, cnn, identical, mlp, picture, row

TWO = gp.GreedyPIG(rounds=2, steps=2)
TENSORS = ("order", "feature_scores", "values", "last_scores")


def example() -> gp.Attribution:
    """A result without notes."""
    a = gp.explain(mlp(), row(), features=torch.arange(6) // 2, method=TWO, seed=3)
    return replace(a, about=TensorFacts(), attachments={})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "result.gpig"


# Coming back as it was.


@pytest.mark.parametrize(
    "features",
    ["elements", "pixels", gp.grid(2), gp.windows(2), gp.windows(3, stride=2), None],
    ids=without_address,
)
@pytest.mark.parametrize("named", [False, True])
def test_pictures_come_back_whatever_a_feature_is(path, features, named):
    spec = torch.arange(3).view(3, 1, 1) if features is None else features
    plain = gp.explain(cnn(), picture(), features=spec, method=TWO)
    names = [f"ünit {i}" for i in range(plain.features.count)] if named else None
    a = gp.explain(cnn(), picture(), features=spec, names=names, method=TWO)
    a.save(path)
    b = gp.load(path)
    assert identical(a, b)
    assert type(a.features) is type(b.features)
    assert b.top(3) == a.top(3)
    assert b.settings == json.loads(json.dumps(dict(a.settings)))
    assert b.provenance == a.provenance
    assert b.seconds == a.seconds
    for tree in ("scores", "importance", "contributions", "ranking"):
        found, expected = getattr(b, tree), getattr(a, tree)
        if callable(found):
            found, expected = found(), expected()
        assert torch.equal(found, expected)
    assert torch.equal(a.mask(2), b.mask(2))


@pytest.mark.parametrize("container", ["tuple", "dict"])
def test_several_inputs_come_back_in_their_container(path, container):
    parts = (picture(0, (3, 4)), row(1, 5))
    x = parts if container == "tuple" else {"row": parts[1], "image": parts[0]}
    a = gp.explain(TwoInputs(), x, method=gp.GreedyPIG(rounds=3, steps=2))
    a.save(path)
    b = gp.load(path)
    assert identical(a, b)
    assert type(b.scores) is type(a.scores)
    if container == "dict":
        assert list(b.scores) == ["row", "image"]
        assert torch.equal(b.scores["image"], a.scores["image"])
    else:
        assert all(torch.equal(p, q) for p, q in zip(a.scores, b.scores, strict=True))


@pytest.mark.parametrize(
    "options",
    [
        {"method": "random"},
        {"objective": "logit"},
        {"method": gp.MarginalGains()},  # −∞ among the scores.
        {"baseline": [0.0, row(4), "mean", lambda x: x * 0]},
        {"objective": lambda z: z[:, 0]},
        {"objective": gp.margin(against=3), "target": 0},
        {"method": gp.GreedyPIG(rule=gp.rule("left", 3), rounds=2)},
        {"method": gp.Greedy(gp.SmoothIG(gp.IG(2), samples=2), rounds=2)},
        {"method": gp.GreedyPIG(schedule=[1, 2]), "stop": gp.Stop(gain=True)},
        {"stop": gp.Stop(gradients=10)},
        {"stop": gp.Stop(value=0.3)},
    ],
    ids=without_address,
)
def test_whatever_was_asked_for_can_be_saved(path, options):
    a = gp.explain(mlp(), row(), **options)
    a.save(path)
    b = gp.load(path)
    assert identical(a, b)
    assert b.forwards_used == a.forwards_used


def test_results_of_plain_set_functions_come_back(path):
    a = gp.maximize(gp.objective(lambda m: (m**2).sum(1), 5), gp.GreedyPIG(per_round=2, steps=3))
    a.save(path)
    assert identical(a, gp.load(path))


def test_half_a_run_comes_back_as_half_a_run(path):
    run = gp.rounds(gp.objective(lambda m: m.sum(1), 5), gp.GreedyPIG(per_round=1, steps=1))
    next(run)
    (a,) = run.results()
    a.save(path)
    b = gp.load(path)
    assert b.stop is gp.StopReason.RUNNING
    assert identical(a, b)


def test_values_that_were_not_measured_come_back_as_nan(path):
    run = gp.rounds(gp.objective(lambda m: m.sum(1), 5), gp.GreedyPIG(per_round=1, steps=1))
    next(run)
    run.results(measure=False)[0].save(path)
    b = gp.load(path)
    assert b.values.isnan().all()
    assert b.full_value != b.full_value


def test_the_file_is_one_safetensors_file_with_json_in_its_header(path):
    example().save(path)
    assert os.listdir(path.parent) == [path.name]
    with safe_open(path, "pt") as file:
        record = json.loads(file.metadata()["greedypig"])
        assert set(file.keys()) == {*TENSORS, "first_scores", "score_sums", "features.ids"}
    assert record["schema"] == 3
    assert record["stop"] == "ALL"


def test_settings_and_provenance_tell_where_it_came_from(path):
    a = gp.explain(
        mlp(), row(), target=1, baseline=0.5, objective="logit", seed=9,
        method=gp.GreedyPIG(rounds=2, steps=3, schedule="equal", rule="left"),
    )  # fmt: skip
    a.save(path)
    b = gp.load(path)
    expected = {
        "method": "greedy-pig", "objective": "logit", "target": 1, "baseline": 0.5, "steps": 3,
        "rounds": 2, "seed": 9, "schedule": "equal", "rule": "left", "outputs": "logits",
    }  # fmt: skip
    assert {k: b.settings[k] for k in expected} == expected
    assert b.provenance["greedypig"] == gp.__version__
    assert b.provenance["torch"] == str(torch.__version__)
    assert {"python", "model", "input"} <= set(b.provenance)


# Notes: facts and pictures for people.

FACTS = {"kind": "image", "class": "çup <b>", "probability": 0.5, "predictions": [["cup", 0.5]]}


def noted() -> gp.Attribution:
    return example().with_notes(FACTS, picture=torch.arange(24, dtype=torch.uint8).view(2, 4, 3))


def test_notes_come_back_and_change_nothing_else(path):
    noted().save(path)
    b = gp.load(path)
    assert identical(b, example())
    assert b.about.record() == FACTS
    assert (b.about.label, b.about.predictions) == ("çup <b>", (("cup", 0.5),))
    assert set(b.attachments) == {"picture"}
    assert b.attachments["picture"].dtype == torch.uint8
    assert torch.equal(b.attachments["picture"], noted().attachments["picture"])


def test_notes_add_up_and_the_result_without_them_stays_as_it_was():
    a = example()
    b = a.with_notes({"kind": "image"}, picture=torch.zeros(2, 2, 3))
    c = b.with_notes({"kind": "table", "class": "cup"}, baseline=torch.ones(2, 2, 3))
    assert (a.about, a.attachments) == (TensorFacts(), {})
    assert b.about == ImageFacts()
    assert c.about == TableFacts(extra={"class": "cup"})
    assert set(c.attachments) == {"picture", "baseline"}


def test_notes_are_what_the_file_will_hold_and_not_the_caller_s_own_objects():
    facts, picture = {"shape": (2, 3), 5: "five"}, torch.zeros(2, 2, requires_grad=True)
    a = example().with_notes(facts, picture=picture)
    facts["shape"] = None
    with torch.no_grad():
        picture += 1
    assert a.about.extra == {"shape": [2, 3], "5": "five"}
    assert a.attachments["picture"].tolist() == [[0, 0], [0, 0]]
    assert not a.attachments["picture"].requires_grad


@pytest.mark.parametrize(
    "facts", [{"a": float("nan")}, {"a": object()}, {"a": {1, 2}}], ids=without_address
)
def test_facts_that_no_file_can_hold_are_refused(facts):
    with pytest.raises(gp.InvalidInput, match=r"Expected facts that JSON can hold \(got"):
        example().with_notes(facts)


def test_a_user_s_own_facts_stand_beside_those_of_the_kind(path):
    noted().with_notes({"my": 1, "label": "cup", "probability": None}).save(path)
    about = gp.load(path).about
    assert (about.extra, about.label, about.probability) == ({"my": 1}, "cup", None)


def test_curves_and_other_records_may_be_given_as_they_are():
    curve = gp.metrics.Curve.from_dict({"fractions": [0, 1], "values": [0.1, 0.9]})
    about = noted().with_notes({"curves": {"softmax": curve}, "kept": {0.5: 0.2}}).about
    assert about.curves["softmax"].values.tolist() == [0.1, 0.9]
    assert about.kept == {0.5: 0.2}


@pytest.mark.parametrize("record", [{"kind": "later", "class": "cup"}, {"kind": "", "x": [1]}])
def test_facts_of_an_unknown_kind_are_kept_as_they_are(record, path):
    a = example().with_notes(record)
    assert a.about == Facts(extra=record)
    a.save(path)
    assert gp.load(path).about.record() == record
    gp.report.html(a)


@pytest.mark.parametrize(
    "facts",
    [{"kind": 3}, {"kind": "image", "class": 3}, {"kind": "image", "probability": "high"},
     {"kind": "text"}, {"kind": "graph-node", "node": 1}, {"kind": "table", "selection": {}}],
    ids=str,
)  # fmt: skip
def test_facts_of_another_type_are_refused_where_they_are_given(facts):
    with pytest.raises(gp.InvalidInput, match=r"^Expected .* \(got"):
        example().with_notes(facts)


def test_a_file_with_facts_of_another_type_is_refused(path):
    replace(noted(), about=replace(noted().about, probability="high")).save(path)
    with pytest.raises(gp.InvalidFile, match="probability in the notes as a finite number"):
        gp.load(path)


def test_every_kind_is_found_by_its_name():
    for kind, name in KINDS.items():
        module, _, facts = name.partition(":")
        assert getattr(import_module(f"greedypig.{module}"), facts).kind == kind


LOADED = """
import sys
import greedypig as gp
gp.load(sys.argv[1])
rooms = {name.split(".")[1] for name in sys.modules if name.startswith("greedypig.")}
notes = {name for name in sys.modules if name.endswith("_notes")}
print(sorted(rooms & {"graphs", "text", "tables", "plots", "report"}), sorted(notes))
"""


def test_a_photo_is_read_without_the_modules_of_other_kinds(path):
    noted().save(path)
    command = [sys.executable, "-c", LOADED, str(path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert said == "[] ['greedypig.results.input_notes']\n"


def test_facts_are_a_mapping():
    with pytest.raises(gp.InvalidType, match=r"Expected a mapping .* \(got str\)"):
        example().with_notes("a cup")


ODD_ATTACHMENTS = {
    "": torch.ones(1),
    "../picture": torch.ones(1),
    "a b": torch.ones(1),
    "x" * 65: torch.ones(1),
    "numbers": [1, 2],
    "complex": torch.ones(1, dtype=torch.complex64),
    "sparse": torch.ones(2, 2).to_sparse(),
    "deep": torch.ones((1,) * 9),
}


@pytest.mark.parametrize("name", ODD_ATTACHMENTS)
def test_odd_attachments_are_refused(name, path):
    with pytest.raises((gp.InvalidInput, gp.InvalidType), match=r"^Expected .*\(got"):
        example().with_notes(**{name: ODD_ATTACHMENTS[name]})
    with pytest.raises((gp.InvalidInput, gp.InvalidType)):
        replace(example(), attachments={name: ODD_ATTACHMENTS[name]}).save(path)
    assert os.listdir(path.parent) == []


def test_notes_take_no_part_in_going_on_with_a_run(path):
    options = {"method": gp.GreedyPIG(rounds=4, steps=3)}
    part = gp.explain(mlp(), row(), stop=gp.Stop(gradients=6), **options)
    part.with_notes(FACTS, p=torch.ones(1)).save(path)
    whole = gp.explain(mlp(), row(), checkpoint=path, **options)
    assert identical(whole, gp.explain(mlp(), row(), **options))


def test_fingerprints_tell_models_and_inputs_apart():
    def provenance(model, x, **options):
        return gp.explain(model, x, method=gp.IG(1), **options).provenance

    base = provenance(mlp(), row())
    assert provenance(mlp(), row()) == base
    assert provenance(mlp(seed=1), row())["model"] != base["model"]
    assert provenance(mlp(), row(1))["input"] != base["input"]
    assert provenance(mlp(), row(), baseline=0.1)["input"] != base["input"]


def test_fingerprints_depend_on_what_a_model_computes_and_not_on_where_it_lies():
    """The same network made again, as in the process that goes on with a run."""

    class Options:
        """Has no repr of its own: python shows its address."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.extras = mlp(), (Options(), [torch.tanh, lambda x: x])

        def forward(self, x: Tensor) -> Tensor:
            return self.extras[1][0](self.net(x))

    def provenance(model):
        return gp.explain(model, row(), method=gp.IG(1)).provenance

    assert provenance(Net()) == provenance(Net())


# Refusing what is something else.


def assert_refused(path) -> str:
    with pytest.raises(gp.InvalidFile, match=r"^Expected .*\(got ") as caught:
        gp.load(path)
    assert os.fspath(path) in str(caught.value)
    return str(caught.value)


def test_a_missing_file_is_said_to_be_missing(path):
    with pytest.raises(FileNotFoundError, match=r"result\.gpig"):
        gp.load(path)


def test_a_directory_is_refused(tmp_path, monkeypatch):
    assert "(got a folder). Try " in assert_refused(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert "'.' (got a folder)" in assert_refused(".")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
def test_a_pipe_is_refused_and_not_waited_for(path):
    os.mkfifo(path)
    assert "(got no file)" in assert_refused(path)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x00", b"\x00" * 8, b"\xff" * 64, b"{}", b"PK\x03\x04 no zip", b"\x80\x04N.",
        struct.pack("<Q", 2) + b"{}", struct.pack("<Q", 1 << 60) + b"{}",
        struct.pack("<Q", 4) + b"null", struct.pack("<Q", 3) + b"\xff\xfe\xfd",
    ],
)  # fmt: skip
def test_bytes_that_are_no_result_are_refused(path, content):
    path.write_bytes(content)
    assert_refused(path)


def test_foreign_formats_are_refused(path):
    save_file({"weight": torch.ones(3)}, path)
    assert_refused(path)
    save_file({"weight": torch.ones(3)}, path, metadata={"format": "pt"})
    assert_refused(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("order", "1 2 3")
    assert_refused(path)
    torch.save({"order": torch.arange(3)}, path)
    assert_refused(path)


class Smuggled:
    """Unpickling it would write a file."""

    def __init__(self, target) -> None:
        self.target = target

    def __reduce__(self):
        return (exec, (f"open({os.fspath(self.target)!r}, 'w').close()",))


def test_a_file_that_smuggles_code_runs_nothing(path, tmp_path):
    touched = tmp_path / "touched"
    pickle.loads(pickle.dumps(Smuggled(touched)))
    assert touched.exists()  # The payload works …
    touched.unlink()
    with open(path, "wb") as file:
        pickle.dump(Smuggled(touched), file)
    assert_refused(path)
    torch.save(Smuggled(touched), path)
    assert_refused(path)
    assert not touched.exists()  # … and nobody ran it.


def parts_of(a: gp.Attribution, path) -> tuple[dict, dict[str, Tensor]]:
    """What is in the file but for the digest."""
    a.save(path)
    with safe_open(path, "pt") as file:
        record = json.loads(file.metadata()["greedypig"])
        del record["digest"]
        return record, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def write(path, record, tensors) -> None:
    """A file with a digest of its own, so that what was changed meets the other checks."""
    if not isinstance(record, str):
        seal = digest(dict(sorted(tensors.items())), json.dumps(record))
        record = json.dumps({**record, "digest": seal})
    save_file(tensors, path, metadata={"greedypig": record})


@pytest.mark.parametrize("schema", [1, 4, "3", None, [3]])
def test_files_of_another_schema_are_refused(path, schema):
    record, tensors = parts_of(example(), path)
    write(path, record | {"schema": schema}, tensors)
    assert "schema" in assert_refused(path)


def test_a_file_without_a_digest_is_refused(path):
    record, tensors = parts_of(example(), path)
    write(path, json.dumps(record), tensors)
    assert "digest" in assert_refused(path)


ODD = {
    "text that is no JSON": "{",
    "JSON that is no object": "[]",
    "JSON without end": "[" * 100_000,
    "null": "null",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_odd_json_is_refused(path, text):
    _, tensors = parts_of(example(), path)
    write(path, text, tensors)
    assert_refused(path)


@pytest.mark.parametrize("field", ["selected", "picks", "stop", "features", "layout", "schema"])
def test_missing_fields_are_refused(path, field):
    record, tensors = parts_of(example(), path)
    del record[field]
    write(path, record, tensors)
    assert_refused(path)


@pytest.mark.parametrize("name", [*TENSORS, "features.ids"])
def test_missing_tensors_are_refused(path, name):
    record, tensors = parts_of(example(), path)
    del tensors[name]
    write(path, record, tensors)
    assert_refused(path)


# A file with a digest that is right, whose fields do not fit.

SEALED = {
    "elements": {},
    "groups": {"features": torch.arange(6) // 2},
    "windows": {"features": gp.windows(2)},
}


def sealed(path, kind="groups"):
    """The parts of a result's file, for a kind of features."""
    is_picture = kind == "windows"
    model, x = (cnn(), picture()) if is_picture else (mlp(), row())
    return parts_of(gp.explain(model, x, method=TWO, **SEALED[kind]), path)


def refused_by(path, record, tensors, field) -> None:
    """The file is refused in one sentence that names the field."""
    write(path, record, tensors)
    message = assert_refused(path)
    assert field in message.replace(os.fspath(path), "")
    assert "\n" not in message
    assert "damaged or of another kind" not in message


FIELDS = {
    "selected": [None, "3", 1.0, True, -1, 2, 4, [3]],
    "picks": [None, "12", 3, [1.0, 2], [1, "2"], [1, True], [4, -1], [1, 1], [[1], 2]],
    "gradients_used": [None, "8", 8.0, -1],
    "seconds": [None, "1", -1, 10**400, [0.1]],
    "settings": [None, "x", [], [["method", "ig"]], {"rounds": "two"}, {"rounds": None}],
    "provenance": [None, "x", []],
    "about": [None, "x", []],
    "full_value": ["1", True, [1.0], 10**400],
    "totals": [None, 1.0, [], [1.0], [1.0] * 3, ["1", 1.0], "12"],
    "stop": [None, "Rounds", 1, "all rounds were done"],
    "features": [None, "elements", [], {}],
    "layout": [None, "tensor", [], {}],
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_of_another_type_or_length_is_named(path, field):
    record, tensors = sealed(path)
    for value in FIELDS[field]:
        refused_by(path, record | {field: value}, tensors, field)


FEATURES = {
    "elements": {"kind": ["pixels", None, 1], "n": [5, 7, "6", None, 10**30], "names": ["abcdef",
                 [], ["a"] * 5, [1] * 6]},
    "groups": {"kind": ["windows"], "names": [["a"] * 2, {}]},
    "windows": {"shape": [None, [], [3, 8], [3, 8, 10**30], [3, "8", 8], [3, -8, -8]],
                "size": [0, 9, "2", None], "axes": [[], [0, 0], [7], ["1"]], "stride": [0, 3, 1.5]},
}  # fmt: skip
LAYOUTS = {
    "kind": ["list", None, 1],
    "names": [[], ["x", "y"], [1], "x"],
    "shapes": [[], [[5]], [[7]], [["6"]], [6], [[-1, -6]], [[6], []], "6"],
}


@pytest.mark.parametrize("kind", FEATURES)
def test_features_that_do_not_fit_are_named(path, kind):
    record, tensors = sealed(path, kind)
    for key, values in FEATURES[kind].items():
        for value in values:
            refused_by(path, record | {"features": record["features"] | {key: value}}, tensors,
                       "features")  # fmt: skip


@pytest.mark.parametrize("key", LAYOUTS)
def test_layouts_that_do_not_fit_are_named(path, key):
    record, tensors = sealed(path, "elements")
    for value in LAYOUTS[key]:
        damaged = record | {"layout": record["layout"] | {key: value}}
        refused_by(path, damaged, tensors, "layout")
    several = {"kind": "dict", "names": ["a", "a"], "shapes": [[3], [3]]}
    refused_by(path, record | {"layout": several}, tensors, "layout")


SCORES = ("feature_scores", "last_scores", "first_scores", "score_sums")
ODD_TENSORS = {
    "order": [torch.tensor([0, 1, 1]), torch.tensor([1, 2, 3]), torch.arange(4), torch.arange(2),
              torch.arange(3).int(), torch.arange(3.0), torch.arange(3).view(1, 3),
              torch.tensor(0)],
    "values": [torch.zeros(3), torch.zeros(2).double(), torch.zeros(1, 3).double(),
               torch.arange(3)],
    **{name: [torch.zeros(4), torch.arange(3), torch.zeros(3, 1), torch.tensor(0.0),
              torch.zeros(3, dtype=torch.complex64)] for name in SCORES},
    "features.ids": [torch.zeros(6), torch.tensor([0, 2] * 3), torch.arange(5) // 2,
                     -torch.arange(6), torch.ones(6).bool()],
    "attachments.picture": [torch.ones((1,) * 9)],
    "attachments.../picture": [torch.ones(1)],
}  # fmt: skip


@pytest.mark.parametrize("name", ODD_TENSORS)
def test_a_tensor_of_another_type_or_length_is_named(path, name):
    record, tensors = sealed(path)
    for tensor in ODD_TENSORS[name]:
        refused_by(path, record, tensors | {name: tensor}, name.partition(".")[0])


@pytest.mark.parametrize("kind", SEALED)
def test_files_sealed_anew_are_read(path, kind):
    """What the tests above damage is right before."""
    record, tensors = sealed(path, kind)
    write(path, record, tensors)
    assert gp.load(path).selected == record["selected"]


@pytest.mark.slow
def test_every_truncation_is_refused(path):
    example().save(path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert_refused(path)
    path.write_bytes(whole + b"\x00")
    assert_refused(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[object, bytes]:
    path = tmp_path_factory.mktemp("flipped") / "result.gpig"
    example().save(path)
    return path, path.read_bytes()


def test_equal_results_are_equal_files(tmp_path):
    a = example()
    for name in "ab":
        a.save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_no_flipped_bit_is_read_as_a_result(whole):
    path, content = whole
    path.write_bytes(content)
    before = gp.load(path)
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(changed)
        try:
            found = gp.load(path)
        except gp.InvalidFile:
            continue
        for name in ("order", "feature_scores", "last_scores"):
            assert torch.equal(getattr(found, name), getattr(before, name))
        assert found.values.tolist() == before.values.tolist()
        assert (found.totals, found.settings, found.provenance, found.seconds) == (
            before.totals, before.settings, before.provenance, before.seconds)  # fmt: skip


# Saving whole or not at all.


def test_settings_that_no_file_can_hold_are_refused_before_anything_is_written(path):
    a = replace(example(), settings={"model": object()})
    with pytest.raises(gp.InvalidFile, match=r"Expected settings and notes.*\(got"):
        a.save(path)
    assert os.listdir(path.parent) == []
