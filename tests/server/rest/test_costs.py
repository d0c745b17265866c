"""How much memory the app takes for each byte of a request, on each route and in each encoding."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest

from pytriton.decorators import batch
from pytriton.llm import ChatModel, ChatRequest, CompletionModel, CompletionRequest, EmbeddingModel
from pytriton.model_config import ModelConfig, Tensor
from pytriton.rest import RestConfig
from pytriton.triton import Triton
from tests.server.conftest import local_config
from tests.server.processes import DEADLINE_S
from tests.server.rest.apps import app_config, app_processes, url_of

pytestmark = [pytest.mark.either_proxy, pytest.mark.thorough]

MIB = 2**20
MEMORY_BYTES = 512 * MIB  # what the default is where 2 GiB are available
SLACK_BYTES = 24 * MIB  # of what does not grow with the body: memory that the allocator keeps, and threads
KEPT_BYTES = 128 * MIB  # free memory that the app's allocator keeps, see SETTINGS in pytriton/rest/launched_app.py
MOST_ANSWER_BYTES = 16 * 1024
RESET_PEAK = "5"  # written to /proc/PID/clear_refs


@dataclass
class Point:
    x: float


def records(points: list[Point]) -> int:
    return len(points)


def shout(text: str) -> str:
    return text.upper()


def parrot(request: ChatRequest) -> str:
    return "a"


def continued(request: CompletionRequest) -> str:
    return "a"


def embed(texts: list[str]) -> np.ndarray:
    return np.zeros((len(texts), 2), np.float32)


@batch
def double(x: np.ndarray) -> dict[str, np.ndarray]:
    return {"y": x}


@pytest.fixture(scope="module")
def rest() -> Iterator[RestConfig]:
    """An app whose process sees every request: no edge is before it."""
    with (
        local_config(http_frontend="triton") as config,
        app_config(max_memory_bytes=MEMORY_BYTES) as rest,
        Triton(config=config, rest=rest) as triton,
    ):
        for function in (shout, records, ChatModel(parrot), CompletionModel(continued)):
            triton.bind(function)
        triton.bind(EmbeddingModel(embed), config=ModelConfig(max_batch_size=64))
        triton.bind("double", double, *([Tensor(name=name, dtype=np.float32, shape=(-1,))] for name in ("x", "y")))
        triton.run()
        yield rest


@pytest.fixture(scope="module")
def client(rest: RestConfig) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url_of(rest), timeout=DEADLINE_S, trust_env=False) as client:
        yield client


def peak_bytes(pid: int, name: str = "VmHWM") -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def listed(before: bytes, item: bytes, size: int, after: bytes) -> bytes:
    return before + b",".join([item] * (size // (len(item) + 1))) + after


CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
OPENAI = [
    (COMPLETIONS, b'{"model":"continued","prompt":['),
    (COMPLETIONS, b'{"model":"continued","prompt":"a","stop":['),
    (COMPLETIONS, b'{"model":"continued","prompt":"a","other":['),
    (COMPLETIONS, b'{"model":"continued","prompt":"a","logit_bias":['),
    (EMBEDDINGS, b'{"model":"embed","input":['),
    (CHAT, b'{"model":"parrot","messages":['),
    (CHAT, b'{"model":"parrot","messages":[{"role":"user","content":"a"}],"tools":['),
]
ITEMS = [b"{}", b"[]", b"[[]]", b'{"":0}', b"0", b'"a"', b"1e9"]


@pytest.mark.parametrize("encoding", ["identity", "gzip", "deflate"])
@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize(("path", "before"), OPENAI)
@pytest.mark.parametrize("size", [250_000, 4 * MIB])
def test_lists_of_openais_routes_take_a_bounded_multiple(rest, client, path, before, item, encoding, size):
    body = listed(before, item, size, b"]}")
    most = 64 if len(body) < MIB else 24  # times the body
    response, taken = cost(rest, client, path, body, encoding)
    assert response.status_code in (200, 400, 413), response.text[:1000]
    assert len(response.content) <= MOST_ANSWER_BYTES or response.status_code == 200
    assert taken <= most * len(body) + SLACK_BYTES


def cost(
    rest: RestConfig, client: httpx.Client, path: str, body: bytes, encoding: str, headers: dict[str, str] | None = None
) -> tuple[httpx.Response, int]:
    """The answer to a request, and how much memory the app's process took more than before."""
    (pid,) = app_processes(rest)
    Path(f"/proc/{pid}/clear_refs").write_text(RESET_PEAK)
    before = peak_bytes(pid, "VmRSS")
    content = {"identity": bytes, "gzip": gzip.compress, "deflate": zlib.compress}[encoding](body)
    response = client.post(path, content=content, headers={"Content-Encoding": encoding, **(headers or {})})
    assert app_processes(rest) == [pid]
    return response, peak_bytes(pid) - before


@pytest.mark.parametrize(("n", "size", "status"), [(128, 4 * MIB, 413), (2, 4 * MIB, 200), (128, 10_000, 200)])
def test_answers_to_one_request_do_not_multiply_its_body_beyond_the_bound(rest, client, n, size, status):
    body = json.dumps({"model": "parrot", "n": n, "messages": [{"role": "user", "content": "a" * size}]}).encode()
    response, taken = cost(rest, client, CHAT, body, "identity")
    assert response.status_code == status, response.text[:1000]
    if status == 413:
        assert "send a smaller n" in response.json()["error"]["message"]
        assert taken <= 4 * len(body) + SLACK_BYTES
    else:
        assert [each["index"] for each in response.json()["choices"]] == [*range(n)]
        assert taken <= 4 * n * len(body) + SLACK_BYTES


