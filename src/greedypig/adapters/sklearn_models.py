"""scikit-learn's differentiable models as torch modules: the same numbers, with a gradient."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..core.errors import InvalidInput

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "identity": nn.Identity, "relu": nn.ReLU, "tanh": nn.Tanh, "logistic": nn.Sigmoid,
}  # fmt: skip
SCALERS = {
    # How each one computes: (x − subtracted) / divided, or x · multiplied + added.
    "StandardScaler": ("mean_", "scale_"),
    "RobustScaler": ("center_", "scale_"),
    "MaxAbsScaler": (None, "scale_"),
}
CHECKED = 64
"""Rows on which a converted model's answers are compared with its own."""
LOGISTIC = ("LogisticRegression", "LogisticRegressionCV")


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


def as_module(model: Any, columns: int) -> nn.Module:
    """A fitted scikit-learn model as a float64 module: logits for classifiers, else predictions.

    Multi-layer perceptrons, logistic regression, linear regressors, and pipelines that scale the
    columns before one of them.
    """
    steps = [step for _, step in model.steps] if hasattr(model, "steps") else [model]
    scalers = [_scaler(step, columns) for step in steps[:-1] if step not in (None, "passthrough")]
    last = steps[-1]
    if hasattr(last, "coefs_") and hasattr(last, "out_activation_"):
        layers = _perceptron(last)
    elif hasattr(last, "coef_") and _is_linear(last):
        layers = [_linear(np.atleast_2d(last.coef_).T, np.atleast_1d(last.intercept_))]
    else:
        raise InvalidInput(
            "Expected a torch module, or a fitted MLPClassifier, MLPRegressor, logistic "
            f"regression or linear regressor of scikit-learn (got {type(last).__name__}), as "
            "others have no gradient to follow. Try sklearn.neural_network.MLPClassifier."
        )
    return nn.Sequential(*scalers, *layers).eval()


def same_answers(module: nn.Module, model: Any, rows: Any) -> nn.Module:
    """The module, or with the exponential that a log link needs, if it answers as the model does
    on these rows; what else a model may do behind its coefficients is not known."""
    given = torch.from_numpy(np.array(rows, np.float64))
    chances = hasattr(model, "classes_")
    with warnings.catch_warnings():  # Of names that the rows have lost on the way here.
        warnings.simplefilter("ignore")
        expected = np.asarray((model.predict_proba if chances else model.predict)(rows), np.float64)
    for made in (module, nn.Sequential(module, Exponential()).eval()):
        with torch.no_grad():
            answers = made(given)
        if chances:
            answers = answers.sigmoid() if answers.shape[1] == 1 else answers.softmax(1)
        found = answers.numpy()
        wanted = expected.reshape(len(found), -1)[:, -found.shape[1] :]
        if np.allclose(found, wanted, rtol=1e-4, atol=1e-6):
            return made
    raise InvalidInput(
        f"Expected a model whose coefficients tell all it does (got {type(model).__name__}, whose "
        f"answers differ from them by up to {float(np.abs(found - wanted).max()):.3g}). Try "
        "a perceptron, logistic regression or linear regressor."
    )


def _scaler(step: Any, columns: int) -> nn.Module:
    kind = type(step).__name__
    ones, zeros = np.ones(columns), np.zeros(columns)
    if kind == "MinMaxScaler":
        return Affine(step.scale_, step.min_)
    if kind not in SCALERS:
        raise InvalidInput(
            f"Expected only scalers before a pipeline's model (got {kind}). Try selecting columns "
            f"after it: fit the selector on the output of {kind}."
        )
    subtracted, divided = (None if name is None else getattr(step, name) for name in SCALERS[kind])
    scale = ones if divided is None else 1 / np.asarray(divided)
    return Affine(scale, zeros if subtracted is None else -np.asarray(subtracted) * scale)


def _perceptron(model: Any) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for weights, bias in zip(model.coefs_, model.intercepts_, strict=True):
        layers += [_linear(weights, bias), ACTIVATIONS[model.activation]()]
    # What makes probabilities of logits is the loss's part; rates are a model's own answer.
    return layers[:-1] + ([Exponential()] if model.out_activation_ == "exp" else [])


def _is_linear(model: Any) -> bool:
    if not hasattr(model, "classes_"):
        return True
    by_loss = type(model).__name__ == "SGDClassifier" and model.loss == "log_loss"
    return type(model).__name__ in LOGISTIC or by_loss


def _linear(weights: Any, bias: Any) -> nn.Linear:
    """From scikit-learn's (inputs, outputs)."""
    inputs, outputs = np.shape(weights)
    made = nn.Linear(inputs, outputs, dtype=torch.float64)
    bias = np.broadcast_to(np.asarray(bias, np.float64), made.bias.shape)
    with torch.no_grad():
        made.weight.copy_(torch.from_numpy(np.array(weights, np.float64).T))
        made.bias.copy_(torch.from_numpy(bias.copy()))
    return made
