"""Loads of models whose names or paths ended the bundled server or led out of a model's folder: they are refused."""

from __future__ import annotations

import base64
import http.client
import json
from contextlib import closing

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from pytriton.client import ModelClient
from tests.server.conftest import LOCALHOST
from tests.server.own_server import double, server_of
from tests.server.proxies import native_part_only

pytestmark = [pytest.mark.either_proxy, native_part_only]

CONFIG = {
    "backend": "pytriton",
    "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [-1]}],
}
PATHS = [
    "a" * 256,
    "1/" + "a" * 256,
    "a/" * 2100 + "a",
    "",
    ".",
    "..",
    "../a",
    "1/../../a",
    "/tmp/a",
    "1//a",
    "1/",
    "a/./b",
]
NAMES = ["a" * 256, "a" * 5000, "", ".", "..", "../a", "a/b", "/tmp"]


@pytest.fixture(scope="module")
def model(bind):
    return bind(double)


@pytest.fixture(autouse=True)
def survivor(triton_config, model):
    """After each test the same process answers as before."""
    pid = server_of(triton_config)
    yield
    with ModelClient(f"http://{LOCALHOST}:{triton_config.http_port}", model, init_timeout_s=60) as client:
        assert client.infer_sample(np.ones(3, np.float32))["y"].tolist() == [2, 2, 2]
    assert server_of(triton_config) == pid


@pytest.fixture(scope="module")
def stub(triton_config, triton):
    with grpc.insecure_channel(f"{LOCALHOST}:{triton_config.grpc_port}") as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


@pytest.fixture(params=["http", "grpc"])
def load(request, triton_config, stub):
    """``load(model, config, path)``: the message that refuses it."""

    def over_http(model, config, path):
        file = {"file:" + path: base64.b64encode(b"data").decode()}
        body = json.dumps({"parameters": {"config": json.dumps(config), **file}})
        with closing(http.client.HTTPConnection(LOCALHOST, triton_config.http_port, timeout=60)) as connection:
            connection.request("POST", f"/v2/repository/models/{model}/load", body)
            reply = connection.getresponse()
            assert reply.status == 400
            return json.loads(reply.read())["error"]

    def over_grpc(model, config, path):
        asked = service_pb2.RepositoryModelLoadRequest(model_name=model)
        asked.parameters["config"].string_param = json.dumps(config)
        asked.parameters["file:" + path].bytes_param = b"data"
        with pytest.raises(grpc.RpcError) as refused:
            stub.RepositoryModelLoad(asked, timeout=60)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        return refused.value.details()

    return over_http if request.param == "http" else over_grpc


@pytest.mark.parametrize("path", PATHS)
def test_a_file_of_a_model_has_a_path_within_the_models_folder(load, path):
    assert "by a path within the model's folder" in load("uploaded", CONFIG, path)


@pytest.mark.parametrize("path", ["a" * 255, "1/" + "a" * 255, "1/a b/..c"])
def test_other_paths_get_to_the_model(load, path):
    assert "load failed for model 'uploaded'" in load("uploaded", CONFIG, path)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_has_a_name_that_is_one_folder(stub, name):
    asked = service_pb2.RepositoryModelLoadRequest(model_name=name)
    for has_config in (False, True):
        if has_config:
            asked.parameters["config"].string_param = json.dumps(CONFIG)
        with pytest.raises(grpc.RpcError) as refused:
            stub.RepositoryModelLoad(asked, timeout=60)
        assert "the name of a model has 1 to 255 bytes" in refused.value.details()


@pytest.mark.parametrize("member", ["label_filename", "labelFilename"])
@pytest.mark.parametrize("path", ["/etc/passwd", "../../../etc/passwd", "a" * 300])
def test_labels_are_read_from_the_models_folder(load, member, path):
    (output,) = CONFIG["output"]
    message = load("uploaded", {**CONFIG, "output": [{**output, member: path}]}, "1/a")
    assert f"{member} '{path[:64]}" in message


def test_a_refusal_does_not_outlive_its_load(load):
    assert "within the model's folder" in load("uploaded", CONFIG, "..")
    assert "load failed for model 'uploaded'" in load("uploaded", CONFIG, "1/a")
