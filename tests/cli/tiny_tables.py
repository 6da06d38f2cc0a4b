"""Models for tables whose ranking is known: logit = Σ weight · gate · column."""

import os
import signal
from pathlib import Path

import torch

WEIGHTS = {"a": 3.0, "b": 2.0, "c": 1.0, "d": 0.5, "e": 0.0}


class Gated(torch.nn.Module):
    def __init__(self, names):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([WEIGHTS[n] for n in names]))

    def forward(self, numeric, categorical, gates=None):
        x = numeric if gates is None else numeric * gates
        return (x @ self.weight).unsqueeze(1)


def build(schema):
    return Gated(schema.names)


def dense():
    model = torch.nn.Linear(5, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([list(WEIGHTS.values())]))
    return model


def with_schema(schema):
    """A model that names the file of its schema."""
    model = build(schema)
    model.schema = os.environ["SCHEMA"]
    return model


class Lost(Gated):
    """The second process is killed in its third round, once."""

    def forward(self, numeric, categorical, gates=None):
        mark = Path("killed")
        begun = Path("out/work/greedy-pig.partial.gpig").exists()
        if begun and os.environ.get("RANK") == "1" and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(numeric, categorical, gates)


def lost(schema):
    return Lost(schema.names)


def nothing(schema):
    return torch.nn.Identity() if schema is None else 7


class Trained(torch.nn.Module):
    """Trained on another table, whose schema it brings: 2 a + b in that label's scale, or the
    classes of that label by the sign of a."""

    def __init__(self):
        super().__init__()
        from greedypig.tables import Schema

        self.schema = Schema.from_json(Path("first.json").read_text())
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, numeric, categorical, gates=None):
        x = numeric if gates is None else numeric * gates
        label, (a, b) = self.schema.label, self.schema.numbers
        if label.task == "number":
            y = 2 * (x[:, 0] * a.deviation + a.mean) + x[:, 1] * b.deviation + b.mean
            return self.scale * ((y - label.mean) / label.deviation).unsqueeze(1)
        score = 9 * self.scale * (x[:, :1] * a.deviation + a.mean)
        return torch.cat([score, score - 50, -score], dim=1)  # Of "high", "huge", "low".


def trained(schema):
    return Trained()


class Other(torch.nn.Module):
    """The same ranking, answered in another way than the networks that are trained here."""

    def __init__(self, answer, dtype=torch.float32, outputs="logits"):
        super().__init__()
        self.outputs = outputs
        self.weight = torch.nn.Parameter(torch.tensor(list(WEIGHTS.values()), dtype=dtype))
        self.answer = answer

    def forward(self, x):
        return self.answer((x @ self.weight).unsqueeze(1))


def two():
    return Other(lambda z: torch.cat([-z / 2, z / 2], 1))


def probabilities():
    return Other(torch.sigmoid, outputs="probabilities")


def unstated():
    return Other(torch.sigmoid)


def no_probabilities():
    return Other(lambda z: z, outputs="probabilities")


def two_probabilities():
    def answer(z):
        return torch.cat([torch.sigmoid(-z), torch.sigmoid(z)], 1)

    return Other(answer, outputs="probabilities")


def double():
    return Other(lambda z: z, torch.float64)


class DoubleGated(Gated):
    def __init__(self, names):
        super().__init__(names)
        self.double()


def double_gated(schema):
    return DoubleGated(schema.names)


def own_units():
    """The score itself, far from 0 and not of deviation 1: 50 + 10 · score."""
    return Other(lambda z: 50 + 10 * z)
