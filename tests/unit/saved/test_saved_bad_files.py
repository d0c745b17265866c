"""Files that are damaged, renamed, hostile or of another format: one line says what to do, and no code runs."""

import importlib.util
import json
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytriton.exceptions import PyTritonValidationError
from pytriton.files.formats import FORMATS as TABLE
from pytriton.files.formats import format_of
from pytriton.files.networks import check_folder
from pytriton.files.onnx import external_files
from pytriton.saved import load
from tests.unit.saved.files import FORMATS, of_onnx, of_skops, write_onnx

pytestmark = pytest.mark.filterwarnings("default")


def refusal(path, **options):
    """The message, which is one line."""
    with pytest.raises(PyTritonValidationError) as caught:
        load(path, **options)
    (line,) = str(caught.value).splitlines()
    return line


class Touch:
    """Whose pickle makes a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["joblib", "mlflow"])
def test_a_format_that_can_run_code_must_be_trusted(name, tmp_path):
    saved = FORMATS[name](tmp_path)
    assert (
        "can run any code when it is loaded. If you know where it comes from, allow that with trust=True (--trust)"
        in (refusal(saved.path))
    )
    load(saved.path, trust=True)


@pytest.mark.parametrize("suffix", [".pkl", ".onnx", ".skops", ".txt", ".json", ".ubj", ""])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_with_any_name_runs_nothing_without_trust(suffix, protocol, tmp_path):
    path, made = tmp_path / f"model{suffix}", tmp_path / "made"
    path.write_bytes(pickle.dumps(Touch(made), protocol))
    assert "has the format pickle" in refusal(path)
    assert not made.exists()


@pytest.mark.parametrize("suffix", [".pkl", ".onnx", ".txt"])
def test_a_pickle_of_the_oldest_protocols_is_no_model(suffix, tmp_path):
    path, made = tmp_path / f"model{suffix}", tmp_path / "made"
    path.write_bytes(pickle.dumps(Touch(made), 0))
    assert "it is damaged or renamed" in refusal(path)
    assert not made.exists()


def test_a_pickle_inside_of_skops_runs_nothing(tmp_path):
    saved = of_skops(tmp_path)
    made = tmp_path / "made"
    with zipfile.ZipFile(saved.path, "a") as archive:
        archive.writestr("more.pkl", pickle.dumps(Touch(made)))
    load(saved.path)
    assert not made.exists()


def test_types_that_skops_does_not_know_need_trust(tmp_path):
    io = pytest.importorskip("skops.io", reason="skops is not installed")
    from sklearn.preprocessing import FunctionTransformer

    io.dump(FunctionTransformer(os.path.basename), tmp_path / "model.skops")
    assert "types that skops does not know as safe: posixpath.basename" in refusal(tmp_path / "model.skops")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("share", [0.02, 0.5, 0.9])
def test_a_file_that_is_cut_off_is_told(name, share, tmp_path):
    saved = FORMATS[name](tmp_path)
    path = saved.path / "model.skops" if saved.path.is_dir() else saved.path
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    assert "damaged" in refusal(saved.path, **saved.options)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "mlflow"])
def test_an_empty_file_is_told(name, tmp_path):
    saved = FORMATS[name](tmp_path)
    saved.path.write_bytes(b"")
    assert refusal(saved.path, **saved.options) == f"{saved.path} is empty; save the model again"


@pytest.mark.parametrize("name", ["onnx", "skops", "xgboost", "lightgbm"])
def test_a_renamed_file_is_known_by_what_it_contains(name, tmp_path):
    saved = FORMATS[name](tmp_path)
    renamed = saved.path.rename(tmp_path / "model.bin")
    assert load(renamed, **saved.options).__name__ == "model"


def test_texts_are_of_no_format(tmp_path):
    path = tmp_path / "notes.md"
    path.write_text("# Notes\n")
    assert refusal(path).startswith(f"the format of {path} is unknown; known are MLflow (a folder), skops (.skops), ")


@pytest.mark.parametrize("suffix", sorted({suffix for each in TABLE for suffix in each.suffixes}))
def test_texts_with_the_suffix_of_a_format_are_told(suffix, tmp_path):
    (tmp_path / f"model{suffix}").write_text("# Notes\n")
    assert "it is damaged or renamed; save it again" in refusal(tmp_path / f"model{suffix}")


def test_other_formats_are_named_with_what_to_do(tmp_path):
    (tmp_path / "pointer.onnx").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    assert "run git lfs pull" in refusal(tmp_path / "pointer.onnx")
    (tmp_path / "old.bin").write_bytes(b"binf" + bytes(100))
    assert "save it as .ubj" in refusal(tmp_path / "old.bin")
    (tmp_path / "config.pbtxt").touch()
    assert "pass the folder above it as model_repository" in refusal(tmp_path)
    assert "there is no file" in refusal(tmp_path / "missing.onnx")
    os.mkfifo(tmp_path / "pipe.pt")
    assert "there is no file" in refusal(tmp_path / "pipe.pt")


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("m/models/model.json", "has the format torch.export, which can run any code"),
        ("m/constants.pkl", "has the format TorchScript, which can run any code"),
        ("m/data.pkl", "is a checkpoint of torch.save, which has no program"),
    ],
)
def test_files_of_pytorch_are_known_without_it(file, message, tmp_path):
    with zipfile.ZipFile(tmp_path / "model.bin", "w") as archive:
        archive.writestr(file, b"")
    assert message in refusal(tmp_path / "model.bin")


def test_weights_without_a_network_are_told(tmp_path):
    (tmp_path / "old.pt").write_bytes(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.")
    assert "is a checkpoint of torch.save" in refusal(tmp_path / "old.pt", trust=True)
    (tmp_path / "model.safetensors").write_bytes(b"\x40" + bytes(7) + b'{"weight":{"dtype":"F32"}}')
    assert "need a function or class that makes their network" in refusal(tmp_path / "model.safetensors")


def test_a_zip_file_whose_end_is_that_of_one_within_it_is_damaged(tmp_path):
    with zipfile.ZipFile(tmp_path / "inner.zip", "w") as archive:
        archive.writestr("schema.json", b"{}")
    with zipfile.ZipFile(tmp_path / "model.skops", "w") as archive:
        archive.write(tmp_path / "inner.zip", "inner.zip")
        end = archive.start_dir
    (tmp_path / "model.skops").write_bytes((tmp_path / "model.skops").read_bytes()[:end])
    assert "is a damaged zip file (its end is that of a zip file within it)" in refusal(tmp_path / "model.skops")


def test_a_zip_file_that_would_fill_the_disk_is_not_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "model.skops", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", b" " * 2**27)
    assert "would expand to 128 MiB, over 100 times its size; it is not loaded" in refusal(tmp_path / "model.skops")


def test_lightgbm_files_with_other_trees_than_they_list_are_told(tmp_path):
    saved = FORMATS["lightgbm"](tmp_path)
    text = saved.path.read_text()
    saved.path.write_text(text.replace("Tree=1\n", "Tree=1\nnum_leaves=9999\n"))
    assert "trees or parameters are missing" in refusal(saved.path)


@pytest.mark.parametrize("start", [b'{"learner":', b"{L\0\0\0\0\0\0\0\7learner"])
def test_a_file_that_ends_the_process_which_reads_it_with_xgboost_is_told(start, tmp_path):
    pytest.importorskip("xgboost", reason="xgboost is not installed")
    path = tmp_path / "deep.json"
    path.write_bytes(start + b"[" * 2_000_000)
    assert refusal(path) == f"{path} is damaged: a process that reads it dies in libxgboost.so; save the model again"


def test_a_file_that_ends_the_process_which_reads_it_with_lightgbm_is_told(tmp_path):
    saved = FORMATS["lightgbm"](tmp_path)
    saved.path.write_bytes(saved.path.read_bytes().replace(b"leaf_value=", b"leaf_valu_="))
    assert "is damaged: a process that reads it dies in lib_lightgbm.so" in refusal(saved.path)


def with_data_in(path, location):
    """A file whose tensor has its data in another one."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    tensor = onnx.numpy_helper.from_array(np.ones(4, np.float32), "w")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    write_onnx(path, "float[n, 4] x", "float[n, 4] y", "y = Mul(x, w)")
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer.append(tensor)
    onnx.save(model, path)


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "below/../../secret", "link"])
def test_an_onnx_file_reads_no_data_outside_of_its_folder(location, tmp_path):
    (tmp_path / "secret").write_bytes(np.ones(4, np.float32).tobytes())
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "secret")
    with_data_in(folder / "m.onnx", location)
    assert f"has data in {location!r}, outside its folder; such a file is not loaded" in refusal(folder / "m.onnx")


