"""scikit-learn: post-hoc feature selection as a transformer.

selector = gp.FeatureSelector(model, n_features_to_select=10).fit(X, y)
selector.get_support(), selector.order_, selector.transform(X)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from copy import copy
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..core.errors import InvalidInput, MissingPackage
from ..core.numbers import check_count, whole
from ..network.frozen import freeze
from ..tables.api import select_features
from ..tables.losses import CLASSES
from ..tensors.targets import levels_to_caller
from .sklearn_models import convert

try:
    from sklearn import config_context
    from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
    from sklearn.exceptions import ConvergenceWarning, NotFittedError
    from sklearn.feature_selection import SelectorMixin
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.utils import check_random_state, get_tags
    from sklearn.utils.multiclass import type_of_target
    from sklearn.utils.validation import (
        _check_sample_weight,
        check_is_fitted,
        has_fit_parameter,
        validate_data,
    )
except ImportError as error:
    raise MissingPackage(
        "Expected the package scikit-learn ≥ 1.6 for gp.FeatureSelector (it is not installed). "
        'Try pip install "greedypig[sklearn]".'
    ) from error

DISCRETE = ("binary", "multiclass")
WEIGHT = "sample_weight"
ENTROPIES = ("cross-entropy", "binary-cross-entropy")
Array = NDArray[Any]


class FeatureSelector(SelectorMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Select the columns that a model really uses, by Greedy PIG, without retraining.

    One-shot importances rank every copy of a good column high. Greedy PIG selects one column a
    round and computes the scores of the others anew.

    Parameters:
        model: a trained torch module or any callable from (rows, columns) to outputs; or a linear
            model or multi-layer perceptron of scikit-learn, alone or after scalers in a Pipeline.
            One that is not fitted is cloned and fitted to (X, y): so are the clones that Pipeline
            and GridSearchCV make of a fitted one. None fits a perceptron on standardised columns:
            a classifier to text and to at most 50 different whole numbers, else a regressor; a
            named loss decides instead.
        n_features_to_select: how many columns to select; a share of them as a float below 1; None
            selects half, at least one. More than there are selects all, with a warning.
        loss: "auto", or one of `gp.select_features`, or a callable. "auto" is cross-entropy for
            classifiers with probabilities, the margin loss that other classifiers were trained
            with (LinearSVC: hinge or squared hinge; RidgeClassifier: squared error of ±1), and
            squared error for regressors.
        outputs: "probabilities" for a torch model that ends in a sigmoid or a softmax.
        method, stop, baseline, budget: as in `gp.select_features`. "mean" is the mean of the
            column, which is the zero of standardised ones; with "conditional" copies of selected
            columns are not selected.
        batch_size: rows at a time. Sparse rows are made dense only a batch at a time.
        max_rows: `partial_fit` keeps a uniform sample of at most so many rows.
        random_state: an int, a RandomState or None (new numbers at every fit). It also seeds
            models fitted here that have no random_state of their own.

    After fit:
        support_: which columns are selected. ranking_: 1 for all that are, then 2, 3, … for the
        others, as in RFE. order_: all columns, best first, the selected ones as they were picked.
        scores_: the score each column had when it was picked, 0 if it was not. scores_path_: G(∅),
        then G after each pick, G = −loss. attribution_: the whole result. model_: the model that
        was used. n_features_in_, feature_names_in_ as everywhere.
    """

    def __init__(
        self,
        model: Any = None,
        n_features_to_select: int | float | None = None,
        *,
        loss: str | Callable[..., Any] = "auto",
        outputs: str = "logits",
        method: Any = None,
        stop: Any = None,
        baseline: Any = "mean",
        budget: int | None = None,
        batch_size: int = 512,
        max_rows: int = 100_000,
        random_state: Any = 0,
    ) -> None:
        self.model = model
        self.n_features_to_select = n_features_to_select
        self.loss = loss
        self.outputs = outputs
        self.method = method
        self.stop = stop
        self.baseline = baseline
        self.budget = budget
        self.batch_size = batch_size
        self.max_rows = max_rows
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> FeatureSelector:
        """Select on these rows.

        sample_weight: (rows,) how much each row counts in the loss, and in fitting a model that is
        not fitted; an integer weight w counts as w copies of the row.
        """
        rows = self._checked(X, y, sample_weight)
        self._sample: _Sample | None = None
        return self._select(rows, None)

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> FeatureSelector:
        """Select anew on these rows and a uniform sample of those seen before.

        classes: all classes that labels may have. In sorted order they are the outputs of a torch
        model. They are needed once, and only if the first rows lack some.
        At most `max_rows` rows are kept. For streams of any length with a trained model use
        `gp.select_features`, which keeps none.
        """
        sample: _Sample | None = getattr(self, "_sample", None)
        rows = self._checked(X, y, sample_weight, reset=sample is None)
        if sample is None:
            check_count("max_rows", whole(self.max_rows))
            sample = _Sample(whole(self.max_rows), _seed(self.random_state))
        sample = sample.with_rows(rows, classes)
        self._select(sample.rows, sample.classes)
        self._sample = sample
        return self

    def _checked(self, X: Any, y: Any, sample_weight: Any, reset: bool = True) -> _Rows:
        """Rows that count."""
        types = [np.float64, np.float32]
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=types, reset=reset)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weights.any():
            raise InvalidInput("Expected a row with sample_weight above 0 (got none).")
        return _Rows(X, y, weights).at(weights > 0)

    def _select(self, rows: _Rows, classes: Array | None) -> FeatureSelector:
        """classes: those of the labels, where the caller has named them."""
        columns, seed, size = rows.X.shape[1], _seed(self.random_state), whole(self.batch_size)
        check_count("batch_size", size)
        k = self._wanted(columns)
        self.model_ = self._trained(rows, seed, classes)
        network, loss, batches = _question(
            self.model_, _Batches(rows, size, seed), self.loss, classes
        )
        self.attribution_ = a = select_features(
            network,
            batches,
            loss=loss,
            outputs=self.outputs,
            k=k,
            method=self.method,
            stop=self.stop,
            baseline=self.baseline,
            budget=self.budget,
            names=getattr(self, "feature_names_in_", None),
            seed=seed,
        )
        self.order_ = a.order.numpy()
        self.ranking_ = np.ones(columns, dtype=np.int64)
        self.ranking_[self.order_[a.selected :]] = np.arange(2, columns - a.selected + 2)
        self.support_ = self.ranking_ == 1
        self.scores_ = a.unit_scores.numpy()
        self.scores_path_ = a.values.numpy()
        return self

    def _wanted(self, columns: int) -> int:
        """How many columns to select."""
        wanted = self.n_features_to_select
        if wanted is None:
            return max(1, columns // 2)
        if isinstance(wanted, Real) and not isinstance(wanted, Integral) and 0 < wanted < 1:
            return max(1, int(wanted * columns))
        if isinstance(wanted, bool) or not isinstance(wanted, Integral) or wanted < 1:
            raise InvalidInput(
                "Expected n_features_to_select as a whole number ≥ 1 or a share below 1 "
                f"(got {wanted!r})."
            )
        if wanted > columns:
            warnings.warn(
                f"n_features_to_select = {wanted} is more than the {columns} columns there are: "
                "all are selected.",
                stacklevel=levels_to_caller(),
            )
        return min(int(wanted), columns)

    def _trained(self, rows: _Rows, seed: int, classes: Array | None) -> Any:
        """The trained model: the given one, or one fitted here."""
        if self.model is None:
            return self._perceptron(rows, seed, classes)
        if not _is_estimator(self.model):
            return self.model
        try:
            check_is_fitted(self.model)
        except NotFittedError:
            model = clone(self.model)
        else:
            return self.model
        for name, value in model.get_params(deep=True).items():
            if value is None and name.split("__")[-1] == "random_state":
                model.set_params(**{name: seed})
        return _fitted(model, rows)

    def _perceptron(self, rows: _Rows, seed: int, classes: Array | None) -> Any:
        """A network of standardised columns, for classes or for a number."""
        known = classes is not None or _are_classes(rows.y)
        discrete = self.loss in ENTROPIES or (self.loss != "squared-error" and known)
        network = (MLPClassifier if discrete else MLPRegressor)(random_state=seed)
        model = make_pipeline(StandardScaler(with_mean=not _is_sparse(rows.X)), network)
        with warnings.catch_warnings():
            # A network that has not converged has columns it uses, too.
            warnings.simplefilter("ignore", ConvergenceWarning)
            if discrete:
                return _fitted(model, rows)
            # A number far from 0 is hardly learnt; the last layer takes it back to its own scale.
            y = np.asarray(rows.y, np.float64)
            mean = np.average(y, weights=rows.weights)
            deviation = np.sqrt(np.average((y - mean) ** 2, weights=rows.weights)) or 1.0
            _fitted(model, rows._replace(y=(y - mean) / deviation))
        network.coefs_[-1] = network.coefs_[-1] * deviation
        network.intercepts_[-1] = network.intercepts_[-1] * deviation + mean
        return model

    def _get_support_mask(self) -> Array:
        check_is_fitted(self, "support_")
        mask: Array = self.support_
        return mask

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = False
        own = get_tags(self.model) if hasattr(self.model, "__sklearn_tags__") else None
        tags.input_tags.sparse = own is None or own.input_tags.sparse
        if own is not None:
            tags.input_tags.positive_only = own.input_tags.positive_only
            tags.target_tags.positive_only = own.target_tags.positive_only
        return tags


class _Rows(NamedTuple):
    """Rows that were checked."""

    X: Any
    """(rows, columns): an array, or sparse rows."""
    y: Array
    weights: Array
    """(rows,), all above 0."""

    @property
    def weighted(self) -> bool:
        """Do some rows count more than others?"""
        return bool((self.weights != 1).any())

    def at(self, index: Array) -> _Rows:
        """Some of the rows."""
        return _Rows(self.X[index], self.y[index], self.weights[index])

    def joined(self, other: _Rows) -> _Rows:
        """The rows of both."""
        if _is_sparse(self.X) or _is_sparse(other.X):
            from scipy.sparse import vstack

            X = vstack([self.X, other.X], format="csr")
        else:
            X = np.concatenate([self.X, other.X])
        y, weights = (np.concatenate([self[i], other[i]]) for i in (1, 2))
        return _Rows(X, y, weights)


class _Sample:
    """A uniform sample of the rows seen so far: those with the smallest random keys."""

    rows: _Rows

    def __init__(self, most: int, seed: int) -> None:
        self.most, self.random = most, np.random.default_rng(seed)
        self.keys: Array = np.empty(0)
        self.classes: Array | None = None
        """All classes that labels may have, sorted; None where that is not known."""

    def with_rows(self, rows: _Rows, classes: Any = None) -> _Sample:
        """The sample after these rows had their chance to be in it."""
        sample = copy(self)
        if classes is not None:
            sample.classes = np.unique(np.asarray(classes))
            if self.classes is not None and not np.array_equal(self.classes, sample.classes):
                raise InvalidInput(
                    f"Expected the classes of the first call, {', '.join(map(str, self.classes))} "
                    f"(got {', '.join(map(str, sample.classes))})."
                )
        rows = self.rows.joined(rows) if len(self.keys) else rows
        keys = np.concatenate([self.keys, self.random.random(len(rows.y) - len(self.keys))])
        smallest = np.sort(np.argsort(keys)[: self.most])  # In the order in which they came.
        sample.rows, sample.keys = rows.at(smallest), keys[smallest]
        return sample


class _Batches:
    """Batches by their number. Rows are shuffled, as sorted ones would make batches of one class,
    and sparse ones are made dense a batch at a time."""

    def __init__(
        self, rows: _Rows, size: int, seed: int, dtype: torch.dtype = torch.float64
    ) -> None:
        self.rows, self.size, self.seed, self.dtype = rows, size, seed, dtype
        self.weighted = rows.weighted
        self.order = np.random.default_rng(seed).permutation(len(rows.y))

    def __len__(self) -> int:
        return -(-len(self.order) // self.size)

    def __getitem__(self, number: int) -> tuple[Tensor, ...]:
        rows = self._rows(number)
        batch = torch.from_numpy(rows.X).to(self.dtype), torch.from_numpy(rows.y)
        return (*batch, torch.from_numpy(rows.weights)) if self.weighted else batch

    def features(self) -> Iterator[Array]:
        """(rows, columns) of each batch, float64."""
        return (self._rows(number).X.astype(np.float64) for number in range(len(self)))

    def _rows(self, number: int) -> _Rows:
        """The rows of a batch, dense."""
        places = self.order[number * self.size : (number + 1) * self.size]
        rows = self.rows.at(np.sort(places))
        return rows._replace(X=rows.X.toarray()) if _is_sparse(rows.X) else rows


def _is_sparse(X: Any) -> bool:
    return hasattr(X, "toarray")


def _is_estimator(model: Any) -> bool:
    return hasattr(model, "fit") and not isinstance(model, nn.Module)


def _question(
    model: Any, batches: _Batches, loss: Any, classes: Array | None
) -> tuple[Any, Any, _Batches]:
    """The model in torch, the loss, and batches with rows and labels as the two take them."""
    network, own_loss, y = model, None, batches.rows.y
    if _is_estimator(model):
        network, own_loss = convert(model, batches.features)
        classes = getattr(model, "classes_", None)
    dtype = next((p.dtype for p in getattr(network, "parameters", tuple)()), torch.float32)
    outputs = _outputs(network, torch.from_numpy(next(batches.features())[:1]).to(dtype))
    if isinstance(loss, str) and loss == "auto":
        loss = own_loss or _loss(y, outputs, classes)
    if classes is not None and outputs == 1 and loss == "cross-entropy":
        loss = "binary-cross-entropy"  # scikit-learn has one logit for two classes.
    entropy = isinstance(loss, str) and loss in ENTROPIES
    if entropy or (classes is not None and loss != "squared-error"):
        labels = _places(y, max(2, outputs), classes)
    else:
        labels = np.array(y, np.float64)  # A copy: those of frames are read-only.
    rows = batches.rows._replace(y=labels)
    return network, loss, _Batches(rows, batches.size, batches.seed, dtype)


def _outputs(network: Any, row: Tensor) -> int:
    """How many numbers the model answers a row with."""
    with torch.no_grad():
        outputs = freeze(network)(row)
    if not isinstance(outputs, Tensor) or outputs.dim() not in (1, 2) or len(outputs) != 1:
        got = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise InvalidInput(f"Expected one row of outputs for one row of columns (got {got}).")
    return outputs.numel()


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


def _places(y: Array, count: int, classes: Array | None) -> Array:
    """Labels by their place among the model's classes, of which there are so many."""
    if classes is None:
        if y.dtype.kind in "biuf" and bool(((y >= 0) & (y < count) & (y == np.round(y))).all()):
            return y.astype(np.int64)
        classes = np.unique(y)
        if len(classes) < count:
            raise InvalidInput(
                f"Expected labels of all the model's {count} classes (got {len(classes)}). Try "
                "labels 0, 1, … in the order of the model's outputs, partial_fit with classes=, or "
                "for numbers loss='squared-error'."
            )
    if len(classes) > count or not np.isin(y, classes).all():
        raise InvalidInput(
            f"Expected labels among the model's {count} classes "
            f"(got {', '.join(map(str, np.unique(y)[:5]))})."
        )
    return np.searchsorted(classes, y)


def _seed(random_state: Any) -> int:
    """The number itself, or one drawn from a RandomState."""
    random = check_random_state(random_state)
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(random.randint(np.iinfo(np.int32).max))


def _fitted(model: Any, rows: _Rows) -> Any:
    """The model, fitted to the rows; weights go to all its steps that take them."""
    steps = list(_named_steps(model)) if rows.weighted else []
    takers = [n for n, step in steps if hasattr(step, "fit") and has_fit_parameter(step, WEIGHT)]
    if steps and steps[-1][0] not in takers:
        warnings.warn(
            f"{type(steps[-1][1]).__name__} takes no sample_weight. It is fitted without weights, "
            "and they count in the selection alone.",
            stacklevel=levels_to_caller(),
        )
    with config_context(enable_metadata_routing=False):
        return model.fit(rows.X, rows.y, **{f"{name}{WEIGHT}": rows.weights for name in takers})


def _named_steps(model: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The estimators of pipelines and searches, each behind what its fit parameters begin with."""
    model = getattr(model, "estimator", model)  # Of a search.
    if not hasattr(model, "steps"):
        yield prefix, model
        return
    for name, step in model.steps:
        yield from _named_steps(step, f"{prefix}{name}__")


__all__ = ["FeatureSelector"]
