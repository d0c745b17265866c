"""What goes into an image: found without running a program, or loading a file."""

import pytest

from pytriton.exceptions import PyTritonValidationError
from pytriton.image.sources import of_files, of_program
from tests.unit.saved.files import FORMATS, of_joblib, of_mlflow, of_onnx
from tests.unit.saved.test_saved_bad_files import with_data_in

pytestmark = pytest.mark.filterwarnings("default")  # of other libraries


def written(folder, **files):
    """Files of Python."""
    for name, text in files.items():
        path = folder / f"{name.replace('_in_', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder / "server.py"


def test_files_of_models_are_served_from_folders_of_their_names(tmp_path):
    onnx, joblib = of_onnx(tmp_path), of_joblib(tmp_path)
    found = of_files({"a": onnx.path, "b": joblib.path}, ["--trust"], trust=True)
    assert found.command == ["pytriton", "serve", "a=a/layer.onnx", "b=b/species.joblib", "--trust"]
    assert found.files == {"a/layer.onnx": onnx.path, "b/species.joblib": joblib.path}
    assert found.modules == {"onnxruntime", "joblib", "pandas", "sklearn"}


def test_a_folder_of_mlflow_brings_its_requirements(tmp_path):
    saved = of_mlflow(tmp_path)
    (saved.path / "requirements.txt").write_text(
        "mlflow==3.0  # of the one who logged it\nscikit-learn==1.5; python_version>'3'\n"
    )
    found = of_files({"m": saved.path}, [], trust=True)
    assert found.command == ["pytriton", "serve", "m=m"]
    assert {"m/MLmodel", "m/model.skops"} <= found.files.keys()
    assert found.requirements == {"mlflow==3.0", "scikit-learn==1.5"}


def test_data_beside_an_onnx_file_comes_with_it(tmp_path):
    (tmp_path / "m.data").write_bytes(bytes(16))
    with_data_in(tmp_path / "m.onnx", "m.data")
    assert of_files({"m": tmp_path / "m.onnx"}, [], trust=False).files.keys() == {"m/m.onnx", "m/m.data"}


def test_a_file_that_can_run_code_needs_trust(tmp_path):
    with pytest.raises(
        PyTritonValidationError, match=r"can run any code when it is loaded.* allow that with .*--trust"
    ):
        of_files({"m": of_joblib(tmp_path).path}, [], trust=False)


def test_a_program_brings_its_modules_and_the_files_that_it_names(tmp_path):
    program = written(
        tmp_path,
        server="import json\nimport numpy as np\nfrom tools.scores import score\nfile = 'data/weights.txt'\n",
        tools_in___init__="",
        tools_in_scores="import helper\n",
        helper="def score(x: float) -> float:\n    raise RuntimeError\nscore(1)\n",
        unused="",
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "weights.txt").write_text("1")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.txt").write_text("2")
    found = of_program(program, "", [tmp_path / "more"])
    assert found.files.keys() == {
        "server.py",
        "tools/__init__.py",
        "tools/scores.py",
        "helper.py",
        "data/weights.txt",
        "more/a.txt",
    }
    assert found.modules == {"numpy"}
    assert found.command == ["pytriton", "serve", "server.py", "--rest-port", "8080"]


def test_a_program_with_a_main_part_is_run_and_its_model_brings_its_library(tmp_path):
    saved = FORMATS["xgboost"](tmp_path)
    program = written(tmp_path, server=f"load('{saved.path.name}')\nif __name__ == '__main__':\n    pass\n")
    found = of_program(program, "", [])
    assert found.command == ["python", "server.py"]
    assert found.files.keys() == {"server.py", "trees.ubj"}
    assert found.modules == {"xgboost"}
    assert of_program(program, "server:bind", []).command[:3] == ["pytriton", "serve", "server:bind"]


def test_imports_that_a_program_can_do_without_are_left_out(tmp_path):
    program = written(tmp_path, server="try:\n    import cupy\nexcept ImportError:\n    import yaml\n")
    assert of_program(program, "", []).modules == {"yaml"}


def test_what_cannot_go_into_an_image_is_told(tmp_path):
    with pytest.raises(PyTritonValidationError, match=r"there is no file .*server\.py"):
        of_program(tmp_path / "server.py", "", [])
    program = written(tmp_path, server="def\n")
    with pytest.raises(PyTritonValidationError, match="is no program of Python"):
        of_program(program, "", [])
    (tmp_path / "inner").mkdir()
    (tmp_path / "weights.txt").write_text("1")
    program = written(tmp_path / "inner", server="open('../weights.txt')\n")
    with pytest.raises(PyTritonValidationError, match=r"is not below .*inner, the folder of the program; put it there"):
        of_program(program, "", [])


def test_names_from_modules_beside_a_program_and_relative_imports_are_found(tmp_path):
    program = written(
        tmp_path,
        server="from helper import score\nfrom plain.more import number\nfrom tools import rank\n",
        helper="score = 1\n",
        plain_in_more="number = 1\n",
        tools_in___init__="from .scores import rank\nfrom . import names\n",
        tools_in_scores="import numpy\nrank = 1\n",
        tools_in_names="from .missing.deep import nothing\nfrom ...outside import nothing\n",
    )
    found = of_program(program, "", [])
    assert found.files.keys() == {
        "server.py",
        "helper.py",
        "plain/more.py",
        "tools/__init__.py",
        "tools/scores.py",
        "tools/names.py",
    }
    assert found.modules == {"numpy"}


def test_a_text_with_an_absolute_path_names_nothing_of_a_program(tmp_path):
    program = written(tmp_path, server=f"folder, null, other = '/tmp', '/dev/null', {str(tmp_path)!r}\n")
    assert of_program(program, "", []).files.keys() == {"server.py"}


def test_weights_bring_the_module_that_makes_their_network(tmp_path, monkeypatch):
    written(tmp_path, net="import helper\nimport numpy\n", helper="")
    header = b'{"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}'
    (tmp_path / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    monkeypatch.chdir(tmp_path)
    found = of_files({"w": tmp_path / "w.safetensors"}, ["--module", "net:make"], "net:make", trust=False)
    assert found.files.keys() == {"w/w.safetensors", "net.py", "helper.py"}
    assert found.modules == {"numpy", "torch", "safetensors"}