def test_each_of_several_prompts_is_sent_once(rest, client):
    body = json.dumps({"model": "continued", "prompt": ["a" * 40_000] * 100, "seed": 7, "other": {"b": [1]}}).encode()
    response, taken = cost(rest, client, COMPLETIONS, body, "identity")
    assert len(response.json()["choices"]) == 100
    assert taken <= 8 * len(body) + SLACK_BYTES


def multipart(name: bytes, content: bytes, media_type: bytes = b"") -> bytes:
    head = b'--b\r\nContent-Disposition: form-data; name="%b"\r\n%b\r\n' % (name, media_type)
    return head + content + b"\r\n--b--\r\n"


FORM = {"Content-Type": "multipart/form-data; boundary=b"}
OCTETS = {"Content-Type": "application/octet-stream"}
PREDICT = [
    ("/predict/shout", b'{"text":[', {}),
    ("/predict/shout", b'{"other":[', {}),
    ("/predict/records", b'{"points":[', {}),
    ("/predict/double", b'{"x":[', {}),
    ("/predict/double", b'{"x":[[', {}),
    ("/predict/shout", b'{"instances":[', {}),
    ("/predict/records", b'{"instances":[', {}),
    ("/v1/models/records:predict", b'{"instances":[', {}),
    ("/v1/models/double:predict", b'{"instances":[', {}),
]


@pytest.mark.parametrize("item", [*ITEMS, b'{"x":0}', b"123456789012345678901234567890"])
@pytest.mark.parametrize(("path", "before", "headers"), PREDICT)
@pytest.mark.parametrize(("size", "encoding"), [(8 * MIB, "gzip"), (MIB, "identity")])
def test_lists_of_predict_take_a_bounded_multiple(rest, client, path, before, headers, item, encoding, size):
    body = listed(before, item, size, b"]" * before.count(b"[") + b"}")
    response, taken = cost(rest, client, path, body, encoding, headers)
    assert response.status_code in (200, 400, 413, 422), response.text[:1000]
    assert len(response.content) <= MOST_ANSWER_BYTES or response.status_code == 200
    assert taken <= min(128 * len(body), MEMORY_BYTES) + SLACK_BYTES


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/predict/shout", multipart(b"text", b"a" * 8 * MIB), FORM),
        ("/predict/shout", multipart(b"text", listed(b"[", b"{}", 8 * MIB, b"]")), FORM),
        ("/predict/records", multipart(b"points", listed(b"[", b"{}", 8 * MIB, b"]")), FORM),
        ("/predict/records", multipart(b"points", listed(b"[", b'{"x":1}', MIB, b"]")), FORM),
        ("/predict/double", multipart(b"x", listed(b"[", b"[]", 8 * MIB, b"]")), FORM),
        ("/predict/double", multipart(b"x", bytes(8 * MIB), b"Content-Type: application/octet-stream\r\n"), FORM),
        ("/predict/shout", multipart(b"text", b"a", b"a:b\r\n" * MIB), FORM),
        ("/predict/shout", b"--b\r\n" * MIB, FORM),
        ("/predict/shout", multipart(b"text", b"\r\n-" * 2 * MIB), FORM),
        ("/predict/shout", multipart(b"text", b"a")[: -len(b"--b--\r\n")] * 200_000, FORM),
        ("/predict/double", bytes(8 * MIB), OCTETS),
        ("/predict/shout", b'{"text":' * MIB, {}),
        ("/predict/shout", b'{"text":"%b"}' % ("\U0001f600a".encode() * MIB), {}),
        ("/predict/shout", b'{"text":"%b"}' % (b"\\u00e9" * MIB), {}),
        ("/predict/shout", b'{"text":1%b}' % (b"0" * MIB), {}),
        ("/predict/shout", b'{"text":1e%b}' % (b"9" * MIB), {}),
        ("/predict/shout", b'{"%b":1}' % (b"n" * 8 * MIB), {}),
    ],
)
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_other_bodies_take_a_bounded_multiple(rest, client, path, body, headers, encoding):
    response, taken = cost(rest, client, path, body, encoding, headers)
    assert response.status_code in (200, 400, 413, 422), response.text[:1000]
    assert len(response.content) <= MOST_ANSWER_BYTES or response.status_code == 200
    assert taken <= min(128 * len(body), MEMORY_BYTES) + SLACK_BYTES


@pytest.mark.parametrize(
    ("path", "before", "item"),
    [
        ("/predict/records", b'{"points":[', b'{"x":0}'),
        ("/predict/records", b'{"points":[', b"{}"),
        ("/predict/shout", b'{"text":[', b"[]"),
        ("/predict/double", b'{"x":[', b"0"),
        (COMPLETIONS, b'{"model":"continued","prompt":[', b"{}"),
        (EMBEDDINGS, b'{"model":"embed","input":[', b'"a"'),
    ],
)
def test_many_large_compressed_bodies_at_once_take_no_more_than_the_account(rest, client, path, before, item):
    content = gzip.compress(listed(before, item, 40 * MIB, b"]}"))
    (pid,) = app_processes(rest)
    Path(f"/proc/{pid}/clear_refs").write_text(RESET_PEAK)
    used = peak_bytes(pid, "VmRSS")

    def post(_: int) -> int:
        return client.post(path, content=content, headers={"Content-Encoding": "gzip"}).status_code

    small = 0
    with ThreadPoolExecutor(8) as pool:
        large = [pool.submit(post, index) for index in range(8)]
        while not all(each.done() for each in large):
            assert client.post("/predict/shout", json={"text": "a"}).json() == {"result": "A"}
            small += 1
    assert {each.result() for each in large} <= {200, 400, 413, 422, 429, 503}
    assert small > len(large)
    assert app_processes(rest) == [pid]
    assert peak_bytes(pid) - used <= MEMORY_BYTES + KEPT_BYTES + 2 * SLACK_BYTES