def test_an_onnx_file_reads_data_beside_it(tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    with_data_in(tmp_path / "m.onnx", "m.data")
    assert "has data in 'm.data', which is missing" in refusal(tmp_path / "m.onnx")
    (tmp_path / "m.data").write_bytes(np.full(4, 3, np.float32).tobytes())
    assert load(tmp_path / "m.onnx")(x=[1, 2, 3, 4])["y"].tolist() == [3, 6, 9, 12]


def test_data_of_tensors_in_the_branches_of_a_graph_is_found(tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    with_data_in(tmp_path / "inner.onnx", "../secret")
    inner = onnx.load(tmp_path / "inner.onnx", load_external_data=False).graph
    branch = onnx.helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    node = onnx.helper.make_node("Loop", [], [], body=onnx.helper.make_graph([branch], "g", [], []))
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [])), tmp_path / "m.onnx")
    with pytest.raises(PyTritonValidationError, match="outside its folder"):
        external_files(tmp_path / "m.onnx")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bytes")


@pytest.fixture(scope="module")
def onnx_bytes(folder):
    return of_onnx(folder).path.read_bytes()


@given(st.data())
def test_any_bytes_have_a_format_or_are_refused(onnx_bytes, folder, data):
    flips = data.draw(st.lists(st.tuples(st.integers(0, len(onnx_bytes) - 1), st.integers(0, 255)), max_size=4))
    changed = bytearray(onnx_bytes)
    for index, value in flips:
        changed[index] = value
    path = folder / "changed.onnx"
    path.write_bytes(changed[: data.draw(st.integers(0, len(changed)))])
    try:
        if format_of(path).module == "onnx":
            external_files(path)
    except PyTritonValidationError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017  (either outcome is right)


