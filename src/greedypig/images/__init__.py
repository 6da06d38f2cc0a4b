"""Pictures: their features, steady-pig and Blur IG, photos, class names, ImageNet networks."""
