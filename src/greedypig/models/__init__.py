"""Networks to explain, with their public weights: `load(name)` gives one that is frozen and ready.

They are defined here, on torch alone, so that an explanation needs no model zoo; the rest of
greedypig does not depend on them and takes any network.
"""

from .efficientnet_lite import EfficientNetLite0
from .gcn import GCN
from .image_model import ImageModel
from .mobilenet_v2 import MobileNetV2
from .pretrained import WeightsNotFoundError, load
from .resnet import ResNet50
from .tabular_mlp import TabularMLP

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
