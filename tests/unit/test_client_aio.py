"""AsyncioModelClient as programs use it, on small servers and on scripted transports."""

import asyncio
import gc
import sys
import threading

import numpy as np
import pytest
import tritonclient.grpc.aio
import tritonclient.http.aio

from pytriton.client import AsyncioModelClient, FuturesModelClient, ModelClient
from pytriton.client import client as historical
from pytriton.client.aio_drive import drive_async
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
from pytriton.client.model_state import ModelState
from pytriton.client.utils import create_client_from_url
from pytriton.exceptions import PyTritonModelConfigError
from pytriton.model_config.parser import ModelConfigParser
from tests.unit.loopback import CONFIG, ModelServer, listening, serving, unused_address
from tests.unit.loops import in_loop, until
from tests.unit.scripted import config, echo, infer, session

X = np.arange(6, dtype=np.float32).reshape(3, 2)
READY, CONFIGURED, INFERRED = "/v2/models/m/ready", "/v2/models/m/config", "/v2/models/m/infer"


@pytest.fixture
def server():
    with serving(ModelServer()) as server:
        yield server


def paths(server):
    return [path for path, _ in server.requests]


class Script:
    """A transport that answers by method; answers may be errors or coroutine functions of the call."""

    def __init__(self, **by_method):
        self.by_method, self.methods, self.naps = by_method, [], []

    async def call(self, call):
        self.methods.append(call.method)
        await asyncio.sleep(0)
        answer = self.by_method[call.method]
        if isinstance(answer, BaseException):
            raise answer
        return await answer(call) if callable(answer) else answer

    async def sleep(self, seconds):
        self.naps.append(seconds)
        await asyncio.sleep(0)

    async def close(self):
        pass


async def echoes(call):
    return echo(call)


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
    client = AsyncioModelClient(server.url, "other", lazy_init=False, init_timeout_s=0.5)
    with pytest.raises(PyTritonClientModelUnavailableError, match="'other'"):
        await client.__aenter__()
    with pytest.raises(PyTritonClientClosedError):
        await client.wait_for_model(1)


@in_loop
async def test_waiting_is_bounded_by_its_own_timeout():
    async with AsyncioModelClient(unused_address(), "m", init_timeout_s=300) as client:
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
    known = ModelConfigParser.from_dict(CONFIG)
    async with AsyncioModelClient(server.url, "m", model_config=known, ensure_model_is_ready=False) as stranger:
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
async def test_closed_client_refuses_everything_and_closes_again(server):
    client = AsyncioModelClient(server.url, "m")
    await client.infer_sample(X[0])
    await client.close()
    await client.close()
    for use in (
        client.infer_sample(X[0]),
        client.infer_batch(X),
        client.wait_for_model(1),
        client.wait_for_server(1),
        client.model_config,
        client.is_batching_supported,
        client.load_model(),
        client.unload_model(),
    ):
        with pytest.raises(PyTritonClientClosedError):
            await use


@pytest.mark.parametrize("scheme", ["http", "grpc"])
@pytest.mark.parametrize("known", [True, False])
@in_loop
async def test_closing_ends_calls_under_way(scheme, known):
    asked = threading.Event()
    settings = {"model_config": ModelConfigParser.from_dict(CONFIG), "ensure_model_is_ready": False} if known else {}
    with listening(lambda connection, stopped: asked.set()) as address:
        client = AsyncioModelClient(f"{scheme}://{address}", "m", **settings)
        calls = [asyncio.create_task(client.infer_sample(X[0])) for _ in range(3)]
        await until(asked.is_set)
        await client.close()
        for call in calls:
            with pytest.raises(PyTritonClientClosedError, match="closed before"):
                await call


@in_loop
async def test_closing_ends_a_wait_for_a_server_that_is_not_there():
    client = AsyncioModelClient(unused_address(), "m")
    call = asyncio.create_task(client.infer_sample(X[0]))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(PyTritonClientClosedError):
        await call


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 does not tell how often a task was cancelled")
@in_loop
async def test_task_that_is_cancelled_while_the_client_closes_is_cancelled():
    asked = threading.Event()
    with listening(lambda connection, stopped: asked.set()) as address:
        client = AsyncioModelClient(address, "m")
        call = asyncio.create_task(client.infer_sample(X[0]))
        await until(asked.is_set)
        call.cancel()
        await client.close()
        with pytest.raises(asyncio.CancelledError):
            await call


