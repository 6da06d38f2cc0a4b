"""scikit-learn's differentiable models as torch modules: the same numbers, with a gradient.

A model's class does not say how it gets from its coefficients to its predictions. So the module is
compared with the model on all rows, and the first reading of the outputs that agrees is used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ..core.errors import InvalidInput
from ..tables.losses import Loss

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "identity": nn.Identity, "relu": nn.ReLU, "tanh": nn.Tanh, "logistic": nn.Sigmoid,
}  # fmt: skip
Array = NDArray[Any]


class Affine(nn.Module):
    """scale · x + shift for every column."""

    scale: Tensor
    shift: Tensor

    def __init__(self, scale: Any, shift: Any) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(np.asarray(scale, np.float64)))
        self.register_buffer("shift", torch.tensor(np.asarray(shift, np.float64)))

    def forward(self, x: Tensor) -> Tensor:
        """(rows, columns) → the same shape."""
        return x * self.scale + self.shift


class Exponential(nn.Module):
    """Rates of a Poisson model from their logarithms."""

    def forward(self, x: Tensor) -> Tensor:
        """e^x."""
        return x.exp()


def as_module(model: Any, columns: int) -> nn.Sequential:
    """A fitted scikit-learn model as a float64 module: scores for classifiers, else predictions.

    Multi-layer perceptrons and linear models, alone or after scalers in a pipeline.
    """
    steps = _steps(model)
    scalers = [_scaler(step, columns) for step in steps[:-1]]
    last = steps[-1]
    if hasattr(last, "coefs_") and hasattr(last, "out_activation_"):
        layers = _perceptron(last)
    elif hasattr(last, "coef_") and hasattr(last, "intercept_"):
        weights = last.coef_.toarray() if hasattr(last.coef_, "toarray") else last.coef_
        layers = [_linear(np.atleast_2d(weights).T, np.atleast_1d(last.intercept_))]
    else:
        raise InvalidInput(
            "Expected a torch module, or a fitted linear model or multi-layer perceptron of "
            f"scikit-learn (got {type(last).__name__}, whose gradient is not available here). Try "
            "sklearn.neural_network.MLPClassifier or MLPRegressor."
        )
    return nn.Sequential(*scalers, *layers).eval()


class Converted(NamedTuple):
    """A scikit-learn model in torch."""

    module: nn.Module
    loss: str | Loss
    """"squared-error" for a regressor, "cross-entropy" for a classifier with probabilities, the
    margin loss of any other classifier."""


def convert(model: Any, batches: Callable[[], Iterator[Array]]) -> Converted:
    """The model in torch, equal to the model on all these rows and on the mean of each batch.

    batches: starts to read them, (rows, columns) float64.
    """
    module = as_module(model, next(batches()).shape[1])
    for reading in _readings(model, module):
        if all(_agree(reading, model, batch) for batch in batches()):
            return Converted(reading.module, reading.loss)
    raise InvalidInput(
        f"Expected a model whose predictions follow from its coefficients (got "
        f"{type(_steps(model)[-1]).__name__}, whose predictions do not). Try a multi-layer "
        "perceptron, logistic regression or a linear regressor."
    )


class _Reading(NamedTuple):
    """One way from the coefficients to what a method of the model returns."""

    method: str
    module: nn.Module
    answer: Callable[[Tensor], Tensor]
    loss: str | Loss


def _readings(model: Any, module: nn.Sequential) -> list[_Reading]:
    def then(layer: nn.Module) -> nn.Module:
        return nn.Sequential(*module, layer).eval()

    if not hasattr(model, "classes_"):
        return [
            _Reading("predict", module, _same, "squared-error"),
            _Reading("predict", then(Exponential()), _same, "squared-error"),  # A log link.
        ]
    readings = []
    if hasattr(model, "predict_proba"):
        readings.append(_Reading("predict_proba", module, _probabilities, "cross-entropy"))
        # One class against the rest: p_c = σ(z_c) / Σ_d σ(z_d) = softmax(log σ(z))_c.
        if [layer for layer in module if isinstance(layer, nn.Linear)][-1].out_features > 1:
            rest = then(nn.LogSigmoid())
            readings.append(_Reading("predict_proba", rest, _probabilities, "cross-entropy"))
    if hasattr(model, "decision_function"):
        readings.append(_Reading("decision_function", module, _same, margin_loss(model)))
    return readings


def _same(outputs: Tensor) -> Tensor:
    return outputs


def _probabilities(outputs: Tensor) -> Tensor:
    return outputs.sigmoid() if outputs.shape[1] == 1 else outputs.softmax(1)


def _agree(reading: _Reading, model: Any, batch: Array) -> bool:
    """Is the module equal to the model on these rows and on their mean, the default baseline?"""
    rows = np.vstack([batch, batch.mean(0, keepdims=True)])
    with torch.no_grad():
        found = reading.answer(reading.module(torch.from_numpy(rows))).numpy()
    with warnings.catch_warnings():  # The rows here have no names.
        warnings.simplefilter("ignore")
        answer = np.asarray(getattr(model, reading.method)(rows), np.float64)
    # Of two classes the module has one output, for the second.
    wanted = answer.reshape(len(found), -1)[:, -found.shape[1] :]
    atol = 1e-6 * float(np.abs(wanted).max())
    return found.shape == wanted.shape and np.allclose(found, wanted, rtol=1e-4, atol=atol)


def margin_loss(model: Any) -> Loss:
    """The loss a classifier without probabilities was trained with, else the hinge loss."""
    last = _steps(model)[-1]
    loss = getattr(last, "loss", None)
    if type(last).__name__.startswith("RidgeClassifier") or loss == "squared_error":
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


def _steps(model: Any) -> list[Any]:
    """A pipeline's steps, those of pipelines inside included; else the model itself."""
    model = getattr(model, "best_estimator_", model)  # Of a grid search.
    if not hasattr(model, "steps"):
        return [] if model is None or model == "passthrough" else [model]
    return [step for _, inner in model.steps for step in _steps(inner)]


