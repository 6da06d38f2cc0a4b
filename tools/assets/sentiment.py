"""MiniLM, fine-tuned on film reviews: a classifier with the labels "negative" and "positive".

One epoch of AdamW over `TRAINED` reviews of IMDB, cut to `TOKENS` tokens, with a linear warm-up and
decay of the learning rate. Matrix products are in bfloat16: on a processor with instructions
for it, training takes half the time of float32. Every batch is new to the model, so the accuracy printed
during training is measured on unseen reviews. The `HELD_OUT` reviews are read once, after training.
"""

from __future__ import annotations

import json
import logging
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from greedypig.core.errors import InvalidInput

from .texts import Review, files_in, import_transformers

__all__ = ["HELD_OUT", "LABELS", "TRAINED", "classifier_folder", "split"]

LABELS = ("negative", "positive")
HELD_OUT = 2_000
TRAINED = 6_000
TOKENS = 192
BATCH = 16
LEARNING_RATE = 1e-4
WARM_UP = 0.1
"""Share of the steps in which the learning rate rises from 0."""
SEED = 0

log = logging.getLogger(__name__)


def split(
    reviews: Sequence[Review], *, held_out: int = HELD_OUT, trained: int = TRAINED
) -> tuple[list[Review], list[Review]]:
    """Reviews to train on, and reviews to measure the accuracy on; no text is in both."""
    distinct = list({review["text"]: review for review in reviews}.values())
    if len(distinct) < held_out + trained:
        raise InvalidInput(
            f"Expected at least {held_out + trained} different reviews (got {len(distinct)}). "
            "Try the whole asset imdb."
        )
    random.Random(SEED).shuffle(distinct)
    return distinct[held_out : held_out + trained], distinct[:held_out]


def classifier_folder(
    encoder: Mapping[str, bytes], reviews: Sequence[Review], held_out: Sequence[Review]
) -> dict[str, bytes]:
    """The files of the trained classifier, with its tokenizer and `metrics.json`.

    Args:
        encoder: The files of a BERT model with its tokenizer.
        reviews: Reviews to train on, in this order.
        held_out: Reviews to measure the accuracy on.
    """
    transformers = import_transformers()
    with tempfile.TemporaryDirectory() as name:
        for file, content in encoder.items():
            (Path(name) / file).write_bytes(content)
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, local_files_only=True)
        torch.manual_seed(SEED)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            name,
            local_files_only=True,
            id2label=dict(enumerate(LABELS)),
            label2id={label: index for index, label in enumerate(LABELS)},
        )
        start = time.monotonic()
        _train(model.train(), tokenizer, reviews)
        metrics = {
            "training_reviews": len(reviews),
            "training_seconds": round(time.monotonic() - start),
            "held_out_reviews": len(held_out),
            "accuracy": _accuracy(model.eval(), tokenizer, held_out),
            "tokens_per_review": TOKENS,
            "seed": SEED,
        }
        log.info("%s", json.dumps(metrics))
        folder = Path(name) / "classifier"
        model.save_pretrained(folder)
        files = dict(files_in(folder))
    # The tokenizer is the encoder's. Ours would be saved with the cut after `TOKENS` tokens.
    files |= {file: encoder[file] for file in ("tokenizer.json", "tokenizer_config.json")}
    return files | {"metrics.json": (json.dumps(metrics, indent=1) + "\n").encode()}


def _train(model: Any, tokenizer: Any, reviews: Sequence[Review]) -> None:
    starts = range(0, len(reviews), BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    scheduler = import_transformers().get_linear_schedule_with_warmup(
        optimizer, round(WARM_UP * len(starts)), len(starts)
    )
    right: list[bool] = []
    for step, start in enumerate(starts, start=1):
        batch = _encoded(tokenizer, reviews[start : start + BATCH])
        with torch.autocast("cpu", torch.bfloat16):
            output = model(**batch)
        output.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        right += (output.logits.argmax(1) == batch["labels"]).tolist()
        if step % 25 == 0 or step == len(starts):
            recent = right[-1_000:]
            log.info(
                "step %d of %d: accuracy %.3f on the last %d reviews, before they were learned",
                *(step, len(starts), sum(recent) / len(recent), len(recent)),
            )


@torch.no_grad()
def _accuracy(model: Any, tokenizer: Any, reviews: Sequence[Review]) -> float:
    right = 0
    for start in range(0, len(reviews), BATCH):
        batch = _encoded(tokenizer, reviews[start : start + BATCH])
        right += int((model(**batch).logits.argmax(1) == batch["labels"]).sum())
    return right / len(reviews)


def _encoded(tokenizer: Any, reviews: Sequence[Review]) -> dict[str, torch.Tensor]:
    texts = [review["text"] for review in reviews]
    encoded = tokenizer(
        texts, truncation=True, max_length=TOKENS, padding=True, return_tensors="pt"
    )
    return {**encoded, "labels": torch.tensor([review["label"] for review in reviews])}