@in_loop
async def test_cancelled_call_leaves_the_client_usable(server):
    async with AsyncioModelClient(server.url, "m") as client:
        call = asyncio.create_task(client.infer_sample(X[0]))
        await until(lambda: server.requests)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        np.testing.assert_array_equal((await client.infer_sample(X[0]))["x"], X[0])


@in_loop
async def test_cancelling_one_waiter_does_not_fail_the_others():
    ready = asyncio.Event()

    async def becomes_ready(call):
        await ready.wait()
        return True

    transport = Script(is_model_ready=becomes_ready, get_model_config=CONFIG, infer=echoes)
    model = session()
    calls = [asyncio.create_task(drive_async(infer(model, X[i]), transport)) for i in range(3)]
    await until(lambda: transport.methods)
    calls[0].cancel()
    ready.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    np.testing.assert_array_equal([answer["x"] for answer in answers[1:]], X[1:])
    assert transport.methods == ["is_model_ready", "get_model_config", "infer", "infer"]


@in_loop
async def test_preparation_that_nobody_waits_for_any_more_is_cancelled_and_done_anew_later():
    given_up = []

    async def never(call):
        try:
            await asyncio.Event().wait()
        finally:
            given_up.append(call)

    transport = Script(is_model_ready=never, get_model_config=CONFIG, infer=echoes)
    model = session()
    calls = [asyncio.create_task(drive_async(infer(model, X[0]), transport)) for _ in range(2)]
    await until(lambda: transport.methods)
    calls[0].cancel()
    await asyncio.wait(calls[:1])
    assert given_up == []
    calls[1].cancel()
    transport.by_method["is_model_ready"] = True
    await asyncio.create_task(drive_async(infer(model, X[0]), transport))  # comes before the end of the other one
    assert len(given_up) == 1


@in_loop
async def test_failed_preparation_fails_all_who_wait_and_is_tried_again_by_the_next_call():
    refused = PyTritonClientInferenceServerError("refused")
    transport = Script(is_model_ready=True, get_model_config=refused, infer=echoes)
    model = session()
    errors = await asyncio.gather(
        *(drive_async(infer(model, X[0]), transport) for _ in range(3)), return_exceptions=True
    )
    assert errors == [refused] * 3
    assert transport.methods == ["is_model_ready", "get_model_config"]
    transport.by_method["get_model_config"] = CONFIG
    await drive_async(infer(model, X[0]), transport)
    assert transport.methods[2:] == ["get_model_config", "infer"]


@in_loop
async def test_configuration_that_cannot_be_understood_reaches_all_who_wait():
    transport = Script(is_model_ready=True, get_model_config={"name": "m", "parameters": 1})
    model = session()
    errors = await asyncio.gather(
        *(drive_async(model.model_config(), transport) for _ in range(3)), return_exceptions=True
    )
    assert {type(error) for error in errors} == {PyTritonModelConfigError}


@in_loop
async def test_flow_that_is_given_up_is_closed():
    ended = []

    def flow():
        try:
            yield from infer(session(config(), True), X[0])
        finally:
            ended.append(True)

    async def never(call):
        await asyncio.Event().wait()

    running = asyncio.create_task(drive_async(flow(), Script(infer=never)))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert ended == [True]


def test_client_may_be_made_in_a_thread_and_used_in_several_loops(server):
    made = []
    thread = threading.Thread(target=lambda: made.append(AsyncioModelClient(server.url, "m")))
    thread.start()
    thread.join()
    (client,) = made
    for _ in range(3):
        in_loop(lambda: client.infer_sample(X[0]))()
    in_loop(client.close)()
    assert paths(server) == [READY, CONFIGURED] + [INFERRED] * 3


def test_loop_that_ends_with_calls_under_way_ends_them():
    asked = threading.Event()

    async def leave(client):
        call = asyncio.create_task(client.infer_sample(X[0]))
        await until(asked.is_set)
        return call

    with listening(lambda connection, stopped: asked.set()) as address:
        client = AsyncioModelClient(address, "m")
        call = asyncio.run(leave(client))
        assert call.cancelled()
        in_loop(client.close)()


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
            await asyncio_wait_for_model_ready(client, "other", timeout_s=0.5, headers=headers)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio_wait_for_model_status_loaded(client, "other", 0.01, headers=headers), 0.1)


@in_loop
async def test_waiting_functions_outlast_a_server_that_is_not_there_yet():
    address = unused_address()
    async with tritonclient.http.aio.InferenceServerClient(address) as client:
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


@in_loop
async def test_clients_that_are_not_closed_leave_no_complaint(server):
    await AsyncioModelClient(server.url, "m").infer_sample(X[0])
    gc.collect()
