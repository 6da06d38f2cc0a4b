"""scikit-learn: post-hoc feature selection as a transformer.

selector = gp.FeatureSelector(model, k=10).fit(X, y)
selector.get_support(), selector.ranking_, selector.transform(X)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import date, timedelta
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..core.errors import InvalidInput, InvalidType, MissingPackage, quoted
from ..domains.table.losses import CLASSES
from ..fingerprint import modules_behind
from ..frozen import freeze
from ..selection import select_features
from .sklearn_models import CHECKED, as_module, same_answers

try:
    from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier, is_regressor
    from sklearn.exceptions import ConvergenceWarning, NotFittedError
    from sklearn.feature_selection import SelectorMixin
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.utils.multiclass import type_of_target
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingPackage(
        "Expected the package scikit-learn ≥ 1.6 for gp.FeatureSelector (it is not installed). "
        'Try pip install "greedypig[sklearn]".'
    ) from error

DISCRETE = ("binary", "multiclass")
ENTROPIES = ("cross-entropy", "binary-cross-entropy")
ENCODINGS = {"text": "OneHotEncoder for text", "dates": "days since a fixed date for dates"}
"""What makes numbers of columns that hold something else."""
Array = NDArray[Any]


class FeatureSelector(SelectorMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Keep the k columns that a model really uses, found by Greedy PIG without retraining.

    One-shot importances give every copy of a good column a place; this takes a column, fixes it,
    and asks again.

    Parameters:
        model: a trained torch module or any callable from (rows, columns) to outputs; or a
            scikit-learn multi-layer perceptron, logistic regression or linear regressor, alone or
            behind scalers in a Pipeline. One that is not fitted is cloned and fitted to (X, y):
            so are the clones that Pipeline and GridSearchCV make of a fitted one. None fits a
            perceptron on standardised columns: a classifier to text and to at most 50 different
            whole numbers, else a regressor; a named loss decides instead.
        k: how many columns to keep; a share of them as a float below 1; None keeps half, at
            least one. More than there are keeps all, with a warning.
        steps: points of a round's integral.
        loss: "auto", or one of `gp.select_features`, or a callable.
        outputs: "probabilities" for a torch model that ends in a sigmoid or a softmax.
        method, baseline, budget: as in `gp.select_features`. "mean" is the mean of the column,
            which is the zero of standardised ones; "conditional" keeps copies of what is selected
            from coming again.
        batch_size: rows at a time.
        max_rows: `partial_fit` keeps a uniform sample of at most so many rows.
        seed: of everything random.

    After fit:
        support_: which columns are kept. ranking_: 1 for the first pick, 2 for the second, … for
        all columns. scores_: the score each column had when it was picked, 0 if it was not.
        scores_path_: G(∅), then G after each pick, G = −loss. attribution_: the whole result.
        model_: the model that was asked. n_features_in_, feature_names_in_ as everywhere.
    """

    def __init__(
        self,
        model: Any = None,
        k: int | float | None = None,
        *,
        steps: int | None = None,
        loss: str | Callable[..., Any] = "auto",
        outputs: str = "logits",
        method: str = "greedy-pig",
        baseline: Any = "mean",
        budget: int | None = None,
        batch_size: int = 512,
        max_rows: int = 100_000,
        seed: int = 0,
    ) -> None:
        self.model = model
        self.k = k
        self.steps = steps
        self.loss = loss
        self.outputs = outputs
        self.method = method
        self.baseline = baseline
        self.budget = budget
        self.batch_size = batch_size
        self.max_rows = max_rows
        self.seed = seed

    def fit(self, X: Any, y: Any) -> FeatureSelector:
        """Select on these rows."""
        X, y = self._checked(X, y)
        self._reservoir: _Reservoir | None = None
        self._waits: str | None = None
        return self._select(X, y)

    def partial_fit(self, X: Any, y: Any) -> FeatureSelector:
        """Select anew on these rows and a uniform sample of those seen before.

        At most `max_rows` rows are kept. A part without rows is skipped. A classifier that cannot
        be fitted to a single class waits, with a warning, for rows of another. For streams of any
        length with a trained model use `gp.select_features`, which keeps none.
        """
        kept: _Reservoir | None = getattr(self, "_reservoir", None)
        X, y = self._checked(X, y, reset=kept is None, ensure_min_samples=0)
        if kept is None:
            kept = self._reservoir = _Reservoir(_count("max_rows", self.max_rows), self.seed)
        if not len(X):
            return self
        try:
            return self._select(*kept.add(X, y))
        except _OneClass as error:
            if hasattr(self, "support_"):  # Of an earlier fit.
                del self.support_
            self._waits = f"{error} Try partial_fit with rows of another class."
            warnings.warn(f"{error} They are kept: the selection waits for another class.",
                          UserWarning, stacklevel=2)  # fmt: skip
            return self

    def _checked(self, X: Any, y: Any, **how: Any) -> tuple[Array, Array]:
        """Rows and labels as arrays, or an error that names the columns that hold no numbers."""
        try:
            X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], **how)
        except (TypeError, ValueError) as error:
            if not (odd := _odd_columns(X)):
                raise
            got = " and ".join(f"{kind} in {quoted(names)}" for kind, names in odd.items())
            ways = " and ".join(ENCODINGS[kind] for kind in odd)
            raise (InvalidType if isinstance(error, TypeError) else InvalidInput)(
                f"Expected columns of numbers (got {got}). Try {ways}, or leave such columns out."
            ) from error
        return X, y

    def _select(self, X: Array, y: Array) -> FeatureSelector:
        columns = X.shape[1]
        k = self._wanted(columns)
        self.model_ = self._asked(X, y)
        question = _Question.of(self.model_, X, y, self.loss)
        size = _count("batch_size", self.batch_size)
        batches = [
            (question.rows[lo : lo + size], question.labels[lo : lo + size])
            for lo in range(0, len(X), size)
        ]
        self.attribution_ = a = select_features(
            question.network, batches, loss=question.loss, outputs=self.outputs, k=k,
            steps=self.steps, method=self.method, baseline=self.baseline, budget=self.budget,
            names=getattr(self, "feature_names_in_", None), seed=self.seed, values="end",
        )  # fmt: skip
        order = a.order.numpy()
        self.ranking_ = np.empty(columns, dtype=np.int64)
        self.ranking_[order] = np.arange(1, columns + 1)
        self.support_ = self.ranking_ <= k
        self.scores_ = a.unit_scores.numpy()
        self.scores_path_ = a.values.numpy()
        return self

    def _wanted(self, columns: int) -> int:
        k = self.k
        if k is None:
            return max(1, columns // 2)
        if isinstance(k, bool) or not isinstance(k, Real) or not k > 0:
            raise InvalidInput(f"Expected k as a number of columns or a share of them (got {k!r}).")
        if not isinstance(k, Integral):
            if k >= 1:
                raise InvalidInput(f"Expected k as a whole number or a share below 1 (got {k!r}).")
            return max(1, int(k * columns))
        if k > columns:
            warnings.warn(f"k = {k} is more than the {columns} columns there are: all are kept.",
                          UserWarning, stacklevel=3)  # fmt: skip
        return min(int(k), columns)

    def _asked(self, X: Array, y: Array) -> Any:
        """The trained model: the given one, or one fitted here."""
        model = self.model
        if model is None:
            return self._perceptron(X, y)
        if not hasattr(model, "fit") or isinstance(model, nn.Module):
            return model
        try:
            check_is_fitted(model)
        except NotFittedError:
            model = clone(model)
        else:
            return model
        try:
            return model.fit(X, y)
        except ValueError as error:
            if not is_classifier(model) or len(np.unique(y)) > 1:
                raise
            raise _OneClass(
                f"Expected rows of at least two classes to fit the model (got {len(y):,} of one)."
            ) from error

    def _perceptron(self, X: Array, y: Array) -> Any:
        """A network of standardised columns, for classes or for a number."""
        classes = self.loss in ENTROPIES or (self.loss != "squared-error" and _are_classes(y))
        made = (MLPClassifier if classes else MLPRegressor)(random_state=self.seed)
        line = make_pipeline(StandardScaler(), made)
        with warnings.catch_warnings():  # One that has not converged has columns it uses, too.
            warnings.simplefilter("ignore", ConvergenceWarning)
            if classes:
                return line.fit(X, y)
            # A number far from 0 is hardly learnt; the last layer takes it back to its own scale.
            y = np.asarray(y, np.float64)
            mean, deviation = y.mean(), y.std() or 1.0
            line.fit(X, (y - mean) / deviation)
        made.coefs_[-1] = made.coefs_[-1] * deviation
        made.intercepts_[-1] = made.intercepts_[-1] * deviation + mean
        return line

    def _get_support_mask(self) -> Array:
        check_is_fitted(self, "support_", msg=getattr(self, "_waits", None))
        mask: Array = self.support_
        return mask

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = False
        tags.input_tags.allow_nan = False
        return tags


class _OneClass(InvalidInput):
    """A classifier cannot be fitted to the rows so far; it may be to more of them."""


class _Question:
    """A model in torch, with rows and labels as it wants them, and the loss between them."""

    def __init__(self, network: Any, rows: Tensor, labels: Tensor, loss: Any) -> None:
        self.network, self.rows, self.labels, self.loss = network, rows, labels, loss

    @staticmethod
    def of(model: Any, X: Array, y: Array, loss: Any) -> _Question:
        if isinstance(model, nn.Module) or not hasattr(model, "fit"):
            network, classes = model, None
        else:
            network = same_answers(as_module(model, X.shape[1]), model, X[:CHECKED])
            classes = getattr(model, "classes_", None)
        rows = torch.from_numpy(np.array(X)).to(_dtype_of(network))
        outputs = _outputs(network, rows[:1])
        if isinstance(loss, str) and loss == "auto":
            # Labels of 0 and 1 are numbers to a regressor.
            number = hasattr(model, "fit") and is_regressor(model)
            loss = "squared-error" if number else _loss(y, outputs, classes)
        elif classes is not None and outputs == 1 and loss == "cross-entropy":
            loss = "binary-cross-entropy"  # scikit-learn has one logit for two classes.
        return _Question(network, rows, _labels(y, loss, outputs, classes), loss)


def _dtype_of(network: Any) -> torch.dtype:
    tensors = [t for m in modules_behind(network) for t in (*m.parameters(), *m.buffers())]
    found = [t.dtype for t in tensors if t.is_floating_point()]
    # A function may convert the rows for the modules it calls, unless all of them are alike.
    alike = isinstance(network, nn.Module) or set(found) == {torch.float64}
    return found[0] if found and alike else torch.float32


def _outputs(network: Any, row: Tensor) -> int:
    """How many numbers the model answers a row with."""
    with torch.no_grad():
        found = freeze(network)(row)
    if not isinstance(found, Tensor) or found.dim() not in (1, 2) or found.shape[0] != 1:
        got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise InvalidInput(f"Expected one row of outputs for one row of columns (got {got}).")
    return 1 if found.dim() == 1 else found.shape[1]


def _are_classes(y: Array) -> bool:
    """Text, or as few different whole numbers as `greedypig select` takes for classes."""
    few = y.dtype.kind not in "iuf" or len(np.unique(y)) <= CLASSES
    return few and type_of_target(y) in DISCRETE


def _loss(y: Array, outputs: int, classes: Array | None) -> str:
    # A model of many outputs may know more classes than one would take numbers for.
    discrete = classes is not None or type_of_target(y) in DISCRETE
    if discrete and outputs > 1:
        return "cross-entropy"
    if discrete and (classes is not None or len(np.unique(y)) <= 2):
        return "binary-cross-entropy"
    return "squared-error"


def _labels(y: Array, loss: Any, outputs: int, classes: Array | None) -> Tensor:
    """Numbers as they are; classes by their place among the model's."""
    if loss not in ENTROPIES:
        return torch.from_numpy(np.array(y, np.float64))  # Those of frames are read-only.
    places = 2 if loss == "binary-cross-entropy" else outputs
    if classes is None:
        numbers = np.issubdtype(y.dtype, np.number)
        if numbers and bool(((y >= 0) & (y < places) & (y == np.round(y))).all()):
            return torch.from_numpy(y.astype(np.int64))
        classes = np.unique(y)
    if len(classes) > places or not np.isin(y, classes).all():
        raise InvalidInput(
            f"Expected labels among the model's {places} classes "
            f"(got {', '.join(map(str, np.unique(y)[:5]))})."
        )
    return torch.from_numpy(np.searchsorted(classes, y))


def _odd_columns(X: Any) -> dict[str, list[str]]:
    """The names (or places) of columns of text and of dates."""
    is_table = hasattr(X, "columns") or isinstance(X, np.ndarray)
    table = X if is_table else np.asarray(X, dtype=object)
    found: dict[str, list[str]] = {}
    if len(table.shape) == 2:
        for place, name in enumerate(getattr(table, "columns", range(table.shape[1]))):
            if kind := _kind(getattr(table, "iloc", table)[:, place]):
                found.setdefault(kind, []).append(str(name))
    return found


def _kind(column: Any) -> str | None:
    if getattr(column.dtype, "kind", "O") in "biufc":
        return None
    cells = np.asarray(column)
    if cells.dtype.kind in "mM":
        return "dates"
    try:
        cells.astype(np.float64)
    except (TypeError, ValueError):
        kinds = {"text": (str, bytes), "dates": (date, timedelta)}
        return next((k for k, t in kinds.items() if any(isinstance(c, t) for c in cells)), None)
    return None


class _Reservoir:
    """A uniform sample of the rows seen so far."""

    def __init__(self, most: int, seed: int) -> None:
        self.most, self.seen = most, 0
        self.random = np.random.default_rng(seed)
        self.X: Array | None = None
        self.y: Array | None = None

    def add(self, X: Array, y: Array) -> tuple[Array, Array]:
        """The sample with these rows in the lottery, too."""
        room = max(0, self.most - self.seen)
        if self.X is None or self.y is None:
            self.X, self.y = X[:room].copy(), y[:room].copy()
        else:
            self.X = np.concatenate([self.X, X[:room]])
            self.y = np.concatenate([self.y, y[:room]])
        number = np.arange(self.seen, self.seen + len(X))[room:]
        # Row t replaces a kept one with probability most / (t + 1).
        places = self.random.integers(0, number + 1)
        lucky = places < self.most
        self.X[places[lucky]], self.y[places[lucky]] = X[room:][lucky], y[room:][lucky]
        self.seen += len(X)
        return self.X, self.y


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InvalidInput(f"Expected {name} to be a whole number ≥ 1 (got {value!r}).")
    return int(value)


__all__ = ["FeatureSelector"]
