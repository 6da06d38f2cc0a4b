"""Small random text models of three architectures, and a tokenizer of whole words."""

from __future__ import annotations

from functools import cache

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

WORDS = (
    "the The a cat dog sat ran on under mat house red blue green is of Maria Peter film was good "
    "bad very not Context Question What color Answer : . ? ! , in and"
)
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<|user|>", "<|end|>", "<|model|>"]
CHAT = (
    "{% for m in messages %}<|user|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|model|>{% endif %}"
)
SIZES = {"vocab_size": len(SPECIAL) + len(WORDS.split()), "pad_token_id": 0}
MODELS = ("bert", "gpt2", "llama")


def tokenizer(*, chat: bool = False, classifier: bool = False) -> PreTrainedTokenizerFast:
    """Words and signs of punctuation are tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *WORDS.split()])}
    own = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    own.pre_tokenizer = pre_tokenizers.Whitespace()
    if classifier:
        own.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    made = PreTrainedTokenizerFast(
        tokenizer_object=own,
        unk_token="[UNK]",
        pad_token="[PAD]",
        mask_token="[MASK]" if classifier else None,
        eos_token="<|end|>",
        additional_special_tokens=["<|user|>", "<|end|>", "<|model|>"],
    )
    if chat:
        made.chat_template = CHAT
    return made


@cache
def model(kind: str) -> torch.nn.Module:
    """A random network, the same in every run; weights are large, so that outputs differ."""
    torch.manual_seed(0)
    if kind == "bert":
        config = BertConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=48,
            max_position_embeddings=64,
            num_labels=3,
            id2label={0: "sports", 1: "films", 2: "food"},
            **SIZES,
        )
        net: torch.nn.Module = BertForSequenceClassification(config)
    elif kind == "gpt2":
        ends = {"bos_token_id": 6, "eos_token_id": 6}
        config = GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=96, **SIZES, **ends)
        net = GPT2LMHeadModel(config)
    else:
        config = LlamaConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            intermediate_size=48,
            max_position_embeddings=96,
            bos_token_id=6,
            eos_token_id=6,
            **SIZES,
        )
        net = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if parameter.dim() > 1 and "position" not in name:
                parameter.mul_(8)
    return net.eval()
