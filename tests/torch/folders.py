"""Folders of Hugging Face with small random networks, made by transformers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "day", "text", "one", "two", "this", "is"]
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
LONGEST = 32  # tokens


def tokenizer(*, pads: bool = True) -> Any:
    """Of words, with marks at the beginning and at the end."""
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    marks = {"single": "[CLS] $A [SEP]", "pair": "[CLS] $A [SEP] $B [SEP]"}
    names = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    if pads:
        made.post_processor = processors.TemplateProcessing(**marks, special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
        names["pad_token"] = "[PAD]"
    else:
        names["eos_token"] = "[SEP]"
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=LONGEST, **names)


def bert(kind: str, **options: Any) -> Callable[[Path], Path]:
    """Makes a folder with a network of BERT, such as ``ForMaskedLM``."""

    def make(folder: Path) -> Path:
        config = transformers.BertConfig(
            vocab_size=len(WORDS), max_position_embeddings=LONGEST, initializer_range=1.0, **SIZES, **options
        )
        return saved(getattr(transformers, f"Bert{kind}")(config), folder, tokenizer())

    return make


def saved(network: Any, folder: Path, *others: Any) -> Path:
    """Write a network, and its tokenizer or processors."""
    for each in (network, *others):
        each.save_pretrained(folder)
    return folder


def gpt2(folder: Path) -> Path:
    config = transformers.GPT2Config(
        vocab_size=len(WORDS), n_positions=LONGEST, n_embd=16, n_layer=1, n_head=2, initializer_range=1.0,
        bos_token_id=2, eos_token_id=3,
    )  # fmt: skip
    network = transformers.GPT2LMHeadModel(config)
    network.generation_config.update(max_length=12, do_sample=True, top_k=1, eos_token_id=None)
    return saved(network, folder, tokenizer(pads=False))


def t5(folder: Path) -> Path:
    config = transformers.T5Config(
        vocab_size=len(WORDS), d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0,
        pad_token_id=0, eos_token_id=3,
    )  # fmt: skip
    network = transformers.T5ForConditionalGeneration(config)
    network.generation_config.update(max_length=12, do_sample=False)
    return saved(network, folder, tokenizer())


def vit(folder: Path) -> Path:
    config = transformers.ViTConfig(image_size=32, patch_size=16, num_labels=3, initializer_range=1.0, **SIZES)
    size = {"height": 32, "width": 32}
    return saved(transformers.ViTForImageClassification(config), folder, transformers.ViTImageProcessor(size=size))


def wav2vec2(folder: Path) -> Path:
    config = transformers.Wav2Vec2Config(
        vocab_size=8, conv_dim=(8, 8), conv_stride=(20, 16), conv_kernel=(20, 16), num_feat_extract_layers=2,
        num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, initializer_range=1.0, **SIZES,
    )  # fmt: skip
    letters = folder / "vocab.json"
    folder.mkdir(exist_ok=True)
    letters.write_text('{"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "|": 4, "A": 5, "B": 6, "C": 7}')
    processor = transformers.Wav2Vec2Processor(
        transformers.Wav2Vec2FeatureExtractor(), transformers.Wav2Vec2CTCTokenizer(letters)
    )
    return saved(transformers.Wav2Vec2ForCTC(config), folder, processor)


ZERO_SHOT = {"id2label": {0: "contradiction", 1: "entailment"}, "label2id": {"contradiction": 0, "entailment": 1}}
FOLDERS: dict[str, Callable[[Path], Path]] = {
    "text-classification": bert("ForSequenceClassification", num_labels=3),
    "zero-shot-classification": bert("ForSequenceClassification", **ZERO_SHOT),
    "token-classification": bert("ForTokenClassification", num_labels=3),
    "fill-mask": bert("ForMaskedLM"),
    "feature-extraction": bert("Model"),
    "question-answering": bert("ForQuestionAnswering"),
    "text-generation": gpt2,
    "text2text-generation": t5,
    "summarization": t5,
    "image-classification": vit,
    "automatic-speech-recognition": wav2vec2,
}


def pipeline_of(task: str, folder: Path) -> Any:
    return transformers.pipeline(task, str(folder), device="cpu")


def made(task: str, folder: Path) -> Path:
    """The folder of a task; the same each time."""
    torch.manual_seed(7)
    return FOLDERS[task](folder)


def sound(seed: int) -> np.ndarray:
    """Half a second."""
    return np.random.default_rng(seed).standard_normal(8000).astype(np.float32)


def sentences(folder: Path) -> Any:
    """Write a folder of Sentence Transformers; returns its network."""
    library = pytest.importorskip("sentence_transformers", reason="it is not installed: make test-torch installs it")
    models = importlib.import_module("sentence_transformers.models")
    torch.manual_seed(7)
    word = models.Transformer(str(bert("Model")(folder / "word")))
    network = library.SentenceTransformer(modules=[word, models.Pooling(SIZES["hidden_size"])], device="cpu")
    network.save(str(folder))
    return network
