"""Arguments that would make another request of a request: they are refused, and nothing is sent."""

from __future__ import annotations

import asyncio

import pytest

from pytriton.client import (
    AsyncioDecoupledModelClient,
    AsyncioModelClient,
    DecoupledModelClient,
    FuturesModelClient,
    ModelClient,
)
from pytriton.client.conversations import Call
from pytriton.client.exceptions import PyTritonClientValueError
from pytriton.client.utils import get_model_state
from pytriton.compat.tensorrtserver.api import InferContext, InferenceServerException, ProtocolType
from pytriton.remote import RemoteServer
from pytriton.server.access import Access
from tests.unit.loopback import INFERRED, KNOWN, ModelServer, X, paths, serving, serving_grpc
from tests.unit.transports import SCHEMES, transport_to

OTHER_REQUEST = "1/ready HTTP/1.1\r\nHost: x\r\n\r\nPOST /v2/repository/models/other/unload"
BOTH_FORMS = [ModelClient, AsyncioModelClient, FuturesModelClient]
CLIENTS = [*BOTH_FORMS, DecoupledModelClient, AsyncioDecoupledModelClient]
VERSIONS = [OTHER_REQUEST, "1/../2", "latest", "-1", "+1", " 1", "1 ", "1\n", "\u0661", "1" * 20]
NAMES = ["m/versions/2", "../m", ".", "..", "a/b", "m\ud800"]
TOKENS = ["secret\r\nX-Other: x", "secret\n", "\x00", "žeton", "secret\x7f"]
RESERVED = [
    "Content-Length",
    "TRANSFER-ENCODING",
    "host",
    "Connection",
    "inference-header-content-length",
    "Content-Encoding",
    "accept-encoding",
    "Expect",
    "Upgrade",
    "TE",
    "Trailer",
    "Keep-Alive",
    "Proxy-Connection",
]
RESERVED_BY_GRPC = ["grpc-timeout", "GRPC-Encoding", "Content-Type", "data-bin", "a!b"]


@pytest.fixture
def server():
    with serving(ModelServer()) as server:
        yield server


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_that_is_no_number_is_refused_by_the_constructor(kind, version):
    with pytest.raises(PyTritonClientValueError, match="model_version must be a str of digits"):
        kind("grpc://localhost", "m", version)


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_none_of_a_model_is_refused_by_the_constructor(kind, name):
    with pytest.raises(PyTritonClientValueError, match="model_name"):
        kind("grpc://localhost", name)


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("token", TOKENS)
def test_a_token_that_no_header_carries_is_refused_by_the_constructor_and_not_told(kind, token):
    with pytest.raises(PyTritonClientValueError, match="access_token is not printable") as caught:
        kind("grpc://localhost", "m", access_token=token)
    assert token not in str(caught.value)


@pytest.mark.parametrize("name", ["model", "Größe 1", "名", "a.b", "..a", "%2f", "a?b#c"])
def test_a_name_beyond_ascii_is_quoted(server, name):
    with ModelClient(server.url, name, "3", **KNOWN) as client:
        client.infer_batch(X)
    (path,) = paths(server)
    assert path.isascii()
    assert path.count("/") == len(["", "v2", "models", "m", "versions", "3", "infer"]) - 1


def infer_with(kind, url, headers):
    """The inference's outcome, in whichever way the client gives it."""
    client = kind(url, "m", **KNOWN)
    if kind is AsyncioModelClient:

        async def run():
            async with client:
                return await client.infer_batch(X, headers=headers)

        return asyncio.run(run())
    with client:
        answer = client.infer_batch(X, headers=headers)
        return answer.result() if kind is FuturesModelClient else answer


@pytest.mark.parametrize("kind", BOTH_FORMS)
@pytest.mark.parametrize("name", RESERVED)
def test_a_header_that_the_client_writes_itself_is_refused_in_any_letter_case(server, kind, name):
    with pytest.raises(PyTritonClientValueError, match="reserved"):
        infer_with(kind, server.url, {name: "5"})
    assert not server.requests


@pytest.mark.parametrize("kind", BOTH_FORMS)
@pytest.mark.parametrize("name", [*RESERVED, *RESERVED_BY_GRPC])
def test_a_header_that_grpc_writes_itself_or_refuses_is_refused(kind, name):
    with serving_grpc() as server:
        with pytest.raises(PyTritonClientValueError, match=r"reserved|metadata"):
            infer_with(kind, f"grpc://{server.address}", {name: "5"})
        assert not server.metadata


