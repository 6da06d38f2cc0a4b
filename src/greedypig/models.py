"""Networks to explain: `load(name)` gives an ImageNet network with its public weights.

`GCN` and `TabularMLP` are the paper's networks for graphs and tables. The rest of greedypig does
not depend on them and takes any network.
"""

from .graphs.gcn import GCN
from .images.networks import (
    EfficientNetLite0,
    ImageModel,
    MobileNetV2,
    ResNet50,
    WeightsNotFoundError,
    load,
)
from .tables.tabular_mlp import TabularMLP

__all__ = [
    "GCN",
    "EfficientNetLite0",
    "ImageModel",
    "MobileNetV2",
    "ResNet50",
    "TabularMLP",
    "WeightsNotFoundError",
    "load",
]
