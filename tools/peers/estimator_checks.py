"""scikit-learn's checks of any estimator, on FeatureSelector."""

from typing import Any

from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

import greedypig as gp

MODELS = (None, LogisticRegression(), LinearRegression())


@parametrize_with_checks([gp.FeatureSelector(model) for model in MODELS])  # type: ignore[untyped-decorator]
def test_estimator(estimator: Any, check: Any) -> None:
    """One of the checks."""
    check(estimator)
