"""scikit-learn: post-hoc feature selection as a transformer.

selector = gp.FeatureSelector(model, n_features_to_select=10).fit(X, y)
selector.get_support(), selector.order_, selector.transform(X)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..core.errors import InvalidInput, InvalidType, MissingPackage, quoted
from ..network.frozen import freeze
from ..network.reach import modules_behind
from ..tables.api import select_features
from ..tables.losses import CLASSES
from ..tensors.targets import levels_to_caller
from .sklearn_models import convert

try:
    from sklearn import config_context, get_config
    from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
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
ENTROPIES = ("cross-entropy", "binary-cross-entropy")
ENCODINGS = {"text": "OneHotEncoder for text", "dates": "days since a fixed date for dates"}
"""What makes numbers of columns that hold something else."""
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
        self._reservoir: _Reservoir | None = None
        self._waits: str | None = None
        return self._select(rows)

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> FeatureSelector:
        """Select anew on these rows and a uniform sample of those seen before.

        classes: all classes that labels may have. In sorted order they are the outputs of a torch
        model. They are needed once, and only if the first rows lack some.
        At most `max_rows` rows are kept. A part without rows is skipped. A classifier that cannot
        be fitted to a single class waits, with a warning, for rows of another. For streams of any
        length with a trained model use `gp.select_features`, which keeps none.
        """
        kept: _Reservoir | None = getattr(self, "_reservoir", None)
        rows = self._checked(X, y, sample_weight, reset=kept is None, ensure_min_samples=0)
        if kept is None:
            seed = _seed(self.random_state)
            kept = self._reservoir = _Reservoir(_count("max_rows", self.max_rows), seed)
        kept.expect(classes)
        if not len(rows.y):
            return self
        try:
            return self._select(kept.add(rows), kept.classes)
        except _OneClass as error:
            if hasattr(self, "support_"):  # Of an earlier fit.
                del self.support_
            self._waits = f"{error} Try partial_fit with rows of another class."
            warnings.warn(f"{error} They are kept: the selection waits for another class.",
                          UserWarning, stacklevel=levels_to_caller())  # fmt: skip
            return self

    def _checked(self, X: Any, y: Any, sample_weight: Any, **how: Any) -> _Rows:
        """Rows that count, or an error that names the columns that hold no numbers."""
        try:
            X, y = validate_data(
                self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], **how
            )
        except (TypeError, ValueError) as error:
            if not (odd := _odd_columns(X)):
                raise
            got = " and ".join(f"{kind} in {quoted(names)}" for kind, names in odd.items())
            ways = " and ".join(ENCODINGS[kind] for kind in odd)
            raise (InvalidType if isinstance(error, TypeError) else InvalidInput)(
                f"Expected columns of numbers (got {got}). Try {ways}, or leave such columns out."
            ) from error
        if sample_weight is None or not len(y):
            return _Rows(X, y)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        counts = weights > 0
        if not counts.any():
            raise InvalidInput("Expected a row with sample_weight above 0 (got none).")
        return _Rows(X[counts], y[counts], weights[counts])

    def _select(self, rows: _Rows, classes: Array | None = None) -> FeatureSelector:
        columns = rows.X.shape[1]
        k = self._wanted(columns)
        seed = _seed(self.random_state)
        self.model_ = self._trained(rows, seed, classes)
        batches = _Batches(rows, _count("batch_size", self.batch_size), seed)
        question = _Question.of(self.model_, batches, self.loss, classes)
        self.attribution_ = a = select_features(
            question.network, question.batches, loss=question.loss, outputs=self.outputs, k=k,
            method=self.method, stop=self.stop, baseline=self.baseline, budget=self.budget,
            names=getattr(self, "feature_names_in_", None), seed=seed,
        )  # fmt: skip
        self.order_ = a.order.numpy()
        self.ranking_ = np.ones(columns, dtype=np.int64)
        self.ranking_[self.order_[a.selected :]] = np.arange(2, columns - a.selected + 2)
        self.support_ = self.ranking_ == 1
        self.scores_ = a.unit_scores.numpy()
        self.scores_path_ = a.values.numpy()
        return self

    def _wanted(self, columns: int) -> int:
        wanted = self.n_features_to_select
        if wanted is None:
            return max(1, columns // 2)
        if isinstance(wanted, bool) or not isinstance(wanted, Real) or not wanted > 0:
            raise InvalidInput(
                "Expected n_features_to_select as a number of columns or a share of them "
                f"(got {wanted!r})."
            )
        if not isinstance(wanted, Integral):
            if wanted >= 1:
                raise InvalidInput(
                    "Expected n_features_to_select as a whole number or a share below 1 "
                    f"(got {wanted!r})."
                )
            return max(1, int(wanted * columns))
        if wanted > columns:
            warnings.warn(f"n_features_to_select = {wanted} is more than the {columns} columns "
                          "there are: all are selected.", UserWarning,
                          stacklevel=levels_to_caller())  # fmt: skip
        return min(int(wanted), columns)

    def _trained(self, rows: _Rows, seed: int, classes: Array | None) -> Any:
        """The trained model: the given one, or one fitted here."""
        model = self.model
        if model is None:
            return self._perceptron(rows, seed, classes)
        if not hasattr(model, "fit") or isinstance(model, nn.Module):
            return model
        try:
            check_is_fitted(model)
        except NotFittedError:
            model = _seeded(clone(model), seed)
        else:
            return model
        try:
            return model.fit(rows.X, rows.y, **_weights_for(model, rows.weights))
        except ValueError as error:
            if not is_classifier(model) or len(np.unique(rows.y)) > 1:
                raise
            raise _OneClass(
                "Expected rows of at least two classes to fit the model "
                f"(got one class in {len(rows.y):,} rows)."
            ) from error

    def _perceptron(self, rows: _Rows, seed: int, classes: Array | None) -> Any:
        """A network of standardised columns, for classes or for a number."""
        known = classes is not None or _are_classes(rows.y)
        discrete = self.loss in ENTROPIES or (self.loss != "squared-error" and known)
        made = (MLPClassifier if discrete else MLPRegressor)(random_state=seed)
        line = make_pipeline(StandardScaler(with_mean=not _is_sparse(rows.X)), made)
        with warnings.catch_warnings(), config_context(enable_metadata_routing=False):
            # A network that has not converged has columns it uses, too.
            warnings.simplefilter("ignore", ConvergenceWarning)
            weights = _weights_for(line, rows.weights)
            if discrete:
                return line.fit(rows.X, rows.y, **weights)
            # A number far from 0 is hardly learnt; the last layer takes it back to its own scale.
            y = np.asarray(rows.y, np.float64)
            mean = np.average(y, weights=rows.weights)
            deviation = np.sqrt(np.average((y - mean) ** 2, weights=rows.weights)) or 1.0
            line.fit(rows.X, (y - mean) / deviation, **weights)
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
        tags.input_tags.allow_nan = False
        own = get_tags(self.model) if hasattr(self.model, "__sklearn_tags__") else None
        tags.input_tags.sparse = own is None or own.input_tags.sparse
        if own is not None:
            tags.input_tags.positive_only = own.input_tags.positive_only
            tags.target_tags.positive_only = own.target_tags.positive_only
        return tags


class _OneClass(InvalidInput):
    """A classifier cannot be fitted to the rows so far; it may be to more of them."""


class _Rows(NamedTuple):
    """Rows that were checked."""

    X: Any
    """(rows, columns): an array, or sparse rows."""
    y: Array
    weights: Array | None = None
    """(rows,), all above 0; None where all rows count alike."""


class _Batches:
    """Batches by their number. Rows are shuffled, as sorted ones would make batches of one class,
    and sparse ones are made dense a batch at a time."""

    def __init__(self, rows: _Rows, size: int, seed: int) -> None:
        self.rows, self.size = rows, size
        self.order = np.random.default_rng(seed).permutation(len(rows.y))
        self.labels: Tensor | None = None
        self.dtype = torch.float64

    def __len__(self) -> int:
        return -(-len(self.order) // self.size)

    def __getitem__(self, number: int) -> tuple[Tensor, ...]:
        assert self.labels is not None
        at = self._at(number)
        batch = torch.from_numpy(self._dense(at)).to(self.dtype), self.labels[at]
        weights = self.rows.weights
        return batch if weights is None else (*batch, torch.from_numpy(weights[at]))

    def features(self) -> Iterator[Array]:
        """(rows, columns) of each batch, float64."""
        return (self._dense(self._at(number)).astype(np.float64) for number in range(len(self)))

    def _at(self, number: int) -> Array:
        return np.sort(self.order[number * self.size : (number + 1) * self.size])

    def _dense(self, at: Array) -> Array:
        found = self.rows.X[at]
        dense: Array = found.toarray() if _is_sparse(found) else found
        return dense


class _Question:
    """A model in torch, batches of rows and labels as it takes them, and the loss."""

    def __init__(self, network: Any, batches: _Batches, loss: Any) -> None:
        self.network, self.batches, self.loss = network, batches, loss

    @staticmethod
    def of(model: Any, batches: _Batches, loss: Any, classes: Array | None) -> _Question:
        """classes: those of the labels, where they are known but from the model."""
        y = batches.rows.y
        own: Any = None
        if isinstance(model, nn.Module) or not hasattr(model, "fit"):
            network = model
        else:
            network, own = convert(model, batches.features)
            classes = getattr(model, "classes_", None)
        batches.dtype = _dtype_of(network)
        outputs = _outputs(
            network, torch.from_numpy(next(batches.features())[:1]).to(batches.dtype)
        )
        if isinstance(loss, str) and loss == "auto":
            loss = own or _loss(y, outputs, classes)
        if classes is not None and outputs == 1 and loss == "cross-entropy":
            loss = "binary-cross-entropy"  # scikit-learn has one logit for two classes.
        batches.labels = _labels(y, loss, outputs, classes)
        return _Question(network, batches, loss)


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
    entropy = isinstance(loss, str) and loss in ENTROPIES
    if not entropy and (classes is None or loss == "squared-error"):
        return torch.from_numpy(np.array(y, np.float64))  # Those of frames are read-only.
    places = max(2, outputs)
    if classes is None:
        if y.dtype.kind in "biuf" and bool(((y >= 0) & (y < places) & (y == np.round(y))).all()):
            return torch.from_numpy(y.astype(np.int64))
        classes = np.unique(y)
        if len(classes) < places:
            raise InvalidInput(
                f"Expected labels of all the model's {places} classes (got "
                f"{'only one class' if len(classes) == 1 else len(classes)}). Try labels 0, 1, … "
                "in the order of the model's outputs, partial_fit with classes=, or for numbers "
                "loss='squared-error'."
            )
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
        self.rows: _Rows | None = None
        self.classes: Array | None = None
        """All that labels may have, sorted; None where that is not known."""

    def expect(self, classes: Any) -> None:
        """Labels are among these classes from now on."""
        if classes is None:
            return
        given = np.unique(np.asarray(classes))
        if self.classes is not None and not np.array_equal(self.classes, given):
            raise InvalidInput(
                f"Expected the classes of the first call, {_listed(self.classes)} "
                f"(got {_listed(given)})."
            )
        if self.rows is not None:
            _check_classes(self.rows.y, given)
        self.classes = given

    def add(self, new: _Rows) -> _Rows:
        """The sample, after these rows had their chance to be in it."""
        if self.classes is not None:
            _check_classes(new.y, self.classes)
        kept = 0 if self.rows is None else len(self.rows.y)
        room = max(0, self.most - self.seen)
        number = np.arange(self.seen, self.seen + len(new.y))[room:]
        # Row t replaces a kept one with probability most / (t + 1).
        places = self.random.integers(0, number + 1)
        chosen = np.arange(min(kept + len(new.y), self.most))
        lucky = places < self.most
        chosen[places[lucky]] = kept + room + np.nonzero(lucky)[0]
        self.seen += len(new.y)
        self.rows = _taken(new if self.rows is None else _joined(self.rows, new), chosen)
        return self.rows


def _is_sparse(X: Any) -> bool:
    return hasattr(X, "toarray")


def _joined(one: _Rows, other: _Rows) -> _Rows:
    """The rows of both; weights are 1 where only the others have some."""
    weights = None
    if one.weights is not None or other.weights is not None:
        weights = np.concatenate([
            np.ones(len(part.y)) if part.weights is None else part.weights for part in (one, other)
        ])  # fmt: skip
    if _is_sparse(one.X) or _is_sparse(other.X):
        from scipy.sparse import vstack

        X = vstack([one.X, other.X], format="csr")
    else:
        X = np.concatenate([one.X, other.X])
    return _Rows(X, np.concatenate([one.y, other.y]), weights)


def _taken(rows: _Rows, at: Array) -> _Rows:
    return _Rows(rows.X[at], rows.y[at], None if rows.weights is None else rows.weights[at])


def _check_classes(y: Array, classes: Array) -> None:
    odd = np.setdiff1d(y, classes)
    if len(odd):
        raise InvalidInput(f"Expected labels among {_listed(classes)} (got {_listed(odd)}).")


def _listed(classes: Array) -> str:
    return ", ".join(map(str, classes[:5])) + (" …" if len(classes) > 5 else "")


def _seed(random_state: Any) -> int:
    """The number itself, or one drawn from a RandomState."""
    random = check_random_state(random_state)
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(random.randint(np.iinfo(np.int32).max))


def _seeded(model: Any, seed: int) -> Any:
    """The model, seeded wherever it has a random_state that nobody set."""
    for name, value in model.get_params(deep=True).items():
        if value is None and name.split("__")[-1] == "random_state":
            model.set_params(**{name: seed})
    return model


def _weights_for(model: Any, weights: Array | None) -> dict[str, Array]:
    """Arguments of the model's fit that hand the weights to all its steps that take them."""
    if weights is None:
        return {}
    last = _last(model)
    if not (taken := has_fit_parameter(last, "sample_weight")):
        warnings.warn(
            f"{type(last).__name__} takes no sample_weight. It is fitted without weights, and they "
            "count in the selection alone.", UserWarning, stacklevel=levels_to_caller(),
        )  # fmt: skip
    if get_config()["enable_metadata_routing"]:
        # The steps ask for it or not: scikit-learn's rule.
        return {"sample_weight": weights} if taken else {}
    return dict.fromkeys(_arguments(model), weights)


def _last(model: Any) -> Any:
    """The estimator at the end of pipelines and searches."""
    if hasattr(model, "steps"):
        return _last(model.steps[-1][1])
    return _last(model.estimator) if hasattr(model, "estimator") else model


def _arguments(model: Any, prefix: str = "") -> list[str]:
    """By which names a fit hands weights to the model, or to the steps of a pipeline."""
    if hasattr(model, "steps"):
        return [a for name, step in model.steps for a in _arguments(step, f"{prefix}{name}__")]
    if hasattr(model, "estimator"):
        return _arguments(model.estimator, prefix)
    takes = hasattr(model, "fit") and has_fit_parameter(model, "sample_weight")
    return [f"{prefix}sample_weight"] if takes else []


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InvalidInput(f"Expected {name} to be a whole number ≥ 1 (got {value!r}).")
    return int(value)


__all__ = ["FeatureSelector"]
