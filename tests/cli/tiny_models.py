"""Networks that answer at once, for the command line's tests: --model tiny_models:build."""

import os

import torch
from torch import nn

CLASSES = ("dark", "red", "green", "blue")


class Tiny(nn.Module):
    """Says which colour there is most of; three logits grow with the channels' sums."""

    classes = CLASSES

    def __init__(self, meeting=None, side=8):
        super().__init__()
        self.side = side
        self.head = nn.Linear(3, 4)
        with torch.no_grad():
            self.head.weight.copy_(torch.cat([torch.full((1, 3), -1.0), 4 * torch.eye(3)]))
            self.head.bias.zero_()
        self.meeting, self.calls = meeting, 0

    def forward(self, x):
        if self.meeting is not None:
            self.calls += 1
            if self.calls == 12:  # Some rounds are done.
                os.write(self.meeting, b".")
                os.read(self.meeting, 1)  # Until a signal comes.
        return self.head(x.flatten(2).mean(2) * 2)

    def preprocess(self, image):
        small = image.resize((self.side, self.side))
        levels = torch.frombuffer(bytearray(small.tobytes()), dtype=torch.uint8)
        return levels.view(self.side, self.side, 3).permute(2, 0, 1).float() / 255


def build():
    return Tiny()


def wide():
    return Tiny(side=16)


def meeting():
    """Writes to the descriptor MEETING in the middle of a run, and waits there."""
    return Tiny(int(os.environ["MEETING"]))


def other():
    net = Tiny()
    with torch.no_grad():
        net.head.weight.mul_(0.5)
    return net


def sharp():
    """Leaves the other classes next to nothing."""
    net = Tiny()
    with torch.no_grad():
        net.head.weight.mul_(4)
        net.head.bias[0] = 10
    return net


def nan():
    class Broken(Tiny):
        def forward(self, x):
            # Finite at plain pictures, so that the network itself is accepted.
            spread = x.flatten(2).std(2).sum(1, keepdim=True)
            return super().forward(x) + torch.where(spread > 0.01, torch.nan, 0.0)

    return Broken()


def crash():
    raise RuntimeError("the weights are gone")


def thousand():
    """A thousand logits, so that its classes are ImageNet's: 0 for red, 1 for green, 2 for blue."""

    class Thousand(Tiny):
        classes = None

        def __init__(self):
            super().__init__()
            self.head = nn.Linear(3, 1000)
            with torch.no_grad():
                self.head.weight.zero_()
                self.head.weight[:3].copy_(16 * torch.eye(3))
                self.head.bias.zero_()

    return Thousand()


def four():
    """Red, green, blue and yellow, which all four are seen."""
    net = Tiny(side=16)
    net.classes = ("red", "green", "blue", "yellow")
    with torch.no_grad():
        rows = [[4.0, -2, -2], [-2, 4, -2], [-2, -2, 4], [3, 3, -4]]
        net.head.weight.copy_(torch.tensor(rows))
    return net


def sure():
    """Ends in a softmax."""

    class Sure(Tiny):
        def forward(self, x):
            return torch.softmax(super().forward(x), 1)

    return Sure()


def single():
    """One logit: is it red?"""

    class Single(Tiny):
        classes = None

        def forward(self, x):
            return super().forward(x)[:, 1:2]

    return Single()


def shifted():
    """The same network on inputs from -1 to 1, of 16 x 16."""

    class Shifted(Tiny):
        def forward(self, x):
            return super().forward((x + 1) / 2)

        def preprocess(self, image):
            return super().preprocess(image) * 2 - 1

    return Shifted(side=16)


def crooked():
    class Crooked(Tiny):
        def preprocess(self, image):
            return super().preprocess(image) ** 2

    return Crooked()


def nameless():
    net = Tiny()
    net.classes = None
    return net


def natural():
    """Takes photos in the sizes that they have."""

    class Natural(Tiny):
        def preprocess(self, image):
            levels = torch.frombuffer(bytearray(image.convert("RGB").tobytes()), dtype=torch.uint8)
            return levels.view(image.height, image.width, 3).permute(2, 0, 1).float() / 255

    return Natural()
