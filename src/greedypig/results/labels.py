"""Names of features: of single ones, in a count, and in a share."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..core.attribution import Attribution
from ..core.features import Windows


def feature_labels(a: Attribution, indices: Sequence[int]) -> list[str]:
    """Names of features; where they have none, their places in the input."""
    features = a.features
    edges = a.attachments.get("edges")  # Of `greedypig compress`: the nodes of each feature.
    if edges is not None and edges.shape == (2, features.count):
        return [f"{u} – {v}" for u, v in edges[:, list(indices)].T.tolist()]
    if features.names is not None:
        names = [features.names[i] for i in indices]
        return [" ".join(name.split()) for name in names] if a.about.flat_names else names
    if (ends := edge_ends(a, indices)) is not None:
        between = "–" if a.settings.get("undirected") else "→"
        return [f"{source} {between} {target}" for source, target in ends]
    if features.kind == "elements":
        return [a.layout.place(i) for i in indices]
    if isinstance(features, Windows):
        corners = (", ".join(map(str, features.corners[i])) for i in indices)
        return [f"window at ({corner})" for corner in corners]
    texts = [str(name) for name in a.names_of(indices)]
    # For a group that is no box its number is shorter than the box around it.
    return [f"{feature_word(a, 1)} {text.partition(' in ')[0]}" for text in texts]


def edge_ends(a: Attribution, indices: Sequence[int]) -> list[tuple[int, int]] | None:
    """The two nodes of each of these edges; None where features are no edges."""
    ends = a.attachments.get("edge_index")
    if ends is None or ends.shape != (2, a.features.n):
        return None
    owners = a.features.first_rank(torch.arange(a.features.count))
    places = torch.zeros(a.features.count, dtype=torch.long)
    first = places.scatter_reduce(0, owners, torch.arange(a.features.n), "amin", include_self=False)
    return [(u, v) for u, v in ends[:, first[list(indices)]].T.tolist()]


def feature_word(a: Attribution, count: int = 2) -> str:
    """The name of a feature in a sentence, in the plural for every count but 1."""
    word = a.about.feature_word(a.features.kind)
    return word if count == 1 else f"{word}s"


def share_word(a: Attribution) -> str:
    """What curves are over a share of. Groups differ in size, so of them values are counted."""
    word = feature_word(a)
    return word if word in ("columns", "edges") else "features"
