"""Requests that ended the bundled server through its own HTTP endpoint, public with ``http_frontend="triton"``."""

from __future__ import annotations

import gzip
import http.client
import json
import zlib
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from pytriton.client import ModelClient
from tests.server.conftest import LOCALHOST, local_config
from tests.server.own_server import server_of, serving
from tests.server.proxies import native_part_only

pytestmark = [pytest.mark.either_proxy, pytest.mark.thorough, native_part_only]

COMPRESS = {"gzip": gzip.compress, "deflate": zlib.compress}
DEPTH = 24 << 20  # more than any stack bears
JSON = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,3],"data":[1,2,3]}]}'
BROKEN, BROKEN_BYTES = 100, 4 << 20


@pytest.fixture(scope="module")
def config():
    with local_config(http_frontend="triton") as config, serving(config):
        yield config


@pytest.fixture(autouse=True)
def survivor(config):
    """After each test the same process answers as before."""
    pid = server_of(config)
    yield
    with ModelClient(f"http://{LOCALHOST}:{config.http_port}", "m", init_timeout_s=60) as client:
        assert client.infer_sample(np.ones(3, np.float32))["y"].tolist() == [2, 2, 2]
    assert server_of(config) == pid


@pytest.fixture
def post(config):
    """``post(body, headers)``: status of the reply, and its body."""
    with closing(http.client.HTTPConnection(LOCALHOST, config.http_port, timeout=60)) as connection:

        def post(body, headers):
            connection.request("POST", "/v2/models/m/infer", body, headers)
            reply = connection.getresponse()
            return reply.status, reply.read()

        yield post


def request(size):
    head = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, size], "parameters": {"binary_data_size": 4 * size}}]
    }
    return json.dumps(head).encode()


@pytest.mark.parametrize("weight", ["1e999", "1e-999", "-1e999", "9" * 5000, "nan", "inf", "", "x"])
@pytest.mark.parametrize("form", ["gzip;q={}", "deflate;q=0.5,gzip;q={}", "identity;q={}", "*;q={}"])
def test_any_weight_of_an_encoding_is_read(post, form, weight):
    head = request(3)
    headers = {"Accept-Encoding": form.format(weight), "Inference-Header-Content-Length": str(len(head))}
    assert post(head + np.ones(3, np.float32).tobytes(), headers)[0] == 200


@pytest.mark.parametrize("encoding", COMPRESS)
@pytest.mark.parametrize("text", [b"[", b'{"a":'])
def test_deeply_nested_json_is_refused_while_it_is_inflated(post, encoding, text):
    status, reply = post(COMPRESS[encoding](text * (DEPTH // len(text)), 1), {"Content-Encoding": encoding})
    assert (status, b"failed to parse" in reply) == (500, True)


@pytest.mark.parametrize("encoding", COMPRESS)
def test_brackets_in_texts_and_tensors_are_no_nesting(post, encoding):
    head = request(1000)[:-1] + b', "id": "' + b'[{\\\\\\"' * 1000 + b'"}'
    headers = {"Content-Encoding": encoding, "Inference-Header-Content-Length": str(len(head))}
    status, reply = post(COMPRESS[encoding](head + b"[" * 4000), headers)
    assert (status, json.loads(reply)["outputs"][0]["shape"]) == (200, [1, 1000])


@pytest.mark.parametrize("encoding", COMPRESS)
def test_a_body_that_becomes_too_large_is_refused_before_it_is_inflated_whole(config, post, encoding):
    status, reply = post(COMPRESS[encoding](bytes(400 << 20), 1), {"Content-Encoding": encoding})
    assert (status, b"failed to parse" in reply) == (500, True)
    assert memory(config, "VmHWM") < 400 << 10


@pytest.mark.parametrize("encoding", COMPRESS)
@pytest.mark.parametrize("fault", ["broken", "incomplete", "no data"])
@pytest.mark.parametrize("is_json", [True, False])
def test_bodies_that_cannot_be_inflated_are_refused(post, encoding, fault, is_json):
    body = COMPRESS[encoding](JSON if is_json else np.random.default_rng(0).random(100_000, np.float32).tobytes())
    damaged = {"broken": body[:-20] + bytes(12) + body[-8:], "incomplete": body[:-12], "no data": b"\0" * 100}[fault]
    headers = {"Content-Encoding": encoding, **({} if is_json else {"Inference-Header-Content-Length": "0"})}
    assert post(body, headers)[0] == 200
    status, reply = post(damaged, headers)
    assert status in (400, 500)
    assert b"failed to parse" in reply if is_json else b"the compressed body is broken" in reply


@pytest.mark.parametrize("encoding", COMPRESS)
def test_bodies_that_are_refused_leave_no_memory(config, post, encoding):
    broken = COMPRESS[encoding](bytes(BROKEN_BYTES))[:-4]
    for is_warm in (False, True):
        before = memory(config, "VmRSS")
        for _ in range(BROKEN):
            assert post(broken + bytes(20), {"Content-Encoding": encoding})[0] == 500
        if is_warm:
            assert (memory(config, "VmRSS") - before) << 10 < BROKEN * BROKEN_BYTES // 10


def memory(config, name):
    """A figure of the server's memory, in KiB."""
    lines = Path(f"/proc/{server_of(config)}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))
