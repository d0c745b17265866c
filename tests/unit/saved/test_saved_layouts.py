"""Folders of MLServer and KServe, and addresses of files."""

import json
import shutil

import pytest

from pytriton.cli.errors import TargetError
from pytriton.cli.saved import LoadArguments, target_of
from pytriton.exceptions import PyTritonValidationError
from pytriton.saved import load
from pytriton.saved.layouts import locate
from tests.unit.saved.files import FORMATS, iris, of_joblib, of_onnx, of_skops

pytestmark = pytest.mark.filterwarnings("default")

IMPLEMENTATIONS = {
    "skops": "mlserver_sklearn.SKLearnModel",
    "joblib": "mlserver_sklearn.sklearn.SKLearnModel",
    "xgboost": "mlserver_xgboost.XGBoostModel",
    "lightgbm": "mlserver_lightgbm.LightGBMModel",
    "mlflow": "mlserver_mlflow.MLflowRuntime",
}


def settings(folder, implementation, uri=None, **more):
    """The file of settings of a model."""
    path = folder / "model-settings.json"
    parameters = {} if uri is None else {"parameters": {"uri": uri, "version": "v1"}}
    path.write_text(json.dumps({"name": "flowers", "implementation": implementation, **parameters, **more}))
    return path


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@pytest.mark.parametrize("by_folder", [True, False])
def test_settings_of_mlserver_name_model_and_file(name, by_folder, tmp_path):
    saved = FORMATS[name](tmp_path)
    path = settings(tmp_path, IMPLEMENTATIONS[name], f"./{saved.path.name}")
    model = load(tmp_path if by_folder else path, **saved.options)
    assert model.__name__ == "flowers"
    model(**saved.values(iris()[0][0]))
    target = target_of([str(tmp_path if by_folder else path)], LoadArguments(trust=True))
    assert target.files == {"flowers": tmp_path / saved.path.name}
    target = target_of([f"other={path}"], LoadArguments(trust=True))
    assert [*target.files] == ["other"]


def test_settings_without_uri_mean_the_model_beside_them(tmp_path):
    saved = of_joblib(tmp_path)
    (tmp_path / "requirements.txt").write_text("scikit-learn\n")
    settings(tmp_path, IMPLEMENTATIONS["joblib"])
    assert locate(tmp_path).path == saved.path
    assert locate(settings(tmp_path, IMPLEMENTATIONS["joblib"], f"file://{saved.path}")).path == saved.path


@pytest.mark.parametrize("uri", [None, ".", "./", "../flowers"])
def test_settings_may_be_in_the_folder_that_is_the_model(uri, tmp_path):
    saved = FORMATS["mlflow"](tmp_path)
    folder = saved.path.rename(tmp_path / "flowers")
    settings(folder, IMPLEMENTATIONS["mlflow"], uri)
    assert locate(folder)._replace(path=folder) == locate(folder / "model-settings.json")._replace(path=folder)
    assert locate(folder).path.samefile(folder)
    load(folder, trust=True)(**saved.values(iris()[0][0]))


def test_settings_that_name_the_folder_of_other_settings_do_not_follow_them(tmp_path):
    for name, other in (("one", "two"), ("two", "one")):
        (tmp_path / name).mkdir()
        settings(tmp_path / name, IMPLEMENTATIONS["joblib"], f"../{other}")
    with pytest.raises(PyTritonValidationError, match=r"two is a folder without a file MLmodel or config\.json"):
        locate(tmp_path / "one")


@pytest.mark.parametrize(
    ("implementation", "uri", "message"),
    [
        (
            "models.MyModel",
            ".",
            "the implementation models.MyModel, which is not served from a file; these are: LightGBM",
        ),
        (IMPLEMENTATIONS["xgboost"], "species.joblib", "mlserver_xgboost.XGBoostModel, but .* is a file of pickle"),
        (IMPLEMENTATIONS["joblib"], "missing.joblib", "there is no file .*missing.joblib"),
        (IMPLEMENTATIONS["joblib"], "s3://models/iris", "s3://models/iris is not on this machine; fetch it first"),
    ],
)
def test_settings_that_cannot_be_used_are_told(implementation, uri, message, tmp_path):
    of_joblib(tmp_path)
    settings(tmp_path, implementation, uri)
    with pytest.raises(PyTritonValidationError, match=message):
        load(tmp_path, trust=True)
    with pytest.raises(TargetError, match=message):
        target_of([str(tmp_path)], LoadArguments(trust=True))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"name": "a"}'])
def test_damaged_settings_are_told(text, tmp_path):
    (tmp_path / "model-settings.json").write_text(text)
    with pytest.raises(PyTritonValidationError, match="is no file of settings of MLServer"):
        load(tmp_path)


def test_a_folder_with_one_model_is_that_model(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    saved = of_skops(folder)
    (folder / "requirements.txt").write_text("scikit-learn\n")
    (folder / "README.md").touch()
    assert locate(folder).path == locate(f"file://{folder}").path == saved.path
    assert target_of([f"flowers=file://{folder}"], LoadArguments()).files == {"flowers": saved.path}
    load(folder, method="predict_proba")(**saved.values(iris()[0][0]))
    shutil.copy(of_onnx(tmp_path).path, folder)
    with pytest.raises(
        PyTritonValidationError, match=r"has several models, iris.skops, layer.onnx; give the path of one"
    ):
        load(folder)


def test_a_folder_without_a_model_says_what_it_is(tmp_path):
    (tmp_path / "notes.md").write_text("# Notes")
    with pytest.raises(
        PyTritonValidationError, match=r"is a folder without a file MLmodel or config\.json; name the model file"
    ):
        load(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(PyTritonValidationError, match="is a folder of Hugging Face without weights"):
        load(tmp_path)


@pytest.mark.parametrize("address", ["s3://bucket/model", "pvc://volume/model", "https://example.com/m.onnx"])
def test_models_on_other_machines_are_not_fetched(address):
    with pytest.raises(PyTritonValidationError, match="is not on this machine; fetch it first, and give the folder"):
        load(address)
    with pytest.raises(TargetError, match="is not on this machine"):
        target_of([address], LoadArguments())


def test_a_damaged_neighbour_does_not_hide_the_model_of_a_folder(tmp_path):
    saved = of_onnx(tmp_path)
    (tmp_path / "data.zip").write_bytes(b"PK\x03\x04" + bytes(100))
    assert locate(tmp_path).path == saved.path


@pytest.mark.parametrize(
    "text",
    [
        '{"implementation": "x.SKLearnModel", "parameters": {"uri": 5}}',
        '{"implementation": "x.SKLearnModel", "name": ["a"]}',
        "[" * 100_000,
        '{"implementation": "x.SKLearnModel", "parameters": {"uri": "file://["}}',
    ],
    ids=["uri", "name", "nesting", "address"],
)
def test_settings_of_mlserver_that_are_wrong_are_told_in_one_line(tmp_path, text):
    (tmp_path / "model-settings.json").write_text(text)
    with pytest.raises(PyTritonValidationError, match=r"model-settings\.json is no file of settings|is no address"):
        locate(tmp_path)
