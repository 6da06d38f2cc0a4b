"""A pytest plugin: our classes in the place of a peer's, before the peer's tests import them.

A test counts if it made one of our objects. The outcomes of those tests go into a JSON file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from greedypig.results.files import write_whole

EDGES_ALONE: dict[str, list[Any]] = {"node_mask_type": [None], "edge_mask_type": ["object"]}
"""What PyG's tests ask for: our algorithm explains edges."""
made: list[type] = []
"""The classes of ours of which the running test has made objects."""


def counted(cls: Any) -> Any:
    """The class, which notes that an object of it was made."""
    make = cls.__init__

    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        made.append(cls)
        make(self, *args, **kwargs)

    noted.__wrapped__ = make  # type: ignore[attr-defined]  # scikit-learn reads its signature.
    cls.__init__ = noted
    return cls


def captum() -> None:
    """IntegratedGradients is our GreedyPIG."""
    import captum.attr
    from captum.attr._core import integrated_gradients

    from greedypig.adapters.captum import GreedyPIG

    captum.attr.IntegratedGradients = integrated_gradients.IntegratedGradients = counted(GreedyPIG)


def captum_one_round() -> None:
    """The same with one round, which is integrated gradients."""
    from greedypig.adapters.captum import GreedyPIG

    captum()
    attribute = GreedyPIG.attribute.__wrapped__
    *others, _ = attribute.__defaults__  # n_rounds is the last.
    attribute.__defaults__ = (*others, 1)


def pyg() -> None:
    """The algorithms that are not trained beforehand are our GreedyPIGExplainer."""
    from torch_geometric import explain

    from greedypig.adapters.pyg import GreedyPIGExplainer

    class Algorithm(counted(GreedyPIGExplainer)):  # type: ignore[misc]
        node_mask = edge_mask = None

        def __init__(self, *_: Any, **__: Any) -> None:
            super().__init__()

    for name in ("DummyExplainer", "GNNExplainer", "AttentionExplainer"):
        setattr(explain, name, Algorithm)


def sklearn() -> None:
    """RFE, SequentialFeatureSelector and SelectFromModel make a FeatureSelector."""
    from sklearn import feature_selection

    import greedypig as gp

    ours = counted(gp.FeatureSelector)

    def selector(
        estimator: Any, *, n_features_to_select: Any = None, max_features: Any = None, **_: Any
    ) -> Any:
        wanted = max_features or n_features_to_select
        return ours(estimator, None if wanted == "auto" else wanted)

    for name in ("RFE", "SequentialFeatureSelector", "SelectFromModel"):
        setattr(feature_selection, name, selector)


REPLACE: dict[str, Callable[[], None]] = {
    "captum": captum,
    "captum-one-round": captum_one_round,
    "pyg": pyg,
    "sklearn": sklearn,
}


class Outcomes:
    """Test → the error, or "" if it passed; of the tests that used our classes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.errors: dict[str, str] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        """Note the outcome of a test."""
        report: pytest.TestReport = yield
        if made and not report.skipped:
            error = call.excinfo.exconly() if report.failed and call.excinfo else ""
            self.errors[item.nodeid] = self.errors.get(item.nodeid) or error
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported has failed."""
        if report.failed:
            self.errors[report.nodeid] = report.longreprtext

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        write_whole(self.path, json.dumps(self.errors))


def pytest_addoption(parser: pytest.Parser) -> None:
    """The peer, and the file for the outcomes."""
    parser.addoption("--peer", choices=REPLACE)
    parser.addoption("--outcomes", type=Path)


def pytest_configure(config: pytest.Config) -> None:
    """Put our classes in their place."""
    REPLACE[config.getoption("--peer")]()
    config.pluginmanager.register(Outcomes(config.getoption("--outcomes")))
    torch.manual_seed(0)  # Some tests draw their data while they are imported.


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """PyG's tests ask for masks of edges alone."""
    if metafunc.config.getoption("--peer") == "pyg":
        for mark in metafunc.definition.iter_markers("parametrize"):
            if mark.args[0] in EDGES_ALONE:
                mark.args[1][:] = EDGES_ALONE[mark.args[0]]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Every test has the same random numbers in every run."""
    made.clear()
    torch.manual_seed(0)
    np.random.seed(0)
