"""AsyncioModelClient as programs use it, on small servers."""

import asyncio

import numpy as np
import pytest
import tritonclient.grpc.aio
import tritonclient.http.aio

from pytriton.client import AsyncioModelClient, FuturesModelClient, ModelClient
from pytriton.client import client as historical
from pytriton.client.asyncio_utils import (
    asyncio_get_model_config,
    asyncio_get_model_state,
    asyncio_wait_for_model_ready,
    asyncio_wait_for_model_status_loaded,
    asyncio_wait_for_server_ready,
)
from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientInferenceServerError,
    PyTritonClientInvalidUrlError,
    PyTritonClientModelUnavailableError,
    PyTritonClientTimeoutError,
    PyTritonClientValueError,
)
from pytriton.client.repository_index import ModelState
from pytriton.client.utils import create_client_from_url
from tests.unit.loopback import CONFIGURED, INFERRED, KNOWN, READY, X, paths
from tests.unit.loops import in_loop


@in_loop
async def test_sample_and_batch_come_back(server):
    async with AsyncioModelClient(server.url, "m") as client:
        np.testing.assert_array_equal((await client.infer_batch(X))["x"], X)
        np.testing.assert_array_equal((await client.infer_sample(x=X[1]))["x"], X[1])


@in_loop
async def test_first_calls_at_once_get_ready_once(server):
    async with AsyncioModelClient(server.url, "m") as client:
        answers = await asyncio.gather(*(client.infer_sample(X[i % 3]) for i in range(64)))
    np.testing.assert_array_equal(answers[1]["x"], X[1])
    assert sorted(paths(server)) == sorted([READY, CONFIGURED] + [INFERRED] * 64)


@in_loop
async def test_eager_client_gets_ready_on_entering_and_not_again(server):
    client = AsyncioModelClient(server.url, "m", "1", lazy_init=False)
    assert server.requests == []
    async with client as entered:
        assert entered is client
        assert paths(server) == ["/v2/models/m/versions/1/ready", "/v2/models/m/versions/1/config"]
        await client.infer_sample(X[0])
        await client.infer_sample(X[0])
    assert paths(server)[2:] == ["/v2/models/m/versions/1/infer"] * 2


@in_loop
async def test_eager_client_of_an_unknown_model_raises_on_entering_and_is_closed(server):
    client = AsyncioModelClient(server.url, "other", lazy_init=False, init_timeout_s=2)
    with pytest.raises(PyTritonClientModelUnavailableError, match="'other'"):
        await client.__aenter__()
    with pytest.raises(PyTritonClientClosedError):
        await client.wait_for_model(1)


@in_loop
async def test_waiting_is_bounded_by_its_own_timeout(closed_port):
    async with AsyncioModelClient(closed_port, "m", init_timeout_s=300) as client:
        with pytest.raises(PyTritonClientTimeoutError, match=r"within 0\.1 s"):
            await client.wait_for_model(0.1)
        with pytest.raises(PyTritonClientTimeoutError, match=r"within 0\.1 s"):
            await client.wait_for_server(0.1)


@in_loop
async def test_token_travels_with_every_call_and_opens_a_restricted_server(server):
    server.token = "secret"
    async with AsyncioModelClient(server.url, "m", access_token="secret") as client:
        await client.wait_for_server(5)
        await client.wait_for_model(5)
        await client.infer_sample(X[0])
        await client.unload_model()
        await client.load_model()
    assert {headers.get("triton-access-token") for _, headers in server.requests} == {"secret"}
    assert len(server.requests) == 7
    async with AsyncioModelClient(server.url, "m", **KNOWN) as stranger:
        with pytest.raises(PyTritonClientInferenceServerError, match=r"\[403\] restricted"):
            await stranger.infer_sample(X[0])


@in_loop
async def test_properties_can_be_awaited_again_and_again_or_not_at_all(server):
    async with AsyncioModelClient(server.url, "m") as client:
        answer = client.model_config
        assert await answer is await answer is await client.model_config
        assert await client.is_batching_supported is True
        client.is_batching_supported  # noqa: B018  # not awaiting it must not warn
    assert paths(server) == [READY, CONFIGURED]


@in_loop
async def test_wrong_arguments_are_found_before_anything_is_sent(server):
    async with AsyncioModelClient(server.url, "m") as client:
        for call in (
            client.infer_sample(X[0], x=X[0]),
            client.infer_sample(X[0], parameters={"a": 1.5}),
            client.infer_sample(X[0], headers={"a b": "c"}),
        ):
            with pytest.raises(PyTritonClientValueError):
                await call
        assert server.requests == []


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (("https://localhost", "m"), {}, PyTritonClientInvalidUrlError),
        (("localhost", ""), {}, PyTritonClientValueError),
        (("localhost", "m"), {"init_timeout_s": 0}, PyTritonClientValueError),
        (("localhost", "m"), {"access_token": ""}, PyTritonClientValueError),
    ],
)
def test_wrong_settings_are_refused(arguments, options, error):
    with pytest.raises(error):
        AsyncioModelClient(*arguments, **options)


