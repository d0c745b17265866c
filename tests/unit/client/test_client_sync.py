"""ModelClient as programs use it, on a small HTTP server that echoes one input."""

import subprocess
import sys
import threading

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from pytriton.client import FuturesModelClient, ModelClient
from pytriton.client import client as historical
from pytriton.client.client import BaseModelClient
from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientInferenceServerError,
    PyTritonClientInvalidUrlError,
    PyTritonClientModelUnavailableError,
    PyTritonClientTimeoutError,
    PyTritonClientValueError,
)
from pytriton.client.utils import (
    ModelState,
    create_client_from_url,
    get_model_config,
    get_model_state,
    wait_for_model_ready,
    wait_for_server_ready,
)
from tests.unit.loopback import KNOWN, X, paths


def test_sample_and_batch_come_back(server):
    with ModelClient(server.url, "m") as client:
        np.testing.assert_array_equal(client.infer_batch(X)["x"], X)
        np.testing.assert_array_equal(client.infer_sample(x=X[1])["x"], X[1])


def test_constructor_connects_to_nothing_by_default(server):
    ModelClient(server.url, "m").close()
    assert server.requests == []


def test_eager_client_is_ready_to_infer(server):
    with ModelClient(server.url, "m", "1", lazy_init=False) as client:
        assert paths(server) == ["/v2/models/m/versions/1/ready", "/v2/models/m/versions/1/config"]
        client.infer_sample(X[0])
    assert paths(server)[2:] == ["/v2/models/m/versions/1/infer"]


def test_eager_client_of_an_unknown_model_raises_in_its_constructor(server):
    with pytest.raises(PyTritonClientModelUnavailableError, match="'other'"):
        ModelClient(server.url, "other", lazy_init=False, init_timeout_s=1)


def test_eager_client_without_a_server_raises_in_its_constructor():
    with pytest.raises(PyTritonClientTimeoutError, match="refused"):
        ModelClient("127.0.0.1:1", "m", lazy_init=False, init_timeout_s=0.1)


def test_token_travels_with_every_call_and_opens_a_restricted_server(server):
    server.token = "secret"
    with ModelClient(server.url, "m", access_token="secret") as client:
        client.wait_for_server(5)
        client.wait_for_model(5)
        client.infer_sample(X[0])
        client.unload_model()
        client.load_model()
    assert {headers.get("triton-access-token") for _, headers in server.requests} == {"secret"}
    with (
        ModelClient(server.url, "m", **KNOWN) as stranger,
        pytest.raises(PyTritonClientInferenceServerError, match=r"\[403\] restricted"),
    ):
        stranger.infer_sample(X[0])


def test_empty_token_is_refused():
    with pytest.raises(PyTritonClientValueError, match="access_token"):
        ModelClient("localhost", "m", access_token="")


def test_properties_describe_the_model(server):
    with ModelClient(server.url, "m") as client:
        assert client.is_batching_supported is True
        assert client.model_config.max_batch_size == 4


def test_closed_client_refuses_everything_and_closes_again(server):
    client = ModelClient(server.url, "m")
    client.infer_sample(X[0])
    client.close()
    client.close()
    for use in (
        lambda: client.infer_sample(X[0]),
        lambda: client.infer_batch(X),
        lambda: client.wait_for_model(1),
        lambda: client.model_config,
        lambda: client.is_batching_supported,
    ):
        with pytest.raises(PyTritonClientClosedError):
            use()


def test_client_made_in_one_thread_works_and_ends_in_another(server):
    client = ModelClient(server.url, "m")
    client.infer_sample(X[0])
    results = []

    def use():
        results.append(client.infer_sample(X[0])["x"].tolist())
        client.close()

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert results == [[0.0, 1.0]]


def test_client_made_from_another_inherits_what_that_has_learned(server):
    server.token = "secret"
    with ModelClient(server.url, "m", "1", inference_timeout_s=7, access_token="secret") as first:
        first.infer_sample(X[0])
        asked = len(server.requests)
        with ModelClient.from_existing_client(first) as second:
            second.infer_sample(X[0])
            assert second.model_config is first.model_config
    assert paths(server)[asked:] == ["/v2/models/m/versions/1/infer"]


@pytest.mark.parametrize(("url", "lib"), [("localhost", tritonclient.http), ("grpc://localhost", tritonclient.grpc)])
def test_client_made_from_another_keeps_its_protocol(url, lib):
    with ModelClient(url, "m") as first, ModelClient.from_existing_client(first) as second:
        assert first.get_lib() is second.get_lib() is lib
        with second.create_client_from_url(url) as bare:
            assert isinstance(bare, lib.InferenceServerClient)


@pytest.mark.parametrize("lib", [tritonclient.http, tritonclient.grpc])
def test_a_subclass_of_the_base_needs_get_lib_alone(lib):
    class Client(BaseModelClient):
        def get_lib(self):
            return lib

    scheme = lib.__name__.rpartition(".")[2]
    client = Client(f"{scheme}://localhost", "m", "2", init_timeout_s=5)
    bare = client.create_client_from_url(f"{scheme}://localhost")
    assert isinstance(bare, lib.InferenceServerClient)
    bare.close()
    assert isinstance(Client.from_existing_client(client), Client)


def test_a_client_may_be_left_by_hand(server):
    client = ModelClient(server.url, "m").__enter__()
    client.__exit__()
    with pytest.raises(PyTritonClientClosedError):
        client.infer_sample(X[0])


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (("https://localhost", "m"), {}, PyTritonClientInvalidUrlError),
        (("localhost", ""), {}, PyTritonClientValueError),
        (("localhost", "m", 1), {}, PyTritonClientValueError),
        (("localhost", "m"), {"init_timeout_s": 0}, PyTritonClientValueError),
        (("localhost", "m"), {"inference_timeout_s": -1}, PyTritonClientValueError),
    ],
)
def test_wrong_settings_are_refused(arguments, options, error):
    with pytest.raises(error):
        ModelClient(*arguments, **options)


def test_functions_on_a_bare_client(server):
    server.token = "secret"
    headers = {"triton-access-token": "secret"}
    with create_client_from_url(server.url) as client:
        wait_for_server_ready(client, 5, headers)
        wait_for_model_ready(client, "m", timeout_s=5, headers=headers)
        assert get_model_config(client, "m", timeout_s=5, headers=headers).model_name == "m"
        assert get_model_state(client, "m", headers=headers) is ModelState.READY
        assert get_model_state(client, "other", headers=headers) is ModelState.UNAVAILABLE
        with pytest.raises(PyTritonClientTimeoutError):
            wait_for_server_ready(client, 0.05)


def test_historical_import_path_has_the_same_classes():
    assert historical.ModelClient is ModelClient
    assert issubclass(ModelClient, historical.BaseModelClient)
    assert historical.DEFAULT_INFERENCE_TIMEOUT_S == 60.0


@pytest.mark.parametrize(("url", "foreign"), [("localhost", "grpc"), ("grpc://localhost", "gevent")])
def test_only_the_protocol_in_use_is_imported(url, foreign):
    program = (
        "import sys\nfrom pytriton.client import ModelClient\n"
        "assert not {'tritonclient', 'grpc', 'gevent'} & set(sys.modules)\n"
        f"ModelClient({url!r}, 'm').close()\nassert {foreign!r} not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("kind", [ModelClient, FuturesModelClient])
def test_the_context_may_be_left_by_hand(server, kind):
    client = kind(server.url, "m")
    client.__enter__()
    client.__exit__()
    with pytest.raises(PyTritonClientClosedError):
        client.infer_sample(X[0])
