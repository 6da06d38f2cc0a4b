"""scikit-learn's differentiable models as torch modules: the same numbers, with a gradient.

A model's class does not say how it gets from its coefficients to its predictions. So the module is
compared with the model on all rows, and the first reading of the outputs that agrees is used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ..core.errors import InvalidInput
from ..tables.losses import Loss

ACTIVATIONS = {
    "identity": nn.Identity,
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "logistic": nn.Sigmoid,
}
Array = NDArray[Any]


class Affine(nn.Module):
    """(x − offset) / divisor for every column."""

    offset: Tensor
    divisor: Tensor

    def __init__(self, offset: Any, divisor: Any) -> None:
        super().__init__()
        self.register_buffer("offset", torch.tensor(0.0 if offset is None else offset))
        self.register_buffer("divisor", torch.tensor(1.0 if divisor is None else divisor))

    def forward(self, x: Tensor) -> Tensor:
        """(rows, columns) → the same shape."""
        return (x - self.offset) / self.divisor


class Exponential(nn.Module):
    """Rates of a Poisson model from their logarithms."""

    def forward(self, x: Tensor) -> Tensor:
        """e^x."""
        return x.exp()


Reading = tuple[str, Sequence[nn.Module], Callable[[Tensor], Tensor], "str | Loss"]
"""One way from the coefficients to predictions: a method of the model, the layers behind those of
the coefficients, a function from their outputs to what the method returns, and the loss."""


def convert(model: Any, batches: Callable[[], Iterator[Array]]) -> tuple[nn.Module, str | Loss]:
    """The model in torch, equal to the model on all these rows and on the mean of each batch; and
    its loss: "squared-error" for a regressor, "cross-entropy" for a classifier with probabilities,
    the margin loss of any other classifier.

    Multi-layer perceptrons and linear models, alone or after scalers in a pipeline. The module is
    float64 and gives scores of a classifier, predictions of a regressor.
    batches: starts to read them, (rows, columns) float64.
    """
    *scalers, last = _steps(model)
    layers = [*map(_scaler, scalers), *_network(last)]
    for method, tail, link, loss in _readings(model, last):
        module = nn.Sequential(*layers, *tail).eval()
        if all(_agree(module, link, getattr(model, method), batch) for batch in batches()):
            return module, loss
    raise InvalidInput(
        f"Expected a model whose predictions follow from its coefficients (got "
        f"{type(last).__name__}, whose predictions do not). Try a multi-layer perceptron, logistic "
        "regression or a linear regressor."
    )


def _steps(model: Any) -> list[Any]:
    """A pipeline's steps, those of pipelines inside included; else the model itself."""
    model = getattr(model, "best_estimator_", model)  # Of a grid search.
    if not hasattr(model, "steps"):
        return [] if model is None or model == "passthrough" else [model]
    return [step for _, inner in model.steps for step in _steps(inner)]


def _scaler(step: Any) -> nn.Module:
    kind = type(step).__name__
    if kind == "StandardScaler":  # It may have means that it does not subtract.
        return Affine(step.mean_ if step.with_mean else None, step.scale_)
    if kind == "RobustScaler":
        return Affine(step.center_, step.scale_)
    if kind == "MaxAbsScaler":
        return Affine(None, step.scale_)
    if kind == "MinMaxScaler":  # x · scale + min.
        return Affine(-step.min_ / step.scale_, 1 / step.scale_)
    raise InvalidInput(
        f"Expected only scalers before a pipeline's model (got {kind}). Try selecting columns "
        f"after it: fit the selector on the output of {kind}."
    )


