"""The paper's tables and figures, measured anew, with its numbers beside ours.

Each reproduction is one module with a function `reproduce(experiment)`; what they share is in
`experiment.py`, for photos also in `photos.py`. `python -m reproduction sic` runs one.
"""

REPRODUCTIONS = {
    "sic": "softmax and loss information curves of five methods, MobileNetV2 (Figure 2)",
    "pointing": "the pointing game on 2 × 2 grids, MobileNetV2 (Figure 3)",
    "resnet": "softmax information curve of PIG and Greedy PIG, ResNet50 (appendix)",
    "figures": "the tabby and tench pictures: top 15,000, two objectives, blocks (appendix)",
    "graph": "graphs compressed to a share of their edges, and nodes explained (Figure 4)",
    "lemmas": "copies of the best column: IG takes them all, Greedy PIG does not (Section 4)",
    "criteo": "loss after retraining on the top k columns of a table (the Criteo table)",
    "text-evidence": "the sentences that a language model's answer stands in, found first or not",
    "text-faithfulness": "how much of a text model's output the selected parts carry",
}
"""Every reproduction, in the order of `all`, each in a line."""
