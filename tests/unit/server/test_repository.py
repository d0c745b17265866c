"""The files of a model in the generated repository."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pytriton
from pytriton.model_config import InstanceGroup
from pytriton.model_config.parser import ModelConfigParser
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.server.repository import PROXY_PACKAGE, PROXY_PARTS, remove_model, write_model
from tests.unit import backend

PACKAGE = Path(pytriton.__file__).parent
CONFIG = TritonModelConfig(
    "my-model",
    3,
    inputs=[TensorSpec("x", (-1,), np.float32)],
    outputs=[TensorSpec("y", (-1,), np.float32)],
)


@pytest.fixture
def store(tmp_path):
    store = tmp_path / "model store"
    store.mkdir()
    return store


@pytest.fixture
def sockets(tmp_path):
    return tmp_path / "sock ets" / "7"


def proxy_files():
    return [f"{part}/{file.name}" for part in PROXY_PARTS for file in (PACKAGE / part).glob("*.py")]


def files_in(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_model_is_a_configuration_and_one_version(store, sockets):
    write_model(store, CONFIG, sockets)
    assert files_in(store) == sorted([
        "my-model/config.pbtxt",
        "my-model/3/endpoint.json",
        "my-model/3/model.py",
        *(f"my-model/3/{PROXY_PACKAGE}/{path}" for path in proxy_files()),
    ])  # fmt: skip


def test_the_configuration_reads_back(store, sockets):
    write_model(store, CONFIG, sockets)
    read = ModelConfigParser.from_file(config_path=store / "my-model" / "config.pbtxt")
    assert (read.model_name, read.inputs, read.outputs) == (CONFIG.model_name, CONFIG.inputs, CONFIG.outputs)


def test_the_endpoint_says_where_the_sockets_are(store, sockets):
    write_model(store, CONFIG, sockets, batches_in_flight=5)
    endpoint = json.loads((store / "my-model" / "3" / "endpoint.json").read_text())
    assert (endpoint["folder"], endpoint["prefix"]) == (str(sockets.parent), "7")
    assert endpoint["batches_in_flight"] == 5


def test_the_endpoint_says_what_was_bound(store, sockets):
    write_model(store, replace(CONFIG, instance_groups=[InstanceGroup(2), InstanceGroup(1)]), sockets)
    endpoint = json.loads((store / "my-model" / "3" / "endpoint.json").read_text())
    sides = {"input": ["x"], "output": ["y"]}
    assert endpoint["bound"] == {"callables": 3, "batching": True, "decoupled": False, **sides}


def test_the_proxys_files_are_those_of_the_package(store, sockets):
    write_model(store, CONFIG, sockets)
    for path in proxy_files():
        assert (store / "my-model" / "3" / PROXY_PACKAGE / path).read_text() == (PACKAGE / path).read_text()


def test_the_proxy_can_be_imported_with_numpy_alone(store, sockets, tmp_path):
    """As the server's stub does it: model.py by its path, in an interpreter that knows numpy and no pytriton."""
    write_model(store, CONFIG, sockets)
    version = store / "my-model" / "3"
    (tmp_path / f"{backend.NAME}.py").touch()  # the stub brings it
    script = (
        "import sys, importlib.util\n"
        f"spec = importlib.util.spec_from_file_location('model', {str(version / 'model.py')!r})\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "print(module.TritonPythonModel.__module__)\n"
        "print({name.partition('.')[0] for name in sys.modules} & {'pytriton', 'tritonclient', 'grpc', 'wrapt'})\n"
    )
    command = [sys.executable, "-W", "error", "-S", "-c", script]
    environment = {"PYTHONPATH": str(Path(np.__file__).parent.parent)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{PROXY_PACKAGE}.python_proxy.model\nset()\n", "")


def test_versions_of_a_model_lie_beside_each_other_and_go_one_by_one(store, sockets):
    other = TritonModelConfig("my-model", 1, inputs=CONFIG.inputs, outputs=CONFIG.outputs)
    write_model(store, CONFIG, sockets)
    write_model(store, other, sockets)
    assert sorted(path.name for path in (store / "my-model").iterdir()) == ["1", "3", "config.pbtxt"]
    remove_model(store, CONFIG)
    assert sorted(path.name for path in (store / "my-model").iterdir()) == ["1", "config.pbtxt"]
    remove_model(store, other)
    assert files_in(store) == []
    assert not (store / "my-model").exists()


def test_each_change_makes_a_model_newer_however_soon_it_follows(store, sockets):
    """The server looks at nothing else, and file systems' own clocks advance every few milliseconds."""

    def newest():
        return max(path.stat().st_mtime_ns for path in (store / "my-model").rglob("*"))

    write_model(store, TritonModelConfig("my-model", 1, inputs=CONFIG.inputs, outputs=CONFIG.outputs), sockets)
    times = [newest()]
    for _ in range(20):
        write_model(store, CONFIG, sockets)
        times.append(newest())
        remove_model(store, CONFIG)
        times.append(newest())
    assert times == sorted(set(times))


def test_removing_what_is_not_there_does_nothing(store):
    remove_model(store, CONFIG)
    assert files_in(store) == []
