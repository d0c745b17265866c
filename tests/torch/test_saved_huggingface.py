"""Folders of Hugging Face and Sentence Transformers, in this process: `make test-torch` runs this."""

from __future__ import annotations

import base64
import io
import json
import os
import socket

import numpy as np
import pytest

from pytriton.exceptions import PyTritonValidationError
from pytriton.saved import load
from pytriton.signature.problems import ValueMismatchError

for module in ("PIL", "torch", "transformers"):
    pytest.importorskip(module, reason=f"{module} is not installed: make test-torch installs it")
import torch  # noqa: E402
from PIL import Image  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers.pipelines import PIPELINE_REGISTRY  # noqa: E402

from tests.torch.folders import FOLDERS, LONGEST, made, pipeline_of, sentences, sound  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")


def picture(color: tuple[int, int, int]) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (40, 50), color).save(file, "PNG")
    return file.getvalue()


TEXTS = [{"text": "this is a good day"}, {"text": "bad"}, {"text": "one two"}]
ROWS = {
    "fill-mask": [{"text": "a [MASK] day"}, {"text": "[MASK] is a [MASK] day"}],
    "question-answering": [
        {"question": "is this good", "context": "a good day"},
        {"question": "one", "context": "this is a bad day"},
    ],
    "zero-shot-classification": [{"text": "a good day", "labels": ["good", "bad"]}, {"text": "a", "labels": ["one"]}],
    "image-classification": [{"image": picture((255, 0, 0))}, {"image": picture((0, 0, 90))}],
    "automatic-speech-recognition": [{"audio": sound(1)}, {"audio": sound(2)}],
}


def expected(task, pipe, row):
    """What the pipeline answers for a row alone, as the model does."""
    if task == "zero-shot-classification":
        found = pipe(row["text"], candidate_labels=row["labels"])
        return dict(zip(found["labels"], found["scores"], strict=True))
    if task == "feature-extraction":
        return np.mean(pipe(row["text"])[0], axis=0).tolist()
    if task == "image-classification":
        return pipe(Image.open(io.BytesIO(row["image"])), top_k=1)[0]
    if task == "token-classification":
        return pipe(row["text"], aggregation_strategy="simple")
    if task == "text-generation":
        return pipe(row["text"], return_full_text=False)[0]
    if task == "question-answering":
        return pipe(**row)
    (value,) = row.values()
    found = pipe(value)
    return found[0] if task in ("text-classification", "summarization", "text2text-generation") else found


def assert_same(found, wanted):
    """The same structure, texts and integers; numbers within what merging texts of other lengths changes."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for key, value in wanted.items():
            assert_same(found[key], value)
    elif isinstance(wanted, list) and wanted and isinstance(wanted[0], (dict, list)):
        assert len(found) == len(wanted)
        for each, value in zip(found, wanted, strict=True):
            assert_same(each, value)
    elif isinstance(wanted, str):
        assert found == wanted
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.fixture(params=FOLDERS, scope="module")
def folder(request, tmp_path_factory):
    """A folder for each task: ``(task, path)``."""
    return request.param, made(request.param, tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture
def offline(monkeypatch):
    """Calls of the network, all of which fail."""
    calls = []

    def refuse(*args, **kwargs):
        calls.append(args)
        raise OSError("there is no network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    return calls


def test_a_row_and_a_batch_are_answered_as_by_the_pipeline_without_a_network(folder, offline):
    task, path = folder
    if task not in PIPELINE_REGISTRY.get_supported_tasks():
        with pytest.raises(PyTritonValidationError, match=f"has no pipeline for {task}; pip install 'transformers<5'"):
            load(path, method=task)
        return
    model, pipe, rows = load(path, method=task), pipeline_of(task, path), ROWS.get(task, TEXTS)
    wanted = [expected(task, pipe, row) for row in rows]
    for row, value in zip(rows, wanted, strict=True):
        assert_same(model(**row), value)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    if "labels" not in columns:
        found = model.predict(arrays_of(model, columns))
        results = [codec_of(model).result({name: array[n] for name, array in found.items()}) for n in range(len(rows))]
        for result, value in zip(results, wanted, strict=True):
            if task == "text-generation":  # a length that the folder tells counts what fills up a batch, too
                assert value["generated_text"].startswith(result["generated_text"])
            else:
                assert_same(result, value)
    for example in model.signature.examples:
        given = {
            name: base64.b64decode(value) if name == "image" else value for name, value in example["input"].items()
        }
        assert_same(json.loads(json.dumps(model(**given), default=np.ndarray.tolist)), example["output"])
    assert not offline


def codec_of(model):
    from pytriton.signature.values import SignatureCodec

    return SignatureCodec(model.signature)


def arrays_of(model, columns):
    return codec_of(model).arrays(columns, has_rows=True)


def test_texts_longer_than_a_network_takes_are_cut(tmp_path):
    path = made("text-classification", tmp_path)
    model = load(path)
    assert model(text="good " * 3 * LONGEST) == model(text="good " * LONGEST)
    settings = json.loads((path / "tokenizer_config.json").read_text())
    (path / "tokenizer_config.json").write_text(json.dumps({**settings, "model_max_length": int(1e30)}))
    model = load(path)
    assert model(text="good " * 3 * LONGEST) == model(text="good " * LONGEST)


def test_values_that_a_pipeline_refuses_are_told_in_its_words(tmp_path):
    model = load(made("fill-mask", tmp_path / "mask"))
    with pytest.raises(ValueMismatchError, match="No mask_token"):
        model(text="a good day")
    model = load(made("image-classification", tmp_path / "image"))
    with pytest.raises(ValueMismatchError, match="not a readable image"):
        model(image=b"\x89PNG")


def test_sound_may_be_a_file_for_ffmpeg(tmp_path):
    path = made("automatic-speech-recognition", tmp_path)
    model = load(path, inputs={"audio": "bytes"})
    assert model.signature.inputs == {"audio": {"type": "string", "contentEncoding": "base64"}}
    assert model.signature.outputs == {"text": {"type": "string"}}
    assert not model.signature.examples


class Making:
    """Whose pickle makes a folder when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_pickled_weights_must_be_trusted(tmp_path):
    path = made("text-classification", tmp_path / "model")
    weights = pipeline_of("text-classification", path).model.state_dict()
    (path / "model.safetensors").rename(tmp_path / "other.safetensors")
    torch.save(weights, path / "pytorch_model.bin")
    with pytest.raises(
        PyTritonValidationError, match="has no weights in safetensors, and pickled ones can run any code"
    ):
        load(path)
    assert load(path, trust=True)(text="good")["label"].startswith("LABEL_")
    torch.save({**weights, "made": Making(tmp_path / "made")}, path / "pytorch_model.bin")
    (tmp_path / "other.safetensors").rename(path / "model.safetensors")
    load(path)
    assert not (tmp_path / "made").exists()


