"""Photos: files, class names, ImageNet networks and networks of one's own.

for photo in Photos("holiday/"):        # the ones that can be read; .broken has the others
    x = model.preprocess(photo.image)   # model = model_from("mobilenet-v2")
"""

from .api import explain_photo
from .class_names import find_class, label_of
from .from_spec import model_from
from .photos import Photo, Photos, find_photos, open_photo

__all__ = [
    "Photo",
    "Photos",
    "explain_photo",
    "find_class",
    "find_photos",
    "label_of",
    "model_from",
    "open_photo",
]
