"""What clients of a server that is ready do about a model that it does not have."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from pytriton.client import (
    AsyncioDecoupledModelClient,
    AsyncioModelClient,
    DecoupledModelClient,
    FuturesModelClient,
    ModelClient,
)
from pytriton.client.exceptions import PyTritonClientModelUnavailableError, PyTritonClientTimeoutError
from pytriton.triton import TritonSecurityConfig
from tests.server.conftest import local_config
from tests.server.other_server import TOKEN
from tests.server.own_server import TENSORS, address, double, serving
from tests.server.processes import DEADLINE_S

pytestmark = pytest.mark.either_proxy

X = np.ones(2, np.float32)


def sync(url, **options):
    with ModelClient(url, "n", **options) as client:
        client.infer_sample(X)


def eager(url, **options):
    ModelClient(url, "n", lazy_init=False, **options)


def futures(url, **options):
    with FuturesModelClient(url, "n", **options) as client:
        client.infer_sample(X).result(DEADLINE_S)


def decoupled(url, **options):
    with DecoupledModelClient(url, "n", **options) as client:
        list(client.infer_sample(X))


def asyncio_client(url, **options):
    async def use():
        async with AsyncioModelClient(url, "n", **options) as client:
            await client.infer_sample(X)

    asyncio.run(use())


def asyncio_decoupled(url, **options):
    async def use():
        async with AsyncioDecoupledModelClient(url, "n", **options) as client:
            await anext(client.infer_sample(X))

    asyncio.run(use())


def all_at_once(config, **options):
    """The error of each kind of client, over each protocol that it speaks."""
    calls = [(use, protocol) for use in (sync, eager, futures, asyncio_client) for protocol in ("http", "grpc")]
    calls += [(decoupled, "grpc"), (asyncio_decoupled, "grpc")]
    with ThreadPoolExecutor(len(calls)) as pool:
        uses = [pool.submit(use, address(config, protocol), **options) for use, protocol in calls]
        return [use.exception(DEADLINE_S) for use in uses]


def test_the_first_use_of_a_model_that_is_not_there_fails_long_before_the_init_timeout(free_config):
    with serving(free_config, security_config=TritonSecurityConfig(TOKEN)):
        errors = all_at_once(free_config)
    assert {type(error) for error in errors} == {PyTritonClientModelUnavailableError}
    assert {"unknown model: 'n' is not found. To wait for a model" in str(error) for error in errors} == {True}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("edge", ["native", "triton"])
def test_whoever_may_call_models_is_told_the_name_that_was_meant(protocol, edge):
    with local_config(http_frontend=edge) as config, serving(config) as triton:
        triton.bind("sentiment", double, *TENSORS)
        for question in (True, False):
            with (
                ModelClient(address(config, protocol), "sentimnt") as client,
                pytest.raises(PyTritonClientModelUnavailableError) as caught,
            ):
                client.infer_sample(X)
            assert ("did you mean 'sentiment'?" in str(caught.value)) == question
            if question:
                triton.unbind("sentiment")


def test_an_inference_request_for_a_mistyped_name_tells_the_one_that_was_meant_unless_calls_need_the_token(free_config):
    body = {"inputs": []}
    for endpoints in ([], ["inference"]):
        security = TritonSecurityConfig(TOKEN, endpoints)
        with serving(free_config, security_config=security) as triton, httpx.Client(trust_env=False) as http:
            triton.bind("sentiment", double, *TENSORS)
            base = f"{address(free_config, 'http')}/v2/models/sentimnt"
            token = {"triton-access-token": TOKEN}
            answers = [http.post(f"{base}/infer", json=body, headers=token)]
            answers += [http.get(f"{base}{path}") for path in ("", "/config", "/ready")]
            assert {each.status_code for each in answers} <= {400, 404}
            assert {"did you mean 'sentiment'?" in each.text for each in answers} == {not endpoints}


def test_a_client_with_the_token_says_which_model_may_be_meant(free_config):
    with serving(free_config, security_config=TritonSecurityConfig(TOKEN)) as triton:
        triton.bind("nn", double, *TENSORS)
        errors = all_at_once(free_config, access_token=TOKEN)
    assert {type(error) for error in errors} == {PyTritonClientModelUnavailableError}
    assert {"did you mean 'nn'? The server has 'm', 'nn'" in str(error) for error in errors} == {True}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_waiting_for_a_model_lasts_until_it_is_bound(free_config, protocol):
    with serving(free_config) as triton, ModelClient(address(free_config, protocol), "late") as client:
        with pytest.raises(PyTritonClientTimeoutError, match=r"within 0\.3 s"):
            client.wait_for_model(0.3)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(client.wait_for_model, DEADLINE_S)
            triton.bind("late", double, *TENSORS)
            waiting.result(DEADLINE_S)
        assert client.infer_sample(X)["y"].tolist() == [2, 2]


def test_a_client_that_has_seen_its_server_start_waits_for_models_that_come_later(free_config):
    url = address(free_config, "http")
    with ModelClient(url, "late") as client, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.infer_sample, X)
        with serving(free_config) as triton:
            with pytest.raises(PyTritonClientModelUnavailableError):
                ModelClient(url, "late", lazy_init=False)  # which has not seen it
            triton.bind("late", double, *TENSORS)
            assert answer.result(DEADLINE_S)["y"].tolist() == [2, 2]