def test_modules_of_a_folder_run_only_if_it_is_trusted(tmp_path):
    path = made("text-classification", tmp_path / "model")
    config = json.loads((path / "config.json").read_text())
    config |= {"model_type": "of_its_own", "auto_map": {"AutoConfig": "own.OwnConfig"}}
    (path / "config.json").write_text(json.dumps(config))
    (path / "own.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'made')!r})\n")
    with pytest.raises(PyTritonValidationError) as caught:
        load(path)
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_folder_whose_files_are_cut_off_is_told(file, tmp_path):
    path = made("text-classification", tmp_path)
    (path / file).write_bytes((path / file).read_bytes()[:40])
    with pytest.raises(PyTritonValidationError, match=r"cannot be read as Hugging Face .* damaged") as caught:
        load(path)
    assert len(str(caught.value).splitlines()) == 1


def test_what_is_for_no_task_or_has_no_weights_is_told(tmp_path):
    path = made("text-classification", tmp_path)
    with pytest.raises(
        PyTritonValidationError, match="has no method 'fill-mask'; it has text-classification, zero-shot"
    ):
        load(path, method="fill-mask")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"architectures": ["BertForNothing"]}))
    with pytest.raises(PyTritonValidationError, match="with BertForNothing has no method that could be served"):
        load(path)
    (path / "model.safetensors").unlink()
    with pytest.raises(PyTritonValidationError, match="is a folder of Hugging Face without weights"):
        load(path)


@pytest.mark.parametrize(
    ("file", "setting", "number"),
    [
        ("config.json", "num_hidden_layers", 10**7),
        ("config.json", "hidden_size", 10**9),
        ("config.json", "num_labels", 1e999),
        ("generation_config.json", "num_beams", 10**6),
        ("generation_config.json", "max_length", 10**12),
    ],
)
def test_settings_that_would_take_all_memory_or_never_end_are_told(tmp_path, file, setting, number):
    path = made("text-generation", tmp_path)
    settings = json.loads((path / file).read_text())
    (path / file).write_text(json.dumps(settings | {"more": {setting: number}}))
    with pytest.raises(PyTritonValidationError, match=f"has {setting} of .*, more than") as caught:
        load(path)
    assert len(str(caught.value).splitlines()) == 1


def test_an_adapter_whose_network_would_be_fetched_is_told(tmp_path):
    path = made("text-classification", tmp_path)
    (path / "adapter_config.json").write_text('{"base_model_name_or_path": "somebody/network"}')
    with pytest.raises(PyTritonValidationError, match="is an adapter of PEFT, whose network is elsewhere"):
        load(path, trust=True)


def test_modules_of_sentences_run_only_if_they_are_trusted(tmp_path):
    sentences(tmp_path)
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules[1]["type"] = "own.Own"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "own.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'made')!r})\n")
    with pytest.raises(PyTritonValidationError, match=r"has the module own\.Own in modules\.json, which can run"):
        load(tmp_path)
    assert not (tmp_path / "made").exists()