def _scaler(step: Any, columns: int) -> nn.Module:
    kind = type(step).__name__
    if kind == "MinMaxScaler":
        return Affine(step.scale_, step.min_)
    # (x − subtracted) / divided. A scaler that does not subtract may have means all the same.
    if kind == "StandardScaler":
        subtracted, divided = step.mean_ if step.with_mean else None, step.scale_
    elif kind == "RobustScaler":
        subtracted, divided = step.center_, step.scale_
    elif kind == "MaxAbsScaler":
        subtracted, divided = None, step.scale_
    else:
        raise InvalidInput(
            f"Expected only scalers before a pipeline's model (got {kind}). Try selecting columns "
            f"after it: fit the selector on the output of {kind}."
        )
    scale = np.ones(columns) if divided is None else 1 / np.asarray(divided)
    return Affine(scale, 0 * scale if subtracted is None else -np.asarray(subtracted) * scale)


def _perceptron(model: Any) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for weights, bias in zip(model.coefs_, model.intercepts_, strict=True):
        layers += [_linear(weights, bias), ACTIVATIONS[model.activation]()]
    # What makes probabilities of logits is the loss's part; rates are a model's own answer.
    return layers[:-1] + ([Exponential()] if model.out_activation_ == "exp" else [])


def _linear(weights: Any, bias: Any) -> nn.Linear:
    """From scikit-learn's (inputs, outputs)."""
    inputs, outputs = np.shape(weights)
    made = nn.Linear(inputs, outputs, dtype=torch.float64)
    bias = np.broadcast_to(np.asarray(bias, np.float64), made.bias.shape)
    with torch.no_grad():
        made.weight.copy_(torch.from_numpy(np.array(weights, np.float64).T))
        made.bias.copy_(torch.from_numpy(bias.copy()))
    return made
