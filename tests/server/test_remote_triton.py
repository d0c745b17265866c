"""Callables of this process as models of a server that another process runs."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.http

from pytriton.client import DecoupledModelClient, ModelClient
from pytriton.client.exceptions import PyTritonClientInvalidUrlError, PyTritonClientTimeoutError
from pytriton.decorators import batch
from pytriton.exceptions import PyTritonInvalidOperationError, PyTritonModelControlError
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import VALID_TRITON_ENDPOINTS, RemoteTriton, Triton, TritonSecurityConfig
from tests.server.arrays import filled, strings
from tests.server.gated import Gated
from tests.server.other_server import PROTOCOLS, TOKEN, answer, models_of, plain_tritonserver, triple
from tests.server.own_server import TENSORS, address, double
from tests.server.processes import DEADLINE_S, wait_for
from tests.unit.loopback import closed_address

pytestmark = pytest.mark.either_proxy


@pytest.mark.parametrize("protocol", PROTOCOLS)  # that the models are loaded by
def test_models_bound_before_and_after_connecting_are_served(server, protocol):
    remote = RemoteTriton(address(server, protocol), access_token=TOKEN)
    remote.bind("before", double, *TENSORS)
    assert not remote.is_connected()
    assert not remote.is_alive()
    with remote:
        assert remote.is_connected()
        remote.bind("after", triple, *TENSORS)
        assert remote.is_alive()
        for client_protocol in PROTOCOLS:
            assert answer(server, "before", client_protocol) == 2
            assert answer(server, "after", client_protocol) == 3
        assert [each.name for each in remote.statistics()] == ["after", "before"]
    assert not remote.is_connected()
    assert not remote.is_alive()
    assert models_of(server, TOKEN) == set()
    assert remote.stop() is False


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_it_is_alive_before_the_first_bind_while_the_server_lives(server, protocol):
    remote = RemoteTriton(address(server, protocol), access_token=TOKEN)
    assert remote.is_alive()
    remote.__exit__()
    assert not remote.is_alive()
    with closed_address() as nobody:
        absent = RemoteTriton(f"{protocol}://{nobody}")
        assert not absent.is_alive()
        absent.__exit__()


def test_without_a_block_models_are_loaded_by_connect(server):
    remote = RemoteTriton(address(server, "http"), access_token=TOKEN)
    remote.bind("m", double, *TENSORS)
    remote.connect()
    remote.connect()  # again: nothing happens
    try:
        assert answer(server) == 2
    finally:
        assert remote.stop() is True


def test_instances_work_in_parallel(server, remote):
    both = threading.Barrier(2)

    def infer(requests):
        both.wait(DEADLINE_S)
        return double(requests)

    remote.bind("m", [infer, infer], *TENSORS, config=ModelConfig(max_batch_size=1))  # two would be merged
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(answer, server) for _ in range(2)]
        assert [each.result(DEADLINE_S) for each in made] == [2, 2]


def test_versions_come_and_go_one_by_one(server, remote):
    remote.bind("m", double, *TENSORS, model_version=1)
    remote.bind("m", triple, *TENSORS, model_version=2)
    assert [answer(server, version=version) for version in ("1", "2")] == [2, 3]
    remote.rebind("m", lambda requests: [{"y": request["x"] * 4} for request in requests], model_version=1)
    assert [answer(server, version=version) for version in ("1", "2")] == [4, 3]
    remote.unbind("m", 2)
    assert answer(server) == 4
    assert models_of(server, TOKEN) == {"m"}
    remote.unbind("m")
    assert models_of(server, TOKEN) == set()
    remote.bind("m", triple, *TENSORS)
    assert answer(server) == 3


def test_labels_go_with_the_model(server, remote):
    outputs = [Tensor((2,), np.float32, "y", labels=["cat", "dog"])]
    remote.bind("m", lambda requests: [{"y": request["x"]} for request in requests], TENSORS[0], outputs)
    wanted = [tritonclient.http.InferRequestedOutput("y", class_count=1)]
    given = tritonclient.http.InferInput("x", [1, 2], "FP32").set_data_from_numpy(np.array([[1, 2]], np.float32))
    with tritonclient.http.InferenceServerClient(address(server, "http").partition("://")[2]) as client:
        assert client.infer("m", [given], outputs=wanted).as_numpy("y").tolist() == [[b"2.000000:1:dog"]]


def test_callables_of_every_kind_are_served(server, remote):
    @batch
    async def infer(x):
        return [x * 5]

    def count(requests):
        for number in range(3):
            yield [{"y": request["x"] + number} for request in requests]

    remote.bind("async", infer, *TENSORS)
    remote.bind("stream", count, *TENSORS, config=ModelConfig(decoupled=True))
    texts = [[Tensor(name=name, shape=(-1,), dtype=bytes)] for name in ("x", "y")]
    remote.bind("bytes", lambda requests: [{"y": request["x"]} for request in requests], *texts)
    assert answer(server, "async") == 5
    with DecoupledModelClient(address(server, "grpc"), "stream") as client:
        assert [response["y"][0, 0] for response in client.infer_batch(filled(1))] == [1, 2, 3]
    for protocol in PROTOCOLS:
        with ModelClient(address(server, protocol), "bytes") as client:
            sent = strings((2, 4))
            assert client.infer_batch(sent)["y"].tolist() == sent.tolist()


def test_stop_answers_requests_in_flight(server):
    gated = Gated()
    remote = RemoteTriton(address(server, "http"), access_token=TOKEN)
    with ThreadPoolExecutor(2) as pool:
        remote.bind("m", gated, *TENSORS)
        remote.connect()
        made = pool.submit(answer, server)
        gated.wait_called()
        stopped = pool.submit(remote.stop)
        wait_for(lambda: not models_of(server, TOKEN), "new requests to be refused")
        gated.gate.open()
        assert made.result(DEADLINE_S) == 2
        assert stopped.result(DEADLINE_S) is True


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("token", [None, "wrong"])
def test_without_the_token_the_error_says_where_it_goes(server, protocol, token):
    remote = RemoteTriton(address(server, protocol), access_token=token)
    with pytest.raises(PyTritonModelControlError, match=r"restricted.*give RemoteTriton the server's access_token"):
        remote.connect()
    remote.stop()


@pytest.mark.parametrize("url", ["ftp://localhost", "http://", "http://localhost:port"])
def test_a_url_that_cannot_be_understood_is_refused_at_once(url, tmp_path):
    with pytest.raises(PyTritonClientInvalidUrlError):
        RemoteTriton(url, workspace=tmp_path / "workspace")
    assert not (tmp_path / "workspace").exists()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_server_that_never_comes_is_a_timeout_that_says_where(free_config, protocol):
    url = address(free_config, protocol)
    remote = RemoteTriton(url, init_timeout_s=0.3)
    remote.bind("m", double, *TENSORS)
    with pytest.raises(PyTritonClientTimeoutError, match=rf"the server at {url} was not ready after 0\.3 s"):
        remote.connect()
    assert remote.stop() is False


def test_a_server_that_comes_late_is_waited_for(free_config, tmp_path):
    with ThreadPoolExecutor(1) as pool:
        remote = RemoteTriton(address(free_config, "http"))
        remote.bind("m", double, *TENSORS)
        connected = pool.submit(remote.connect)
        with plain_tritonserver(free_config, tmp_path / "server", "--model-control-mode=explicit"):
            connected.result(DEADLINE_S)
            assert answer(free_config) == 2
            remote.stop()


def test_a_stop_ends_the_wait_for_a_server(free_config):
    remote = RemoteTriton(address(free_config, "http"))
    with ThreadPoolExecutor(1) as pool:
        connected = pool.submit(remote.connect)
        assert remote.stop() is False
        with pytest.raises(PyTritonInvalidOperationError, match="stopped"):
            connected.result(DEADLINE_S)


def test_a_plain_server_with_an_empty_repository_serves_too(free_config, tmp_path):
    with plain_tritonserver(free_config, tmp_path / "server", "--model-control-mode=explicit"):
        with RemoteTriton(address(free_config, "grpc")) as remote:
            remote.bind("m", double, *TENSORS)
            assert [answer(free_config, protocol=protocol) for protocol in PROTOCOLS] == [2, 2]
        assert models_of(free_config, TOKEN) == set()
    assert not [*(tmp_path / "server" / "repository").iterdir()]


def test_a_server_without_explicit_model_control_is_told_how_to_have_it(free_config, tmp_path):
    with (
        plain_tritonserver(free_config, tmp_path / "server"),
        RemoteTriton(address(free_config, "http")) as remote,
    ):
        for _ in range(2):  # the second time says the same, and not that the model is bound
            with pytest.raises(PyTritonModelControlError, match="start that server with --model-control-mode=explicit"):
                remote.bind("m", double, *TENSORS)
        assert remote.is_alive()


def test_the_workspace_is_removed(server, tmp_path):
    workspace = tmp_path / "shared" / "workspace"
    with RemoteTriton(address(server, "http"), workspace, TOKEN) as remote:
        remote.bind("m", double, *TENSORS)
        assert workspace.stat().st_mode & 0o077 == 0
        assert answer(server) == 2
    assert not workspace.exists()
    with pytest.raises(FileExistsError):
        RemoteTriton(address(server, "http"), tmp_path, TOKEN)


def test_a_server_with_its_health_protected_is_reached_with_the_token(free_config):
    with Triton(config=free_config, security_config=TritonSecurityConfig(TOKEN, VALID_TRITON_ENDPOINTS)):
        url = address(free_config, "http")
        wrong = RemoteTriton(url, access_token="wrong")
        with pytest.raises(PyTritonModelControlError, match="give RemoteTriton the server's access_token"):
            wrong.connect()
        wrong.stop()
        with RemoteTriton(url, access_token=TOKEN) as remote:
            remote.bind("m", double, *TENSORS)
            assert remote.is_connected()
