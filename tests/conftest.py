"""Small and repeatable: one thread, hypothesis without deadlines. Commands as functions."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)
settings.register_profile(
    "greedypig",
    deadline=None,
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("greedypig")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty current directory in which tiny_models is found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "cli"))
    monkeypatch.delenv("GREEDYPIG_DEBUG", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.fixture
def call(place, capsys):
    """Run greedypig, or with "reproduce" as first word `python -m reproduction`, in this process.

    Returns (exit code, standard output, standard error).
    """
    from greedypig.cli.main import main
    from reproduction.__main__ import main as reproduce

    def run(*words):
        words = [str(word) for word in words]
        code = reproduce(words[1:]) if words[:1] == ["reproduce"] else main(words)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return run


@pytest.fixture
def answers(call):
    """Run with --json and read the objects, one per line."""

    def run(*words, code=0):
        exit_code, out, err = call(*words, "--json")
        assert exit_code == code, err
        return [json.loads(line) for line in out.splitlines()]

    return run


@pytest.fixture
def answer(answers):
    """Run with --json and read the one object."""

    def run(*words, code=0):
        (record,) = answers(*words, code=code)
        return record

    return run
