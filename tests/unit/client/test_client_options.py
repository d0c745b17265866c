"""Options of requests: which are allowed, what they become, and the views of a client that carry them."""

import dataclasses
import math

import numpy as np
import pytest

from pytriton.client import ModelClient
from pytriton.client.arguments import DEFAULT_OPTIONS, RequestOptions
from pytriton.client.auth import Tls
from pytriton.client.exceptions import PyTritonClientClosedError, PyTritonClientValueError
from pytriton.client.sync import drive
from tests.unit.scripted import Result, Script, config, infer, session

X = np.ones(2, np.float32)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[(name, value) for name in ("priority", "retries") for value in (-1, 1.5, "1", None, True, 2**31)],
        *[(name, value) for name in ("server_timeout_s", "inference_timeout_s") for value in (0, -1, "soon", math.nan)],
        ("server_timeout_s", math.inf),
        ("server_timeout_s", 1e13),
        ("request_id", ""),
        ("request_id", 7),
        ("request_id", "\ud800"),
        ("compression", "zip"),
        ("compression", ""),
        ("split_batches", 1),
        *[("sequence_id", value) for value in (0, -1, 1.5, "", "\ud800", True, 2**63)],
        *[("sequence_id", {name: True}) for name in ("sequence_start", "sequence_end")],
    ],
)
def test_option_out_of_its_range_is_refused_by_name(name, value):
    with pytest.raises(PyTritonClientValueError, match=name):
        RequestOptions(**(value if isinstance(value, dict) else {name: value}))


def test_options_cannot_be_changed_or_given_by_position():
    with pytest.raises(dataclasses.FrozenInstanceError):
        DEFAULT_OPTIONS.priority = 1
    with pytest.raises(TypeError):
        RequestOptions(1)


def test_numbers_are_kept_as_the_libraries_need_them():
    options = RequestOptions(priority=np.int64(2), retries=np.uint8(1), server_timeout_s="0.5", inference_timeout_s=3)
    assert options == RequestOptions(priority=2, retries=1, server_timeout_s=0.5, inference_timeout_s=3.0)
    assert [type(value) for value in (options.priority, options.retries, options.server_timeout_s)] == [int, int, float]


@pytest.mark.parametrize(("timeout_s", "microseconds"), [(1.5, 1_500_000), (1e-6, 1), (1e-9, 1)])
def test_server_timeout_is_counted_in_microseconds_and_never_turned_off_by_rounding(timeout_s, microseconds):
    assert RequestOptions(server_timeout_s=timeout_s).arguments()["timeout"] == microseconds


def call_with(**options):
    server = Script(Result())
    drive(infer(session(config(), True, inference_timeout_s=9), X, options=RequestOptions(**options)), server)
    (call,) = server.calls
    return call


def test_request_without_options_has_none_of_their_arguments():
    call = call_with()
    assert {*call.arguments} == {"model_name", "model_version", "inputs", "outputs", "parameters", "request_id"}
    assert (call.arguments["request_id"], call.timeout_s, call.compression) == ("0", 9, None)


def test_options_become_arguments_of_the_call():
    call = call_with(
        priority=2, server_timeout_s=0.25, request_id="mine", compression="gzip", inference_timeout_s=3, retries=1
    )
    assert {name: call.arguments[name] for name in ("priority", "timeout", "request_id")} == {
        "priority": 2,
        "timeout": 250_000,
        "request_id": "mine",
    }
    assert (call.timeout_s, call.compression) == (3, "gzip")


@pytest.fixture(params=["http://localhost", "grpc://localhost"])
def client(request):
    with ModelClient(request.param, "m", access_token="secret") as client:
        yield client


def test_view_has_other_options_and_the_same_connection_and_session(client):
    view = client.with_options(priority=1)
    assert type(view) is ModelClient
    assert (view._session, view._transport) == (client._session, client._transport)
    assert (view._options, client._options) == (RequestOptions(priority=1), DEFAULT_OPTIONS)


def test_view_of_a_view_builds_on_its_options(client):
    view = client.with_options(priority=1, retries=2).with_options(retries=3)
    assert view._options == RequestOptions(priority=1, retries=3)


@pytest.mark.parametrize("closes", ["client", "view"])
def test_closing_client_or_view_closes_both(client, closes):
    view = client.with_options(priority=1)
    (client if closes == "client" else view).close()
    for either in (client, view):
        with pytest.raises(PyTritonClientClosedError):
            either.infer_sample(X)


def test_wrong_and_unknown_options_are_refused_when_the_view_is_made(client):
    with pytest.raises(PyTritonClientValueError, match="priority"):
        client.with_options(priority=-1)
    with pytest.raises(TypeError, match="prioritty"):
        client.with_options(prioritty=1)


def test_client_made_from_a_view_has_its_options_and_its_trust(tmp_path):
    tls = Tls()
    with (
        ModelClient("localhost", "m", tls=tls) as client,
        ModelClient.from_existing_client(client.with_options(retries=2)) as other,
    ):
        assert other._options == RequestOptions(retries=2)
        assert other._tls is tls
        assert other._transport is not client._transport
