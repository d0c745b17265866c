"""Archives of TorchServe: their handlers answer, and nothing of them runs or is written without trust."""

import gc
import os
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from pytriton.exceptions import PyTritonValidationError
from pytriton.model_config import ModelConfig
from pytriton.saved import load
from tests.unit.saved.archives import FILES, HANDLER, archive


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where archives are unpacked; the path of modules is as before afterwards."""
    made = tmp_path / "unpacked"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    monkeypatch.setattr(sys, "path", [*sys.path])
    return made


def refusal(path, **options):
    with pytest.raises(PyTritonValidationError) as caught:
        load(path, **options)
    (line,) = str(caught.value).splitlines()
    return line


def test_the_class_of_a_handler_answers(tmp_path):
    model = load(archive(tmp_path / "m.mar"), trust=True)
    assert model.contents.kind == "TorchServe count"
    assert model.signature.inputs == {"body": {"encoding": "json"}}
    assert model(body="abc") == {"length": 3, "unit": "letters"}
    assert model.derived(ModelConfig(max_batch_size=4)).inputs[0].name == "body"


FUNCTION = """\
model = None


def answer(requests, context):
    global model
    if requests is None:
        model = context.manifest["model"]["modelName"]
        return None
    return [[model, request["body"]] for request in requests]
"""
STEPS = """\
def initialize(context):
    global unit
    unit = context.model_name


def preprocess(requests):
    return [request["body"] for request in requests]


def inference(values):
    return [value + 1 for value in values]


def postprocess(values):
    return [{unit: value} for value in values]
"""


def test_a_function_of_a_handler_loads_the_model_when_it_gets_nothing(tmp_path):
    model = load(archive(tmp_path / "m.mar", {"handler.py": FUNCTION}, "handler.py:answer"), trust=True)
    assert model(body={"a": 1}) == ["count", {"a": 1}]


def test_functions_of_a_handler_are_called_one_after_the_other(tmp_path):
    model = load(archive(tmp_path / "m.mar", {"handler.py": STEPS}, "handler"), trust=True)
    assert model(body=41) == {"count": 42}


def test_bodies_may_be_texts_and_bytes_under_another_name(tmp_path):
    model = load(archive(tmp_path / "m.mar"), trust=True, inputs={"data": "bytes"})
    assert model.signature.inputs == {"data": {"type": "string", "contentEncoding": "base64"}}
    assert model(data=b"\xff\x00")["length"] == 2
    assert load(tmp_path / "m.mar", trust=True, inputs={"data": "string"})(data="é")["length"] == 1


def test_two_archives_have_modules_of_the_same_names(tmp_path):
    one = load(archive(tmp_path / "one.mar"), trust=True)
    two = load(archive(tmp_path / "two.mar", {**FILES, "words.py": "COUNTED = 'other'\n"}), trust=True)
    assert one(body="ab") == {"length": 2, "unit": "letters"}
    assert two(body="ab") == {"other": 2, "unit": "letters"}


def test_its_files_are_removed_with_the_model(tmp_path, folder):
    model = load(archive(tmp_path / "m.mar"), trust=True)
    assert len([*folder.iterdir()]) == 1
    del model
    gc.collect()
    assert not [*folder.iterdir()]


def test_nothing_runs_without_trust(tmp_path):
    made = tmp_path / "made"
    archive(tmp_path / "m.zip", {"handler.py": f"open({str(made)!r}, 'w')\n{HANDLER}"})
    assert "has the format TorchServe, which can run any code" in refusal(tmp_path / "m.zip")
    assert not made.exists()


@pytest.mark.parametrize("name", ["../outside.py", "/tmp/outside.py", "a/../../outside.py", "a\\..\\outside.py"])
def test_files_outside_of_the_folder_are_not_written(name, tmp_path, folder):
    path = archive(tmp_path / "m.mar", {**FILES, name: "x"})
    line = refusal(path, trust=True)
    assert line == f"{path} has {name!r}, which is a link or outside of its folder; it is not loaded"
    assert not [*folder.iterdir()]
    assert not (folder.parent / "outside.py").exists()


def test_links_are_not_written(tmp_path, folder):
    path = archive(tmp_path / "m.mar")
    with zipfile.ZipFile(path, "a") as more:
        link = zipfile.ZipInfo("link")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        more.writestr(link, "/etc")
    assert "has 'link', which is a link or outside of its folder" in refusal(path, trust=True)
    assert not [*folder.iterdir()]


def test_an_archive_that_would_fill_the_disk_is_not_unpacked(tmp_path, folder):
    path = tmp_path / "m.mar"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as written:
        written.writestr("MAR-INF/MANIFEST.json", " " * 2**27)
    assert "would expand to 128 MiB, over 100 times its size; it is not loaded" in refusal(path, trust=True)
    assert not [*folder.iterdir()]


@pytest.mark.parametrize(
    ("files", "handler", "message"),
    [
        ({}, "image_classifier", "'image_classifier', which comes with TorchServe"),
        ({}, "handler.py", "'handler.py', which is missing"),
        ({"handler.py": "x = 1"}, "handler.py", "handler.py has neither a function handle nor a class with one"),
        ({"handler.py": "def"}, "handler.py", "cannot be loaded (SyntaxError: "),
        ({"handler.py": "import nothing_here"}, "handler.py", "needs the module 'nothing_here'; install it"),
        (
            {"handler.py": "import ts.torch_handler"},
            "handler.py",
            "'ts'; it comes with TorchServe: pip install torchserve",
        ),
        ({"handler.py": HANDLER}, "handler.py", "needs the module 'words'"),
    ],
)
def test_a_handler_that_cannot_be_used_is_told(files, handler, message, tmp_path, folder):
    before = [*sys.path]
    assert message in refusal(archive(tmp_path / "m.mar", files, handler), trust=True)
    assert not [*folder.iterdir()]
    assert sys.path == before


@pytest.mark.parametrize("manifest", ["", "[]", '{"model": {}}', "{"])
def test_a_manifest_that_is_damaged_is_told(manifest, tmp_path, folder):
    path = tmp_path / "m.mar"
    with zipfile.ZipFile(path, "w") as written:
        written.writestr("MAR-INF/MANIFEST.json", manifest)
    assert "cannot be loaded (" in refusal(path, trust=True)
    assert not [*folder.iterdir()]


def test_a_damaged_archive_is_told(tmp_path, folder):
    path = archive(tmp_path / "m.mar")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"COUNTED", b"DAMAGED", 1))
    assert "is a damaged zip file (Bad CRC-32" in refusal(path, trust=True)
    path.write_bytes(data[: len(data) // 2])
    assert "is a damaged zip file" in refusal(path, trust=True)
    assert not [*folder.iterdir()]


def test_a_handler_that_answers_too_few_is_told(tmp_path):
    text = "def handle(requests, context):\n    return [1, 2, 3]\n"
    model = load(archive(tmp_path / "m.mar", {"handler.py": text}), trust=True)
    with pytest.raises(RuntimeError, match=r"the handler returned \[1, 2, 3\] for 1 requests, not one for each"):
        model(body=1)


def test_a_forked_process_leaves_the_files_to_its_parent(tmp_path, folder):
    model = load(archive(tmp_path / "m.mar"), trust=True)
    child = os.fork()
    if not child:
        del model
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    assert Path(folder, next(folder.iterdir()).name, "unit.txt").is_file()
    assert model(body="a")["length"] == 1
