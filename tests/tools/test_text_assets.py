"""Text models and reviews: converted from tiny made-up files, and trained on made-up reviews."""

from __future__ import annotations

import gzip
import importlib.util
import json
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

import greedypig as gp
from greedypig.text import pretrained
from tools.assets import sentiment, texts
from tools.assets.catalogue import CATALOGUE

pytestmark = pytest.mark.slow

NEUTRAL = ["the", "film", "was", "and", "i", "saw", "it"]
DECISIVE = ["bad", "good"]
"""A word for each label."""


def write(files: dict[str, bytes], folder: Path) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def test_every_text_model_has_an_asset_of_its_name():
    assert set(pretrained.NAMES) <= set(CATALOGUE)


def test_reviews_are_read_as_they_were_written():
    entries = [{"t": "Good.<br /><br />Très \u2028 bon\x85", "s": 1}, {"t": "Bad\r", "s": 0}]
    content = texts.reviews_file(json.dumps(entries).encode())
    assert content == texts.reviews_file(json.dumps(entries).encode())
    assert texts.read_reviews(content) == [
        {"text": "Good.\n\nTrès \u2028 bon\x85", "label": 1},
        {"text": "Bad\r", "label": 0},
    ]
    assert gzip.decompress(content).count(b"\n") == 2


# A BERT model in float16


@pytest.fixture(scope="module")
def bert() -> dict[str, bytes]:
    """The files of a package: a tiny network and a tokenizer that cuts after four tokens."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: index for index, word in enumerate([*special, *NEUTRAL, *DECISIVE])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_special_tokens(special)
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=4)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    state = transformers.BertModel(config).half().state_dict()
    return {
        "config.json": json.dumps(config.to_dict() | {"architectures": ["BertModel"]}).encode(),
        "model.fp16.safetensors": save(state, {"format": "pt"}),
        "tokenizer.json": tokenizer.to_str().encode(),
    }


def test_bert_in_float16_is_loaded_as_float32_and_reads_whole_texts(bert, tmp_path):
    import transformers

    folder = write(texts.bert_folder(bert), tmp_path / "bert")
    model = transformers.AutoModel.from_pretrained(folder, local_files_only=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    assert model.dtype == torch.float32
    whole = model.embeddings.word_embeddings.weight
    assert torch.equal(whole, whole.half().float())
    assert tokenizer.model_max_length == 64
    assert tokenizer.tokenize("The FILM was good") == ["the", "film", "was", "good"]
    assert len(tokenizer("the film was good and bad").input_ids) == 8


# A language model in GGUF


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A tiny language model, and the content of a GGUF file with the same weights."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    from tokenizers.pre_tokenizers import ByteLevel

    letters = sorted(ByteLevel.alphabet())
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *letters, "ĠĠ", "12"]
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(tokens),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.2,
        tie_word_embeddings=True,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    model.load_state_dict({key: value.half() for key, value in model.state_dict().items()})
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(path, model, tokens)
    return model, path.read_bytes()


def write_gguf(path: Path, model, tokens: list[str]) -> None:
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    config = model.config
    writer.add_vocab_size(len(tokens))
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * len(tokens[3:]))
    writer.add_token_merges(["Ġ Ġ", "1 2"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{% for m in messages %}<|im_start|>{{ m['content'] }}{% endfor %}")
    for name, weight in gguf_weights(model).items():
        writer.add_tensor(f"{name}.weight", weight.detach().contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_weights(model) -> dict[str, torch.Tensor]:
    layer = model.model.layers[0]

    def neighbours(weight: torch.Tensor, heads: int) -> torch.Tensor:
        """llama.cpp rotates neighbouring rows of a head, transformers those half a head apart."""
        return weight.view(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)

    return {
        "token_embd": model.model.embed_tokens.weight,
        "output_norm": model.model.norm.weight,
        "blk.0.attn_norm": layer.input_layernorm.weight,
        "blk.0.attn_q": neighbours(layer.self_attn.q_proj.weight, 4),
        "blk.0.attn_k": neighbours(layer.self_attn.k_proj.weight, 2),
        "blk.0.attn_v": layer.self_attn.v_proj.weight,
        "blk.0.attn_output": layer.self_attn.o_proj.weight,
        "blk.0.ffn_norm": layer.post_attention_layernorm.weight,
        "blk.0.ffn_gate": layer.mlp.gate_proj.weight,
        "blk.0.ffn_up": layer.mlp.up_proj.weight,
        "blk.0.ffn_down": layer.mlp.down_proj.weight,
    }


@pytest.fixture(scope="module")
def converted(llama, tmp_path_factory) -> Path:
    files = texts.language_model_folder(llama[1])
    return write(files, tmp_path_factory.mktemp("converted") / "tiny")


def test_a_converted_language_model_gives_the_same_logits(llama, converted):
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(converted, local_files_only=True)
    assert model.dtype == torch.float32
    ids = torch.arange(5, 25)[None]
    with torch.no_grad():
        assert torch.allclose(model(ids).logits, llama[0](ids).logits, atol=1e-4)
    assert (converted / "model.safetensors").stat().st_size < 3 * model.num_parameters()


def test_a_converted_tokenizer_splits_numbers_into_digits_and_has_the_chat_template(converted):
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(converted, local_files_only=True)
    assert tokenizer.tokenize("a  12") == ["a", "ĠĠ", "1", "2"]
    assert tokenizer.model_max_length == 64
    messages = [{"role": "user", "content": "hi"}]
    assert tokenizer.apply_chat_template(messages, tokenize=False) == "<|im_start|>hi"


def test_without_gguf_the_extra_is_named(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "gguf" else found(name)
    )
    with pytest.raises(gp.MissingPackage, match=r'the package gguf .*pip install "\.\[assets\]"'):
        texts.language_model_folder(b"")


# The classifier


def made_up_reviews(count: int) -> list[texts.Review]:
    """Different reviews; the label follows from one word."""
    draw = random.Random(0)
    reviews = {}
    while len(reviews) < count:
        label = draw.randrange(2)
        words = draw.choices(NEUTRAL, k=8)
        words[draw.randrange(8)] = DECISIVE[label]
        reviews[" ".join(words)] = label
    return [texts.Review(text=text, label=label) for text, label in reviews.items()]


def test_no_text_is_both_trained_on_and_held_out():
    reviews = made_up_reviews(30)
    twice = reviews + reviews
    train, held_out = sentiment.split(twice, held_out=10, trained=20)
    assert len({review["text"] for review in train + held_out}) == 30
    assert (train, held_out) == sentiment.split(twice, held_out=10, trained=20)
    with pytest.raises(gp.InvalidInput, match=r"at least 31 different reviews \(got 30\)"):
        sentiment.split(twice, held_out=10, trained=21)


def test_training_finds_the_word_that_decides_and_records_the_accuracy(bert, tmp_path, monkeypatch):
    import transformers

    monkeypatch.setattr(sentiment, "LEARNING_RATE", 5e-3)
    train, held_out = sentiment.split(made_up_reviews(1_100), held_out=100, trained=1_000)
    files = sentiment.classifier_folder(texts.bert_folder(bert), train, held_out)
    metrics = json.loads(files["metrics.json"])
    assert (metrics["training_reviews"], metrics["held_out_reviews"]) == (1_000, 100)
    assert metrics["accuracy"] > 0.95
    assert json.loads(files["tokenizer.json"])["truncation"] is None
    folder = write(files, tmp_path / "classifier")
    classify = transformers.pipeline("text-classification", model=str(folder), device="cpu")
    labels = [answer["label"] for answer in classify(["it was good", "bad was the film"])]
    assert labels == ["positive", "negative"]