def test_headers_that_mean_nothing_to_the_protocol_travel(server):
    headers = {"X-User": "ann", "Content-Type": "application/octet-stream", "traceparent": "00-1-1-01"}
    infer_with(ModelClient, server.url, headers)
    ((_, received),) = server.requests
    assert {name.lower(): value for name, value in headers.items()}.items() <= received.items()


def test_a_name_given_twice_in_different_letter_cases_is_refused(server):
    with pytest.raises(PyTritonClientValueError, match="twice"):
        infer_with(ModelClient, server.url, {"X-User": "ann", "x-user": "bob"})


def test_a_header_of_a_call_replaces_that_of_the_client_in_any_letter_case(server):
    server.token = "call's"
    with ModelClient(server.url, "m", access_token="client's", **KNOWN) as client:
        client.infer_batch(X, headers={"Triton-Access-Token": "call's"})
    assert len(server.requests) == 1


@SCHEMES
@pytest.mark.parametrize(("name", "version"), [("m", OTHER_REQUEST), ("a/b", "")])
def test_transports_check_names_and_versions_of_every_call(scheme, name, version):
    call = Call("is_model_ready", 5.0, {"model_name": name, "model_version": version})
    with serving(ModelServer()) as server, transport_to(server.url.partition("://")[2], scheme) as transport:
        with pytest.raises(PyTritonClientValueError, match="must be"):
            transport.call(call)
        assert not server.requests


def test_functions_on_a_bare_client_check_versions():
    with pytest.raises(PyTritonClientValueError, match="model_version"):
        get_model_state(None, "m", OTHER_REQUEST)


def test_contexts_of_v1_check_names(server):
    with pytest.raises(InferenceServerException, match="model_name must be"):
        InferContext(server.url, ProtocolType.HTTP, "m/../x")
    assert not server.requests


@pytest.mark.parametrize("headers", [{"X-A": "b\r\nX-C: d"}, {"Host": "other"}])
def test_contexts_of_v1_check_headers(server, headers):
    with pytest.raises(InferenceServerException, match="header"):
        InferContext(server.url, ProtocolType.HTTP, "m", headers=headers)
    assert not server.requests


def test_our_own_control_of_a_server_sends_no_more_than_one_request(server, tmp_path):
    control = RemoteServer(Access(server.url, {"triton-access-token": "a\r\nX: y"}), tmp_path)
    with pytest.raises(PyTritonClientValueError, match="cannot be sent"):
        control.is_model_ready("m")
    assert not server.requests


def test_a_remote_server_takes_no_token_that_no_header_carries():
    with pytest.raises(PyTritonClientValueError, match="access_token"):
        Access.to_other("localhost", "a\r\nX: y")


@pytest.mark.parametrize(
    "url",
    [
        "http://a b",
        "http://a\r\nX: y",
        "http://a\x00b",
        "http://user:word@a",
        "http://a/b c",
        "http://a/\r\nX: y",
        "http://a/é",
        "http://a/\u2028",
        "http://a..b",
        "http://" + "a" * 64 + ".example",
        "http://a\\b",
        "grpc://a\tb",
    ],
)
@pytest.mark.parametrize("kind", BOTH_FORMS)
def test_a_url_that_would_be_another_request_is_refused(kind, url):
    with pytest.raises(PyTritonClientValueError, match="is not of the form"):
        kind(url, "m")


def test_a_percent_encoded_base_path_is_sent_as_it_is(server):
    with ModelClient(f"{server.url}/b%C3%A9/a-b_c.d~e", "m", **KNOWN) as client:
        client.infer_batch(X)
    assert paths(server) == [f"/b%C3%A9/a-b_c.d~e{INFERRED}"]


@pytest.mark.parametrize("parameters", [{"a": "\ud800"}, {"\ud800": "a"}])
def test_parameters_beyond_utf_8_are_refused(server, parameters):
    with ModelClient(server.url, "m", **KNOWN) as client, pytest.raises(PyTritonClientValueError, match="UTF-8"):
        client.infer_batch(X, parameters=parameters)
    assert not server.requests