@in_loop
async def test_view_with_other_options_shares_what_the_client_knows(server):
    async with AsyncioModelClient(server.url, "m") as client:
        view = client.with_options(request_id="mine")
        await asyncio.gather(client.infer_sample(X[0]), view.infer_sample(X[0]))
        assert sorted(paths(server)) == sorted([READY, CONFIGURED, INFERRED, INFERRED])
    with pytest.raises(PyTritonClientClosedError):
        await view.infer_sample(X[0])


@in_loop
async def test_client_made_from_another_inherits_what_that_has_learned(server):
    server.token = "secret"
    async with AsyncioModelClient(server.url, "m", "1", inference_timeout_s=7, access_token="secret") as first:
        await first.infer_sample(X[0])
        asked = len(server.requests)
        async with AsyncioModelClient.from_existing_client(first) as second:
            await second.infer_sample(X[0])
            assert await second.model_config is await first.model_config
    assert paths(server)[asked:] == ["/v2/models/m/versions/1/infer"]


@pytest.mark.parametrize("url", ["http://h:1/base", "grpc://h:1"])
@in_loop
async def test_clients_of_every_class_can_be_made_from_each_other(url):
    classes = [ModelClient, AsyncioModelClient, FuturesModelClient]
    for source in classes:
        first = source(url, "m", "2", init_timeout_s=5, inference_timeout_s=7, access_token="secret")
        for target in classes:
            second = target.from_existing_client(first)
            assert type(second) is target
            assert (second._url, second._access_token) == (first._url, "secret")
            model = second._session
            assert (model.model_name, model.model_version) == ("m", "2")
            assert (model.init_timeout_s, model.inference_timeout_s) == (5, 7)


@pytest.mark.parametrize(
    ("url", "lib"), [("localhost", tritonclient.http.aio), ("grpc://localhost", tritonclient.grpc.aio)]
)
@in_loop
async def test_bare_clients_are_those_of_the_protocol(url, lib):
    async with AsyncioModelClient(url, "m") as client:
        assert client.get_lib() is lib
        async with client.create_client_from_url(url) as bare:
            assert isinstance(bare, lib.InferenceServerClient)


@in_loop
async def test_functions_on_a_bare_client(server):
    server.token = "secret"
    headers = {"triton-access-token": "secret"}
    async with tritonclient.http.aio.InferenceServerClient(server.url.removeprefix("http://")) as client:
        await asyncio_wait_for_server_ready(client, 0.01, headers=headers)
        await asyncio_wait_for_model_status_loaded(client, "m", 0.01, headers=headers)
        await asyncio_wait_for_model_ready(client, "m", timeout_s=5, headers=headers)
        assert (await asyncio_get_model_config(client, "m", timeout_s=5, headers=headers)).model_name == "m"
        assert await asyncio_get_model_state(client, "m", headers=headers) is ModelState.READY
        assert await asyncio_get_model_state(client, "other", headers=headers) is ModelState.UNAVAILABLE
        with pytest.raises(PyTritonClientInferenceServerError, match="restricted"):
            await asyncio_wait_for_model_status_loaded(client, "m", 0.01)
        with pytest.raises(PyTritonClientModelUnavailableError):
            await asyncio_wait_for_model_ready(client, "other", timeout_s=2, headers=headers)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio_wait_for_model_status_loaded(client, "other", 0.01, headers=headers), 0.1)


@in_loop
async def test_waiting_functions_outlast_a_server_that_is_not_there_yet(closed_port):
    async with tritonclient.http.aio.InferenceServerClient(closed_port) as client:
        for wait in (
            asyncio_wait_for_server_ready(client, 0.01),
            asyncio_wait_for_model_status_loaded(client, "m", 0.01),
        ):
            waiting = asyncio.create_task(wait)
            done, _ = await asyncio.wait([waiting], timeout=0.1)
            assert not done
            waiting.cancel()
            await asyncio.wait([waiting])


@in_loop
async def test_functions_refuse_a_synchronous_client(server):
    with create_client_from_url(server.url) as client, pytest.raises(PyTritonClientValueError, match="synchronous"):
        await asyncio_get_model_state(client, "m")


def test_historical_import_path_has_the_same_classes():
    assert historical.AsyncioModelClient is AsyncioModelClient
    assert historical.FuturesModelClient is FuturesModelClient
    assert issubclass(AsyncioModelClient, historical.BaseModelClient)
