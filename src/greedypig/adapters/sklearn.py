"""scikit-learn: post-hoc feature selection as a transformer.

selector = gp.FeatureSelector(model, n_features_to_select=10).fit(X, y)
selector.get_support(), selector.order_, selector.transform(X)

scikit-learn's linear models and perceptrons become torch modules. A model's class does not say how
it gets from its coefficients to its predictions. So the module is compared with the model on all
rows, and the first reading of the outputs that agrees is used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.functional import relu

from ..compat import private
from ..core.errors import InvalidInput, MissingPackage, first_line, levels_to_caller
from ..core.numbers import check_count
from ..core.stopping import Stop
from ..network.frozen import freeze
from ..tables.api import select_features
from ..tables.losses import CLASSES, Loss, LossLike
from ..types import Baseline, MethodLike

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
    from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data
except ImportError as error:
    raise MissingPackage(
        "Expected the package scikit-learn ≥ 1.6 for gp.FeatureSelector (it is not installed). "
        'Try pip install "greedypig[sklearn]".'
    ) from error

[checked_weights] = private("scikit-learn")
DISCRETE = ("binary", "multiclass")
WEIGHT = "sample_weight"
ENTROPIES = ("cross-entropy", "binary-cross-entropy")
SCALERS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    # A StandardScaler may have means that it does not subtract.
    "StandardScaler": lambda scaler: (scaler.mean_ if scaler.with_mean else None, scaler.scale_),
    "RobustScaler": lambda scaler: (scaler.center_, scaler.scale_),
    "MaxAbsScaler": lambda scaler: (None, scaler.scale_),
    "MinMaxScaler": lambda scaler: (-scaler.min_ / scaler.scale_, 1 / scaler.scale_),
}
"""What each scaler subtracts, and what it divides by."""
ACTIVATIONS = {"identity": nn.Identity, "relu": nn.ReLU, "tanh": nn.Tanh, "logistic": nn.Sigmoid}
MARGIN_LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "hinge": relu,
    "squared_hinge": lambda short: relu(short).square(),
    "squared_error": torch.square,
}
"""By how far an output falls short of its sign, 1 − sign · output → the loss."""
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
        support_: which columns are selected. n_features_to_select_: how many. ranking_: 1 for all
        that are, then 2, 3, … for the others, as in RFE. order_: all columns, best first, the
        selected ones as they were picked. scores_: the score each column had when it was picked, 0
        if it was not. scores_path_: G(∅), then G after each pick, G = −loss. attribution_: the
        whole result. model_: the model that was used. n_features_in_, feature_names_in_ as
        everywhere.
    """

    _seen: int = 0
    """How many rows `partial_fit` was given; it keeps a sample of them, with random keys."""
    _sample: _Rows
    _keys: Array
    _classes: Array | None

    def __init__(
        self,
        model: object = None,
        n_features_to_select: int | float | None = None,
        *,
        loss: LossLike = "auto",
        outputs: str = "logits",
        method: MethodLike | None = None,
        stop: Stop | None = None,
        baseline: Baseline = "mean",
        budget: int | None = None,
        batch_size: int = 512,
        max_rows: int = 100_000,
        random_state: int | np.random.RandomState | None = 0,
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

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> FeatureSelector:
        """Select on these rows.

        sample_weight: (rows,) how much each row counts in the loss, and in fitting a model that is
        not fitted; an integer weight w counts as w copies of the row.
        """
        self._seen = 0
        return self._select(self._checked(X, y, sample_weight), None)

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> FeatureSelector:
        """Select anew on these rows and a uniform sample of those seen before.

        classes: all classes that labels may have. In sorted order they are the outputs of a torch
        model. They are needed once, and only if the first rows lack some.
        At most `max_rows` rows are kept. For streams of any length with a trained model use
        `gp.select_features`, which keeps none.
        """
        seen, most = self._seen, check_count("max_rows", self.max_rows)
        rows = self._checked(X, y, sample_weight, reset=not seen)
        if classes is not None:
            classes = np.unique(np.asarray(classes))
        if seen and self._classes is not None:
            if classes is not None and not np.array_equal(self._classes, classes):
                raise InvalidInput(
                    f"Expected the classes of the first call, {', '.join(map(str, self._classes))} "
                    f"(got {', '.join(map(str, classes))})."
                )
            classes = self._classes
        # The rows with the smallest random keys are a uniform sample, in the order they came.
        keys = np.random.default_rng([_seed(self.random_state), seen]).random(len(rows.y))
        seen += len(keys)
        if seen > len(keys):
            rows, keys = self._sample.joined(rows), np.concatenate([self._keys, keys])
        smallest = np.sort(np.argsort(keys)[:most])
        sample, keys = rows.at(smallest), keys[smallest]
        self._select(sample, classes)
        self._seen, self._sample, self._keys, self._classes = seen, sample, keys, classes
        return self

    def _checked(self, X: Any, y: Any, sample_weight: Any, reset: bool = True) -> _Rows:
        """Rows that count."""
        types = [np.float64, np.float32]
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=types, reset=reset)
        weights = checked_weights(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weights.any():
            raise InvalidInput("Expected a row with sample_weight above 0 (got none).")
        return _Rows(X, y, weights).at(weights > 0)

    def _select(self, rows: _Rows, classes: Array | None) -> FeatureSelector:
        """classes: those of the labels, where the caller has named them."""
        columns, seed = rows.X.shape[1], _seed(self.random_state)
        size = check_count("batch_size", self.batch_size)
        k = self._wanted(columns)
        self.model_ = self._trained(rows, seed, classes)
        batches = _Batches(rows, size, seed)
        network, loss = _question(self.model_, batches, self.loss, classes)
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
        self.n_features_to_select_ = a.selected
        self.scores_ = a.feature_scores.numpy()
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

    def _get_support_mask(self) -> Any:
        check_is_fitted(self, "support_")
        return self.support_

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
    """Rows that were checked: X (rows, columns) an array or sparse, weights (rows,) above 0."""

    X: Any
    y: Array
    weights: Array

    @property
    def weighted(self) -> bool:
        """Do some rows count more than others?"""
        return bool((self.weights != 1).any())

    def at(self, index: Array) -> _Rows:
        """Some of the rows."""
        return _Rows(self.X[index], self.y[index], self.weights[index])

    def joined(self, other: _Rows) -> _Rows:
        """The rows of both."""
        X, y, weights = ([mine, theirs] for mine, theirs in zip(self, other, strict=True))
        if any(map(_is_sparse, X)):
            from scipy.sparse import vstack

            return _Rows(vstack(X, format="csr"), np.concatenate(y), np.concatenate(weights))
        return _Rows(*map(np.concatenate, (X, y, weights)))


class _Batches:
    """Batches by their number. Rows are shuffled, as sorted ones would make batches of one class,
    and sparse ones are made dense a batch at a time."""

    def __init__(self, rows: _Rows, size: int, seed: int) -> None:
        self.rows, self.size, self.dtype = rows, size, torch.float64
        self.weighted = rows.weighted
        self.order = np.random.default_rng(seed).permutation(len(rows.y))

    def __len__(self) -> int:
        return -(-len(self.order) // self.size)

    def __getitem__(self, number: int) -> tuple[Tensor, ...]:
        places = self.order[number * self.size : (number + 1) * self.size]
        rows = self.rows.at(np.sort(places))
        X = rows.X.toarray() if _is_sparse(rows.X) else rows.X
        batch = torch.from_numpy(X).to(self.dtype), torch.from_numpy(rows.y)
        return (*batch, torch.from_numpy(rows.weights)) if self.weighted else batch


def _is_sparse(X: Any) -> bool:
    return hasattr(X, "toarray")


def _is_estimator(model: Any) -> bool:
    return hasattr(model, "fit") and not isinstance(model, nn.Module)


def _question(model: Any, batches: _Batches, loss: Any, classes: Array | None) -> tuple[Any, Any]:
    """The model in torch and the loss; the batches get the rows and labels that the two take."""
    network, own_loss, rows = model, None, batches.rows
    labels = rows.y
    batches.rows = rows._replace(y=np.zeros(len(labels)))  # Text is no tensor.
    if _is_estimator(model):
        network, own_loss = _converted(model, batches)
        classes = getattr(model, "classes_", None)
    dtype = next((p.dtype for p in getattr(network, "parameters", tuple)()), torch.float32)
    batches.dtype = dtype
    row = batches[0][0][:1]
    try:
        with torch.no_grad():
            output = freeze(network)(row)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise InvalidInput(
            f"Expected a model of {row.shape[1]} columns, as X has (got one that refuses a row of "
            f"shape {tuple(row.shape)}: {first_line(error)})."
        ) from error
    if not isinstance(output, Tensor) or output.dim() not in (1, 2) or len(output) != 1:
        got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise InvalidInput(f"Expected one row of outputs for one row of columns (got {got}).")
    outputs = output.numel()
    if isinstance(loss, str) and loss == "auto":
        loss = own_loss or _loss(labels, outputs, classes)
    if classes is not None and outputs == 1 and loss == "cross-entropy":
        loss = "binary-cross-entropy"  # scikit-learn has one logit for two classes.
    entropy = isinstance(loss, str) and loss in ENTROPIES
    if entropy or (classes is not None and loss != "squared-error"):
        labels = _places(labels, max(2, outputs), classes)
    else:
        labels = np.array(labels, np.float64)  # A copy: those of frames are read-only.
    batches.rows = rows._replace(y=labels)
    return network, loss


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
        model.fit(rows.X, rows.y, **{f"{name}{WEIGHT}": rows.weights for name in takers})
    return model


def _named_steps(model: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The estimators of pipelines and searches, each behind what its fit parameters begin with."""
    for name in ("best_estimator_", "estimator"):  # Of a search, fitted or not.
        model = getattr(model, name, model)
    if not hasattr(model, "steps"):
        yield prefix, model
        return
    for name, step in model.steps:
        yield from _named_steps(step, f"{prefix}{name}__")


# scikit-learn's models in torch


class _Exponential(nn.Module):
    """Rates of a Poisson model from their logarithms."""

    def forward(self, x: Tensor) -> Tensor:
        """e^x."""
        return x.exp()


def _converted(model: Any, batches: _Batches) -> tuple[nn.Module, str | Loss]:
    """The model in torch, equal to the model on all these rows and on the mean of each batch; and
    its loss: "squared-error" for a regressor, "cross-entropy" for a classifier with probabilities,
    the margin loss of any other classifier.

    The module is float64 and gives scores of a classifier, predictions of a regressor.
    """
    steps = [step for _, step in _named_steps(model) if step not in (None, "passthrough")]
    *scalers, last = steps
    layers = _layers(last, scalers)
    # One class against the rest: p_c = σ(z_c) / Σ_d σ(z_d) = softmax(log σ(z))_c.
    readings: list[tuple[str, nn.Module, str | Loss]] = [
        ("predict", nn.Identity(), "squared-error"),
        ("predict", _Exponential(), "squared-error"),
    ]
    if hasattr(model, "classes_"):
        readings = [
            ("predict_proba", nn.Identity(), "cross-entropy"),
            ("predict_proba", nn.LogSigmoid(), "cross-entropy"),
            ("decision_function", nn.Identity(), _margin_loss(last)),
        ]
    for method, tail, loss in readings:
        module = nn.Sequential(*layers, tail).eval()
        if hasattr(model, method) and _agree(module, model, method, batches):
            return module, loss
    raise InvalidInput(
        f"Expected a model whose predictions follow from its coefficients (got "
        f"{type(last).__name__}, whose predictions do not). Try a multi-layer perceptron, logistic "
        "regression or a linear regressor."
    )


def _layers(model: Any, scalers: list[Any]) -> list[nn.Module]:
    """The layers of a perceptron without what its outputs go through, or of a linear model; the
    scalers before it are part of the first layer."""
    if hasattr(model, "coefs_"):
        pairs = list(zip(model.coefs_, model.intercepts_, strict=True))
    elif hasattr(model, "coef_") and hasattr(model, "intercept_"):
        weights = model.coef_.toarray() if _is_sparse(model.coef_) else model.coef_
        pairs = [(np.atleast_2d(weights).T, np.atleast_1d(model.intercept_))]
    else:
        raise InvalidInput(
            "Expected a torch module, or a fitted linear model or multi-layer perceptron of "
            f"scikit-learn (got {type(model).__name__}, whose gradient is not available here). Try "
            "sklearn.neural_network.MLPClassifier or MLPRegressor."
        )
    for scaler in reversed(scalers):
        kind = type(scaler).__name__
        if kind not in SCALERS:
            raise InvalidInput(
                f"Expected only scalers before a pipeline's model (got {kind}). Try selecting "
                f"columns after it: fit the selector on the output of {kind}."
            )
        offset, divisor = SCALERS[kind](scaler)
        weights = pairs[0][0] / (1.0 if divisor is None else np.reshape(divisor, (-1, 1)))
        pairs[0] = weights, pairs[0][1] - (0.0 if offset is None else offset @ weights)
    layers: list[nn.Module] = []
    for weights, bias in pairs:
        linear = nn.Linear(*np.shape(weights)).double()
        with torch.no_grad():
            linear.weight.copy_(torch.tensor(np.asarray(weights, np.float64)).T)
            linear.bias.copy_(torch.tensor(np.asarray(bias, np.float64)))
        layers += [linear, ACTIVATIONS[getattr(model, "activation", "identity")]()]
    return layers[:-1]


def _agree(module: nn.Module, model: Any, method: str, batches: _Batches) -> bool:
    """Is the module equal to the model on all rows and on batches' means, the default baseline?"""
    for number in range(len(batches)):
        x = batches[number][0]
        rows = torch.cat([x, x.mean(0, keepdim=True)])
        with torch.no_grad():
            outputs = module(rows)
            if method == "predict_proba":
                outputs = outputs.sigmoid() if outputs.shape[1] == 1 else outputs.softmax(1)
        with warnings.catch_warnings():  # The rows here have no names.
            warnings.simplefilter("ignore")
            theirs = np.asarray(getattr(model, method)(rows.numpy()), np.float64)
        # Of two classes the module has one output, the second.
        theirs = theirs.reshape(len(rows), -1)[:, -outputs.shape[1] :]
        atol = 1e-6 * float(np.abs(theirs).max())
        if outputs.shape != theirs.shape or not np.allclose(outputs, theirs, rtol=1e-4, atol=atol):
            return False
    return True


def _margin_loss(model: Any) -> Loss:
    """The loss a classifier without probabilities was trained with, else the hinge loss: the sum
    over the outputs, with sign 1 for the row's class and −1 for others."""
    name = getattr(model, "loss", None)
    if type(model).__name__.startswith("RidgeClassifier"):
        name = "squared_error"
    loss = MARGIN_LOSSES.get(str(name), relu)

    def margin_loss(outputs: Tensor, labels: Tensor) -> Tensor:
        # One output is for the second class.
        places = torch.arange(outputs.shape[1], device=outputs.device) + (outputs.shape[1] == 1)
        signs = 2 * (labels.reshape(-1, 1) == places).to(outputs) - 1
        return loss(1 - signs * outputs).sum(1)

    return margin_loss