def _network(model: Any) -> list[nn.Module]:
    """The layers of a perceptron without what its outputs go through, or of a linear model."""
    if hasattr(model, "coefs_"):
        layers: list[nn.Module] = []
        for weights, bias in zip(model.coefs_, model.intercepts_, strict=True):
            layers += [_linear(weights, bias), ACTIVATIONS[model.activation]()]
        return layers[:-1]
    if hasattr(model, "coef_") and hasattr(model, "intercept_"):
        weights = model.coef_.toarray() if hasattr(model.coef_, "toarray") else model.coef_
        return [_linear(np.atleast_2d(weights).T, np.atleast_1d(model.intercept_))]
    raise InvalidInput(
        "Expected a torch module, or a fitted linear model or multi-layer perceptron of "
        f"scikit-learn (got {type(model).__name__}, whose gradient is not available here). Try "
        "sklearn.neural_network.MLPClassifier or MLPRegressor."
    )


def _linear(weights: Any, bias: Any) -> nn.Linear:
    """From scikit-learn's (inputs, outputs)."""
    inputs, outputs = np.shape(weights)
    layer = nn.Linear(inputs, outputs, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(np.asarray(weights, np.float64)).T)
        layer.bias.copy_(torch.tensor(np.asarray(bias, np.float64)))
    return layer


def _readings(model: Any, last: Any) -> list[Reading]:
    same = nn.Identity()
    if not hasattr(model, "classes_"):  # Either as it is, or with a log link.
        return [("predict", tail, same, "squared-error") for tail in ([], [Exponential()])]
    readings: list[Reading] = []
    if hasattr(model, "predict_proba"):
        # One class against the rest: p_c = σ(z_c) / Σ_d σ(z_d) = softmax(log σ(z))_c.
        for tail in ([], [nn.LogSigmoid()]):
            readings.append(("predict_proba", tail, _probabilities, "cross-entropy"))
    if hasattr(model, "decision_function"):
        readings.append(("decision_function", [], same, margin_loss(last)))
    return readings


def _probabilities(outputs: Tensor) -> Tensor:
    return outputs.sigmoid() if outputs.shape[1] == 1 else outputs.softmax(1)


def _agree(
    module: nn.Module,
    link: Callable[[Tensor], Tensor],
    method: Callable[[Array], Any],
    batch: Array,
) -> bool:
    """Is the module equal to the model on these rows and on their mean, the default baseline?"""
    rows = np.vstack([batch, batch.mean(0, keepdims=True)])
    with torch.no_grad():
        ours = link(module(torch.from_numpy(rows))).numpy()
    with warnings.catch_warnings():  # The rows here have no names.
        warnings.simplefilter("ignore")
        theirs = np.asarray(method(rows), np.float64).reshape(len(rows), -1)
    theirs = theirs[:, -ours.shape[1] :]  # Of two classes the module has one output, the second.
    atol = 1e-6 * float(np.abs(theirs).max())
    return ours.shape == theirs.shape and np.allclose(ours, theirs, rtol=1e-4, atol=atol)


def margin_loss(model: Any) -> Loss:
    """The loss a classifier without probabilities was trained with, else the hinge loss."""
    loss = getattr(model, "loss", None)
    if type(model).__name__.startswith("RidgeClassifier") or loss == "squared_error":
        return squared_error_of_signs
    return squared_hinge if loss == "squared_hinge" else hinge


def hinge(outputs: Tensor, labels: Tensor) -> Tensor:
    """Σ over the outputs of max(0, 1 − sign · output), sign = ±1: is it the row's class or not."""
    return functional.relu(1 - _signs(outputs, labels) * outputs).sum(1)


def squared_hinge(outputs: Tensor, labels: Tensor) -> Tensor:
    """Σ over the outputs of max(0, 1 − sign · output)²."""
    return functional.relu(1 - _signs(outputs, labels) * outputs).square().sum(1)


def squared_error_of_signs(outputs: Tensor, labels: Tensor) -> Tensor:
    """Σ over the outputs of (sign − output)²."""
    return (_signs(outputs, labels) - outputs).square().sum(1)


def _signs(outputs: Tensor, labels: Tensor) -> Tensor:
    """(rows, outputs): 1 for the row's class, −1 for others; one output is for the second class."""
    places = torch.arange(outputs.shape[1], device=outputs.device) + (outputs.shape[1] == 1)
    return 2 * (labels.reshape(-1, 1) == places).to(outputs) - 1
