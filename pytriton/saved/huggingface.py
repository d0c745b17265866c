"""Folders of Hugging Face, by ``transformers.pipeline``. Nothing is fetched.

Weights in safetensors run no code; pickled ones, and modules in the folder, must be trusted.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import transformers
from huggingface_hub import constants
from PIL import Image
from transformers.pipelines import PIPELINE_REGISTRY, PipelineException

from pytriton.exceptions import PyTritonValidationError
from pytriton.files.networks import check_folder, check_numbers, check_tokenizer
from pytriton.llm.kinds import EMBEDDING, INPUT, KEY, TOKENS, VECTOR, Kind
from pytriton.saved.contents import NUMBER, STRING, Arrays, Contents, LoadOptions, choose_method
from pytriton.saved.results import ANYTHING, SCORES
from pytriton.saved.torch import set_up_torch
from pytriton.signature.foreign import image_of
from pytriton.signature.schema import RESULT, Schema
from pytriton.signature.values import rows_of

__all__ = ["read"]

TEXT: Mapping[str, Schema] = {"text": STRING}
LABEL: Mapping[str, Schema] = {"label": STRING, "score": NUMBER}
INTEGER: Schema = {"type": "integer"}
ANSWER: Mapping[str, Schema] = {"answer": STRING, "score": NUMBER, "start": INTEGER, "end": INTEGER}
IMAGE: Schema = {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/*"}
AUDIO: Schema = {"type": "array", "dtype": "FP32", "shape": [-1]}
GENERATED = {"generated_text", "summary_text"}  # which take too long to be tried
TEXT_OR_TOKENS: Schema = {"anyOf": [STRING, {"type": "array", "items": INTEGER}], "encoding": "json"}
CUT: Mapping[str, Any] = {"truncation": True}
TOKENIZER, IMAGES = {"tokenizer": "AutoTokenizer"}, {"image_processor": "AutoImageProcessor"}
SOUNDS = {"feature_extractor": "AutoFeatureExtractor", **TOKENIZER}


class Task(NamedTuple):
    """A task of a pipeline: schemas of inputs and outputs, what it gets of a row, options of a call, input readers."""

    inputs: Mapping[str, Schema]
    results: Mapping[str, Schema]
    given: Callable[[Mapping[str, Any]], Any] = itemgetter("text")
    options: Mapping[str, Any] = {}
    readers: Mapping[str, str] = TOKENIZER


TASKS = {
    "text-classification": Task(TEXT, LABEL, options=CUT),
    "zero-shot-classification": Task({**TEXT, "labels": {"type": "array", "items": STRING}}, {RESULT: SCORES}),
    "token-classification": Task(TEXT, {RESULT: ANYTHING}, options={"aggregation_strategy": "simple"}),
    "fill-mask": Task(TEXT, {RESULT: ANYTHING}, options={"tokenizer_kwargs": CUT}),
    "feature-extraction": Task(TEXT, {}, options=CUT),
    "text-generation": Task(TEXT, {"generated_text": STRING}, options={"return_full_text": False}),
    "text2text-generation": Task(TEXT, {"generated_text": STRING}),
    "summarization": Task(TEXT, {"summary_text": STRING}),
    "question-answering": Task({"question": STRING, "context": STRING}, ANSWER, dict),
    "image-classification": Task({"image": IMAGE}, LABEL, lambda row: image_of(row["image"]), {"top_k": 1}, IMAGES),
    "automatic-speech-recognition": Task({"audio": AUDIO}, TEXT, itemgetter("audio"), readers=SOUNDS),
}
OFFLINE = threading.Lock()  # held while nothing may be fetched, which is a setting of the process
ARCHITECTURES = {  # what the name of a network's class ends with, and its tasks
    r"ForSequenceClassification": ("text-classification", "zero-shot-classification"),
    r"ForTokenClassification": ("token-classification",),
    r"ForMaskedLM": ("fill-mask", "feature-extraction"),
    r"ForQuestionAnswering": ("question-answering",),
    r"ForImageClassification": ("image-classification",),
    r"ForCTC|(Whisper|Speech\w*)ForConditionalGeneration": ("automatic-speech-recognition",),
    r"ForConditionalGeneration": ("text2text-generation", "summarization"),
    r"ForCausalLM|LMHeadModel": ("text-generation",),
    r"Model": ("feature-extraction",),
}


def read(path: Path, options: LoadOptions) -> Contents:
    """Load a pipeline, onto the GPU if there is one; embeddings, if it is a folder of Sentence Transformers.

    Raises:
        PyTritonValidationError: The network is for none of the tasks, or its weights must be trusted.
    """
    if not options.trust:
        check_folder(path)
    check_numbers(path)
    safe: dict[str, Any] = {"trust_remote_code": options.trust, "device": set_up_torch(options)}
    safe["model_kwargs"] = {} if options.trust else {"use_safetensors": True}
    with OFFLINE:
        before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True  # whatever the folder names
        try:
            return (_embeddings if (path / "modules.json").is_file() else _pipeline)(path, options, safe)
        finally:
            constants.HF_HUB_OFFLINE = before


def _pipeline(path: Path, options: LoadOptions, safe: dict[str, Any]) -> Contents:
    config = json.loads((path / "config.json").read_bytes())
    architecture = (config.get("architectures") or ["no architecture"])[0]
    known = next((tasks for ending, tasks in ARCHITECTURES.items() if re.search(f"({ending})$", architecture)), ())
    task = choose_method(options.method, known, f"{path} with {architecture}")
    if task not in PIPELINE_REGISTRY.get_supported_tasks():
        raise PyTritonValidationError(
            f"{path}: transformers {transformers.__version__} has no pipeline for {task}; pip install 'transformers<5'"
        )
    if "tokenizer" in (readers := TASKS[task].readers):
        check_tokenizer(path)
    code = {"trust_remote_code": options.trust}
    parts = {name: getattr(transformers, kind).from_pretrained(str(path), **code) for name, kind in readers.items()}
    pipe = transformers.pipeline(
        task, _network(path, "" if "auto_map" in config else architecture, safe), **parts, **safe
    )
    positions = getattr(pipe.model.config, "max_position_embeddings", np.inf)
    if pipe.tokenizer and pipe.tokenizer.model_max_length > positions:  # it was not told
        pipe.tokenizer.model_max_length = positions - 2  # some networks have two more than they take tokens
    if task == "text-generation":  # which goes on after the end of each row of a batch
        pipe.tokenizer.padding_side = "left"
        pipe.tokenizer.pad_token = pipe.tokenizer.pad_token or pipe.tokenizer.eos_token
    inputs = {name: options.inputs.get(name, schema) for name, schema in TASKS[task].inputs.items()}
    is_file = "contentEncoding" in inputs.get("audio", ())  # for ffmpeg; silence has no text that would be an example
    return Contents(
        f"Hugging Face {architecture}",
        inputs,
        lambda arrays: _answer(pipe, rows_of(inputs, arrays)),
        example={} if is_file or GENERATED & TASKS[task].results.keys() else _example(pipe, inputs),
        method=task,
        methods=known,
        notes=[f"runs on {pipe.device}"],
        results=TASKS[task].results,
        refusals=(ValueError, PipelineException),
    )


def _network(path: Path, architecture: str, safe: Mapping[str, Any], unused: tuple[str, ...] = ()) -> Any:
    """The network, with all of its weights; a folder's own class is found by its path.

    Args:
        unused: How names of weights begin that may be missing.
    """
    if (kind := getattr(transformers, architecture, None)) is None:
        return str(path)
    network, found = kind.from_pretrained(str(path), output_loading_info=True, **safe["model_kwargs"])
    if missing := sorted(name for name in found["missing_keys"] if not name.startswith(unused)):
        raise PyTritonValidationError(f"{path} lacks weights, such as {missing[0]}, which would be random; save again")
    return network


def _embeddings(path: Path, options: LoadOptions, safe: dict[str, Any]) -> Contents:
    """A model whose inputs and outputs are those of an ``EmbeddingModel``."""
    import sentence_transformers

    if int((version := sentence_transformers.__version__).partition(".")[0]) < 6 and not options.trust:
        raise PyTritonValidationError(f"{path}: sentence-transformers {version} trusts any folder; install 6 or newer")
    for module in json.loads((path / "modules.json").read_bytes()):
        config = path / module["path"] / "config.json"
        is_network = module["type"].endswith(".Transformer") and config.is_file()
        if is_network and "auto_map" not in json.loads(config.read_bytes()):
            _network(config.parent, "AutoModel", safe, unused=("decoder.", "pooler."))  # the library tells of none
    network = sentence_transformers.SentenceTransformer(str(path), local_files_only=True, **safe)
    tokenizer = network.tokenizer

    def predict(arrays: Arrays) -> dict[str, Any]:
        given = [row[INPUT] for row in rows_of({INPUT: TEXT_OR_TOKENS}, arrays)]
        if any(not 0 <= token < len(tokenizer) for each in given if not isinstance(each, str) for token in each):
            raise ValueError(f"a token is not from 0 to {len(tokenizer) - 1}")
        texts = [each if isinstance(each, str) else tokenizer.decode(each, skip_special_tokens=True) for each in given]
        counts = [len(tokens) for tokens in tokenizer(texts, truncation=True)["input_ids"]]
        return {VECTOR: network.encode(texts, batch_size=len(texts)), TOKENS: np.array(counts, np.int32)}

    marks, notes = {KEY: Kind(EMBEDDING).to_json()}, [f"runs on {network.device}"]
    inputs, example = {INPUT: TEXT_OR_TOKENS}, {INPUT: "text"}
    return Contents("Sentence Transformers", inputs, predict, example=example, notes=notes, marks=marks)


def _example(pipe: Any, inputs: Mapping[str, Schema]) -> dict[str, Any]:
    values: dict[str, Any] = {"image": Image.new("RGB", (32, 32)), "labels": ["one", "two"]}
    text = pipe.tokenizer.mask_token if pipe.task == "fill-mask" else "text"
    if "audio" in inputs:
        values["audio"] = np.zeros(pipe.feature_extractor.sampling_rate, np.float32)
    return {name: values.get(name, text) for name in inputs}


def _answer(pipe: Any, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The outputs for a batch."""
    _, results, given, options, _ = TASKS[pipe.task]
    if pipe.task == "zero-shot-classification":
        found = [pipe(row["text"], candidate_labels=row["labels"]) for row in rows]
        return {RESULT: [dict(zip(each["labels"], each["scores"], strict=True)) for each in found]}
    if pipe.task == "feature-extraction":  # a vector for each token; in a batch, also for those that fill up
        return {RESULT: np.array([np.mean(pipe(row["text"], **options)[0], axis=0) for row in rows], np.float32)}
    fills_up = pipe.tokenizer is None or pipe.tokenizer.pad_token is not None
    found = [*pipe((given(row) for row in rows), batch_size=len(rows) if fills_up else 1, **options)]
    if RESULT in results:
        return {RESULT: found}
    return {name: [(each[0] if isinstance(each, list) else each)[name] for each in found] for name in results}