def test_messages_in_one_another_without_end_are_refused(tmp_path):
    message = b""
    for _ in range(2000):  # graph: node: attribute: graph: ...
        for number in (6, 5, 1):
            size, length = len(message), b""
            while size > 127:
                length += bytes([size & 127 | 128])
                size >>= 7
            message = bytes([number << 3 | 2]) + length + bytes([size]) + message
    size, length = len(message), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    (tmp_path / "m.onnx").write_bytes(b"\x3a" + length + bytes([size]) + message)
    assert "messages in one another" in refusal(tmp_path / "m.onnx")


@pytest.mark.parametrize("path", ["../other", "/other", "1_Pooling/../../other"])
def test_a_module_of_sentences_outside_its_folder_is_refused(tmp_path, path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(bytes(8))
    modules = [{"idx": 0, "name": "0", "path": path, "type": "sentence_transformers.models.Dense"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(PyTritonValidationError, match=r"outside of it, in modules\.json"):
        check_folder(folder)
    modules[0]["path"] = "1_Dense"
    (folder / "modules.json").write_text(json.dumps(modules))
    check_folder(folder)


def test_pickled_weights_beside_other_tensors_are_refused(tmp_path):
    for name in ("model.safetensors", "2_Dense/unrelated.safetensors", "2_Dense/pytorch_model.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(8))
    with pytest.raises(PyTritonValidationError, match=r"pickled weights in 2_Dense/pytorch_model\.bin"):
        check_folder(tmp_path)
    (tmp_path / "2_Dense" / "model.safetensors").write_bytes(bytes(8))
    check_folder(tmp_path)


@pytest.mark.skipif(importlib.util.find_spec("llama_cpp") is not None, reason="llama-cpp-python is installed")
def test_a_file_whose_library_is_missing_says_how_to_install_it(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF\x03\0\0\0")
    with pytest.raises(ImportError, match=r"needs llama_cpp, which is not installed: pip install 'pytriton\[gguf\]'"):
        load(path)
