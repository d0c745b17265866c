"""What of a command line is a file of a model; tests/server/test_saved_models.py serves such files."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from pytriton.cli.app import app
from pytriton.cli.errors import TargetError
from pytriton.cli.saved import LoadArguments, SavedTarget, target_of
from pytriton.cli.saved_report import program_of
from pytriton.cli.target import Target

NONE = LoadArguments()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working folder with the file ``data``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "name", "path"),
    [
        ("iris.onnx", "iris", "iris.onnx"),
        ("models/my-model.v2.skops", "my_model_v2", "models/my-model.v2.skops"),
        ("flowers=iris.ubj", "flowers", "iris.ubj"),
        ("flowers=other.txt", "flowers", "other.txt"),
        ("data", "data", "data"),
        ("mlflow:data", "data", "data"),
        ("flowers=mlflow:data", "flowers", "data"),
        ("hf:./data", "data", "data"),
    ],
)
def test_a_file_is_a_target_with_a_name(text, name, path, here):
    assert target_of([text], NONE) == SavedTarget({name: Path(path)}, NONE)


@pytest.mark.parametrize("text", ["models:bind_all", "models.py"])
def test_a_module_stays_a_module(text, here):
    (here / "models.py").touch()
    assert target_of([text], NONE) == Target.parse(text)


@pytest.mark.parametrize(
    ("texts", "arguments", "message"),
    [
        (["models:a", "models:b"], NONE, "give one MODULE:OBJECT, or files of models"),
        (["models:a"], LoadArguments(trust=True), "are for saved models"),
        (
            ["models:a", "iris.onnx"],
            NONE,
            "'models:a' is no file of a model, or is not there; serve files and a module by two commands",
        ),
        (
            ["a.onnx", "b.onnx"],
            LoadArguments(method="predict"),
            "--method, --input, --batch, --labels and --module are for one file",
        ),
        (["a/m.onnx", "b/m.onnx"], NONE, "two files have the same name"),
        (["my model=iris.onnx"], NONE, "model name 'my model': use 1 to 200 letters"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(texts, arguments, message):
    with pytest.raises(TargetError, match=message):
        target_of(texts, arguments)


def test_files_are_not_reloaded():
    with pytest.raises(TargetError, match="--reload is for modules"):
        target_of(["iris.onnx"], NONE).folder()


def test_an_input_needs_a_type():
    with pytest.raises(TargetError, match="'age' is not NAME:DTYPE"):
        LoadArguments(inputs=["age"]).of_load()
    assert LoadArguments(inputs=["x:float32:3,-1"]).of_load()["inputs"] == {"x": "float32:3,-1"}


def test_an_existing_program_is_not_overwritten(here):
    done = CliRunner().invoke(app, ["inspect", "iris.onnx", "--write", "data"])
    assert done.exit_code == 2
    assert "data exists; name a file that does not exist yet" in done.output


def test_a_missing_file_is_told(here):
    done = CliRunner().invoke(app, ["inspect", "iris.onnx"])
    assert done.exit_code == 2
    assert "there is no file iris.onnx" in done.output


def loaded_by(source, program):
    """The arguments of ``load`` in a program."""
    loaded = []
    names = {"load": lambda path, **options: loaded.append((path, options)), "Path": Path, "__file__": str(program)}
    exec(next(line for line in source.splitlines() if line.startswith("model = ")), names)
    compile(source, "server.py", "exec")
    ((path, options),) = loaded
    return path, options


@pytest.mark.parametrize("path", ['a"b.onnx', "a\\b.onnx", "a\nimport os.onnx", 'é"""\n.onnx', "/models/m.onnx"])
def test_the_program_has_any_path_as_a_text(path, here):
    arguments = LoadArguments("predict", True, ["x:float32"], False, labels="yes, no")
    program = here / "programs" / "server.py"
    source = program_of("m", Path(path), program, arguments.of_load(), f"pytriton serve {path}", 128)
    given, options = loaded_by(source, program)
    assert Path(given).resolve() == (here / path).resolve()
    assert options == {
        "method": "predict",
        "inputs": {"x": "float32"},
        "batch": False,
        "trust": True,
        "labels": ["yes", "no"],
    }
