"""ImageNet networks, defined on torch alone: `load(name)` gives one that is frozen and ready."""

from .image_model import ImageModel
from .mobile_networks import EfficientNetLite0, MobileNetV2
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
