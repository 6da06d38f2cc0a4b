"""ImageNet networks, defined on torch alone: `load(name)` gives one that is frozen and ready."""

from .efficientnet_lite import EfficientNetLite0
from .image_model import ImageModel
from .mobilenet_v2 import MobileNetV2
from .pretrained import WeightsNotFoundError, load
from .resnet import ResNet50

__all__ = [
    "EfficientNetLite0",
    "ImageModel",
    "MobileNetV2",
    "ResNet50",
    "WeightsNotFoundError",
    "load",
]
