"""`import greedypig` is light, complete and typed; what is optional is asked for by name."""

import inspect
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

import greedypig as gp

HEAVY = (
    "matplotlib PIL captum scipy skimage sklearn networkx torch_geometric pandas saliency "
    "hypothesis pyarrow rich jinja2 platformdirs"
)


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_importing_pulls_no_optional_package_and_sets_nothing():
    """Packages that torch itself brings along are torch's business."""
    found, state = python(
        "import sys, torch, random, logging\n"
        "def world(): return (torch.get_rng_state().tolist(), random.getstate(),\n"
        "    torch.is_grad_enabled(), torch.get_default_dtype(), logging.root.handlers[:],\n"
        "    torch.get_num_threads(), logging.getLogger('greedypig').handlers)\n"
        "modules, before = set(sys.modules), world()\n"
        "import greedypig as gp\n"
        "same = world() == before\n"
        "model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 2))\n"
        "gp.explain(model, torch.rand(3, 2, 2), features='pixels')\n"
        "gp.explain(model, torch.rand(3, 2, 2), method=gp.BlurIG(steps=2))\n"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - modules})\n"
        "print(same)"
    ).splitlines()
    assert "greedypig" in found.split()
    assert not set(found.split()) & set(HEAVY.split())
    assert state == "True"


@pytest.mark.slow
def test_help_needs_no_torch():
    code = "import sys, greedypig, greedypig.cli.main; print('torch' in sys.modules)"
    assert python(code) == "False"


@pytest.mark.slow
def test_methods_of_pictures_are_known_before_anything_is_explained():
    assert python("import greedypig as gp; print(gp.Greedy('blur-ig').scorer.name)") == "blur-ig"


@pytest.mark.parametrize("name", gp.__all__)
def test_every_public_name_exists_and_is_explained(name):
    thing = getattr(gp, name)
    doc = inspect.getdoc(thing)
    assert doc
    assert len(doc.split()) >= 3
    if inspect.isclass(thing) or inspect.isfunction(thing):
        assert "Initialize self" not in doc


def test_all_is_sorted_and_says_each_name_once():
    assert sorted(gp.__all__) == sorted(set(gp.__all__))


def test_dir_shows_the_public_names_and_nothing_else():
    assert [name for name in dir(gp) if not name.startswith("_")] == sorted(gp.__all__)


def test_public_functions_are_typed():
    for name in gp.__all__:
        thing = getattr(gp, name)
        if inspect.isfunction(thing):
            signature = inspect.signature(thing)
            assert signature.return_annotation is not inspect.Signature.empty, name
            for parameter in signature.parameters.values():
                assert parameter.annotation is not inspect.Parameter.empty, (name, parameter)


def test_unknown_names_are_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'greedy_pork'"):
        _ = gp.greedy_pork


def test_types_are_shipped():
    assert files("greedypig").joinpath("py.typed").is_file()


def test_the_version_is_the_package_s_own():
    project = Path(__file__).parents[1] / "pyproject.toml"
    assert gp.__version__ == tomllib.loads(project.read_text())["project"]["version"]


@pytest.mark.slow
def test_a_missing_captum_names_the_extra_and_hinders_nothing_else():
    selected, *said = python(
        "import sys\n"
        "sys.modules['captum'] = None  # Importing it fails from here on.\n"
        "import torch, greedypig as gp\n"
        "print(gp.explain(torch.nn.Linear(3, 2), torch.ones(3)).selected)\n"
        "for use in ('gp.from_captum', 'import greedypig.adapters.captum'):\n"
        "    try:\n"
        "        exec(use)\n"
        "    except gp.MissingPackage as error:\n"
        "        assert isinstance(error, ImportError)\n"
        "        print(error)\n"
    ).splitlines()
    assert selected == "3"
    assert len(said) == 2
    for message in said:
        assert message.startswith("Expected the package captum")
        assert "greedypig[captum]" in message