def test_what_would_be_trusted_within_a_folder_of_sentences_is_refused(tmp_path):
    """A network within the network would be made without our refusal of code."""
    sentences(tmp_path)
    inner = tmp_path / "2_More"
    inner.mkdir()
    (inner / "sentence_bert_config.json").write_text('{"trust_remote_code": true}')
    with pytest.raises(PyTritonValidationError, match=r"has trust_remote_code in 2_More/sentence_bert_config\.json"):
        load(tmp_path)
    (inner / "sentence_bert_config.json").rename(inner / "modules.json")
    with pytest.raises(PyTritonValidationError, match=r"2_More/modules\.json, with modules within a module"):
        load(tmp_path)
    (inner / "modules.json").rename(inner / "router_config.json")
    with pytest.raises(PyTritonValidationError, match=r"2_More/router_config\.json, with modules within"):
        load(tmp_path)
    (inner / "router_config.json").rename(inner / "pytorch_model.bin")
    with pytest.raises(PyTritonValidationError, match=r"pickled weights in 2_More/pytorch_model\.bin"):
        load(tmp_path)
    (inner / "pytorch_model.bin").unlink()
    modules = json.loads((tmp_path / "modules.json").read_text())
    nested = {"idx": 2, "name": "2", "path": "2_More", "type": "sentence_transformers.SentenceTransformer"}
    (tmp_path / "modules.json").write_text(json.dumps([*modules, nested]))
    with pytest.raises(PyTritonValidationError, match=r"the module sentence_transformers\.SentenceTransformer in mod"):
        load(tmp_path)
    inner.rmdir()
    inner.symlink_to(tmp_path)
    with pytest.raises(PyTritonValidationError, match="has a symbolic link to a folder, 2_More"):
        load(tmp_path)


def test_an_index_that_names_pickles_is_refused(tmp_path):
    path = made("text-classification", tmp_path / "model")
    (path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "pytorch_model.bin"}}')
    with pytest.raises(PyTritonValidationError, match=r"weights in pytorch_model\.bin in model\.safetensors\.index"):
        load(path)


def test_a_backbone_that_is_elsewhere_is_not_fetched(tmp_path, offline):
    path = made("image-classification", tmp_path / "model")
    config = json.loads((path / "config.json").read_text())
    del config["model_type"]
    config |= {"backbone": "microsoft/resnet-18", "use_pretrained_backbone": True, "model_type": "dpt"}
    (path / "config.json").write_text(json.dumps(config | {"architectures": ["DPTModel"]}))
    with pytest.raises(PyTritonValidationError):
        load(path)
    assert not offline


def test_weights_and_tokenizers_that_are_missing_are_told(tmp_path):
    path = made("text-classification", tmp_path / "model")
    weights = load_file(path / "model.safetensors")
    kept = {name: value for name, value in weights.items() if not name.startswith("classifier")}
    save_file(kept, path / "model.safetensors", {"format": "pt"})
    with pytest.raises(
        PyTritonValidationError, match=r"lacks weights, such as classifier\.bias, which would be random"
    ):
        load(path)
    for file in path.glob("*token*"):
        file.unlink()
    for file in path.glob("vocab*"):
        file.unlink()
    with pytest.raises(PyTritonValidationError, match="has no tokenizer; save it there"):
        load(path)


def test_weights_of_sentences_that_are_missing_are_told_unless_nothing_uses_them(tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers", reason="it is not installed")
    sentences(tmp_path)
    trust = int(sentence_transformers.__version__.partition(".")[0]) < 6
    (path,) = tmp_path.glob("*.safetensors")
    weights = load_file(path)
    save_file({name: value for name, value in weights.items() if "pooler" not in name}, path, {"format": "pt"})
    load(tmp_path, trust=trust)
    missing = next(name for name in weights if "attention" in name)
    save_file({name: value for name, value in weights.items() if name != missing}, path, {"format": "pt"})
    with pytest.raises(PyTritonValidationError, match=r"lacks weights, such as .*attention"):
        load(tmp_path, trust=trust)


def test_sentences_are_embedded_as_by_their_library(tmp_path, offline):
    sentence_transformers = pytest.importorskip("sentence_transformers", reason="it is not installed")
    network = sentences(tmp_path)
    offline.clear()  # of its description, which the library asks for
    model = load(tmp_path, trust=int(sentence_transformers.__version__.partition(".")[0]) < 6)
    texts = [row["text"] for row in TEXTS]
    found = model.predict(arrays_of(model, {"input": texts}))
    np.testing.assert_allclose(found["embedding"], network.encode(texts), rtol=1e-5, atol=1e-6)
    assert found["tokens"].ravel().tolist() == [7, 3, 4]
    tokens = network.tokenizer("good day", add_special_tokens=False)["input_ids"]
    np.testing.assert_allclose(model(input=tokens)["embedding"], model(input="good day")["embedding"], rtol=1e-5)
    tokens = network.tokenizer("good day")["input_ids"]
    np.testing.assert_allclose(model(input=tokens)["embedding"], model(input="good day")["embedding"], rtol=1e-5)
    with pytest.raises(ValueMismatchError, match="a token is not from 0 to 13"):
        model(input=[14])
    assert not offline
