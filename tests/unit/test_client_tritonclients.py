"""The members of tritonclient that are not public, and that this project uses: a new version may change them."""

from __future__ import annotations

import inspect
import json
from contextlib import closing

import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException, shared_memory

from pytriton.client.tritonclients import control_client, is_region, region_fields
from pytriton.client.url import TritonUrl

PATIENCE_S = 30.0


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("_get", ["self", "request_uri", "headers", "query_params"]),
        ("_post", ["self", "request_uri", "request_body", "headers", "query_params"]),
    ],
)
def test_the_http_client_sends_through_two_methods(name, parameters):
    method = getattr(tritonclient.http.InferenceServerClient, name)
    assert [*inspect.signature(method).parameters] == parameters


def test_a_control_client_works_without_the_members_that_the_constructor_of_its_base_sets(web):
    web.body = json.dumps([{"name": "m"}]).encode()
    with closing(control_client(TritonUrl.from_url(web.address), PATIENCE_S)) as client:
        assert client.is_server_live({"x-name": "value"}) is True
        assert client.get_model_repository_index(headers={}) == [{"name": "m"}]
        client.load_model("m", headers={}, config="{}", files={"file:a": b"a"})
        web.status, web.body = 400, b"<html>"
        with pytest.raises(InferenceServerException, match="status 400: <html>"):
            client.unload_model("m", headers={})
    assert web.requests[0][1]["x-name"] == "value"
    assert len(web.connections) == 1


def test_a_handle_of_shared_memory_tells_its_region():
    handle = shared_memory.create_shared_memory_region("region", "/pytriton-test-handle", 24)
    try:
        assert is_region(handle)
        assert region_fields(handle) == {"name": "region", "byte_size": 24, "key": "/pytriton-test-handle"}
    finally:
        shared_memory.destroy_shared_memory_region(handle)


def test_other_handles_are_told_apart():
    assert not is_region({"name": "region"})
    assert region_fields({"name": "region"}) is None
