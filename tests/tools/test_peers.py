"""The job that runs other libraries' tests: which failures it lets pass."""

import pytest

from tools.peers import __main__ as peers

KNOWN = """
[[captum]]
reason = "It has several."
tests = ["a.py::one", "a.py::each", "a.py::some[2]", "b.py::gone"]
"""


@pytest.fixture(autouse=True)
def known(tmp_path, monkeypatch):
    (tmp_path / "known_failures.toml").write_text(KNOWN)
    monkeypatch.setattr(peers, "HERE", tmp_path)


@pytest.mark.parametrize(
    ("errors", "good", "said"),
    [
        ({"a.py::one": "E", "a.py::two": ""}, True, ["1 of 2 pass"]),
        ({"a.py::one": "", "a.py::two": ""}, True, ["strike it from the list: a.py::one\n"]),
        ({"a.py::each[1]": "E", "a.py::each[2]": ""}, True, ["1 of 2 pass"]),
        ({"a.py::each[1]": "", "a.py::each[2]": ""}, True, ["strike it from the list: a.py::each"]),
        ({"a.py::some[1]": "E\nF"}, False, ["FAILED a.py::some[1]\n    E\n"]),
        ({"a.py::one_more": "E"}, False, ["FAILED a.py::one_more"]),
        ({}, False, ["FAILED: no test used our classes"]),
    ],
)
def test_only_listed_tests_may_fail_and_those_that_pass_are_named(errors, good, said, capsys):
    assert peers.judged("captum", errors) is good
    output = capsys.readouterr().out
    assert all(text in output for text in said)
    assert ("strike" in output) == ("strike" in said[0])
    assert ("FAILED" in output) == (not good)


@pytest.mark.slow
def test_the_first_error_of_a_test_that_used_our_classes_is_written(tmp_path):
    """A run of the plugin itself, with scikit-learn's classes replaced."""
    pytest.importorskip("sklearn")
    (tmp_path / "test_some.py").write_text(
        "from sklearn.feature_selection import RFE\n"
        "def test_ours(): assert not RFE(None).get_params()['n_features_to_select']\n"
        "def test_fails(): RFE(None); raise KeyError('no')\n"
        "def test_theirs(): raise KeyError('not ours')\n"
    )
    (tmp_path / "test_broken.py").write_text("import no_such_module\n")
    errors = peers.outcomes("sklearn", tmp_path, ["."])
    assert errors.pop("test_broken.py")
    assert errors == {"test_some.py::test_ours": "", "test_some.py::test_fails": "KeyError: 'no'"}
